"""Texts with any labels, in tables, JSON lines, or lines that begin with a label."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from seq2seq_lab.data.labelled import (
    Example,
    LabelledCorpus,
    check_group,
    read_columns,
    read_labelled,
    refuse_without_train,
)
from seq2seq_lab.data.local_files import check_encoding, compose
from seq2seq_lab.data.tables import Format, Reader
from seq2seq_lab.data.text import check_shares, find_problem
from seq2seq_lab.data.tokenizers.turns import TURN
from seq2seq_lab.errors import UserError

PREFIX = "__label__"  # of the labels in files of fastText
REMEDY = "Choose the text and the label with dataset.columns=[NAME,NAME], or numbers from 1."


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledTexts:
    """Texts with one label each.

    Args:
        train: a file, plain or compressed.
        validation: the same; None to take a share of the training texts, by a hash of the text or of the group.
        test: the same.
        format: `label_first` for lines of a label, white space and a text; otherwise see `tables.Reader`.
        delimiter, encoding: see `tables.Reader`.
        columns: the text and the label: names, or numbers from 1 for a table without a line of names.
        group: the column of the group of a text; the texts of a group are in the same split. None: the
            shares are taken by a hash of the text.
        language: the code of the language of the texts.
        validation_share: the share of the texts, or of the groups, that is used for validation.
        test_share: the share of them that is used for the test.

    Raises:
        UserError: a value is out of range, or two settings cannot be combined.
    """

    train: str | None
    validation: str | None
    test: str | None
    format: Format | Literal["label_first"]
    delimiter: str | None
    encoding: str | None
    columns: tuple[str, str] | tuple[int, int]
    group: str | int | None
    language: str
    validation_share: float
    test_share: float

    def __post_init__(self) -> None:
        check_encoding(self.encoding)
        check_shares(self.validation_share, self.test_share)
        refuse_without_train(self)
        check_group(self.columns, self.group)
        if self.train is None:
            raise UserError("dataset.train=null: dataset=labelled needs a file. Give dataset.train=FILE.")
        if self.format == "label_first" and self.group is not None:
            raise UserError(
                f"dataset.group={self.group} is a column, and dataset.format=label_first has none. Leave it out, or give a "
                f"table."
            )

    def load(self) -> LabelledCorpus:
        """Read the texts. Raises `UserError` for files that cannot be used."""
        return read_labelled(self, self._read, LabelledCorpus)

    def _read(self, path: Path, counts: Counter[str]) -> Iterator[tuple[str, Example]]:
        for location, (text, label, *group) in self._rows(path, counts):
            for value in (text, label, *group):
                if problem := find_problem(value):
                    raise UserError(f"{location}: {problem}. Correct or remove the row.")
            text = compose(text.replace(TURN, " "), counts)
            yield (group[0] if group else text), (text, compose(label, counts), None)

    def _rows(self, path: Path, counts: Counter[str]) -> Iterator[tuple[str, list[str]]]:
        """Yield the location of each text, and the text, the label and the group if it has one."""
        if self.format == "label_first":
            return _labels_first(path, Reader(encoding=self.encoding), counts)
        reader = Reader(self.format, self.delimiter, self.encoding)
        columns = self.columns if self.group is None else (*self.columns, self.group)
        return read_columns(path, columns, reader, counts, REMEDY)


def _labels_first(path: Path, reader: Reader, counts: Counter[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the location, and the text and the label of each line."""
    for line_number, (line, problem) in enumerate(reader.lines(path, counts), start=1):
        location = f"{path} line {line_number}"
        label, *text = line.split(maxsplit=1)[:2] or [""]
        several = text and label.startswith(PREFIX) and text[0].startswith(PREFIX)
        form = "" if text else f"{line!r:.80} is not a label, a space and a text"
        if wrong := problem or form or ("the text has several labels" if several else ""):
            raise UserError(f"{location}: {wrong}. Correct or remove the line.")
        yield location, [text[0].rstrip(), label.removeprefix(PREFIX)]
