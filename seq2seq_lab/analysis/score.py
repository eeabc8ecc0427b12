"""The log-probability that a model assigns to given outputs, by token, word and sentence."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from seq2seq_lab.analysis.forced import Forced
from seq2seq_lab.analysis.plain import Plain, plain
from seq2seq_lab.data.alignment_files import pharaoh
from seq2seq_lab.data.words import words
from seq2seq_lab.metrics.alignment import group_tokens
from seq2seq_lab.metrics.loss import perplexity
from seq2seq_lab.models.seq2seq import log_softmax
from seq2seq_lab.runtime.device import to_host

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ScoredText(Plain):
    """A given output with the predictions of a model for each of its T tokens; logarithms are natural.

    Attributes:
        source, target: the input and the output as text; the source is empty for a model without one.
        tokens: the names of the tokens, `<eos>` last.
        log_probs: log p(y_t | y_<t, x) of each token.
        ranks: 1 for the most probable token, 2 for the second one, and so on.
        entropies: the entropy in nats of the prediction of each token.
        words: the words of the target; see `data.words.words`.
        word_of: the index of the word of each token; None for `<eos>` and for tokens outside words, such as spaces.
        unknown_words: what the vocabulary lacks of the target; the model reads and predicts `<unk>` there.
        attention: the attention weights under teacher forcing, a row per token and a column per token of the source with
            `<sos>` and `<eos>`, or per region of an image; None without attention to them.
        alignment: for each target word the source word of highest attention (`0-0 1-2`, Pharaoh format), by the rows that
            predict its tokens; None without attention to words. As in the files of this format, these words are the text
            between spaces.
    """

    source: str
    target: str
    tokens: list[str]
    log_probs: Floats = field(repr=False)
    ranks: list[int] = field(repr=False)
    entropies: Floats = field(repr=False)
    words: list[str] = field(repr=False)
    word_of: list[int | None] = field(repr=False)
    unknown_words: Sequence[str] = ()
    attention: npt.NDArray[np.floating[Any]] | None = field(default=None, repr=False)
    alignment: str | None = field(default=None, repr=False)

    @property
    def log_prob(self) -> float:
        """The log-probability of the output with `<eos>`."""
        return math.fsum(self.log_probs)

    @property
    def word_log_probs(self) -> list[float]:
        """The log-probability of each word: the sum over its tokens."""
        sums = [0.0] * len(self.words)
        for word, log_prob in zip(self.word_of, self.log_probs, strict=True):
            if word is not None:
                sums[word] += float(log_prob)
        return sums

    @property
    def perplexity_per_token(self) -> float:
        """exp(−log p / T); `<eos>` counts as a token."""
        return perplexity(-self.log_prob / len(self.tokens))

    @property
    def perplexity_per_word(self) -> float:
        """exp(−log p / (number of words + 1)); `<eos>` counts as a word."""
        return perplexity(-self.log_prob / (len(self.words) + 1))

    def as_json(self, with_attention: bool = True) -> dict[str, Any]:
        """Return everything as plain data, with the sums over words.

        Args:
            with_attention: include the attention weights.
        """
        attention = {"attention": plain(self.attention)} if with_attention else {}
        return {
            "source": self.source,
            "target": self.target,
            "log_prob": self.log_prob,
            "perplexity_per_token": self.perplexity_per_token,
            "perplexity_per_word": self.perplexity_per_word,
            "unknown_words": [*self.unknown_words],
            "alignment": self.alignment,
            "words": [
                {"word": word, "log_prob": log_prob}
                for word, log_prob in zip(self.words, self.word_log_probs, strict=True)
            ],
            "tokens": [*self._token_records()],
            **attention,
        }

    def _token_records(self) -> Iterator[dict[str, Any]]:
        columns = zip(self.tokens, self.word_of, self.log_probs, self.ranks, self.entropies, strict=True)
        for token, word, log_prob, rank, entropy in columns:
            yield {
                "token": token,
                "word": word,
                "log_prob": float(log_prob),
                "rank": rank,
                "entropy": float(entropy),
            }


def score(forced: Forced) -> list[ScoredText]:
    """Return the scores of given outputs.

    The values of a token are those of `Seq2Seq.unroll` on the padded tensors of its batch, to the last bit.
    """
    found: dict[int, ScoredText] = {}
    for index, batch, logits_BTV, weights_BTS in forced.readings():
        outputs_BT, log_probs_BT, ranks_BT, entropies_BT = map(
            to_host, (batch.outputs_BT, *predictions(logits_BTV, batch.outputs_BT))
        )
        attention_BTS = None if weights_BTS is None else to_host(weights_BTS.float())
        for row, i in enumerate(index):
            spans = forced.tokenizer.spans(forced.targets[i])
            length = len(spans) + 1
            found[i] = _scored(
                forced,
                i,
                spans,
                outputs_BT[row, : length - 1].tolist(),
                None if attention_BTS is None else attention_BTS[row, :length],
                log_probs=log_probs_BT[row, :length].astype(np.float64),
                ranks=ranks_BT[row, :length].tolist(),
                entropies=entropies_BT[row, :length].astype(np.float64),
            )
    return [found[i] for i in range(len(found))]


def predictions(logits_BTV: Tensor, outputs_BT: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the log-probability, the rank and the entropy of each output: three tensors [B, T]."""
    columns: list[tuple[Tensor, Tensor, Tensor]] = []
    # One example at a time, to bound the memory.
    for logits_TV, outputs_T in zip(logits_BTV, outputs_BT, strict=True):
        log_probs_TV = log_softmax(logits_TV)
        log_probs_T1 = log_probs_TV.gather(1, outputs_T[:, None])
        ranks_T = (log_probs_TV > log_probs_T1).sum(1) + 1
        columns.append((log_probs_T1[:, 0], ranks_T, torch.special.entr(log_probs_TV.exp()).sum(1)))
    log_probs, ranks, entropies = zip(*columns, strict=True)
    return torch.stack(log_probs), torch.stack(ranks), torch.stack(entropies)


def _scored(
    forced: Forced,
    i: int,
    spans: Sequence[tuple[int, int]],
    ids: list[int],
    weights_TS: npt.NDArray[np.floating[Any]] | None,
    **columns: Any,
) -> ScoredText:
    source, target = forced.sources[i], forced.targets[i]
    units = words(target, spans)
    word_of: list[int | None] = [None] * (len(spans) + 1)
    for word, group in enumerate(group_tokens(spans, units)):
        for token in group:
            word_of[token] = word
    alignment, tokenizer = None, forced.tokenizer.for_source(source)
    if weights_TS is not None and forced.source_tokenizer is not None:
        source_spans = forced.source_tokenizer.spans(source)
        weights_TS = weights_TS[:, : len(source_spans) + 2]
        alignment = pharaoh(forced.word_links(i, source_spans).predict(weights_TS))
    return ScoredText(
        source=source,
        target=target,
        tokens=[*tokenizer.tokens(ids), "<eos>"],
        words=[target[start:end] for start, end in units],
        word_of=word_of,
        unknown_words=tokenizer.unknown_words(target),
        attention=weights_TS,
        alignment=alignment,
        **columns,
    )
