"""Teacher forcing: which inputs the decoder reads in training, the reference's tokens or the model's own."""

import math
from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor
from torch.profiler import record_function

from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.tokenizers import EOS, PAD
from seq2seq_lab.models.selectable import Selectable
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.models.source import Source
from seq2seq_lab.runtime.counter_rng import uniform

Scope = Literal["token", "step", "sequence", "batch"]


class TeacherForcing(ABC):
    """The forcing ratio r over training, and what one throw of the coin decides.

    r in [0, 1] is the probability of reading the reference's token.

    Args:
        scope: a coin is thrown per `token`, per time `step` of the whole batch, per `sequence` or per `batch`.
    """

    def __init__(self, scope: Scope) -> None:
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
        no_index_B1, no_position_1T = torch.zeros_like(index_B1), torch.zeros_like(position_1T)
        counters = {
            "token": (epoch, index_B1, position_1T),
            "sequence": (epoch, index_B1, no_position_1T),
            "step": (update, no_index_B1, position_1T),
            "batch": (update, no_index_B1, no_position_1T),
        }[self.scope]
        return uniform(seed, *counters) < ratio


class Constant(TeacherForcing):
    """The same ratio all through training.

    Raises:
        ValueError: the ratio lies outside [0, 1].
    """

    def __init__(self, ratio: float, scope: Scope) -> None:
        super().__init__(scope)
        self.ratio = _probability("ratio", ratio)

    def ratio_at(self, update: int) -> float:
        return self.ratio


class Linear(TeacherForcing):
    """r_i = max(ε, k - c i) at update i (Bengio 2015, §2.4).

    Args:
        start: k, the ratio at update 0.
        end: ε, the ratio from update `updates` on, hence c = (k - ε) / updates.

    Raises:
        ValueError: a ratio lies outside [0, 1], `end` lies above `start`, or `updates` below 1.
    """

    def __init__(self, start: float, end: float, updates: int, scope: Scope) -> None:
        super().__init__(scope)
        self.start = _probability("start", start)
        self.end = _probability("end", end)
        self.updates = _update("updates", updates)
        if end > start:
            raise ValueError(
                f"teacher_forcing.end={end} lies above teacher_forcing.start={start}, but the ratio falls. "
                f"Allowed: 0 to {start}."
            )

    def ratio_at(self, update: int) -> float:
        return max(self.end, self.start - (self.start - self.end) * update / self.updates)


class Exponential(TeacherForcing):
    """r_i = k^i at update i (Bengio 2015, §2.4).

    Args:
        half_at: the update at which r is a half, hence k = 2^(-1 / half_at).

    Raises:
        ValueError: `half_at` lies below 1.
    """

    def __init__(self, half_at: int, scope: Scope) -> None:
        super().__init__(scope)
        self.half_at = _update("half_at", half_at)

    def ratio_at(self, update: int) -> float:
        return math.exp2(-update / self.half_at)


class InverseSigmoid(TeacherForcing):
    """r_i = k / (k + exp(i / k)) at update i (Bengio 2015, §2.4).

    Args:
        half_at: the update at which r is a half, hence k ln k = half_at.

    Raises:
        ValueError: `half_at` lies below 1.
    """

    def __init__(self, half_at: int, scope: Scope) -> None:
        super().__init__(scope)
        self.half_at = _update("half_at", half_at)
        self.k = 1.0 + half_at
        for _ in range(10):  # Newton's method on k ln k - half_at, convex: from above it converges in 5 steps
            self.k = (half_at + self.k) / (1 + math.log(self.k))

    def ratio_at(self, update: int) -> float:
        decayed = self.k * math.exp(-update / self.k)  # exp(i / k) itself would overflow
        return decayed / (decayed + 1)


def _probability(key: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise ValueError(
            f"teacher_forcing.{key}={value} is no probability. Allowed: 0 (never the reference) to 1 (always)."
        )
    return value


def _update(key: str, value: int) -> int:
    if value < 1:
        raise ValueError(f"teacher_forcing.{key}={value} is no number of updates. Allowed: 1 or more.")
    return value


@torch.no_grad()
@record_function("choose inputs")
def choose_inputs(
    model: Seq2Seq, state: Selectable, source: Source, batch: Batch, coins_BT: Tensor | None
) -> Tensor:
    """Return inputs_BT: the reference's token where the coin says so, else the model's own arg-max.

    The model's choices are found by stepping from `model.start` without gradient (none flows through an arg-max),
    so that one `unroll` over these inputs is what a single pass with the same coins computes; with dropout on,
    this pass draws masks of its own in the decoder. The first input is `<sos>` whatever the coin says.
    """
    inputs_BT = batch.inputs_BT
    if coins_BT is None:
        return inputs_BT
    needed_T = _needed(coins_BT)
    inputs = [inputs_BT[:, 0]]
    for t in range(1, len(needed_T)):
        features_BF, state, _ = model.read(inputs[-1], state, source)
        token_B = inputs_BT[:, t]
        if needed_T[t]:
            # `max` and `argmax` both give the first of the largest; in bfloat16 on a CPU `max` is the faster one.
            own_B = model.readout(features_BF).max(-1).indices
            token_B = torch.where(coins_BT[:, t], token_B, own_B)
        inputs.append(token_B)
    # Autocast keeps the weights it has cast; without gradient, torch before 2.10 keeps them without their graph.
    torch.clear_autocast_cache()
    return torch.cat([torch.stack(inputs, dim=1), inputs_BT[:, len(inputs) :]], dim=1)


def until_eos(inputs_BT: Tensor, outputs_BT: Tensor) -> Tensor:
    """Return the outputs with padding where `<eos>` has been read: what the model's own end leaves of the reference."""
    ended_BT = (inputs_BT == EOS).cumsum(1) > 0
    return outputs_BT.masked_fill(ended_BT, PAD)


def _needed(coins_BT: Tensor) -> list[bool]:
    """Return at which steps, up to the last of them, a choice of the model's own may be read.

    A CPU asks the coins; on another device that would wait for it, so there it is at every step.
    """
    if coins_BT.device.type != "cpu":
        return [True] * coins_BT.shape[1]
    needed_T = [False, *(~coins_BT[:, 1:].all(0)).tolist()]
    return needed_T[: 1 + max((t for t, needed in enumerate(needed_T) if needed), default=0)]
