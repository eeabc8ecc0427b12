"""The additive attention function."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from seq2seq_lab.config.type_checks import Count
from seq2seq_lab.models.attention.base import Attention

# Largest B·T·S·K of the sums computed at once: fits in a CPU's cache, or in the memory of a GPU.
CPU_SUMS, GPU_SUMS = 2**17, 2**27
STORED_SUMS = 2**17  # largest B·T·S·K of the sums that are stored for the backward pass


class AdditiveAttention(Attention):
    """score(h_j, s) = vᵀ tanh(W s + U h_j + b) (Bahdanau 2014, appendix A.1.2; "concat" in Luong 2015).

    Args:
        size: d_a, the size of W s and U h_j.
    """

    def __init__(self, query_size: int, encoder_output_size: int, size: Count) -> None:
        super().__init__(query_size, encoder_output_size)
        self.key = nn.Linear(encoder_output_size, size)
        self.query = nn.Linear(query_size, size, bias=False)
        self.energy = nn.Linear(size, 1, bias=False)

    def project(self, encoder_outputs_BSM: Tensor) -> Tensor:
        return _wide(self.key(encoder_outputs_BSM))

    def score(self, query_BTQ: Tensor, keys_BSK: Tensor) -> Tensor:
        query_BTK, v_K = self.query(query_BTQ), self.energy.weight[0]
        if query_BTK.numel() * keys_BSK.shape[1] <= STORED_SUMS:
            with torch.autocast(query_BTK.device.type, enabled=False):
                return _score(*map(_wide, (query_BTK, keys_BSK, v_K)))
        scores_BTS: Tensor = _Score.apply(query_BTK, keys_BSK, v_K)  # type: ignore[no-untyped-call]
        return scores_BTS


def _score(query_CTK: Tensor, keys_CSK: Tensor, v_K: Tensor) -> Tensor:
    """Return vᵀ tanh(q + k) for every query and key.

    tanh x is computed as 2 σ(2x) − 1, because σ takes a seventh of the time of tanh on a CPU.
    """
    return _sigmoid(query_CTK, keys_CSK) @ (v_K * 2) - v_K.sum()


class _Score(torch.autograd.Function):
    """`_score`, a few sentences at a time.

    The B·T·S·K sums are not stored: the backward pass recomputes them in the cache, which is faster than writing and
    reading many of them. Computes in float32 or wider, also under autocast.
    """

    @staticmethod
    def forward(ctx: Any, query_BTK: Tensor, keys_BSK: Tensor, v_K: Tensor) -> Tensor:
        ctx.save_for_backward(query_BTK, keys_BSK, v_K)
        query, keys, v = _wide(query_BTK), _wide(keys_BSK), _wide(v_K)
        scores_BTS = query.new_empty(*query.shape[:2], keys.shape[1])
        with torch.autocast(query.device.type, enabled=False):
            for rows in _sentences(query, keys):
                scores_BTS[rows] = _score(query[rows], keys[rows], v)
        return scores_BTS

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_BTS: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query_BTK, keys_BSK, v_K = ctx.saved_tensors
        query, keys, v = _wide(query_BTK), _wide(keys_BSK), _wide(v_K)
        grad_query, grad_keys, grad_v = torch.empty_like(query), torch.empty_like(keys), torch.zeros_like(v)
        slope_K = v * 4
        for rows in _sentences(query, keys):
            sigmoid_CTSK, gradient_CTS = _sigmoid(query[rows], keys[rows]), gradient_BTS[rows]
            grad_v += gradient_CTS.reshape(1, -1).mm(sigmoid_CTSK.view(-1, len(v)))[0]
            # d tanh x / dx = 4 σ(2x) (1 − σ(2x))
            inner_CTSK = sigmoid_CTSK.addcmul_(sigmoid_CTSK, sigmoid_CTSK, value=-1).mul_(
                gradient_CTS[..., None]
            )
            grad_query[rows] = inner_CTSK.sum(2).mul_(slope_K)
            grad_keys[rows] = inner_CTSK.sum(1).mul_(slope_K)
        grad_v = grad_v.mul_(2).sub_(gradient_BTS.sum())
        return grad_query.to(query_BTK.dtype), grad_keys.to(keys_BSK.dtype), grad_v.to(v_K.dtype)


def _wide(x: Tensor) -> Tensor:
    """Return x in float32 or wider."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _sigmoid(query_CTK: Tensor, keys_CSK: Tensor) -> Tensor:
    """Return σ(2 (q + k)) for every query and key."""
    return (query_CTK[:, :, None] + keys_CSK[:, None]).mul_(2).sigmoid_()


def _sentences(query_BTK: Tensor, keys_BSK: Tensor) -> list[slice]:
    """Return slices of the batch that are small enough to compute at once."""
    limit = CPU_SUMS if query_BTK.device.type == "cpu" else GPU_SUMS
    rows = max(1, limit // (query_BTK[0].numel() * keys_BSK.shape[1]))
    return [slice(start, start + rows) for start in range(0, len(query_BTK), rows)]
