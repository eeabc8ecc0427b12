"""Tatoeba English–French: short sentences with their translations (tatoeba.org, by way of manythings.org)."""

from dataclasses import dataclass
from pathlib import Path

from seq2seq_lab.data.corpus import Corpus, ParallelText
from seq2seq_lab.data.deduplication import count_repeats
from seq2seq_lab.data.download import cache_folder, fetch_member
from seq2seq_lab.data.tables import first_columns
from seq2seq_lab.data.text import (
    OnBadPair,
    check_positive,
    check_shares,
    divide,
    empty_split,
    listing,
    new_counts,
    split_by_hash,
    usable_pairs,
    within,
)
from seq2seq_lab.errors import UserError, did_you_mean

_LANGUAGES = ("en", "fr")


@dataclass(frozen=True, slots=True)
class Tatoeba:
    """Tatoeba English–French, split by English sentence.

    `path` is a tab-separated file, plain or `.gz`: English, French, and perhaps a third column, ignored.
    Without a path, `member` of the zip archive at `url` is downloaded once to the cache folder.

    The split is a hash of the English sentence: all its translations fall on one side, and a pair never
    changes sides when the file grows. One sentence may have several translations; each pair is a line of its
    own, in the test set too. Pairs with more than `max_tokens` tokens between white space (no-break spaces
    are white space) on either side are left out of every split; `limit` keeps the first training pairs of the
    rest.
    """

    path: str | None
    url: str
    member: str
    sha256: str
    source: str
    target: str
    on_bad_pair: OnBadPair
    max_tokens: int | None
    limit: int | None
    validation_share: float
    test_share: float
    cache_dir: str | None

    def __post_init__(self) -> None:
        for key, language in (("source", self.source), ("target", self.target)):
            if language not in _LANGUAGES:
                raise UserError(
                    f"dataset.{key}={language}: Tatoeba has en and fr." + did_you_mean(language, _LANGUAGES)
                )
        if self.source == self.target:
            raise UserError(
                f"dataset.source and dataset.target are both {self.source}: one has to be en, the other fr."
            )
        check_positive("dataset.max_tokens", self.max_tokens)
        check_positive("dataset.limit", self.limit)
        check_shares(self.validation_share, self.test_share)

    def load(self) -> Corpus:
        """Read the corpus. Raises `UserError` for a missing file, bad lines, and a download that fails."""
        counts = new_counts()
        file = self._file()
        pairs = usable_pairs(first_columns(file, counts), str(file), self.on_bad_pair, counts)
        splits = divide(
            within(pairs, self.max_tokens, counts),
            lambda english: split_by_hash(english, self.validation_share, self.test_share),
            self.limit,
        )
        empty = [name for name, split in splits.items() if not split]
        if empty:
            raise empty_split(
                " and ".join(empty),
                splits.values(),
                f"give a larger file than {file}, or a larger dataset.max_tokens.",
            )
        train, validation, test = (
            split if self.source == "en" else ParallelText(split.target, split.source)
            for split in splits.values()
        )
        count_repeats(train, [validation, test], counts)
        return Corpus(self.source, self.target, train, validation, {"test": test}, counts)

    def _file(self) -> Path:
        if self.path is None:
            remedy = "Give a local file with dataset.path=FILE (English, tab, French)."
            return fetch_member(self.url, self.member, self.sha256, cache_folder(self.cache_dir), remedy)
        file = Path(self.path).expanduser()
        if not file.is_file():
            raise UserError(
                f"dataset.path={self.path}: a tab-separated file (plain or .gz) was looked for; "
                f"{listing(file if file.is_dir() else file.parent)}. Give the path of the file itself."
            )
        return file
