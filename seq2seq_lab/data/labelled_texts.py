"""Texts or pairs of texts with any labels, in tables, JSON lines, or lines that begin with a label."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal

from seq2seq_lab.data.hub import Table, hub_tables
from seq2seq_lab.data.labelled import Example, LabelledCorpus, LabelledFiles, PairCorpus, read_columns
from seq2seq_lab.data.local_files import compose
from seq2seq_lab.data.tables import HIDDEN, Format, Reader, columns_with_classes
from seq2seq_lab.data.text import SPLITS, SplitName, find_problem, malformed
from seq2seq_lab.data.tokenizers.turns import TURN
from seq2seq_lab.errors import UserError, require

PREFIX = "__label__"  # of the labels in files of fastText
MANY = 100_000  # a column with as many different values has texts, not labels
NO_LABEL = "-"  # of the pairs of SNLI on which the annotators did not agree
REMEDY = (
    "Choose the text and the label with dataset.columns=[NAME,NAME], or two texts and the label with [NAME,NAME,NAME]; "
    "numbers from 1 for a table without a line of names."
)
HUB_REMEDY = (
    "Choose the text and the label with dataset.columns=[NAME,NAME], or two texts and the label with [NAME,NAME,NAME], and "
    "the splits with dataset.hub_splits, for example [train,null,validation] to take validation from train."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledTexts(LabelledFiles):
    """Texts, or pairs of texts, with one label each.

    Pairs with the label `-`, and examples with the label -1 from the hub or in a Parquet file with names of the classes, are
    left out and counted. White space at the ends of labels is removed.

    Args:
        train, validation, test: see `LabelledFiles`; None for that of the hub, if it has one.
        format: `label_first` for lines of a label, white space and a text; otherwise see `tables.Reader`.
        delimiter: see `tables.Reader`.
        columns: the text, or two texts, and the label: names, or numbers from 1 for a table without a line of names.
        hub: instead of `train`, a data set of the Hugging Face hub or a local folder in its layout; see `read_hub`.
        hub_config: the sub-set, if the data set has several.
        hub_splits: the names of the splits train, validation and test of the hub; None for one that is taken from train.
            None instead of the three: those called train, validation (or val, dev) and test.
        group: the column of the group of a text; None: each text is a group.

    Raises:
        UserError: a value is out of range, or two settings cannot be combined.
    """

    format: Format | Literal["label_first"]
    delimiter: str | None
    columns: tuple[str, str] | tuple[int, int] | tuple[str, str, str] | tuple[int, int, int]
    hub: str | None
    hub_config: str | None
    hub_splits: tuple[str, str | None, str | None] | None
    group: str | int | None

    def __post_init__(self) -> None:
        LabelledFiles.__post_init__(self)  # super() fails in a dataclass with slots
        if self.group is not None and isinstance(self.group, int) != isinstance(self.columns[0], int):
            raise UserError(
                f"dataset.group={self.group} and dataset.columns={[*self.columns]} must both be names, or both be numbers. "
                f"Change one."
            )
        for name, columns in (("columns", self.columns), ("group", (self.group,))):
            valid = all(column >= 1 for column in columns if isinstance(column, int))
            require(valid, f"dataset.{name}", getattr(self, name), "names, or column numbers from 1")
        if (self.train is None) == (self.hub is None):
            raise UserError(
                f"dataset.train={self.train}, dataset.hub={self.hub}: dataset=labelled needs one of them. Set "
                f"dataset.train=FILE or dataset.hub=OWNER/NAME."
            )
        self._check_hub()
        of_tables = self.group is not None or self.delimiter is not None or self.corpus_type is PairCorpus
        if self.format == "label_first" and of_tables:
            raise UserError(
                f"dataset.group={self.group}, dataset.delimiter={self.delimiter}, dataset.columns={[*self.columns]}: "
                f"dataset.format=label_first has no columns, only a label and a text. Leave them out, or give a table."
            )

    @property
    def corpus_type(self) -> type[LabelledCorpus]:
        """The type of the corpus: pairs of texts if there are three columns."""
        return PairCorpus if len(self.columns) == 3 else LabelledCorpus

    def load(self) -> LabelledCorpus:
        """Read the texts. Raises `UserError` for files that cannot be used."""
        tables = None
        if self.hub is not None:
            columns, reader = [*map(str, self._columns)], self._reader
            tables = hub_tables(
                self.hub, self.hub_config, self._split_names, columns, remedy=HUB_REMEDY, reader=reader
            )
        return self.read(self.corpus_type, tables)

    def _check_hub(self) -> None:
        """Refuse settings that cannot be combined with those of the hub."""
        if self.hub is None:
            for name, value in (("hub_config", self.hub_config), ("hub_splits", self.hub_splits)):
                if value is not None:
                    raise UserError(f"dataset.{name}={value} needs dataset.hub=OWNER/NAME.")
            return
        if self.format == "label_first" or isinstance(self.columns[0], int):
            raise UserError(
                f"dataset.hub={self.hub} has columns with names: dataset.format={self.format} and "
                f"dataset.columns={[*self.columns]} cannot be used. Give dataset.columns=[NAME,NAME]."
            )

    @property
    def _split_names(self) -> dict[SplitName, str] | None:
        """The names of the splits of the hub; see `hub_tables`."""
        if self.hub_splits is None:
            return None
        return {split: name for split, name in zip(SPLITS, self.hub_splits, strict=True) if name is not None}

    @property
    def _reader(self) -> Reader:
        """How the files are read; of lines that begin with a label, only their encoding."""
        form: Format = "auto" if self.format == "label_first" else self.format
        return Reader(form, self.delimiter, self.encoding)

    @property
    def _columns(self) -> tuple[str | int, ...]:
        """The columns of the texts, of the label, and of the group if there is one."""
        return self.columns if self.group is None else (*self.columns, self.group)

    def examples(self, source: Path | list[Table], counts: Counter[str]) -> Iterator[tuple[str, Example]]:
        """See `LabelledFiles.examples`."""
        left_out = {NO_LABEL} if self.corpus_type is PairCorpus else set[str]()
        if self._has_hidden(source):
            left_out.add(str(HIDDEN))
        labels, distinct, location = set[str](), set[int](), ""  # distinct: hashes of texts
        for location, values in self._rows(source, counts):
            *texts, label = values[: len(self.columns)]
            label = label.strip()
            labels.add(label)
            if label in left_out:
                counts["examples_without_label"] += 1
                continue
            for value in values:
                if problem := find_problem(value):
                    raise UserError(f"{location}: {problem}. Correct or remove the row.")
            text = TURN.join(compose(one.replace(TURN, " "), counts) for one in texts)
            if len(distinct) < MANY:
                distinct.add(hash(text))
            yield (text if self.group is None else values[-1]), (text, compose(label, counts), None)
        if labels and labels <= {*left_out, str(HIDDEN)}:
            raise UserError(
                f"{location}: every label of the split is {' or '.join(sorted(labels))}, so they are hidden. Leave the "
                f"split out, for example with dataset.hub_splits=[train,null,validation], or with null instead of its file."
            )
        labels -= left_out
        swapped = len(distinct) < MANY and len(labels) > 2 * len(distinct)
        if len(self.columns) == 2 and swapped and self.format != "label_first":
            first, second = self.columns
            raise UserError(
                f"dataset.columns=[{first},{second}] gives {len(labels):,} different labels and {len(distinct):,} different "
                f"texts, so the two are probably swapped. Set dataset.columns=[{second},{first}]."
            )

    def _has_hidden(self, source: Path | list[Table]) -> bool:
        """Return whether the label -1 means that the label is hidden: in data of the hub, and for indices of classes."""
        if isinstance(source, list):
            return True
        if self.format == "label_first" or self._reader.form("file", str(source)) != "parquet":
            return False
        return str(self.columns[-1]) in columns_with_classes(source)

    def _rows(self, source: Path | list[Table], counts: Counter[str]) -> Iterator[tuple[str, list[str]]]:
        """Yield the location of each example, and its texts, its label and its group if it has one."""
        if isinstance(source, list):
            return chain.from_iterable(
                read_columns(table(counts), self._columns, HUB_REMEDY) for table in source
            )
        if self.format == "label_first":
            return _labels_first(source, self._reader, counts)
        return read_columns(self._reader.rows(source, counts), self._columns, REMEDY)


def _labels_first(path: Path, reader: Reader, counts: Counter[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the location, and the text and the label of each line."""
    for line_number, (line, problem) in enumerate(reader.lines(path, counts), start=1):
        location = f"{path} line {line_number}"
        label, *text = line.split(maxsplit=1)[:2] or [""]
        several = text and label.startswith(PREFIX) and text[0].startswith(PREFIX)
        form = "" if text else malformed(line, "a label, a space and a text")
        if wrong := problem or form or ("the text has several labels" if several else ""):
            raise UserError(f"{location}: {wrong}. Correct or remove the line.")
        yield location, [text[0].rstrip(), label.removeprefix(PREFIX)]
