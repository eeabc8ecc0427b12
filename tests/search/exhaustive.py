"""The expected results of a search, computed sentence by sentence and token by token."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from small_models import batch_of
from torch import Tensor

from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.tokenizers import EOS, PAD, SOS
from seq2seq_lab.models.seq2seq import Seq2Seq

Score = Callable[[float, int, Tensor | None], float]


@dataclass(frozen=True)
class Output:
    """An output of one sentence: its tokens, `<eos>` with them if it ended; their log-probability; its attention."""

    tokens: list[int]
    log_prob: float
    weights_TS: Tensor | None

    @property
    def ended(self) -> bool:
        return self.tokens[-1] == EOS


@torch.no_grad()
def forced(model: Seq2Seq, batch: Batch, row: int, tokens: list[int]) -> Output:
    """Score given tokens by reading them all at once, the sentence alone in its batch."""
    words = batch.source_BS[row, 1 : batch.source_lengths[row] - 1].tolist()
    state, source = model.start(batch_of([words], [[]]))
    logits_1TV, weights_1TS = model.unroll(torch.tensor([[SOS, *tokens[:-1]]]), state, source)
    log_probs_TV = logits_1TV[0].log_softmax(-1)
    total = sum(float(log_probs_TV[t, token]) for t, token in enumerate(tokens))
    return Output(tokens, total, None if weights_1TS is None else weights_1TS[0])


def every_output(vocabulary: int, most: int, least: int = 0) -> Iterator[list[int]]:
    """Yield all outputs of at most so many tokens, each ended, or as long as it may be."""
    words = [token for token in range(vocabulary) if token not in (PAD, SOS, EOS)]

    def extend(tokens: list[int]) -> Iterator[list[int]]:
        if len(tokens) == most:
            yield tokens
            return
        if len(tokens) >= least:
            yield [*tokens, EOS]
        for word in words:
            yield from extend([*tokens, word])

    yield from extend([])


def ranked(outputs: list[Output], score: Score) -> list[tuple[float, Output]]:
    """Return outputs with their scores, the ended ones first, each kind by its score."""
    scored = [(score(output.log_prob, len(output.tokens), output.weights_TS), output) for output in outputs]
    return sorted(scored, key=lambda pair: (not pair[1].ended, -pair[0]))


def wu(alpha: float, beta: float, offset: float = 5) -> Score:
    """s(Y, X) of Wu 2016, eq. 14, in plain numbers; with `offset` 0, log p / length^alpha."""

    def score(log_prob: float, length: int, weights_TS: Tensor | None) -> float:
        normalized = log_prob / ((offset + length) ** alpha / (offset + 1) ** alpha)
        if not beta:
            return normalized
        assert weights_TS is not None
        covered = weights_TS.sum(0).tolist()
        return normalized + beta * sum(math.log(min(attention, 1.0)) for attention in covered)

    return score
