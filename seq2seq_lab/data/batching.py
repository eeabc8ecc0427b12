"""The plan of an epoch: the sentences of each optimizer step, their batches, and the rank of each.

All sentences of a batch have the same source length: the source side has no padding, and the fused recurrent kernels
can process it. Their target lengths are similar.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.tokenized import TokenizedText
from seq2seq_lab.data.tokenizers import PAD

Index = npt.NDArray[np.int64]
Unit = Literal["sentences", "tokens"]
StepPlan = list[Index]


def plan_epoch(text: TokenizedText, batch_size: int, unit: Unit, seed: int, epoch: int) -> list[StepPlan]:
    """Return the optimizer steps of an epoch, each a list of batches; a batch is an array of sentence numbers.

    The plan is a function of (seed, epoch), and does not depend on the number of ranks. Every sentence occurs once.

    Args:
        batch_size: the number of sentences, or the greatest number of target tokens, of a step. One step may have fewer
            sentences; a step of one sentence may have more tokens.
    """
    rng = np.random.default_rng((seed, epoch))
    source, target = text.source_lengths.numpy(), text.target_lengths.numpy()
    full: list[StepPlan] = []
    rest: list[Index] = []
    for group in _by_source_length(source, rng.permutation(len(source))):
        whole, left = _chunks(group, target, batch_size, unit)
        full.extend([chunk] for chunk in whole)
        rest.append(left)
    steps = full + _combine(rest, target, batch_size, unit)
    return [steps[i] for i in rng.permutation(len(steps))]


def deal(step: StepPlan, rank: int, ranks: int, micro_batches: int = 1) -> dict[int, StepPlan]:
    """Return the micro-batches of a step that one rank computes, by number; a micro-batch may be empty.

    Their number is `micro_batches` rounded up to a multiple of `ranks`, and a rank computes every `ranks`-th of them.
    Two ranks therefore compute exactly what one process computes in two micro-batches.

    The sentences are distributed in alternating order (0 1 2 2 1 0 0 …). Because neighbours have similar lengths, all
    micro-batches have similar numbers of tokens.
    """
    count = -(-micro_batches // ranks) * ranks
    own: dict[int, StepPlan] = {number: [] for number in range(rank, count, ranks)}
    dealt = 0
    for chunk in step:
        turn, place = np.divmod(np.arange(dealt, dealt + len(chunk)), count)
        number_of = np.where(turn % 2, count - 1 - place, place)
        for number, batches in own.items():
            if len(batch := chunk[number_of == number]):
                batches.append(batch)
        dealt += len(chunk)
    return own


def plan_evaluation(text: TokenizedText, batch_size: int) -> list[Index]:
    """Return batches of at most `batch_size` sentences of similar length; every sentence occurs once.

    Unlike in training, the source lengths of a batch may differ. A search takes as many steps for a small batch as for a
    full one, so few full batches with packed sequences are faster than many small ones.
    """
    order = np.lexsort((text.target_lengths.numpy(), text.source_lengths.numpy()))
    return [order[i : i + batch_size] for i in range(0, len(order), batch_size)]


def _by_source_length(source_lengths: Index, order: Index) -> list[Index]:
    """Group sentence numbers by source length, each group in the given order."""
    if not len(order):
        return []
    order = order[np.argsort(source_lengths[order], kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(source_lengths[order])) + 1)


def _chunks(group: Index, target: Index, batch_size: int, unit: Unit) -> tuple[list[Index], Index]:
    """Split a shuffled group into full chunks of similar target length and a random remainder."""
    if unit == "sentences":
        count = len(group) // batch_size * batch_size
        whole = group[:count][np.argsort(target[group[:count]], kind="stable")]
        return list(whole.reshape(-1, batch_size)), group[count:]
    ordered = group[np.argsort(-target[group], kind="stable")]
    chunks = []
    while len(ordered):
        room = max(1, batch_size // int(target[ordered[0]] - 1))
        if len(ordered) < room:
            break
        chunks.append(ordered[:room])
        ordered = ordered[room:]
    return chunks, ordered


def _combine(rest: Sequence[Index], target: Index, batch_size: int, unit: Unit) -> list[StepPlan]:
    """Combine the remainders of the groups into steps of several batches."""
    steps: list[StepPlan] = []
    step: StepPlan = []
    room = batch_size
    for group in rest:
        while len(group):
            if unit == "sentences":
                fitting = min(room, len(group))
            else:
                fitting = int(np.searchsorted(np.cumsum(target[group] - 1), room, side="right"))
                fitting = fitting or (0 if step else 1)
            if fitting:
                part = group[:fitting]
                step.append(part[np.argsort(target[part], kind="stable")])
                room -= fitting if unit == "sentences" else int((target[part] - 1).sum())
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
    """

    def __init__(self, text: TokenizedText, device: torch.device) -> None:
        self.text = text
        self.device = device
        self._source_lengths = text.source_lengths.numpy()
        self._target_lengths = text.target_lengths.numpy()
        self._source_tokens = text.source_tokens.to(device)
        self._target_tokens = text.target_tokens.to(device)
        self._source_offsets = text.source_offsets.to(device)
        self._target_offsets = text.target_offsets.to(device)

    def __call__(self, index: Index) -> Batch:
        """Return the batch of the given sentences, in their order."""
        index_B = torch.from_numpy(index)
        if self.device.type == "cuda":
            index_B = index_B.pin_memory()  # asynchronous copy
        index_B = index_B.to(self.device, non_blocking=True)
        source_lengths, target_lengths = self._source_lengths[index], self._target_lengths[index]
        return Batch(
            index_B=index_B,
            source_BS=_gather(self._source_tokens, self._source_offsets, index_B, int(source_lengths.max())),
            source_lengths=tuple(source_lengths.tolist()),
            target_BU=_gather(self._target_tokens, self._target_offsets, index_B, int(target_lengths.max())),
            target_tokens=int((target_lengths - 1).sum()),
        )

    def target_tokens(self, step: StepPlan) -> int:
        """Return the number of target tokens of a step, on all ranks together."""
        return sum(int((self._target_lengths[index] - 1).sum()) for index in step)

    def all(self, plan: Sequence[Index]) -> Iterator[Batch]:
        """Return the batches of a plan one after another."""
        return map(self, plan)


def _gather(tokens: Tensor, offsets: Tensor, index_B: Tensor, width: int) -> Tensor:
    """Return the rows of a ragged array, padded to `width`."""
    start_B1, end_B1 = offsets[index_B][:, None], offsets[index_B + 1][:, None]
    position_BW = start_B1 + torch.arange(width, device=tokens.device)
    inside_BW = position_BW < end_B1
    rows_BW = tokens[torch.where(inside_BW, position_BW, start_B1)].long()
    return rows_BW.masked_fill_(~inside_BW, PAD)
