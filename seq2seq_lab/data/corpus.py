"""What a data set gives: pairs of plain text, in splits, with gold word alignments where they are known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

# How decoded text shows an unknown token (SentencePiece's convention). BLEU, chrF and TER count it as one wrong token;
# "<unk>" would be three wrong tokens under sacreBLEU's tokenization.
UNKNOWN = "\N{DOUBLE QUESTION MARK}"


@dataclass(frozen=True, slots=True)
class Gold:
    """The gold word alignment of one sentence pair.

    The words stand in the plain sentence in this order, each a substring of it; `links` holds
    (source word, target word) pairs, counted from 0. Every link is sure (S = P in the terms of
    Och and Ney 2003).
    """

    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    links: frozenset[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class ParallelText:
    """Sentence pairs of one split: `source[i]` corresponds to `target[i]` (and to `gold[i]`, `phenomena[i]`).

    `phenomena` names what a pair shows ("negation", "question"), where the data set knows; scores are
    reported for each name too.
    """

    source: Sequence[str]
    target: Sequence[str]
    gold: Sequence[Gold] | None = None
    phenomena: Sequence[frozenset[str]] | None = None

    def __post_init__(self) -> None:
        assert len(self.source) == len(self.target)
        assert self.gold is None or len(self.gold) == len(self.source)
        assert self.phenomena is None or len(self.phenomena) == len(self.source)

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True, slots=True)
class Corpus:
    """A parallel corpus in splits. `counts` says what reading it did (dropped pairs and the like)."""

    source_language: str
    target_language: str
    train: ParallelText
    validation: ParallelText
    tests: Mapping[str, ParallelText]
    counts: Mapping[str, int] = field(default_factory=dict)


class Dataset(Protocol):
    """Where a corpus comes from; `conf/dataset/*.yaml` each name one."""

    def load(self) -> Corpus:
        """Read or make the corpus. Raises `UserError` where something the user can mend is wrong."""
        ...
