"""Sequences of token ids of different lengths, in one flat array."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seq2seq_lab.data.progress import progress
from seq2seq_lab.data.tokenizers import EOS, PAD, SOS
from seq2seq_lab.errors import UserError

CHUNK = 10_000  # lines encoded, or sequences moved, at a time, to bound the memory
CHUNK_CHARACTERS = 4_000_000  # fewer lines are encoded at a time if they have more characters

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ragged:
    """N sequences: sequence i is `tokens[offsets[i] : offsets[i + 1]]`.

    Attributes:
        tokens: int32.
        offsets: int64, N + 1.
    """

    tokens: Tensor
    offsets: Tensor

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Tensor:
        """The number of tokens of each sequence: int64, N."""
        return self.offsets.diff()

    @classmethod
    def of(cls, sequences: Iterable[Sequence[int]]) -> "Ragged":
        """Return these sequences, with `<sos>` and `<eos>` around each."""
        return cls._joined([[*sequences]], (SOS,), (EOS,))

    @classmethod
    def encoded(
        cls, encode: Callable[[Sequence[str]], list[list[int]]], lines: Sequence[str], description: str
    ) -> "Ragged":
        """Return the ids of `lines`, with `<sos>` and `<eos>` around each.

        Args:
            encode: returns the ids of several lines.
            description: text of the progress bar.
        """
        return cls._joined(_encode_chunks(encode, lines, description), (SOS,), (EOS,))

    @classmethod
    def unframed(
        cls, encode: Callable[[Sequence[str]], list[list[int]]], lines: Sequence[str], description: str
    ) -> "Ragged":
        """Return the same as `encoded`, without `<sos>` and `<eos>`."""
        return cls._joined(_encode_chunks(encode, lines, description), (), ())

    @classmethod
    def _joined(
        cls, chunks: Iterable[Sequence[Sequence[int]]], before: tuple[int, ...], after: tuple[int, ...]
    ) -> "Ragged":
        # Growing buffers need half the memory of lists of arrays, which have to be joined.
        tokens, lengths = bytearray(), bytearray(8)
        for chunk in chunks:
            length = np.fromiter(map(len, chunk), np.int64, len(chunk)) + len(before) + len(after)
            joined = chain.from_iterable((*before, *ids, *after) for ids in chunk)
            tokens += np.fromiter(joined, np.int32, int(length.sum())).tobytes()
            lengths += length.tobytes()
        return cls(_tensor(tokens, np.int32), _tensor(lengths, np.int64).cumsum(0))

    def to(self, device: torch.device) -> "Ragged":
        """Return the sequences on a device."""
        return Ragged(self.tokens.to(device), self.offsets.to(device))

    def select(self, index: Tensor) -> "Ragged":
        """Return the sequences with the indices `index` (int64, any order, repeats allowed), in that order."""
        lengths = self.lengths[index]
        chosen = torch.cat([self.offsets.new_zeros(1), lengths.cumsum(0)])
        moved = self.tokens.new_empty(int(chosen[-1]))
        for start in range(0, len(index), CHUNK):
            part = slice(start, start + CHUNK)
            first, end = int(chosen[start]), int(chosen[min(start + CHUNK, len(index))])
            shift = torch.repeat_interleave(self.offsets[index[part]] - chosen[:-1][part], lengths[part])
            moved[first:end] = self.tokens[shift + torch.arange(first, end, device=self.tokens.device)]
        return Ragged(moved, chosen)

    def padded(self, index_B: Tensor, width: int, padding: int = PAD) -> Tensor:
        """Return the sequences with the indices `index_B`, padded to `width` with `padding`: ids_BW, int64."""
        start_B1, end_B1 = self.offsets[index_B][:, None], self.offsets[index_B + 1][:, None]
        position_BW = start_B1 + torch.arange(width, device=self.tokens.device)
        inside_BW = position_BW < end_B1
        ids_BW = self.tokens[torch.where(inside_BW, position_BW, start_B1)].long()
        return ids_BW.masked_fill_(~inside_BW, padding)


def _encode_chunks(
    encode: Callable[[Sequence[str]], list[list[int]]], lines: Sequence[str], description: str
) -> Iterator[list[list[int]]]:
    """Yield the ids of `lines`, in chunks of at most `CHUNK` lines that end at `CHUNK_CHARACTERS`."""
    chunk: list[str] = []
    characters = 0
    for line in progress(lines, description, len(lines)):
        chunk.append(line)
        characters += len(line)
        if len(chunk) == CHUNK or characters >= CHUNK_CHARACTERS:
            yield encode(chunk)
            chunk, characters = [], 0
    if chunk:
        yield encode(chunk)


def _tensor(buffer: bytearray, dtype: type[np.integer[Any]]) -> Tensor:
    # torch refuses an empty buffer.
    return torch.from_numpy(np.frombuffer(buffer, dtype) if buffer else np.empty(0, dtype))


def spaced(sequences: Ragged, most: int = 10_000_000) -> tuple[Tensor, str]:
    """Choose evenly spaced training texts of about `most` tokens, for a baseline whose memory grows with them.

    Returns:
        Their indices (int64), and the end of the name of the baseline, which is empty if these are all texts.
    """
    count, step = len(sequences), -(-len(sequences.tokens) // most) or 1
    index = torch.arange(0, count, step)
    return index, "" if len(index) == count else f", of {len(index):,} training texts"


def fitting(lengths: Tensor, longest: int, examples: str) -> Tensor:
    """Return the indices of the training texts of at most `longest` tokens, and log how many have more.

    Args:
        examples: what the texts are, in plural.

    Raises:
        UserError: all texts have more.
    """
    index = (lengths <= longest).nonzero().squeeze(1)
    if not len(index):
        raise UserError(f"task.max_length={longest}: all training {examples} have more tokens. Increase it.")
    if left_out := len(lengths) - len(index):
        log.info(
            "%s training %s of more than %s tokens are left out (task.max_length).",
            *(f"{left_out:,}", examples, longest),
        )
    return index
