"""Cross-entropy in training, and the teacher-forced and the free-running loss of an evaluation."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from seq2seq_lab.data.batch import BatchOfTargets
from seq2seq_lab.data.tokenizers import PAD
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.dropout import has_dropout
from seq2seq_lab.models.seq2seq import EncodedModel, Seq2Seq

CACHED_LOGITS = 2**18  # logits computed at once on a CPU: 1 MiB in float32


def check_r_drop(r_drop: float, model: nn.Module) -> None:
    """Refuse R-Drop for a model without dropout: both readings of an example would be equal.

    Raises:
        UserError: names the keys and the remedy.
    """
    if r_drop and not has_dropout(model):
        raise UserError(
            f"task.r_drop={r_drop:g} has no effect on a model without dropout, which reads an example twice in the same "
            f"way. Set model.dropout to more than 0, or task.r_drop=0."
        )


def cross_entropy(logits_BTV: Tensor, outputs_BT: Tensor, label_smoothing: float) -> Tensor:
    """Return the cross-entropy in nats, summed over the real target tokens: a scalar, in float32 or wider.

    With label smoothing ε the target distribution is (1 − ε) one-hot + ε uniform (Szegedy 2016, §7).

    Args:
        logits_BTV: or log-probabilities, which `log_softmax` does not change; so are those of the other losses.
    """
    total: Tensor = _CrossEntropy.apply(logits_BTV.flatten(0, 1), outputs_BT.flatten(), label_smoothing)  # type: ignore[no-untyped-call]
    return total


class _CrossEntropy(torch.autograd.Function):
    """Cross-entropy that computes the gradient together with the loss, a few rows at a time.

    The rows stay in the CPU's cache and are computed in float32 or wider. Only the gradient has size N·V. The tests compare
    it with `functional.cross_entropy`.
    """

    @staticmethod
    def forward(ctx: Any, logits_NV: Tensor, outputs_N: Tensor, label_smoothing: float) -> Tensor:
        size, ctx.dtype = logits_NV.shape[1], logits_NV.dtype
        needs_gradient = ctx.needs_input_grad[0]
        gradient_NV = _empty_gradient(logits_NV) if needs_gradient else None
        dtype = torch.promote_types(logits_NV.dtype, torch.float32)
        total = torch.zeros((), dtype=dtype, device=logits_NV.device)
        for rows in _rows(logits_NV):
            outputs_C1 = outputs_N[rows, None]
            real_C1 = outputs_C1 != PAD
            log_probs_CV = logits_NV[rows].log_softmax(-1, dtype=dtype)
            loss_C1 = log_probs_CV.gather(1, outputs_C1) * (label_smoothing - 1)
            if label_smoothing:
                loss_C1 -= log_probs_CV.sum(-1, keepdim=True) * (label_smoothing / size)
            total += (loss_C1 * real_C1).sum()
            if gradient_NV is not None:
                probs_CV = log_probs_CV.exp_()
                if label_smoothing:
                    probs_CV -= label_smoothing / size
                probs_CV.scatter_add_(1, outputs_C1, torch.full_like(loss_C1, label_smoothing - 1))
                torch.mul(probs_CV, real_C1, out=gradient_NV[rows])
        if gradient_NV is not None:
            ctx.save_for_backward(gradient_NV)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (gradient_NV,) = ctx.saved_tensors
        return gradient_NV.mul_(gradient).to(ctx.dtype), None, None  # the gradient is used once


def symmetric_kl(logits_BTV: Tensor, other_BTV: Tensor, outputs_BT: Tensor) -> Tensor:
    """Return KL(p‖q) + KL(q‖p) in nats between two predictions, summed over the real target tokens: a scalar."""
    total: Tensor = _SymmetricKL.apply(
        logits_BTV.flatten(0, 1), other_BTV.flatten(0, 1), outputs_BT.flatten()
    )  # type: ignore[no-untyped-call]
    return total


class _SymmetricKL(torch.autograd.Function):
    """Σ (p − q)(log p − log q), computed with its gradients a few rows at a time; see `_CrossEntropy`."""

    @staticmethod
    def forward(ctx: Any, logits_NV: Tensor, other_NV: Tensor, outputs_N: Tensor) -> Tensor:
        gradients = (_empty_gradient(logits_NV), _empty_gradient(other_NV))
        ctx.dtype = logits_NV.dtype
        dtype = torch.promote_types(logits_NV.dtype, torch.float32)
        total = torch.zeros((), dtype=dtype, device=logits_NV.device)
        for rows in _rows(logits_NV):
            real_C1 = (outputs_N[rows] != PAD)[:, None]
            log_p_CV = logits_NV[rows].log_softmax(-1, dtype=dtype)
            log_q_CV = other_NV[rows].log_softmax(-1, dtype=dtype)
            p_CV, q_CV = log_p_CV.exp(), log_q_CV.exp()
            log_ratio_CV, difference_CV = log_p_CV.sub_(log_q_CV), p_CV - q_CV
            kl_pq_C1 = (p_CV * log_ratio_CV).sum(-1, keepdim=True)
            kl_qp_C1 = -(q_CV * log_ratio_CV).sum(-1, keepdim=True)
            total += ((kl_pq_C1 + kl_qp_C1) * real_C1).sum()
            gradients[0][rows] = p_CV.mul_(log_ratio_CV - kl_pq_C1).add_(difference_CV).mul_(real_C1)
            gradients[1][rows] = q_CV.mul_(-log_ratio_CV - kl_qp_C1).sub_(difference_CV).mul_(real_C1)
        ctx.save_for_backward(*gradients)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        to_logits_NV, to_other_NV = ctx.saved_tensors
        return to_logits_NV.mul_(gradient).to(ctx.dtype), to_other_NV.mul_(gradient).to(ctx.dtype), None


def _empty_gradient(logits_NV: Tensor) -> Tensor:
    """Return an uninitialized gradient; that of float16 logits is float32, because the loss is not scaled yet."""
    wide = torch.float32 if logits_NV.dtype == torch.float16 else logits_NV.dtype
    return torch.empty_like(logits_NV, dtype=wide)


def _rows(logits_NV: Tensor) -> list[slice]:
    """Return slices of rows whose logits fit in the cache of a CPU."""
    count, size = logits_NV.shape
    rows = max(1, CACHED_LOGITS // size) if logits_NV.device.type == "cpu" else max(1, count)
    return [slice(start, start + rows) for start in range(0, count, rows)]


def token_losses(logits_BTV: Tensor, outputs_BT: Tensor) -> Tensor:
    """Return the cross-entropy in nats of each target token, without gradient.

    Returns:
        loss_BT, in float32 or wider; 0 for padding.
    """
    logits_NV, outputs_N = logits_BTV.flatten(0, 1), outputs_BT.flatten()
    dtype = torch.promote_types(logits_NV.dtype, torch.float32)
    loss_N = torch.empty(len(outputs_N), dtype=dtype, device=logits_NV.device)
    for rows in _rows(logits_NV):
        loss_N[rows] = functional.cross_entropy(
            logits_NV[rows].to(dtype), outputs_N[rows], ignore_index=PAD, reduction="none"
        )
    return loss_N.view_as(outputs_BT)


def teacher_forced(
    model: Seq2Seq | EncodedModel, batch: BatchOfTargets, with_weights: bool = True
) -> tuple[Tensor, Tensor | None]:
    """Return the `token_losses` with the reference as input, and the attention weights_BTS or None."""
    logits_BTV, weights_BTS = model(batch, batch.inputs_BT, with_weights)
    return token_losses(logits_BTV, batch.outputs_BT), weights_BTS


def free_running(model: Seq2Seq | EncodedModel, batch: BatchOfTargets) -> Tensor:
    """Return the cross-entropy in nats of each target token with the model's arg-max as input: loss_BT; 0 for padding.

    The number of steps is that of the reference's tokens; predicting `<eos>` does not end it.
    """
    state, source = model.start(batch)
    token_B = batch.inputs_BT[:, 0]
    losses = []
    for output_B in batch.outputs_BT.unbind(1):
        log_probs_BV, state, _ = model.step(token_B, state, source, False)
        losses.append(functional.nll_loss(log_probs_BV, output_B, ignore_index=PAD, reduction="none"))
        token_B = log_probs_BV.argmax(-1)
    return torch.stack(losses, 1)
