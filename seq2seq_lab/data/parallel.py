"""The user's pairs: tables, JSON lines, two files of lines, or a data set of the Hugging Face hub."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Literal

from seq2seq_lab.config.type_checks import Count
from seq2seq_lab.data import text
from seq2seq_lab.data.alignment_files import AlignmentReader, Alignments, Base, with_alignments
from seq2seq_lab.data.corpus import Corpus, ParallelText
from seq2seq_lab.data.deduplication import count_repeats
from seq2seq_lab.data.hub import read_hub
from seq2seq_lab.data.lines import Lines
from seq2seq_lab.data.local_files import check_encoding, find_file, plain_suffix
from seq2seq_lab.data.tables import COLUMNS_REMEDY, SUFFIXES, Format, Reader
from seq2seq_lab.errors import UserError

OnRepeat = Literal["keep", "drop"]
Files = str | tuple[str, str]  # one file with both sides, or one file per side

_HUB_REMEDY = (
    f"{COLUMNS_REMEDY} Or use a local copy with dataset.hub=FOLDER, or files with dataset.train=FILE."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """Pairs from files or from the hub; `conf/dataset/parallel.yaml` describes each key.

    Validation and test are given, or taken from the training pairs by a hash of their source side. Without training pairs
    the corpus contains only the given test sets, on which a finished run can be evaluated. `limit` keeps the first
    training pairs, before repeats are dropped; every file is still checked to its end.

    `on_leak="drop"` drops the training pairs whose *source side* is in validation or test, with any target. `counts` has
    `dropped_duplicates` and `dropped_leaks` in addition to those of `new_counts`.
    """

    train: Files | None
    validation: Files | None
    test: Files | Mapping[str, Files] | None
    format: Format
    delimiter: str | None
    encoding: str | None
    columns: tuple[int, int] | tuple[str, str] | None
    alignments: Alignments | None
    alignment_base: Base | None
    alignments_reversed: bool
    hub: str | None
    hub_config: str | None
    source: str
    target: str
    validation_share: float
    test_share: float
    on_bad_pair: text.OnBadPair
    on_duplicate: OnRepeat
    on_leak: OnRepeat
    max_tokens: Count | None
    limit: Count | None

    def __post_init__(self) -> None:
        if (self.train is not None and self.hub is not None) or not (self.train or self.hub or self.test):
            raise UserError(
                f"dataset.train={self.train}, dataset.hub={self.hub}: set one of dataset.train=FILE, "
                "dataset.train=[SOURCE_FILE,TARGET_FILE] and dataset.hub=OWNER/NAME. To evaluate a finished run, "
                "dataset.test=FILE is enough."
            )
        check_encoding(self.encoding)
        if self.hub is None and self.hub_config is not None:
            raise UserError(f"dataset.hub_config={self.hub_config} needs dataset.hub=OWNER/NAME.")
        formats = {key: self._format_of(key, files) for key, files in self._files().items()}
        if self.hub is None and {*formats.values()} == {"lines"}:
            for name, value in (
                ("columns", self.columns),
                ("delimiter", self.delimiter),
                ("format", self.format),
            ):
                if value not in (None, "auto"):
                    raise UserError(
                        f"dataset.{name}={value}: two files have one sentence per line and no columns. Leave it out."
                    )
        if self.columns is not None and isinstance(self.columns[0], int):
            named = [f"dataset.{key}" for key, form in formats.items() if form in ("jsonl", "parquet")]
            named += ["dataset.hub"] if self.hub is not None else []
            if named:
                raise UserError(
                    f"dataset.columns={self.columns}: {', '.join(named)} has no column numbers. Give two names."
                )
            if min(map(int, self.columns)) < 1:
                raise UserError(f"dataset.columns={self.columns}: column numbers start from 1.")
        if self.train or self.hub:
            given = {key.partition(".")[0] for key in self._files()}
            text.check_shares(self.validation_share, self.test_share, given)

    def _files(self) -> dict[str, Files]:
        """Return the given files by their key below `dataset`."""
        named = self.test if isinstance(self.test, Mapping) else None
        if named is not None and not (named and all(re.fullmatch(r"[\w.-]+", str(name)) for name in named)):
            raise UserError(
                f"dataset.test={self.test}: give {{NAME: FILE, …}} with names of letters, digits, '-', '_' and '.', or null "
                "to take a test set from train."
            )
        for name in {"train", "validation"} & set(named or ()):
            raise UserError(
                f"dataset.test={self.test}: {name} is the name of another split. Choose another name, such as "
                f"dataset.test={{on_{name}: FILE}}."
            )
        one = None if isinstance(self.test, Mapping) else self.test
        single = {"train": self.train, "validation": self.validation, "test": one}
        files = {key: value for key, value in single.items() if value is not None}
        return files | {f"test.{name}": value for name, value in (named or {}).items()}

    def _format_of(self, key: str, files: Files) -> str:
        if not isinstance(files, str):
            # The values of a mapping are not checked against the annotations.
            if not isinstance(files, list | tuple) or [type(file) for file in files] != [str, str]:
                raise UserError(
                    f"dataset.{key}={files}: give one file with both sides, or [SOURCE_FILE,TARGET_FILE]."
                )
            for file in files:
                suffix = plain_suffix(file)
                if suffix in SUFFIXES and suffix != ".txt":
                    raise UserError(
                        f"dataset.{key}={list(files)}: two files have one sentence per line, and {file} is a table. Give "
                        f"one table with both sides, or rename the files to .txt."
                    )
            return "lines"
        return self._reader.form(f"dataset.{key}", files)

    @property
    def _shares(self) -> dict[str, float]:
        """The shares of validation and test."""
        return {"validation": self.validation_share, "test": self.test_share}

    @property
    def _reader(self) -> Reader:
        return Reader(self.format, self.delimiter, self.encoding)

    def load(self) -> Corpus:
        """Read the corpus. Raises `UserError` for missing files and columns, bad pairs and empty splits."""
        counts = text.new_counts()
        streams = self._open_streams(counts)
        cut = set()
        if "train" in streams:
            cut = {"validation", "test"} - {key.partition(".")[0] for key in streams}

        def split_of(source: str) -> text.SplitName:
            split = text.split_by_hash(source, self.validation_share, self.test_share) if cut else "train"
            return split if split in cut else "train"

        texts: dict[str, ParallelText] = {}
        incomplete = set()
        for key, pairs in streams.items():
            short = text.drop_long_pairs(pairs, self.max_tokens, counts)
            if key == "train":
                divided = text.divide(short, split_of, self.limit)
                texts |= {name: part for name, part in divided.items() if name in {"train", *cut}}
            else:
                before = text.count_dropped(counts)
                texts[key] = text.collect(short, None)
                if text.count_dropped(counts) > before:
                    incomplete.add(key.removeprefix("test."))
        self._check_filled(texts, cut)
        for split in ("train", "validation"):
            texts.setdefault(split, ParallelText((), ()))
        first = next(zip(texts["train"].source, texts["train"].target, strict=True), None)
        if not isinstance(self.train, str) and first == (self.source, self.target):
            raise UserError(
                f"The first training pair consists of the names of the two sides, {first[0]!r} and {first[1]!r}. Remove it, "
                f"or change dataset.source and dataset.target."
            )
        if cut and texts["train"]:
            sizes = {name: len(texts[name]) for name in sorted(cut, reverse=True)}
            text.warn_of_small_splits(sizes, len(texts["train"]) + sum(sizes.values()), self._shares)
        names = {key.removeprefix("test."): key for key in streams if key != "train"}
        reader = AlignmentReader(base=self.alignment_base, is_reversed=self.alignments_reversed)
        held_out = {name: texts[key] for name, key in names.items()}
        for name, part in with_alignments(held_out, self.alignments, reader, incomplete).items():
            texts[names[name]] = part
        texts = self._drop_repeats(texts, counts)
        train, validation = texts.pop("train"), texts.pop("validation")
        tests = {key.removeprefix("test."): part for key, part in texts.items()}
        return Corpus(self.source, self.target, train, validation, tests, counts)

    def _open_streams(self, counts: Counter[str]) -> dict[str, Iterator[tuple[str, str]]]:
        """Return the pairs of each given split, by the key of its files."""
        files = self._files()
        paths = {
            key: [
                find_file(f"dataset.{key}", file) for file in ([given] if isinstance(given, str) else given)
            ]
            for key, given in files.items()
        }
        streams: dict[str, Iterator[tuple[str, str]]] = {}
        if self.hub is not None:
            hub = read_hub(
                self.hub,
                self.hub_config,
                self._names(),
                on_bad_pair=self.on_bad_pair,
                counts=counts,
                remedy=_HUB_REMEDY,
                reader=self._reader,
            )
            given = {key.partition(".")[0] for key in files}
            streams |= {split: pairs for split, pairs in hub.items() if split not in given}
        for key, value in files.items():
            streams[key] = self._read_pairs(self._format_of(key, value), paths[key], counts)
        return streams

    def _read_pairs(self, form: str, paths: list[Path], counts: Counter[str]) -> Iterator[tuple[str, str]]:
        if form == "lines":
            return text.read_parallel(paths[0], paths[1], self.on_bad_pair, counts, self.encoding)
        candidates = self._reader.pairs(paths[0], self.columns, (self.source, self.target), counts)
        return text.usable_pairs(candidates, str(paths[0]), self.on_bad_pair, counts)

    def _names(self) -> tuple[str, str]:
        """Return the names of the two columns, for files and data sets whose columns have names."""
        source, target = self.columns or (self.source, self.target)
        return str(source), str(target)

    def _check_filled(self, texts: Mapping[str, ParallelText], cut: set[str]) -> None:
        for key, part in texts.items():
            if not part and key in cut:
                remedy = f"give dataset.{key}=FILE or more training pairs"
                divided = [texts[name] for name in ("train", *cut)]
                raise text.empty_split_error([key], divided, self._shares, remedy)
            if not part:
                origin = (
                    f"dataset.{key}={file}" if (file := self._files().get(key)) else f"dataset.hub={self.hub}"
                )
                limits = [
                    *(["dataset.on_bad_pair=drop"] if self.on_bad_pair == "drop" else []),
                    *([f"dataset.max_tokens={self.max_tokens}"] if self.max_tokens else []),
                ]
                given = f" with {' and '.join(limits)}. Give more pairs, or change this." if limits else "."
                raise UserError(f"{origin}: {key} has no pairs{given}")

    def _drop_repeats(
        self, texts: Mapping[str, ParallelText], counts: Counter[str]
    ) -> dict[str, ParallelText]:
        """Return the texts without duplicates and leaked pairs, where these are to be dropped."""
        counts["dropped_duplicates"] = counts["dropped_leaks"] = 0
        keys = ["train", *(key for key in texts if key != "train")]
        repeats = count_repeats(
            texts["train"], [texts[key] for key in keys[1:]], counts, (self.source, self.target)
        )
        kept = {}
        for key, duplicates in zip(keys, repeats.duplicates, strict=True):
            unwanted = duplicates & (self.on_duplicate == "drop")
            counts["dropped_duplicates"] += int(unwanted.sum())
            if key == "train" and self.on_leak == "drop":
                counts["dropped_leaks"] += int((repeats.leaks & ~unwanted).sum())
                unwanted |= repeats.leaks
            part, keep = texts[key], ~unwanted
            if unwanted.any():
                part = ParallelText(
                    Lines.of(compress(part.source, keep)),
                    Lines.of(compress(part.target, keep)),
                    part.gold and [*compress(part.gold, keep)],
                )
            kept[key] = part
        if texts["train"] and not kept["train"]:
            raise UserError(
                "dataset.on_leak=drop leaves no training pairs: every source side is also in validation or test. Use other "
                "files, or dataset.on_leak=keep."
            )
        return kept
