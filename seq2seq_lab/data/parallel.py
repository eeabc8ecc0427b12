"""The user's own pairs: tables, JSON lines, two files of lines, or a data set of the hub."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Literal

import numpy as np

from seq2seq_lab.data.corpus import Corpus, ParallelText
from seq2seq_lab.data.deduplication import count_repeats
from seq2seq_lab.data.hub import hub_pairs, load_splits
from seq2seq_lab.data.lines import Lines
from seq2seq_lab.data.tables import check_columns, comma_rows, json_pairs, tab_rows, table_pairs
from seq2seq_lab.data.text import (
    OnBadPair,
    SplitName,
    check_positive,
    check_shares,
    collect,
    divide,
    empty_split,
    listing,
    new_counts,
    read_parallel,
    split_by_hash,
    usable_pairs,
    within,
)
from seq2seq_lab.errors import UserError, did_you_mean

OnRepeat = Literal["keep", "drop"]
Format = Literal["auto", "tsv", "csv", "jsonl"]
Files = str | tuple[str, str]  # of both sides, or of each

_FORMATS: dict[str, Format] = {
    ".tsv": "tsv",
    ".txt": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".json": "jsonl",
}
_HUB_NAMES = {"train": ("train",), "validation": ("validation", "val", "dev"), "test": ("test",)}
_HUB_REMEDY = "Give a local copy of the data set with dataset.hub=FOLDER, or files with dataset.train=FILE."


@dataclass(frozen=True, slots=True)
class Parallel:
    """Pairs of the user's, from files or from the hub; `conf/dataset/parallel.yaml` says what each key means.

    Validation and test are given, or cut from the training pairs by a hash of their source side. Without training pairs
    there are the test sets that are given and nothing to train with: a finished run can be scored on them. `source` and
    `target` are labels. `limit` keeps the first training pairs, before repeats are dropped; every file is
    read and checked to its end.

    What is dropped for a leak is a training pair whose *source side* stands in validation or test: a model
    that has seen the question with another answer has seen it. `counts` has `leaked_sources` after this
    definition and `leaked_pairs`, where both sides agree; both are numbers of held-out pairs, found before
    anything is dropped. `dropped_duplicates` and `dropped_leaks` (training pairs) are what was.
    """

    train: Files | None
    validation: Files | None
    test: Files | Mapping[str, Files] | None
    format: Format
    columns: tuple[int, int] | tuple[str, str] | None
    hub: str | None
    hub_config: str | None
    source: str
    target: str
    validation_share: float
    test_share: float
    on_bad_pair: OnBadPair
    on_duplicate: OnRepeat
    on_leak: OnRepeat
    max_tokens: int | None
    limit: int | None

    def __post_init__(self) -> None:
        if (self.train is not None and self.hub is not None) or not (self.train or self.hub or self.test):
            raise UserError(
                f"dataset.train={self.train}, dataset.hub={self.hub}: give one of them, dataset.train=FILE, "
                "dataset.train=[SOURCE_FILE,TARGET_FILE] or dataset.hub=OWNER/NAME. (A finished run is scored on "
                "dataset.test=FILE without them.)"
            )
        if self.hub is None and self.hub_config is not None:
            raise UserError(
                f"dataset.hub_config={self.hub_config} is the sub-set of a data set of the hub, but "
                "dataset.hub=null. Give dataset.hub=OWNER/NAME, or leave dataset.hub_config out."
            )
        if self.columns is not None and (
            len(self.columns) != 2
            or len({type(column) for column in self.columns}) != 1
            or any(isinstance(column, int) and column < 1 for column in self.columns)
        ):
            raise UserError(
                f"dataset.columns={self.columns}: give two, [SOURCE,TARGET], both as whole numbers from 1 or "
                "both as names; null is the first two."
            )
        numbered = self.columns is not None and isinstance(self.columns[0], int)
        named = [key for key, files in self._files().items() if self._format_of(key, files) == "jsonl"]
        if numbered and (named or self.hub is not None):
            raise UserError(
                f"dataset.columns={self.columns}: JSON lines and data sets of the hub have names, no numbers "
                f"({', '.join(f'dataset.{key}' for key in named) or 'dataset.hub'}). Give two names."
            )
        check_shares(self.validation_share, self.test_share)
        check_positive("dataset.max_tokens", self.max_tokens)
        check_positive("dataset.limit", self.limit)

    def _files(self) -> dict[str, Files]:
        """The files that are given, by the key below `dataset` that gives them."""
        one = None if isinstance(self.test, Mapping) else self.test
        given = {"train": self.train, "validation": self.validation, "test": one}
        files = {key: value for key, value in given.items() if value is not None}
        if isinstance(self.test, Mapping):
            if not self.test or not all(re.fullmatch(r"[\w.-]+", str(name)) for name in self.test):
                raise UserError(
                    f"dataset.test={self.test}: give {{NAME: FILE, …}}, a name of letters, digits, '-', '_' and "
                    "'.' for each test set; null cuts one from train."
                )
            files |= {f"test.{name}": value for name, value in self.test.items()}
        return files

    def _format_of(self, key: str, files: Files) -> str:
        if not isinstance(files, str):
            # The annotations are checked before, but not those within a mapping.
            two = isinstance(files, list | tuple) and len(files) == 2
            if not two or not all(isinstance(file, str) for file in files):
                raise UserError(
                    f"dataset.{key}={files}: give one file with both sides, or two, [SOURCE_FILE,TARGET_FILE]."
                )
            return "lines"
        if self.format != "auto":
            return self.format
        suffix = Path(files.removesuffix(".gz")).suffix
        if suffix.lower() not in _FORMATS:
            raise UserError(
                f"dataset.{key}={files}: {suffix or 'a name without an end'} does not say how both sides "
                f"stand in it.{did_you_mean(suffix, _FORMATS)} Known are {', '.join(_FORMATS)}, each also with "
                ".gz. Say dataset.format=tsv|csv|jsonl, or give two files, one sentence a line: "
                f"dataset.{key}=[SOURCE_FILE,TARGET_FILE]."
            )
        return _FORMATS[suffix.lower()]

    def load(self) -> Corpus:
        """Read the corpus. Raises `UserError` for missing files and columns, bad pairs and empty splits."""
        counts = new_counts()
        streams = self._streams(counts)
        given = {key.partition(".")[0] for key in streams}
        made = {"validation", "test"} - given if "train" in given else set()

        def split_of(text: str) -> SplitName:
            split = split_by_hash(text, self.validation_share, self.test_share) if made else "train"
            return split if split in made else "train"

        texts: dict[str, ParallelText] = {}
        for key, pairs in streams.items():
            short = within(pairs, self.max_tokens, counts)
            if key == "train":
                cut = divide(short, split_of, self.limit)
                texts |= {name: text for name, text in cut.items() if name == "train" or name in made}
            else:
                texts[key] = collect(short, None)
        self._check_filled(texts, made)
        for split in ("train", "validation"):
            texts.setdefault(split, ParallelText((), ()))
        train = texts["train"]
        if train and (train.source[0], train.target[0]) == (self.source, self.target):
            raise UserError(
                f"The first training pair is {self.source!r}, {self.target!r}, as the two sides are called: a line of "
                f"names? Then give dataset.columns=[{self.source},{self.target}]."
            )
        texts = self._without_repeats(texts, counts)
        train, validation = texts.pop("train"), texts.pop("validation")
        tests = {key.removeprefix("test."): text for key, text in texts.items()}
        return Corpus(self.source, self.target, train, validation, tests, counts)

    def _streams(self, counts: Counter[str]) -> dict[str, Iterator[tuple[str, str]]]:
        """The pairs of each split that is given, by the key of its files."""
        files = self._files()
        paths = {key: self._paths(key, value) for key, value in files.items()}
        streams = {} if self.hub is None else self._streams_of_hub(self.hub, counts)
        if any(key.startswith("test.") for key in files):
            streams.pop("test", None)
        for key, value in files.items():
            streams[key] = self._pairs(self._format_of(key, value), paths[key], counts)
        return streams

    def _paths(self, key: str, files: Files) -> list[Path]:
        paths = [Path(file).expanduser() for file in ([files] if isinstance(files, str) else files)]
        for path in paths:
            if not path.is_file():
                folder = path if path.is_dir() else path.parent
                there = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
                raise UserError(
                    f"dataset.{key}={files}: there is no file {path}; {listing(folder)}."
                    f"{did_you_mean(path.name, there)} Give the path of the file itself."
                )
        return paths

    def _pairs(self, form: str, paths: list[Path], counts: Counter[str]) -> Iterator[tuple[str, str]]:
        if form == "lines":
            return read_parallel(paths[0], paths[1], self.on_bad_pair, counts)
        candidates = (
            json_pairs(paths[0], self._names(), counts)
            if form == "jsonl"
            else table_pairs(paths[0], tab_rows if form == "tsv" else comma_rows, self.columns, counts)
        )
        return usable_pairs(candidates, str(paths[0]), self.on_bad_pair, counts)

    def _names(self) -> tuple[str, str]:
        """The names of the two columns where columns have names in any case."""
        source, target = self.columns or (self.source, self.target)
        return str(source), str(target)

    def _streams_of_hub(self, hub: str, counts: Counter[str]) -> dict[str, Iterator[tuple[str, str]]]:
        splits = load_splits(hub, self.hub_config, _HUB_REMEDY)
        streams = {}
        for split, names in _HUB_NAMES.items():
            name = next((name for name in names if name in splits), None)
            if name is not None:
                where = f"{hub} {name}"
                check_columns(where, self._names(), splits[name].column_names)
                candidates = hub_pairs(splits[name], where, self._names())
                streams[split] = usable_pairs(candidates, where, self.on_bad_pair, counts)
        if "train" not in streams:
            raise UserError(
                f"dataset.hub={hub} has no split train; it has {', '.join(splits)}. {_HUB_REMEDY}"
            )
        return streams

    def _check_filled(self, texts: Mapping[str, ParallelText], made: set[str]) -> None:
        empty = next((key for key, text in texts.items() if not text), None)
        if empty is not None and empty in made:
            raise empty_split(
                empty, texts.values(), f"give dataset.{empty}=FILE, or more pairs to cut it from."
            )
        if empty is not None:
            files = self._files()
            given = (
                f"dataset.{empty}={files[empty]}" if empty in files else f"dataset.hub={self.hub}: {empty}"
            )
            raise UserError(
                f"{given} has no pairs that can be used (dataset.on_bad_pair={self.on_bad_pair}, "
                f"dataset.max_tokens={self.max_tokens}). Give pairs, or change these."
            )

    def _without_repeats(
        self, texts: Mapping[str, ParallelText], counts: Counter[str]
    ) -> dict[str, ParallelText]:
        counts["dropped_duplicates"] = counts["dropped_leaks"] = 0
        keys = ["train", *(key for key in texts if key != "train")]
        repeats = count_repeats(texts["train"], [texts[key] for key in keys[1:]], counts)
        kept = {}
        for key, duplicates in zip(keys, repeats.duplicates, strict=True):
            unwanted = duplicates if self.on_duplicate == "drop" else np.zeros_like(duplicates)
            counts["dropped_duplicates"] += int(unwanted.sum())
            if key == "train" and self.on_leak == "drop":
                counts["dropped_leaks"] += int((repeats.leaks & ~unwanted).sum())
                unwanted |= repeats.leaks
            text, keep = texts[key], ~unwanted
            kept[key] = (
                text
                if keep.all()
                else ParallelText(
                    Lines.of(compress(text.source, keep)), Lines.of(compress(text.target, keep))
                )
            )
        if texts["train"] and not kept["train"]:
            raise UserError(
                "dataset.on_leak=drop leaves no training pair: every source side stands in validation or test "
                "too. Give other files, or dataset.on_leak=keep."
            )
        return kept
