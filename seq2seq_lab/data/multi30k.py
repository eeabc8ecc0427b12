"""Multi30k: image captions in English, German and French (Elliott et al. 2016, arXiv:1605.00459)."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from seq2seq_lab.config.type_checks import Count
from seq2seq_lab.data.alignment_files import AlignmentReader, Alignments, Base, with_alignments
from seq2seq_lab.data.corpus import Corpus, ParallelText
from seq2seq_lab.data.deduplication import count_repeats
from seq2seq_lab.data.hub import read_hub
from seq2seq_lab.data.local_files import check_encoding, find_packed, list_folder, plain_name
from seq2seq_lab.data.tables import Reader
from seq2seq_lab.data.text import (
    OnBadPair,
    check_languages,
    collect,
    count_dropped,
    new_counts,
    read_parallel,
)
from seq2seq_lab.errors import UserError

_REMEDY = (
    "Give a folder of the raw Multi30k files (de, en, fr) with dataset.path=FOLDER, or a local copy of the hub's data set "
    "(de, en) with dataset.hub=FOLDER."
)

Language = Literal["de", "en", "fr"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Multi30k:
    """Multi30k, task 1, from raw files or from the Hugging Face hub.

    `path` is a folder with `train.de`, `train.en`, …, `val.*` and any `test*.*`, one sentence per line, plain or compressed
    (the plain file if both exist); the file names are the names of the test sets. If `path` is None, the corpus is the
    data set `hub` (or a local folder in its layout), in English and German, with one test set `test`. `limit` keeps the
    first training pairs; the whole file is still checked.
    """

    licence: ClassVar[str] = (
        "non-commercial research and education (the Multi30k data set); captions of Flickr30k"
    )
    path: str | None
    hub: str
    source: Language
    target: Language
    encoding: str | None
    alignments: Alignments | None
    alignment_base: Base | None
    alignments_reversed: bool
    on_bad_pair: OnBadPair
    limit: Count | None

    def __post_init__(self) -> None:
        check_encoding(self.encoding)
        check_languages(self.source, self.target)

    def load(self) -> Corpus:
        """Read the corpus. Raises `UserError` for missing files, bad lines, and an unreachable hub."""
        counts = new_counts()
        streams = (
            self._read_files(Path(self.path).expanduser(), counts) if self.path else self._read_hub(counts)
        )
        splits, incomplete = dict[str, ParallelText](), set()
        for name, pairs in streams.items():
            before = count_dropped(counts)
            splits[name] = collect(pairs, self.limit if name == "train" else None)
            if count_dropped(counts) > before:
                incomplete.add(name)
        for name, text in splits.items():
            if not text:
                raise UserError(
                    f"dataset.path={self.path}, dataset.hub={self.hub}: {name} has no pairs. {_REMEDY}"
                )
        reader = AlignmentReader(base=self.alignment_base, is_reversed=self.alignments_reversed)
        train = splits.pop("train")
        splits = with_alignments(splits, self.alignments, reader, incomplete)
        validation = splits.pop("validation")
        count_repeats(train, [validation, *splits.values()], counts)
        return Corpus(self.source, self.target, train, validation, splits, counts)

    def _read_files(self, folder: Path, counts: Counter[str]) -> dict[str, Iterator[tuple[str, str]]]:
        languages = (self.source, self.target)
        tests = {
            plain_name(file.name).removesuffix(f".{language}")
            for language in languages
            for file in folder.glob(f"test*.{language}*")
            if plain_name(file.name).endswith(f".{language}")
        }
        streams, missing = {}, []
        for name in ("train", "val", *sorted(tests or {"test*"})):
            paths = []
            for language in languages:
                paths.append(find_packed(folder / f"{name}.{language}"))
                if not paths[-1].is_file():
                    missing.append(paths[-1].name)
            split = "validation" if name == "val" else name
            streams[split] = read_parallel(paths[0], paths[1], self.on_bad_pair, counts, self.encoding)
        if missing:
            raise UserError(
                f"dataset.path={self.path}: {', '.join(missing)} (or compressed) not found; {list_folder(folder)}. {_REMEDY}"
            )
        return streams

    def _read_hub(self, counts: Counter[str]) -> dict[str, Iterator[tuple[str, str]]]:
        streams = read_hub(
            self.hub,
            None,
            (self.source, self.target),
            on_bad_pair=self.on_bad_pair,
            counts=counts,
            remedy=_REMEDY,
            reader=Reader(encoding=self.encoding),
        )
        for split in ("validation", "test"):
            if split not in streams:
                raise UserError(f"dataset.hub={self.hub} has no split {split}. {_REMEDY}")
        return {str(split): pairs for split, pairs in streams.items()}
