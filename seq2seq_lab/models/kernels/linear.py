"""A linear layer of torch with a faster forward pass in float32 on a CPU for numbers of outputs such as 5,893.

On an AMD EPYC, MKL's product of float32 matrices takes 1.5 times as long if the rows of the result do not start at multiples
of 32 bytes. The number of outputs of a readout is the size of the vocabulary, and usually not a multiple of 8. Here, the
rows of the result have unused numbers at their ends. In bfloat16 the alignment makes no measurable difference.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from seq2seq_lab.models.kernels.recurrent import matrix_dtype

ROW = 8  # numbers in float32 between two places where a row may start
ROWS = 32  # of the input, from which this is faster


class Linear(nn.Linear):
    """`torch.nn.Linear` with a bias; the result is not contiguous if its rows have unused ends."""

    def forward(self, input_BTF: Tensor) -> Tensor:
        """Return W x + b of each row, as torch does."""
        if not self._aligns(input_BTF):
            return super().forward(input_BTF)
        output_NV: Tensor = _AlignedProduct.apply(input_BTF.flatten(0, -2), self.weight, self.bias)  # type: ignore[no-untyped-call]
        return output_NV.view(*input_BTF.shape[:-1], -1)

    def _aligns(self, x: Tensor) -> bool:
        mkl: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
        float32 = x.device.type == "cpu" and matrix_dtype(x) is torch.float32
        return mkl and float32 and self.out_features % ROW != 0 and x.numel() >= ROWS * x.shape[-1]


class _AlignedProduct(torch.autograd.Function):
    """x Wᵀ + b, with rows that start at multiples of `ROW` numbers."""

    @staticmethod
    def forward(ctx: Any, x_NF: Tensor, weight_VF: Tensor, bias_V: Tensor) -> Tensor:
        ctx.save_for_backward(x_NF, weight_VF)
        count, size = len(x_NF), len(weight_VF)
        output_NV = x_NF.new_empty(count, size + -size % ROW)[:, :size]
        return torch.addmm(bias_V, x_NF, weight_VF.t(), out=output_NV)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_NV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x_NF, weight_VF = ctx.saved_tensors
        return gradient_NV @ weight_VF, gradient_NV.t() @ x_NF, gradient_NV.sum(0)
