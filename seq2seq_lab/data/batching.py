"""The plan of an epoch: the examples of each optimizer step, their batches, and the rank of each.

All examples of a batch have the same input length: the input has no padding, and the fused recurrent kernels can process
it. Their numbers of units, such as target tokens, are similar. With `pad_to`, lengths are rounded up to a multiple of it:
there are fewer shapes of batches, and the inputs have padding.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.tokenized import TokenizedText
from seq2seq_lab.data.tokenizers import EOS
from seq2seq_lab.runtime.device import on_device

Index = npt.NDArray[np.int64]
Unit = Literal["sentences", "tokens"]
USUAL_LENGTH = 64  # tokens; batches of longer examples are smaller in evaluation
MOST_INPUT = 4  # a batch of N units has at most this multiple of N input tokens
StepPlan = list[Index]


class ExampleSizes(Protocol):
    """The sizes of N examples, such as those of a `TokenizedText`."""

    @property
    def lengths(self) -> Tensor:
        """The length of the input of each example: int64, N."""
        ...

    @property
    def units(self) -> Tensor:
        """The number of units of the loss of each example, for example target tokens: int64, N."""
        ...


def plan_epoch(
    examples: ExampleSizes, batch_size: int, unit: Unit, *, seed: int, epoch: int, pad_to: int = 1
) -> list[StepPlan]:
    """Return the optimizer steps of an epoch, each a list of batches; a batch is an array of the indices of examples.

    The plan is a function of (seed, epoch), and does not depend on the number of ranks. Every example occurs once. A step
    whose examples have much more input than units, as mistakes in a corpus do, has several batches; see `MOST_INPUT`.

    Args:
        batch_size: the number of examples (`sentences`), or the greatest number of units (`tokens`), of a step. One step
            may have fewer examples; a step of one example may have more units.
        pad_to: the examples of a batch have the same input length when it is rounded up to a multiple of this number.
    """
    rng = np.random.default_rng((seed, epoch))
    lengths, units = rounded_up(examples.lengths.numpy(), pad_to), examples.units.numpy()
    full: list[StepPlan] = []
    rest: list[Index] = []
    for group in _by_length(lengths, rng.permutation(len(lengths))):
        whole, left = _chunks(group, units, batch_size, unit)
        full.extend(_batches(chunk, lengths, batch_size, unit) for chunk in whole)
        rest.append(left)
    steps = full + _combine(rest, lengths, units, batch_size, unit)
    return [steps[i] for i in rng.permutation(len(steps))]


def deal(step: StepPlan, rank: int, ranks: int, micro_batches: int = 1) -> dict[int, StepPlan]:
    """Return the micro-batches of a step that one rank computes, by index; a micro-batch may be empty.

    Their number is `micro_batches` rounded up to a multiple of `ranks`, and a rank computes every `ranks`-th of them.
    Two ranks therefore compute exactly what one process computes in two micro-batches.

    The sentences are distributed in alternating order (0 1 2 2 1 0 0 …). Because neighbors have similar lengths, all
    micro-batches have similar numbers of tokens.
    """
    count = -(-micro_batches // ranks) * ranks
    own: dict[int, StepPlan] = {index: [] for index in range(rank, count, ranks)}
    dealt = 0
    for chunk in step:
        turn, position = np.divmod(np.arange(dealt, dealt + len(chunk)), count)
        index_of = np.where(turn % 2, count - 1 - position, position)
        for index, batches in own.items():
            if len(batch := chunk[index_of == index]):
                batches.append(batch)
        dealt += len(chunk)
    return own


def plan_evaluation(examples: ExampleSizes, batch_size: int) -> list[Index]:
    """Return batches of at most `batch_size` examples of similar length, and fewer long ones; every example occurs once.

    Unlike in training, the lengths of a batch may differ. A search takes as many steps for a small batch as for a
    full one, so few full batches with packed sequences are faster than many small ones. The padded inputs and the padded
    outputs of a batch have at most `batch_size` times `USUAL_LENGTH` tokens, which bounds the memory.
    """
    lengths, units = examples.lengths.numpy(), examples.units.numpy()
    order = np.lexsort((units, lengths))
    plan, longest = [], np.maximum(lengths, units)
    while len(order):
        batch = order[:batch_size]
        tokens = np.maximum.accumulate(longest[batch]) * np.arange(1, len(batch) + 1)
        fitting = max(1, int(np.searchsorted(tokens, batch_size * USUAL_LENGTH, side="right")))
        plan.append(batch[:fitting])
        order = order[fitting:]
    return plan


def rounded_up(lengths: Index, multiple: int) -> Index:
    """Return the lengths rounded up to a multiple of `multiple`."""
    return -(-lengths // multiple) * multiple


def _by_length(lengths: Index, order: Index) -> list[Index]:
    """Group the indices of examples by length, each group in the given order."""
    if not len(order):
        return []
    order = order[np.argsort(lengths[order], kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1)


def _chunks(group: Index, units: Index, batch_size: int, unit: Unit) -> tuple[list[Index], Index]:
    """Split a shuffled group into full chunks of similar numbers of units and a random remainder."""
    if unit == "sentences":
        count = len(group) // batch_size * batch_size
        whole = group[:count][np.argsort(units[group[:count]], kind="stable")]
        return list(whole.reshape(-1, batch_size)), group[count:]
    ordered = group[np.argsort(-units[group], kind="stable")]
    chunks = []
    while len(ordered):
        room = max(1, batch_size // int(units[ordered[0]]))
        if len(ordered) < room:
            break
        chunks.append(ordered[:room])
        ordered = ordered[room:]
    return chunks, ordered


def _batches(examples: Index, lengths: Index, batch_size: int, unit: Unit) -> StepPlan:
    """Return examples of one input length as batches of a bounded number of input tokens."""
    if unit == "sentences":
        return [examples]
    rows = max(1, MOST_INPUT * batch_size // int(lengths[examples[0]]))
    return np.split(examples, range(rows, len(examples), rows))


def _combine(
    rest: Sequence[Index], lengths: Index, units: Index, batch_size: int, unit: Unit
) -> list[StepPlan]:
    """Combine the remainders of the groups into steps of several batches."""
    steps: list[StepPlan] = []
    step: StepPlan = []
    room = batch_size
    for group in rest:
        while len(group):
            if unit == "sentences":
                fitting = min(room, len(group))
            else:
                fitting = int(np.searchsorted(np.cumsum(units[group]), room, side="right"))
                fitting = fitting or (0 if step else 1)
            if fitting:
                part = group[:fitting]
                part = part[np.argsort(units[part], kind="stable")]
                step.extend(_batches(part, lengths, batch_size, unit))
                room -= fitting if unit == "sentences" else int(units[part].sum())
                group = group[fitting:]
            if len(group) or room <= 0:
                steps.append(step)
                step, room = [], batch_size
    return [*steps, step] if step else steps


class BatchMaker:
    """Creates the batches of a split; the tokens of the whole split are in the memory of the device.

    Args:
        text: the split.
        device: the device of the batches.
        pad_to: the longest source and target of a batch, without `<sos>`, are padded to a multiple of this number.
    """

    def __init__(self, text: TokenizedText, device: torch.device, pad_to: int = 1) -> None:
        self.device = device
        self.pad_to = pad_to
        self._lengths, self._units = text.lengths.numpy(), text.units.numpy()
        self._turns = lengths_of_turns(text)
        if device.type != "cpu":  # the memory of the device has the pairs of the split only
            text = text.packed()
        self._source, self._target, self._rows = text.source.to(device), text.target.to(device), text.rows

    def __call__(self, index: Index) -> Batch:
        """Return the batch of the given sentences, in their order."""
        index_B = on_device(index, self.device)
        row_B = index_B if self._rows is None else self._rows[index_B]
        lengths, units = self._lengths[index], self._units[index]
        width, target_width = (int(rounded_up(sizes.max(), self.pad_to)) for sizes in (lengths, units))
        return Batch(
            index_B=index_B,
            source_BS=self._source.padded(row_B, width),
            source_lengths=tuple(lengths.tolist()),
            target_BU=self._target.padded(row_B, target_width + 1),
            target_tokens=int(units.sum()),
            turn_lengths=self._turn_lengths(index),
        )

    def _turn_lengths(self, index: Index) -> tuple[tuple[int, ...], ...] | None:
        if self._turns is None:
            return None
        turns = self._turns.select(torch.from_numpy(index))
        return tuple(tuple(row.tolist()) for row in torch.split(turns.tokens, turns.lengths.tolist()))


def lengths_of_turns(text: TokenizedText) -> Ragged | None:
    """Return the number of tokens of each turn of each source, with its `<eos>`; None if every source is one turn."""
    ends = (text.source.tokens == EOS).nonzero()[:, 0]
    if len(ends) == len(text.source):
        return None
    lengths = ends.diff(prepend=ends.new_tensor([-1])).int()
    turns = Ragged(lengths, torch.searchsorted(ends, text.source.offsets))
    if text.rows is not None:
        turns = turns.select(text.rows)
    return None if len(turns.tokens) == len(turns) else turns
