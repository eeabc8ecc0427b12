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
    """

    tokens: Ragged
    labels: Tensor
    weights: Tensor | None = None

    @property
    def lengths(self) -> Tensor:
        """The number of tokens of each text: int64, N."""
        return self.tokens.lengths

    @property
    def units(self) -> Tensor:
        """The number of units of the loss of each text, always 1: int64, N."""
        return torch.ones_like(self.labels)

    def select(self, index: Tensor) -> "LabelledTokens":
        """Return some texts, in the order of the index."""
        weights = None if self.weights is None else self.weights[index]
        return LabelledTokens(self.tokens.select(index), self.labels[index], weights)


@dataclass(frozen=True, slots=True)
class TextBatch:
    """B texts.

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
        self._lengths = texts.lengths.numpy()
        self._tokens, self._labels = texts.tokens.to(device), texts.labels.to(device)
        self._weights = None if texts.weights is None else texts.weights.to(device)

    def __call__(self, index: Index) -> TextBatch:
        """Return the batch of the given texts, in their order."""
        index_B = on_device(index, self.device)
        lengths = self._lengths[index]
        source_BS = self._tokens.padded(index_B, int(lengths.max()))
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
