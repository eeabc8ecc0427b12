"""Multi30k: captions of pictures in English, German and French (Elliott et al. 2016, arXiv:1605.00459)."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seq2seq_lab.data.corpus import Corpus, ParallelText
from seq2seq_lab.data.deduplication import count_repeats
from seq2seq_lab.data.hub import hub_pairs, load_splits
from seq2seq_lab.data.text import (
    OnBadPair,
    check_positive,
    collect,
    listing,
    new_counts,
    read_parallel,
    usable_pairs,
)
from seq2seq_lab.errors import UserError, did_you_mean

_LANGUAGES = ("de", "en", "fr")


@dataclass(frozen=True, slots=True)
class Multi30k:
    """Multi30k, task 1, from raw files or from the Hugging Face hub.

    `path` is a folder of `train.de`, `train.en`, …, `val.*` and any `test*.*`, one sentence a line, plain or
    `.gz` (plain first where both are there); the test sets take their names from the files. Without a path
    it is the data set `hub` (or a local folder in its layout), English and German, one test set `test`.
    `limit` keeps the first training pairs; the whole file is read and checked all the same.
    """

    path: str | None
    hub: str
    source: str
    target: str
    on_bad_pair: OnBadPair
    limit: int | None

    def __post_init__(self) -> None:
        for key, language in (("source", self.source), ("target", self.target)):
            if language not in _LANGUAGES:
                raise UserError(
                    f"dataset.{key}={language}: Multi30k has {', '.join(_LANGUAGES)}."
                    + did_you_mean(language, _LANGUAGES)
                )
        if self.source == self.target:
            raise UserError(
                f"dataset.source and dataset.target are both {self.source}: choose two of "
                f"{', '.join(_LANGUAGES)}."
            )
        check_positive("dataset.limit", self.limit)

    def load(self) -> Corpus:
        """Read the corpus. Raises `UserError` for missing files, bad lines, and an unreachable hub."""
        counts = new_counts()
        pairs = self._pairs_of_hub(counts) if self.path is None else self._pairs_of_files(self.path, counts)
        splits: dict[str, ParallelText] = {}
        for name, stream in pairs.items():
            splits[name] = collect(stream, self.limit if name == "train" else None)
            if not splits[name]:
                raise UserError(
                    f"dataset.path={self.path}, dataset.hub={self.hub}: {name} has no pairs. Get whole files."
                )
        train, validation = splits.pop("train"), splits.pop("val")
        count_repeats(train, [validation, *splits.values()], counts)
        return Corpus(self.source, self.target, train, validation, splits, counts)

    def _pairs_of_files(self, path: str, counts: Counter[str]) -> dict[str, Iterator[tuple[str, str]]]:
        folder = Path(path).expanduser()
        languages = (self.source, self.target)
        tests = sorted(
            {
                found.name.removesuffix(".gz").removesuffix(f".{language}")
                for language in languages
                for suffix in ("", ".gz")
                for found in folder.glob(f"test*.{language}{suffix}")
            }
        )
        files = {
            (split, language): next(
                (
                    file
                    for file in (folder / f"{split}.{language}", folder / f"{split}.{language}.gz")
                    if file.is_file()
                ),
                None,
            )
            for split in ("train", "val", *(tests or ["test*"]))
            for language in languages
        }
        missing = [f"{split}.{language}" for (split, language), file in files.items() if file is None]
        if missing:
            raise UserError(
                f"dataset.path={path}: {', '.join(missing)} (or .gz) not found; {listing(folder)}. Give the "
                "folder of the raw Multi30k files, each split in both languages."
            )
        found_files = {key: file for key, file in files.items() if file is not None}
        return {
            split: read_parallel(
                found_files[split, self.source], found_files[split, self.target], self.on_bad_pair, counts
            )
            for split in ("train", "val", *tests)
        }

    def _pairs_of_hub(self, counts: Counter[str]) -> dict[str, Iterator[tuple[str, str]]]:
        if "fr" in (self.source, self.target):
            raise UserError(
                f"dataset.source={self.source}, dataset.target={self.target}: dataset.hub={self.hub} has "
                "only en and de. For French, give the folder of the raw files: dataset.path=FOLDER."
            )
        splits = load_splits(
            self.hub,
            None,
            "Give a folder of the raw Multi30k files with dataset.path=FOLDER, or a local copy of the data "
            "set with dataset.hub=FOLDER.",
        )
        wanted = {"train": "train", "val": "validation", "test": "test"}
        for split in wanted.values():
            columns = splits[split].column_names if split in splits else []
            if not {self.source, self.target} <= set(columns):
                there = "; ".join(f"{name}: {', '.join(splits[name].column_names)}" for name in splits)
                raise UserError(
                    f"dataset.hub={self.hub} has to hold the splits {', '.join(wanted.values())} with the "
                    f"columns {self.source} and {self.target}; it holds {there}. Give such a data set, or "
                    "the raw files with dataset.path=FOLDER."
                )
        return {
            name: usable_pairs(
                hub_pairs(splits[split], f"{self.hub} {split}", (self.source, self.target)),
                f"{self.hub} {split}",
                self.on_bad_pair,
                counts,
            )
            for name, split in wanted.items()
        }
