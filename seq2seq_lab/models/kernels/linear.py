"""A linear layer with a faster float32 forward pass on CPUs if `out_features` is not a multiple of 8.

On an AMD EPYC, MKL's product of float32 matrices takes 1.5 times as long if the rows of the result do not start at multiples
of 32 bytes. The number of outputs of a readout is the size of the vocabulary, and usually not a multiple of 8. Here, the
rows of the result are padded to a multiple of 8 values. In bfloat16 the alignment makes no measurable difference.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from seq2seq_lab.models.kernels.recurrent import matrix_dtype

ALIGNMENT = 8  # float32 values, 32 bytes
MIN_ROWS = 32  # with fewer rows of the input, this is not faster


class Linear(nn.Linear):
    """`torch.nn.Linear` with a bias. The result may be non-contiguous."""

    def forward(self, input_BTF: Tensor) -> Tensor:
        """Return W x + b of each row, as torch does."""
        if not self._aligns(input_BTF):
            return super().forward(input_BTF)
        output_NV: Tensor = _AlignedProduct.apply(input_BTF.flatten(0, -2), self.weight, self.bias)  # type: ignore[no-untyped-call]
        return output_NV.view(*input_BTF.shape[:-1], -1)

    def _aligns(self, x: Tensor) -> bool:
        mkl: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
        float32_on_cpu = x.device.type == "cpu" and matrix_dtype(x) is torch.float32
        enough_rows = x.numel() >= MIN_ROWS * x.shape[-1]
        return mkl and float32_on_cpu and enough_rows and self.out_features % ALIGNMENT != 0


class _AlignedProduct(torch.autograd.Function):
    """x Wᵀ + b, with rows that start at multiples of `ALIGNMENT` values."""

    @staticmethod
    def forward(ctx: Any, x_NF: Tensor, weight_VF: Tensor, bias_V: Tensor) -> Tensor:
        ctx.save_for_backward(x_NF, weight_VF)
        count, size = len(x_NF), len(weight_VF)
        # Not a slice of a wider tensor: autograd does not allow to change such a view in place.
        output_NV = x_NF.new_empty_strided((count, size), (size + -size % ALIGNMENT, 1))
        return torch.addmm(bias_V, x_NF, weight_VF.t(), out=output_NV)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_NV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x_NF, weight_VF = ctx.saved_tensors
        return gradient_NV @ weight_VF, gradient_NV.t() @ x_NF, gradient_NV.sum(0)
