"""Tatoeba English–French: short sentences with their translations (tatoeba.org, from manythings.org)."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from seq2seq_lab.config.type_checks import Count
from seq2seq_lab.data import text
from seq2seq_lab.data.corpus import Corpus, ParallelText
from seq2seq_lab.data.deduplication import count_repeats
from seq2seq_lab.data.download import cache_folder, fetch_member
from seq2seq_lab.data.local_files import check_encoding, find_file
from seq2seq_lab.data.tables import Reader

Language = Literal["en", "fr"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tatoeba:
    """Tatoeba English–French, split by English sentence.

    `path` is a tab-separated file, plain or compressed: English, French, and optional further columns, which are ignored. If
    it is None, `member` of the zip archive at `url` is downloaded once to the cache folder.

    A hash of the English sentence decides the split: all its translations are in one split, and a pair stays in its split
    when the file grows. Each translation of a sentence is a pair, also in the test set. Pairs with more than `max_tokens`
    tokens on a side are excluded from all splits; `limit` keeps the first of the remaining training pairs.
    """

    licence: ClassVar[str] = "CC BY 2.0 FR (tatoeba.org)"
    path: str | None
    url: str
    member: str
    sha256: str
    source: Language
    target: Language
    encoding: str | None
    on_bad_pair: text.OnBadPair
    max_tokens: Count | None
    limit: Count | None
    validation_share: float
    test_share: float
    cache_dir: str | None

    def __post_init__(self) -> None:
        check_encoding(self.encoding)
        text.check_languages(self.source, self.target)
        text.check_shares(self.validation_share, self.test_share)

    def load(self) -> Corpus:
        """Read the corpus. Raises `UserError` for a missing file, bad lines, and a download that fails."""
        counts = text.new_counts()
        file = self._find_file()
        candidates = Reader("tsv", encoding=self.encoding).pairs(file, None, ("en", "fr"), counts)
        pairs = text.usable_pairs(candidates, str(file), self.on_bad_pair, counts)
        splits = text.divide(
            text.drop_long_pairs(pairs, self.max_tokens, counts),
            lambda english: text.split_by_hash(english, self.validation_share, self.test_share),
            self.limit,
        )
        shares = {"validation": self.validation_share, "test": self.test_share}
        if empty := [name for name, split in splits.items() if not split]:
            remedy = f"use a larger file than {file} or a larger dataset.max_tokens"
            raise text.empty_split_error(empty, splits.values(), shares, remedy)
        sizes = {name: len(split) for name, split in splits.items()}
        total = sum(sizes.values())
        del sizes["train"]
        text.warn_of_small_splits({str(name): size for name, size in sizes.items()}, total, shares)
        train, validation, test = (
            split if self.source == "en" else ParallelText(split.target, split.source)
            for split in splits.values()
        )
        count_repeats(train, [validation, test], counts)
        return Corpus(self.source, self.target, train, validation, {"test": test}, counts)

    def _find_file(self) -> Path:
        if self.path is not None:
            return find_file("dataset.path", self.path)
        remedy = "A local file can be used instead, with dataset.path=FILE (English, tab, French)."
        return fetch_member(self.url, self.member, self.sha256, cache_folder(self.cache_dir), remedy)
