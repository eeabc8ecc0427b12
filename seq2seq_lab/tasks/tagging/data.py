"""Tokenized texts with the tags of their words, and their batches."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from seq2seq_lab.data.batching import Index
from seq2seq_lab.data.labelled import LabelledText
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.tokenizers import Tokenizer
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.alignment import group_tokens
from seq2seq_lab.runtime.device import on_device

IGNORED = -100  # the label of a token without a tag; `torch.nn.functional.cross_entropy` ignores it
BLOCK = 10_000  # texts processed at a time, to bound the memory


def blocks(texts: Ragged) -> Iterator[tuple[int, Ragged]]:
    """Yield the texts in blocks, in their order, each with the index of its first text."""
    for first in range(0, len(texts), BLOCK):
        offsets = texts.offsets[first : first + BLOCK + 1]
        yield first, Ragged(texts.tokens[offsets[0] : offsets[-1]], offsets - offsets[0])


def counts_by_text(texts: Ragged, counted: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the number of tokens of each text that are counted: int64, N.

    Args:
        counted: returns which of some tokens are counted.
    """
    counts = texts.offsets.new_empty(len(texts))
    for first, block in blocks(texts):
        before = torch.cat([counts.new_zeros(1), counted(block.tokens).cumsum(0)])
        counts[first : first + len(block)] = before[block.offsets].diff()
    return counts


@dataclass(frozen=True, slots=True)
class TaggedTokens:
    """The token ids of N texts, without `<sos>` and `<eos>`, and the tag of each token.

    Attributes:
        labels: the index of the word's tag at the first token of a word, else `IGNORED`.
    """

    tokens: Ragged
    labels: Ragged

    @classmethod
    def of(cls, tokens: Ragged, firsts: Sequence[Sequence[int]], tags: Tensor) -> "TaggedTokens":
        """Return texts, given by the positions of the first tokens of their words and the tags of all words in order."""
        labels = torch.full_like(tokens.tokens, IGNORED)
        counts = torch.tensor([len(one) for one in firsts], dtype=torch.int64)
        starts = torch.repeat_interleave(tokens.offsets[:-1], counts)
        positions = torch.tensor([position for one in firsts for position in one], dtype=torch.int64)
        labels[starts + positions] = tags.int()
        return cls(tokens, Ragged(labels, tokens.offsets))

    @property
    def lengths(self) -> Tensor:
        """The number of tokens of each text: int64, N."""
        return self.tokens.lengths

    @property
    def units(self) -> Tensor:
        """The number of words of each text, over which the loss is a mean: int64, N."""
        return counts_by_text(self.labels, lambda tags: tags != IGNORED)

    def select(self, index: Tensor) -> "TaggedTokens":
        """Return some texts, in the order of the index."""
        return TaggedTokens(self.tokens.select(index), self.labels.select(index))

    def of_words(self, i: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the positions of the first tokens of the words of a text, and the tags of the words."""
        start, end = self.labels.offsets[i : i + 2].tolist()
        row = self.labels.tokens[start:end].numpy().astype(np.int64)
        (positions,) = np.nonzero(row != IGNORED)
        return positions, row[positions]


@dataclass(frozen=True, slots=True)
class TaggedBatch:
    """B texts.

    Attributes:
        source_BS: token ids, padded if the lengths differ.
        source_lengths: the real lengths, on the host.
        label_BS: see `TaggedTokens.labels`; `IGNORED` at padding.
    """

    source_BS: Tensor
    source_lengths: tuple[int, ...]
    label_BS: Tensor


class TaggedBatches:
    """Creates the batches of texts, whose tokens are in the memory of the device."""

    def __init__(self, texts: TaggedTokens, device: torch.device) -> None:
        self.device = device
        self._lengths = texts.lengths.numpy()
        self._tokens, self._labels = texts.tokens.to(device), texts.labels.to(device)

    def __call__(self, index: Index) -> TaggedBatch:
        """Return the batch of the given texts, in their order."""
        index_B, lengths = on_device(index, self.device), self._lengths[index]
        width = int(lengths.max())
        label_BS = self._labels.padded(index_B, width, IGNORED)
        return TaggedBatch(self._tokens.padded(index_B, width), tuple(lengths.tolist()), label_BS)


def first_tokens(line: str, tokenizer: Tokenizer, where: str) -> list[int]:
    """Return the position of the first token of each word of a line; words are separated by white space.

    Args:
        where: the place of the line, for the error message.

    Raises:
        UserError: a word has no token.
    """
    words = [word.span() for word in re.finditer(r"\S+", line)]
    groups = group_tokens(tokenizer.spans(line), words)
    for (start, end), group in zip(words, groups, strict=True):
        if not group:
            raise UserError(
                f"{where}: the word {line[start:end]!r} of {line!r:.200} has no token. Replace the word, or use "
                f"another tokenizer, such as tokenizer=whitespace."
            )
    return [group[0] for group in groups]


class TrainingWords:
    """How often each word of the training split has each tag.

    Args:
        text: the training split.
        index_of: the indices of the tags.
    """

    def __init__(self, text: LabelledText, index_of: dict[str, int]) -> None:
        every = Counter[int]()
        self.counts: dict[str, Counter[int]] = defaultdict(Counter)
        for line, tags in zip(text.texts, text.labels, strict=True):
            for word, tag in zip(line.split(), tags.split(), strict=True):
                self.counts[word][index_of[tag]] += 1
                every[index_of[tag]] += 1
        self.most_frequent = every.most_common(1)[0][0]

    def ambiguous(self, line: str) -> npt.NDArray[np.bool_]:
        """Return which words of a line have several tags in the training split."""
        return np.array([len(self.counts.get(word, ())) > 1 for word in line.split()], np.bool_)

    def unseen(self, line: str) -> npt.NDArray[np.bool_]:
        """Return which words of a line are not in the training split."""
        return np.array([word not in self.counts for word in line.split()], np.bool_)

    def tags(self, line: str) -> npt.NDArray[np.int64]:
        """Return the most frequent tag of each word of a line; of an unseen word, the most frequent tag of all words."""
        return np.array([self._tag(word) for word in line.split()], np.int64)

    def _tag(self, word: str) -> int:
        counts = self.counts.get(word)
        return self.most_frequent if counts is None else counts.most_common(1)[0][0]
