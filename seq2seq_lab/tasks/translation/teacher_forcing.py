"""Teacher forcing: whether the decoder reads the tokens of the reference or its own predictions in training."""

import math
from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor
from torch.profiler import record_function

from seq2seq_lab.config.type_checks import Count, Probability
from seq2seq_lab.data.batch import BatchOfTargets
from seq2seq_lab.data.tokenizers import EOS, PAD
from seq2seq_lab.errors import require
from seq2seq_lab.models.selectable import Selectable
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.models.source import Source
from seq2seq_lab.runtime.counter_rng import uniform

Scope = Literal["token", "step", "sequence", "batch"]


class TeacherForcing(ABC):
    """The schedule of the forcing ratio r, the probability of reading the token of the reference.

    Args:
        scope: what one random draw decides: a `token`, a time `step` of the whole batch, a `sequence` or a `batch`.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    @abstractmethod
    def ratio_at(self, step: int) -> float:
        """Return r at an optimizer step, counted from 0."""

    def mask(self, batch: BatchOfTargets, seed: int, epoch: int, step: int) -> Tensor | None:
        """Return teacher_forcing_mask_BT, true where the token of the reference is read; None if it is true everywhere.

        With scope `token` and `sequence` the draws depend on (seed, epoch, sentence), otherwise on (seed, step).
        """
        ratio = self.ratio_at(step)
        if ratio >= 1:
            return None
        length = batch.target_BU.shape[1] - 1
        index_B1 = batch.index_B[:, None]
        position_1T = torch.arange(length, device=index_B1.device)[None]
        no_index_B1, no_position_1T = torch.zeros_like(index_B1), torch.zeros_like(position_1T)
        counters = {
            "token": (epoch, index_B1, position_1T),
            "sequence": (epoch, index_B1, no_position_1T),
            "step": (step, no_index_B1, position_1T),
            "batch": (step, no_index_B1, no_position_1T),
        }[self.scope]
        return uniform(seed, *counters) < ratio


class Constant(TeacherForcing):
    """A constant ratio."""

    def __init__(self, ratio: Probability, scope: Scope) -> None:
        super().__init__(scope)
        self.ratio = ratio

    def ratio_at(self, step: int) -> float:
        return self.ratio


class Linear(TeacherForcing):
    """r_i = max(ε, k - c i) at step i (Bengio 2015, §2.4).

    Args:
        start: k, the ratio at step 0.
        end: ε, the ratio from step `steps` on, hence c = (k - ε) / steps.

    Raises:
        ValueError: `end` is above `start`.
    """

    def __init__(self, start: Probability, end: Probability, steps: Count, scope: Scope) -> None:
        super().__init__(scope)
        self.start = start
        self.end = end
        self.steps = steps
        require(end <= start, "teacher_forcing.end", end, f"0 to {start}, which is teacher_forcing.start")

    def ratio_at(self, step: int) -> float:
        return max(self.end, self.start - (self.start - self.end) * step / self.steps)


class Exponential(TeacherForcing):
    """r_i = k^i at step i (Bengio 2015, §2.4).

    Args:
        half_at: the step at which r is 0.5, hence k = 2^(-1 / half_at).
    """

    def __init__(self, half_at: Count, scope: Scope) -> None:
        super().__init__(scope)
        self.half_at = half_at

    def ratio_at(self, step: int) -> float:
        return math.exp2(-step / self.half_at)


class InverseSigmoid(TeacherForcing):
    """r_i = k / (k + exp(i / k)) at step i (Bengio 2015, §2.4).

    Args:
        half_at: the step at which r is 0.5, hence k ln k = half_at.
    """

    def __init__(self, half_at: Count, scope: Scope) -> None:
        super().__init__(scope)
        self.half_at = half_at
        self.k = 1.0 + half_at
        for _ in range(10):  # Newton's method on k ln k - half_at, convex: from above it converges in 5 steps
            self.k = (half_at + self.k) / (1 + math.log(self.k))

    def ratio_at(self, step: int) -> float:
        decayed = self.k * math.exp(-step / self.k)  # exp(i / k) overflows
        return decayed / (decayed + 1)


@torch.no_grad()
@record_function("choose inputs")
def choose_inputs(
    model: Seq2Seq,
    state: Selectable,
    source: Source,
    batch: BatchOfTargets,
    teacher_forcing_mask_BT: Tensor | None,
) -> Tensor:
    """Return inputs_BT: the token of the reference where the mask is true, otherwise the model's arg-max.

    The predictions are computed step by step from `model.start` without gradient, since none flows through an arg-max. One
    `unroll` over the returned inputs then equals a single pass with the same mask. With dropout, the two passes draw
    different masks in the decoder. The first input is always `<sos>`.
    """
    inputs_BT = batch.inputs_BT
    if teacher_forcing_mask_BT is None:
        return inputs_BT
    needed_T = _needed(teacher_forcing_mask_BT)
    inputs = [inputs_BT[:, 0]]
    for t in range(1, len(needed_T)):
        features_BF, state, weights_BS = model.step_features(inputs[-1], state, source, False)
        token_B = inputs_BT[:, t]
        if needed_T[t]:
            # `max` and `argmax` both return the first of the largest; in bfloat16 on a CPU `max` is faster.
            predicted_B = model.read_out(features_BF, weights_BS, source).max(-1).indices
            token_B = torch.where(teacher_forcing_mask_BT[:, t], token_B, predicted_B)
        inputs.append(token_B)
    # Autocast caches cast weights; without gradient, torch before 2.10 caches them without their graph.
    torch.clear_autocast_cache()
    return torch.cat([torch.stack(inputs, dim=1), inputs_BT[:, len(inputs) :]], dim=1)


def until_eos(inputs_BT: Tensor, outputs_BT: Tensor) -> Tensor:
    """Return the outputs with padding after the first `<eos>` that the model has read."""
    ended_BT = (inputs_BT == EOS).cumsum(1) > 0
    return outputs_BT.masked_fill(ended_BT, PAD)


def _needed(teacher_forcing_mask_BT: Tensor) -> list[bool]:
    """Return for each time step, up to the last one needed, whether a prediction may be read.

    On a CPU this reads the mask. On other devices that would wait for the device, so every step is needed.
    """
    if teacher_forcing_mask_BT.device.type != "cpu":
        return [True] * teacher_forcing_mask_BT.shape[1]
    needed_T = [False, *(~teacher_forcing_mask_BT[:, 1:].all(0)).tolist()]
    return needed_T[: 1 + max((t for t, needed in enumerate(needed_T) if needed), default=0)]
