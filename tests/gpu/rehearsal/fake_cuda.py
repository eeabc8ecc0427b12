"""Tensors with the device `cuda` on a build of PyTorch without CUDA: a pytest plugin for a separate process.

FakeTensorMode computes shapes, types and devices, but no values. It refuses operations on tensors of two devices, and
operations whose result shape depends on values. It is private to PyTorch, so only this file imports it.
"""

import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

# The hooks have to be registered before PyTorch is imported.
ctypes.CDLL(os.environ["NO_OP_CUDA"])

import numpy as np  # noqa: E402
import numpy.typing as npt  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from torch._subclasses.fake_tensor import (  # noqa: E402
    FakeTensor,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from seq2seq_lab.data.tokenizers import EOS, PAD  # noqa: E402
from seq2seq_lab.runtime import device  # noqa: E402

aten = torch.ops.aten

GPU = torch.device("cuda", 0)
WORDS = 3  # in each translation that the host reads


class FakeGpu(TorchDispatchMode):
    """Keeps the tensors of the host real, counts the waits of the host, and replaces what FakeTensorMode lacks.

    Attributes:
        reads: number of calls of `to_host`.
        copies: number of copies between host and GPU for which the host waits: all but those from pinned memory with
            `non_blocking`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.copies = 0
        self._pinned: list[Tensor] = []

    @property
    def waits(self) -> int:
        return self.reads + self.copies

    def to_host(self, tensor: Tensor) -> npt.NDArray[Any]:
        """Return plausible values: a third of the sentences continues, each translation has a few words."""
        if not isinstance(tensor, FakeTensor):
            return tensor.detach().numpy()
        self.reads += 1
        if tensor.dtype is torch.bool:
            return np.arange(len(tensor)) < len(tensor) // 3
        if tensor.dtype is not torch.int64:
            return np.full(tensor.shape, 0.25, dtype=np.float32)
        if tensor.dim() == 0:
            return np.array(WORDS + 1)
        if tensor.dim() == 1:  # lengths
            return np.full(tensor.shape, WORDS)
        tokens = np.full(tensor.shape, PAD)
        tokens[..., :WORDS] = 5
        tokens[..., WORDS] = EOS
        return tokens

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        on_host = not any(isinstance(tensor, FakeTensor) for tensor in tensors)
        if func is aten._pin_memory.default:
            self._pinned = [args[0].clone()]
            return self._pinned[0]
        if on_host and torch.device(kwargs.get("device") or "cpu").type == "cpu":
            with unset_fake_temporarily():
                return func(*args, **kwargs)
        if func is aten._fused_sgd_.default:  # it has no implementation for FakeTensorMode
            return None
        if func is aten._pack_padded_sequence.default:
            return _packed(*args)
        if func is aten._to_copy.default:
            self._count(args[0], kwargs.get("device"), kwargs.get("non_blocking", False))
        if func is aten.copy_.default:
            self._count(args[1], args[0].device, len(args) > 2 and args[2])
        return func(*args, **kwargs)

    def _count(self, source: Tensor, to: torch.device | None, non_blocking: bool) -> None:
        if to is not None and to.type != source.device.type:
            pinned = any(source is tensor for tensor in self._pinned)
            self.copies += not (non_blocking and pinned)


def _packed(padded: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """Return the rows of a packed sequence and the number of sentences of each step."""
    assert not isinstance(lengths, FakeTensor), "the lengths have to be on the host"
    with unset_fake_temporarily():
        real = lengths.tolist()
        sizes = torch.tensor([sum(length > step for length in real) for step in range(real[0])])
    return padded.new_empty(sum(real), padded.shape[-1]), sizes


def _stand_in(torchs_own: Callable[..., Any], is_lstm: bool) -> Callable[..., Any]:
    """Return a replacement for one of PyTorch's recurrent layers on the GPU, where it would call cuDNN.

    It has cuDNN's requirements and types, and returns tensors of its shapes that have a gradient. The layers of the CPU
    build have no implementation for FakeTensorMode, or thousands of operations.
    """

    def layer(x: Tensor, *rest: Any) -> Any:
        if not isinstance(x, FakeTensor):
            return torchs_own(x, *rest)
        packed = not isinstance(rest[1], list)  # then the sizes of the steps come first
        start, weights, _bias, num_layers, _dropout, training, _directions, *_ = rest[packed:]
        states = list(start) if is_lstm else [start]
        if torch.is_autocast_enabled("cuda"):  # to float16, whatever the type of autocast is
            x, states, weights = x.half(), [s.half() for s in states], [w.half() for w in weights]
        assert {t.dtype for t in (*states, *weights)} == {x.dtype}, "cuDNN takes tensors of one type"
        assert {t.device for t in (*states, *weights)} == {x.device} == {GPU}
        assert all(state.is_contiguous() for state in states), "rnn: hx is not contiguous"
        assert training or not torch.is_grad_enabled(), (
            "cudnn RNN backward can only be called in training mode"
        )
        assert num_layers == 1
        with torch.autocast("cuda", enabled=False):
            outputs, *ends = compute(x, states, weights)
        # Time first in memory.
        return outputs if packed else outputs.transpose(0, 1).contiguous().transpose(0, 1), *ends

    def compute(x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor]) -> tuple[Tensor, ...]:
        size = states[0].shape[-1]
        ends = [
            [torch.addmm(state[d], state[d], w_hh[:size].t()) + (b_ih + b_hh)[:size] for state in states]
            for d, (_, w_hh, b_ih, b_hh) in enumerate(_in_fours(weights))
        ]
        read = [torch.matmul(x, w_ih[:size].t()) for w_ih, *_ in _in_fours(weights)]
        outputs = torch.cat([one + end[0].mean(0) for one, end in zip(read, ends, strict=True)], dim=-1)
        return outputs, *(torch.stack(of_directions) for of_directions in zip(*ends, strict=True))

    return layer


def _in_fours(weights: Sequence[Tensor]) -> list[Sequence[Tensor]]:
    return [weights[i : i + 4] for i in range(0, len(weights), 4)]


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpu]:
    """A GPU that computes nothing."""
    # The data of a real parameter cannot be a fake tensor.
    before = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    monkeypatch.setattr("torch.cuda.amp.common.amp_definitely_not_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    functions = torch.nn.modules.rnn._VF
    for name in ("rnn_tanh", "lstm", "gru"):
        monkeypatch.setattr(
            functions, name, _stand_in(getattr(functions, name), name == "lstm"), raising=False
        )
    fake, to_host = FakeGpu(), device.to_host
    for name, module in list(sys.modules.items()):
        if name.startswith("seq2seq_lab.") and getattr(module, "to_host", None) is to_host:
            monkeypatch.setattr(module, "to_host", fake.to_host)
    with FakeTensorMode(allow_non_fake_inputs=True), fake:
        yield fake
    torch.__future__.set_overwrite_module_params_on_conversion(before)
