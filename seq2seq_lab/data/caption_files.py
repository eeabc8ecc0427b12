"""Files with captions of images: a table of three columns, or JSON as Karpathy distributes it."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from seq2seq_lab.data.local_files import compose, plain_suffix, read_lines
from seq2seq_lab.data.tables import Reader
from seq2seq_lab.data.text import SPLITS, find_problem, malformed
from seq2seq_lab.errors import UserError

TABLE_FORM = f"Write three columns separated by tabs: {', '.join(SPLITS)}; the file of the image; a caption."
JSON_FORM = 'Write {"images": [{"filename": FILE, "split": SPLIT, "sentences": [{"raw": CAPTION}, …]}, …]}.'
JSON_SPLITS = {"train": "train", "restval": "train", "val": "validation", "test": "test"}


class CaptionRow(NamedTuple):
    """A caption, the split, the file of the image relative to the folder, and where the row is."""

    split: str
    image: str
    caption: str
    location: str


def read_captions(path: Path, encoding: str | None, counts: Counter[str]) -> list[CaptionRow]:
    """Read a file of captions, whose suffix determines the format.

    `.json`, plain or compressed: the splits of Karpathy and Fei-Fei 2015 (arXiv:1412.2306), such as `dataset_flickr8k.json`.
    The split `restval` is part of `train`, and the captions are `raw`.

    Any other suffix: a table without a header, with three columns separated by tabs: the split (`train`, `validation` or
    `test`), the file of the image, and a caption.

    Args:
        encoding: see `read_lines`.
        counts: counts what `read_lines` and `compose` count.

    Raises:
        UserError: names the line or element and what is wrong with it.
    """
    read = _read_json if plain_suffix(path) == ".json" else _read_table
    rows = read(path, encoding, counts)
    return [row._replace(caption=" ".join(compose(row.caption, counts).split())) for row in rows]


def _read_table(path: Path, encoding: str | None, counts: Counter[str]) -> Iterator[CaptionRow]:
    lines = read_lines(path, counts, encoding=encoding)
    for line_number, (line, problem) in enumerate(lines, start=1):
        row = line.split("\t")
        form = "" if len(row) == 3 and row[0] in SPLITS else malformed(line, "of this form")
        if reason := problem or form or find_problem(row[2]):
            raise UserError(f"{path} line {line_number}: {reason}. {TABLE_FORM}")
        yield CaptionRow(row[0], row[1], row[2], f"{path} line {line_number}")


def _read_json(path: Path, encoding: str | None, counts: Counter[str]) -> Iterator[CaptionRow]:
    image: Any
    for location, image, problem in Reader(encoding=encoding).rows(path, counts):
        if problem:
            raise UserError(f"{location}: {problem}. {JSON_FORM}")
        folder, file, split = (image.get(key, "") for key in ("filepath", "filename", "split"))
        if not (isinstance(folder, str) and isinstance(file, str) and file):
            raise UserError(f"{location}: filename={file!r:.80} is not the name of a file. {JSON_FORM}")
        if split not in [*JSON_SPLITS]:
            raise UserError(
                f"{location}: split={split!r:.80} is not one of {', '.join(JSON_SPLITS)}. {JSON_FORM}"
            )
        sentences = image.get("sentences")
        if not isinstance(sentences, list) or not sentences:
            raise UserError(
                f"{location}: sentences={sentences!r:.80} is not a list with captions. {JSON_FORM}"
            )
        for number, sentence in enumerate(sentences, start=1):
            caption: Any = sentence.get("raw") if isinstance(sentence, Mapping) else None
            caption = " ".join(caption.split()) if isinstance(caption, str) else caption
            if reason := find_problem(caption):
                raise UserError(f"{location} sentence {number}: raw: {reason}. {JSON_FORM}")
            yield CaptionRow(JSON_SPLITS[split], str(Path(folder) / file), caption, location)
