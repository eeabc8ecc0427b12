"""Find a sentence of a split in the files of its data set."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from seq2seq_lab.data.local_files import plain_suffix
from seq2seq_lab.data.tables import SUFFIXES, Reader


def find_line(dataset: object, split: str, sentence: str) -> str:
    """Return "FILE line N" of a line or cell that equals a sentence of a split, or "" if none is found.

    The files are those of the setting of `dataset` that is named after the split. Without this setting they are the file
    `train` or `path`, which all splits are taken from, or the files of the split in the folder `path` or `hub`.
    """
    tests = getattr(dataset, "test", None)
    named = tests.get(split) if isinstance(tests, Mapping) else None
    own = _files(named or getattr(dataset, split, None), split)
    shared = _files([getattr(dataset, key, None) for key in ("train", "path", "hub")], split)
    reader = Reader(
        getattr(dataset, "format", "auto"),
        getattr(dataset, "delimiter", None),
        getattr(dataset, "encoding", None),
    )
    for path in [*own] or shared:
        for location, cells in _located_texts(reader, path):
            if sentence in cells:
                return location
    return ""


def _located_texts(reader: Reader, path: Path) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield the texts of each line or row of a file with its location."""
    if plain_suffix(path) not in SUFFIXES:
        for line_number, (line, _) in enumerate(reader.lines(path, Counter(), False), start=1):
            yield f"{path} line {line_number}", [line]
        return
    for location, row, _ in reader.rows(path, Counter(), False):
        yield location, _texts(row)


def _files(setting: object, split: str) -> Iterator[Path]:
    if isinstance(setting, list | tuple):
        for value in setting:
            yield from _files(value, split)
    elif isinstance(setting, str) and setting:
        path = Path(setting).expanduser()
        names = "validation|val|dev" if split == "validation" else re.escape(split)
        start = re.compile(rf"({names})[.-]")  # such as val.de, train-00000-of-00002.parquet
        inside = (one for one in path.rglob("*") if start.match(one.name) and one.is_file())
        yield from [path] if path.is_file() else sorted(inside)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value
