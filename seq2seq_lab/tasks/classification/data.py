"""Tokenized texts with labels, their batches, and the vocabulary of a classifier."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from seq2seq_lab.data.batching import Index
from seq2seq_lab.data.labelled import LabelledText
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.tokenizers import Tokenizer
from seq2seq_lab.data.words import words
from seq2seq_lab.metrics.alignment import group_tokens
from seq2seq_lab.runtime.device import on_device
from seq2seq_lab.tasks.splits import TextSplit


@dataclass(frozen=True, slots=True)
class LabelledTokens:
    """The token ids of N texts, without `<sos>` and `<eos>`, and the indices of their classes.

    Attributes:
        weights: the weight of each text in the training loss: float32, N. None: every weight is 1.
        firsts: of pairs of texts that are read one by one, the number of tokens of each first text: int64, N.
    """

    tokens: Ragged
    labels: Tensor
    weights: Tensor | None = None
    firsts: Tensor | None = None

    @property
    def lengths(self) -> Tensor:
        """The number of tokens of each text, of pairs that of the longer one: int64, N."""
        lengths = self.tokens.lengths
        return lengths if self.firsts is None else torch.maximum(self.firsts, lengths - self.firsts)

    @property
    def texts(self) -> Ragged:
        """The texts that are read one by one: N, or 2N of pairs, the two texts of a pair one after the other."""
        if self.firsts is None:
            return self.tokens
        offsets = self.tokens.offsets
        starts = torch.stack([offsets[:-1], offsets[:-1] + self.firsts], dim=1).flatten()
        return Ragged(self.tokens.tokens, torch.cat([starts, offsets[-1:]]))

    @property
    def units(self) -> Tensor:
        """The number of units of the loss of each text, always 1: int64, N."""
        return torch.ones_like(self.labels)

    def select(self, index: Tensor) -> "LabelledTokens":
        """Return some texts, in the order of the index."""
        weights, firsts = (None if one is None else one[index] for one in (self.weights, self.firsts))
        return LabelledTokens(self.tokens.select(index), self.labels[index], weights, firsts)


@dataclass(frozen=True, slots=True)
class TextBatch:
    """B texts, or B pairs of texts that are read one by one: the first texts and then the second ones.

    Attributes:
        source_BS: token ids, padded if the lengths differ.
        source_lengths: the real lengths, on the host.
        label_B: the indices of the classes.
        weight_B: see `LabelledTokens.weights`.
    """

    source_BS: Tensor
    source_lengths: tuple[int, ...]
    label_B: Tensor
    weight_B: Tensor | None = None


class TextBatches:
    """Creates the batches of texts, whose tokens are in the memory of the device."""

    def __init__(self, texts: LabelledTokens, device: torch.device) -> None:
        self.device = device
        rows = texts.texts
        self._paired = texts.firsts is not None
        self._lengths = rows.lengths.numpy()
        self._tokens, self._labels = rows.to(device), texts.labels.to(device)
        self._weights = None if texts.weights is None else texts.weights.to(device)

    def __call__(self, index: Index) -> TextBatch:
        """Return the batch of the given texts, in their order."""
        index_B = on_device(index, self.device)
        rows = np.concatenate([2 * index, 2 * index + 1]) if self._paired else index
        row_B = torch.cat([2 * index_B, 2 * index_B + 1]) if self._paired else index_B
        lengths = self._lengths[rows]
        source_BS = self._tokens.padded(row_B, int(lengths.max()))
        weight_B = None if self._weights is None else self._weights[index_B]
        return TextBatch(source_BS, tuple(lengths.tolist()), self._labels[index_B], weight_B)


ClassificationSplit = TextSplit[LabelledText, LabelledTokens]


def deciding_tokens(text: LabelledText, tokenizer: Tokenizer) -> list[npt.NDArray[np.bool_]] | None:
    """Return for each text a mask of the tokens that belong to deciding words; None if these are not known."""
    if text.deciding is None:
        return None
    masks = []
    for line, deciding in zip(text.texts, text.deciding, strict=True):
        spans = tokenizer.spans(line)
        groups = group_tokens(spans, words(line))
        mask = np.zeros(len(spans), np.bool_)
        mask[[token for word in deciding for token in groups[word]]] = True
        masks.append(mask)
    return masks
