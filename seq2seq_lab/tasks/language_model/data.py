"""Tokenized sentences of one language, and their batches."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from seq2seq_lab.data.batching import Index
from seq2seq_lab.data.lines import Lines
from seq2seq_lab.data.ragged import Ragged, fitting
from seq2seq_lab.data.sentences import Sentences
from seq2seq_lab.data.tokenizers import EOS, PAD, Tokenizer
from seq2seq_lab.runtime.device import on_device


@dataclass(frozen=True, slots=True)
class SentenceTokens:
    """The token ids of N sentences, with `<sos>` and `<eos>` around each; the sizes are those of `Examples`."""

    tokens: Ragged

    @property
    def lengths(self) -> Tensor:
        """The number of inputs of each sentence, with `<sos>` and without `<eos>`: int64, N."""
        return self.tokens.lengths - 1

    @property
    def units(self) -> Tensor:
        """The number of tokens to predict of each sentence, with `<eos>`: int64, N."""
        return self.tokens.lengths - 1

    def select(self, index: Tensor) -> "SentenceTokens":
        """Return some sentences, in the order of the index."""
        return SentenceTokens(self.tokens.select(index))


def training_sentences(
    text: Sentences, tokens: Ragged, tokenizer: Tokenizer, max_length: int, seed: int
) -> SentenceTokens | Callable[[int], SentenceTokens]:
    """Return the training sentences; of a stochastic tokenizer, a function that draws those of an epoch.

    What it draws is a function of (`seed`, epoch). Sentences with more than `max_length` tokens are left out.

    Raises:
        UserError: all sentences are left out.
    """
    index = fitting(tokens.lengths - 2, max_length, "sentences")
    if not tokenizer.stochastic:
        return SentenceTokens(tokens if len(index) == len(tokens) else tokens.select(index))
    lines = Lines.of(text.lines[i] for i in index.tolist())

    def draw(epoch: int) -> SentenceTokens:
        sample = partial(tokenizer.sample, rng=np.random.default_rng((seed, epoch)))
        return SentenceTokens(Ragged.encoded(sample, lines, "Drawing the tokens"))

    return draw


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Tokens to predict.

    Attributes:
        inputs_BT: the tokens before them: `<sos>` y_1 … y_{T-1}.
        outputs_BT: the tokens to predict: y_1 … `<eos>`, padded.
        row_B: in training with carried state, the indices of the streams that the rows belong to.
        first: whether these are the first chunks of the streams.
    """

    inputs_BT: Tensor
    outputs_BT: Tensor
    row_B: Tensor | None = None
    first: bool = True


class SentenceBatches:
    """Creates the batches of sentences, whose tokens are in the memory of the device."""

    def __init__(self, sentences: SentenceTokens, device: torch.device) -> None:
        self.device = device
        self._units = sentences.units.numpy()
        self._tokens = sentences.tokens.to(device)

    def __call__(self, index: Index) -> TokenBatch:
        """Return the batch of the given sentences, in their order."""
        tokens_BU = self._tokens.padded(on_device(index, self.device), int(self._units[index].max()) + 1)
        inputs_BT = tokens_BU[:, :-1]
        return TokenBatch(inputs_BT, tokens_BU[:, 1:])


def streams(sentences: Ragged, rows: int) -> tuple[Tensor, Tensor]:
    """Return the inputs and the outputs of the sentences as streams, in their order: each RL, padded at the end.

    The inputs are the tokens of all sentences without `<eos>`, one sentence after another, and the outputs those without
    `<sos>`; both are cut into `rows` streams of equal length.
    """
    last = torch.zeros(len(sentences.tokens), dtype=torch.bool)
    last[sentences.offsets[1:] - 1] = True
    assert bool((sentences.tokens[last] == EOS).all())
    inputs, outputs = sentences.tokens[~last], sentences.tokens[~last.roll(1)]
    return _folded(inputs, rows), _folded(outputs, rows)


def _folded(tokens: Tensor, rows: int) -> Tensor:
    length = -(-len(tokens) // rows)
    padded = tokens.new_full((rows * length,), PAD)
    padded[: len(tokens)] = tokens
    return padded.view(rows, length)
