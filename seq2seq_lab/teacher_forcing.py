"""Teacher forcing: which inputs the decoder reads in training, the reference's tokens or the model's own."""

from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor

from seq2seq_lab.data.batch import Batch
from seq2seq_lab.models.seq2seq import Seq2Seq

Scope = Literal["token", "step", "sequence", "batch"]

_MASK = (1 << 64) - 1
_GOLDEN, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def _signed(value: int) -> int:
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


def _mix(x: Tensor) -> Tensor:
    """Return the finaliser of splitmix64 (Steele et al. 2014) of int64 words, whose products wrap around."""
    for shift, factor in ((30, _MIX_1), (27, _MIX_2)):
        x = (x ^ ((x >> shift) & (_MASK >> shift))) * _signed(factor)
    return x ^ ((x >> 31) & (_MASK >> 31))


def uniform(seed: int, *counters: Tensor) -> Tensor:
    """Return float32 numbers in [0, 1) that depend on nothing but the seed and the counters, which broadcast.

    A number stays the same for any batch order, any number of ranks and any device.
    """
    x = torch.tensor(_signed(seed * _GOLDEN), device=counters[0].device)
    for counter in counters:
        x = _mix((x ^ counter) + _signed(_GOLDEN))
    return ((x >> 40) & (_MASK >> 40)).float() / (1 << 24)  # not every device has float64


class TeacherForcing(ABC):
    """The forcing ratio r over training, and what one throw of the coin decides.

    Args:
        ratio: r in [0, 1], the probability of reading the reference's token.
        scope: a coin is thrown per `token`, per time `step` of the whole batch, per `sequence` or per `batch`.

    Raises:
        ValueError: r lies outside [0, 1].
    """

    def __init__(self, ratio: float, scope: Scope) -> None:
        if not 0 <= ratio <= 1:
            raise ValueError(
                f"teacher_forcing.ratio={ratio} is no probability. Allowed: 0 (never the reference) to 1 (always)."
            )
        self.ratio = ratio
        self.scope = scope

    @abstractmethod
    def ratio_at(self, update: int) -> float:
        """Return r at an optimizer update, counted from 0."""

    def coins(self, batch: Batch, seed: int, epoch: int, update: int) -> Tensor | None:
        """Return coins_BT, true where the reference's token is read; None where all are.

        Token and sequence coins depend on (seed, epoch, sentence), step and batch coins on (seed, update).
        """
        ratio = self.ratio_at(update)
        if ratio >= 1:
            return None
        steps = batch.target_BU.shape[1] - 1
        index_B1 = batch.index_B[:, None]
        position_1T = torch.arange(steps, device=index_B1.device)[None]
        counters = {
            "token": (torch.tensor(epoch), index_B1, position_1T),
            "sequence": (torch.tensor(epoch), index_B1, torch.zeros_like(position_1T)),
            "step": (torch.tensor(update), torch.zeros_like(index_B1), position_1T),
            "batch": (torch.tensor(update), torch.zeros_like(index_B1), torch.zeros_like(position_1T)),
        }[self.scope]
        return uniform(seed, *(counter.to(index_B1.device) for counter in counters)) < ratio


class Constant(TeacherForcing):
    """The same ratio all through training."""

    def ratio_at(self, update: int) -> float:
        return self.ratio


@torch.no_grad()
def choose_inputs(model: Seq2Seq, batch: Batch, coins_BT: Tensor | None) -> Tensor:
    """Return inputs_BT: the reference's token where the coin says so, else the model's own arg-max.

    The model's choices are found by stepping without gradient (none flows through an arg-max), so that one
    `unroll` over these inputs is what a single pass with the same coins computes; with dropout on, this pass
    draws masks of its own. The first input is `<sos>` whatever the coin says.
    """
    reference_BT = batch.inputs_BT
    if coins_BT is None:
        return reference_BT
    state, source = model.start(batch.source_BS, batch.source_lengths)
    token_B = reference_BT[:, 0]
    inputs = [token_B]
    for t in range(1, reference_BT.shape[1]):
        log_probs_BV, state, _ = model.step(token_B, state, source)
        token_B = torch.where(coins_BT[:, t], reference_BT[:, t], log_probs_BV.argmax(-1))
        inputs.append(token_B)
    # Autocast keeps the weights it has cast; without gradient, torch before 2.10 keeps them without their graph.
    torch.clear_autocast_cache()
    return torch.stack(inputs, dim=1)
