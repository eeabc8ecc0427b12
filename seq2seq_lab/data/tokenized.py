"""A tokenized corpus of sentence pairs."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from seq2seq_lab.data.corpus import Corpus, ParallelText
from seq2seq_lab.data.lines import Lines
from seq2seq_lab.data.ragged import Ragged, fitting
from seq2seq_lab.data.token_cache import cached_tokens, text_key
from seq2seq_lab.data.tokenizers import UNK, Tokenizer, TokenizerPair, fit_tokenizers

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TokenizedText:
    """The N sentence pairs of one split, with `<sos>` and `<eos>` around each sentence.

    Attributes:
        rows: the index of each pair in `source` and `target`: int64, N. None: it has all of them, in their order.
    """

    source: Ragged
    target: Ragged
    rows: torch.Tensor | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        assert len(self.source) == len(self.target)

    def __len__(self) -> int:
        return len(self.source) if self.rows is None else len(self.rows)

    @property
    def lengths(self) -> torch.Tensor:
        """The number of source tokens of each pair: int64, N."""
        return self.source.lengths if self.rows is None else self.source.lengths[self.rows]

    @property
    def units(self) -> torch.Tensor:
        """The number of target tokens to predict of each pair, without `<sos>`: int64, N."""
        return (self.target.lengths if self.rows is None else self.target.lengths[self.rows]) - 1

    def select(self, index: torch.Tensor) -> "TokenizedText":
        """Return the pairs with the indices `index` (int64, any order, repeats allowed), in that order."""
        rows = index if self.rows is None else self.rows[index]
        return TokenizedText(self.source.select(rows), self.target.select(rows))

    def packed(self) -> "TokenizedText":
        """Return the same pairs, without others in `source` and `target`."""
        return self if self.rows is None else self.select(torch.arange(len(self)))


@dataclass(frozen=True, slots=True)
class TokenizedCorpus:
    """A corpus as ids, with the tokenizers fitted on its training split.

    Attributes:
        unknown_rate: the share of `<unk>` among the tokens of each split and side, without `<sos>` and `<eos>`. The keys are
            `train/source`, `validation/target`, `test/NAME/source` and so on.
        key: see `corpus_key`.
        from_cache: whether the ids were read from the cache.
    """

    train: TokenizedText
    validation: TokenizedText
    tests: dict[str, TokenizedText]
    tokenizers: TokenizerPair
    unknown_rate: dict[str, float]
    key: str
    from_cache: bool


def short_pairs(tokens: TokenizedText, max_length: int) -> TokenizedText:
    """Return the pairs with at most `max_length` tokens on each side, without a copy of their ids.

    Raises:
        UserError: there are none.
    """
    specials = 2  # <sos> and <eos>
    longer = torch.maximum(tokens.source.lengths, tokens.target.lengths)
    index = fitting(longer - specials, max_length, "pairs")
    # The processes of a machine share the ids of a cache.
    return tokens if len(index) == len(tokens) else replace(tokens, rows=index)


def training_text(
    text: ParallelText, tokens: TokenizedText, tokenizers: TokenizerPair, seed: int
) -> TokenizedText | Callable[[int], TokenizedText]:
    """Return the training pairs; of a stochastic tokenizer (BPE-dropout), a function that draws those of an epoch.

    What it draws is a function of (`seed`, epoch).

    Args:
        text: the training split.
        tokens: see `short_pairs`; only these are trained on.
    """
    if not (tokenizers.source.stochastic or tokenizers.target.stochastic):
        return tokens
    sides = [
        (tokenizer, lines if tokens.rows is None else Lines.of(lines[i] for i in tokens.rows.tolist()))
        for tokenizer, lines in ((tokenizers.source, text.source), (tokenizers.target, text.target))
    ]

    def draw(epoch: int) -> TokenizedText:
        logger.info("Drawing the tokens of epoch %d", epoch + 1)
        generator = np.random.default_rng((seed, epoch))
        source, target = (
            Ragged.encoded(partial(tokenizer.sample, rng=generator), lines, "Drawing the tokens")
            for tokenizer, lines in sides
        )
        return TokenizedText(source, target)

    return draw


def tokenize_corpus(
    corpus: Corpus,
    make: Callable[[], Tokenizer],
    options: Mapping[str, object],
    cache: Path | None,
    fitted: TokenizerPair | None = None,
    *,
    source: Tokenizer | None = None,
) -> TokenizedCorpus:
    """Fit tokenizers on the training split and encode every split, or read the result of an earlier call.

    Args:
        make: returns an untrained tokenizer.
        options: the configuration of the tokenizer, as plain (JSON) values.
        cache: the folder of the cache, or None for no cache; see `cached_tokens`.
        fitted: tokenizers to use. If they are given, none is fitted.
        source: the tokenizer of the source, if it is not one of `make`.
    """
    if source is not None:
        options = {**options, "source": source.options()}
    key, splits = corpus_key(corpus, options, fitted), _splits(corpus)

    def build() -> tuple[TokenizerPair, list[Ragged]]:
        languages = (corpus.source_language, corpus.target_language)
        pair = fit_tokenizers(make, corpus.train, languages, source) if fitted is None else fitted
        texts = [tokenize_text(text, pair, name) for name, text in splits.items()]
        return pair, [side for text in texts for side in (text.source, text.target)]

    names = [f"{name}/{side}" for name in splits for side in ("source", "target")]
    entry = cached_tokens(key, names, cache, build=build, load=TokenizerPair.load)
    unknown_rate = {}
    for name, ids in entry.ids.items():
        unknown = int((ids.tokens == UNK).sum())
        unknown_rate[name] = unknown / max(1, len(ids.tokens) - 2 * len(ids))
    train, validation, *tests = (
        TokenizedText(entry.ids[f"{name}/source"], entry.ids[f"{name}/target"]) for name in splits
    )
    named = dict(zip(corpus.tests, tests, strict=True))
    return TokenizedCorpus(train, validation, named, entry.tokenizers, unknown_rate, key, entry.from_cache)


def tokenize_text(text: ParallelText, tokenizers: TokenizerPair, name: str) -> TokenizedText:
    """Return the ids of a split; `name` is for the progress bar."""
    source = Ragged.encoded(tokenizers.source.encode, text.source, f"Tokenizing {name}, source")
    described = f"Tokenizing {name}, target"
    if not tokenizers.target.reads_source:
        return TokenizedText(source, Ragged.encoded(tokenizers.target.encode, text.target, described))
    sources = iter(text.source)

    def encode(targets: Sequence[str]) -> list[list[int]]:
        return tokenizers.target.encode_outputs(targets, [*islice(sources, len(targets))])

    return TokenizedText(source, Ragged.encoded(encode, text.target, described))


def corpus_key(corpus: Corpus, options: Mapping[str, object], fitted: TokenizerPair | None = None) -> str:
    """Return the SHA-256, in hexadecimal, of everything that determines the tokenized corpus; see `text_key`."""
    texts = {
        f"{name}/{side}": getattr(text, side)
        for name, text in _splits(corpus).items()
        for side in ("source", "target")
    }
    return text_key(texts, (corpus.source_language, corpus.target_language), options, fitted)


def _splits(corpus: Corpus) -> dict[str, ParallelText]:
    tests = {f"test/{name}": text for name, text in corpus.tests.items()}
    return {"train": corpus.train, "validation": corpus.validation, **tests}
