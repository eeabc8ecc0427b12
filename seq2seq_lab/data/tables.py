"""Read examples from local files with several values each: columns of text, JSON and Parquet."""

import contextlib
import csv
import itertools
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from seq2seq_lab.data.headers import check_columns, check_first_rows
from seq2seq_lab.data.local_files import compose, list_folder, plain_suffix, read_lines
from seq2seq_lab.data.progress import progress
from seq2seq_lab.data.text import find_line_problem, find_problem
from seq2seq_lab.errors import UserError, did_you_mean
from seq2seq_lab.files import parse_json

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

Format = Literal["auto", "tsv", "csv", "jsonl", "parquet"]
Pairs = Iterator[tuple[str, str, str]]  # candidates of `usable_pairs`
Cells = Sequence[str] | Mapping[str, object]
Rows = Iterator[tuple[str, Cells, str]]  # location, cells by column index or name, problem

CHOOSE = "Choose two with dataset.columns=[NAME,NAME]."
COLUMNS_REMEDY = f"{CHOOSE} With null they are dataset.source and dataset.target."
COLUMN_REMEDY = (
    "Set dataset.column to one of them, or to a number from 1 for a table without a line of names."
)
SUFFIXES = {
    ".tsv": "tsv",
    ".tab": "tsv",
    ".txt": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
}
DELIMITERS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "space": " "}
"""The names of delimiters in `dataset.delimiter`."""
HIDDEN = -1  # the index of a hidden label in data of the library `datasets`

_SAMPLE = 1_000  # lines that show how a table is written
_FEW = 5  # quoted cells
_FIRST = 100  # rows: the number of columns is that of most of them; two objects in a row show JSON lines
_BATCH = 1_000  # rows of Parquet in memory
_CELL_LINES = 100  # the most lines of a quoted cell: a stray quotation mark does not hide the rest of a file
_NOT_CLOSED = (
    f"a quoted cell is not closed within {_CELL_LINES} lines or before the end of the file; close it (quotation marks "
    "inside it are doubled), or set dataset.format=tsv with dataset.delimiter, where quotation marks have no meaning"
)
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_DECLARATION = re.compile(r'"?sep=([^"])"?', re.IGNORECASE)
_SPACED_QUOTE = re.compile(r'\s+".*"\s*')

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reader:
    """How the files of a data set are read.

    Args:
        format: "auto" for that of the suffix.
        delimiter: what separates the columns, a name of `DELIMITERS` or the characters. None for tabs in tsv, and in
            csv for the one of comma, semicolon, tab and "|" that divides the lines into equal numbers of columns.
        encoding: see `read_lines`.
        as_written: see `read_lines`.
    """

    format: Format = "auto"
    delimiter: str | None = None
    encoding: str | None = None
    as_written: bool = False

    def form(self, key: str, file: str) -> str:
        """Return the format of a file.

        Raises:
            UserError: a folder, an unknown suffix, or a delimiter that cannot be used.
        """
        form, suffix = str(self.format), plain_suffix(file)
        if form == "auto":
            if Path(file).is_dir():
                raise UserError(f"{key}={file} is a folder; {list_folder(Path(file))}. Give a file.")
            if suffix not in SUFFIXES:
                raise UserError(
                    f"{key}={file}: the suffix {suffix!r} is not one of {', '.join(SUFFIXES)} (or compressed, such as .gz)."
                    f"{did_you_mean(suffix, SUFFIXES)} Convert the file, for example to CSV, or set "
                    f"dataset.format=tsv|csv|jsonl|parquet for a file in one of these formats."
                )
            form = SUFFIXES[suffix]
        delimiter = self.separator
        if delimiter is not None and form in ("jsonl", "parquet"):
            raise UserError(
                f"dataset.delimiter={self.delimiter!r}: {key}={file} has no columns to separate. Leave it out."
            )
        if delimiter is not None and (
            not delimiter or "\n" in delimiter or (form == "csv" and len(delimiter) > 1)
        ):
            raise UserError(
                f"dataset.delimiter={self.delimiter!r} cannot separate the columns of {key}={file}: a csv needs one "
                "character. For more characters and no quotation marks set dataset.format=tsv."
            )
        return form

    @property
    def separator(self) -> str | None:
        """The characters of `delimiter`."""
        return None if self.delimiter is None else DELIMITERS.get(self.delimiter, self.delimiter)

    def lines(self, path: Path, counts: Counter[str], show: bool = True) -> Iterator[tuple[str, str]]:
        """Return the lines of a file; see `read_lines`."""
        return read_lines(path, counts, show, self.encoding, as_written=self.as_written)

    def rows(self, path: Path, counts: Counter[str], show: bool = True) -> Rows:
        """Yield the rows of a table. Raises `UserError` for a file that cannot be read."""
        form = self.form("file", str(path))
        if form == "parquet":
            return parquet_rows(path, show)
        if form == "jsonl":
            return json_rows(path, self.lines(path, counts, show))
        separator = self.separator
        if separator is None and self.format == "tsv":
            separator = "\t"
        elif separator is None:
            separator, form = _written(
                path, form, [*itertools.islice(self.lines(path, Counter(), False), _SAMPLE)]
            )
        lines = self.lines(path, counts, show)
        if form == "tsv":
            return tab_rows(path, lines, separator)
        return comma_rows(path, lines, separator, self.separator is None)

    def column(self, path: Path, column: str | int | None, counts: Counter[str]) -> Iterator[tuple[str, str]]:
        """Yield (text, problem) of each line of a text, or of one column of a table.

        Args:
            column: a number from 1 or a name in the first line; None for a text.

        Raises:
            UserError: the file is a table and `column` is None, or it is a text and `column` is given.
        """
        suffix = plain_suffix(path)
        table = suffix in SUFFIXES and suffix != ".txt"
        if column is None:
            if table:
                raise UserError(
                    f"{path} is a table. Choose the column with the text, for example dataset.column=text, or give a file "
                    "with one sentence per line and the suffix .txt."
                )
            for line_number, (line, wrong) in enumerate(self.lines(path, counts), start=1):
                problem = wrong or find_problem(line)
                yield line, f"{path} line {line_number}: {problem}" if problem else ""
            return
        for text, _, problem in self.pairs(path, (column,), ("text", "text"), counts):
            yield compose(text, counts), problem

    def pairs(
        self,
        path: Path,
        columns: Sequence[int | str] | None,
        labels: tuple[str, str],
        counts: Counter[str],
    ) -> Pairs:
        """Yield two values of each row as candidates of `usable_pairs`.

        Args:
            columns: numbers from 1 or names; one for a text that is both values; None for the first two columns of a table
                without a line of names, and for the names `labels` in JSON and Parquet. A dotted name is the path of a
                nested value.

        Raises:
            UserError: a column does not exist, or the first lines are not those of a table without names.
        """
        rows = self.rows(path, counts)
        if self.form("file", str(path)) in ("jsonl", "parquet"):
            return _named_pairs(rows, [str(column) for column in columns or labels])
        return _table_pairs(path, rows, columns, labels)


def tab_rows(path: Path, lines: Iterable[tuple[str, str]], separator: str = "\t") -> Rows:
    """Yield the cells of each line; quotation marks have no meaning."""
    for line_number, (text, wrong) in enumerate(lines, start=1):
        yield f"{path} line {line_number}", text.split(separator), wrong


def comma_rows(
    path: Path, lines: Iterable[tuple[str, str]], separator: str = ",", declared: bool = False
) -> Rows:
    """Yield the cells of each line, quoted as in RFC 4180.

    The lines of a quoted cell with line breaks make one bad row. If a quoted cell is not closed, the line that opens it is a
    bad row, and the lines after it are rows of their own.

    Args:
        declared: leave out a first line such as `sep=;`, which tells Excel the delimiter.
    """
    rest = enumerate(lines, start=1)
    ahead: list[tuple[int, tuple[str, str]]] = []  # lines that were read to find the end of a cell
    while ahead := ahead or [*itertools.islice(rest, 1)]:
        line_number, (text, wrong) = ahead.pop(0)
        if line_number == 1 and declared and _DECLARATION.fullmatch(text):
            continue
        cells, problem, open_at_end = _comma_cells(text, separator)
        if not open_at_end:
            yield f"{path} line {line_number}", cells, wrong or problem
            continue
        ahead += itertools.islice(rest, _CELL_LINES - 1 - len(ahead))
        # Read a line that begins inside a quoted cell as one that begins with a quotation mark.
        still_open = (_comma_cells(f'"{inside}', separator)[2] for _, (inside, _) in ahead)
        more = next((count for count, is_open in enumerate(still_open, start=1) if not is_open), 0)
        del ahead[:more]
        if more:
            location = f"{path} lines {line_number} to {line_number + more}"
            yield location, [], "a quoted cell contains a line break"
        else:
            yield f"{path} line {line_number}", [], _NOT_CLOSED


def _comma_cells(text: str, separator: str) -> tuple[list[str], str, bool]:
    """Return the cells of a line, its problem, and whether its last cell continues on the next line."""
    if '"' not in text:
        return text.split(separator), "", False
    # The default limit is 131,072 characters per cell.
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    # The reader takes the second line, which closes the cell, only if the first leaves one open.
    reader = csv.reader((text, '"'), strict=True, delimiter=separator)
    try:
        cells = next(reader)
    except csv.Error as error:
        return [], f"not RFC 4180 ({error})", False
    if any(map(_SPACED_QUOTE.fullmatch, cells)):
        return [], "not RFC 4180 (a space before a quotation mark)", False
    return cells, "", reader.line_num > 1


def _written(path: Path, form: str, sample: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Return the delimiter and the format (csv if cells are quoted) of a table, from its first lines.

    Raises:
        UserError: two delimiters are equally likely.
    """
    lines = [text for text, wrong in sample if text and not wrong]
    if form == "tsv":
        if not _has_quoting([line.split("\t") for line in lines]):
            return "\t", "tsv"
        log.info("%s: cells in quotation marks are read as in CSV. dataset.format=tsv keeps the marks.", path)
        return "\t", "csv"
    if lines and (declaration := _DECLARATION.fullmatch(lines[0])):
        return declaration[1], "csv"
    shares = {one: _regularity(lines, one) for one in ",;\t|"}
    best = max(shares.values())
    near = [one for one, share in shares.items() if best and share >= 0.9 * best]
    if len(near) > 1:
        raise UserError(
            f"{path}: {' and '.join(map(repr, near))} both divide the lines into equal numbers of columns. Set the right "
            f"one, for example dataset.delimiter={next(name for name, one in DELIMITERS.items() if one == near[0])}."
        )
    if near and near[0] != ",":
        log.info("%s: the columns are separated by %r.", path, near[0])
    return near[0] if near else ",", "csv"


def _regularity(lines: Sequence[str], separator: str) -> float:
    """Return the share of lines that have the most frequent number of columns, 0 if that is 1."""
    widths = Counter(len(_comma_cells(line, separator)[0]) for line in lines)
    width, count = widths.most_common(1)[0] if widths else (1, 0)
    return count / len(lines) if width > 1 else 0.0


def _has_quoting(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether tab-separated cells are quoted as Excel and pandas do it: only where necessary, or all of them."""
    cells = [cell for row in rows for cell in row]
    quoted = [cell for cell in cells if len(cell) > 1 and _QUOTED.fullmatch(cell)]
    if not quoted or len(quoted) < sum('"' in cell for cell in cells):
        return False
    doubled = any('""' in cell[1:-1] for cell in quoted)
    # Excel also quotes the cells with commas. One such cell in many lines may be a quotation in a language without commas.
    commas = len(quoted) >= min(_FEW, len(rows) / 100) and all("," in cell for cell in quoted)
    commas = commas and not any("," in cell for cell in cells if '"' not in cell)
    return doubled or commas or (len(quoted) == len(cells) > 2)


def _table_pairs(
    path: Path, rows: Rows, columns: Sequence[int | str] | None, labels: tuple[str, str]
) -> Pairs:
    """Yield two columns of a table; a row with another number of columns is a bad pair.

    The right number is that of the names, or else of most of the first `_FIRST` rows.
    """
    wanted = [column - 1 for column in columns or (1, 2) if isinstance(column, int)]
    names = [column for column in columns or () if isinstance(column, str)]
    width = 0
    if names:
        location, header, wrong = next(rows, (str(path), [], ""))
        if wrong:
            raise UserError(f"{location}: {wrong}. With {_setting(names)} the first line must be the names.")
        check_columns(location, names, list(header), COLUMN_REMEDY if len(names) == 1 else CHOOSE)
        wanted, width = [list(header).index(name) for name in names], len(header)
    else:
        first = [*itertools.islice(rows, _FIRST)]
        check_first_rows(
            [(location, list(cells)) for location, cells, wrong in first[:4] if not wrong], columns, labels
        )
        whole = [(location, len(cells)) for location, cells, wrong in first if not _problem_of(cells, wrong)]
        if whole:
            ((width, _),) = Counter(count for _, count in whole).most_common(1)
            _check_width(next(location for location, count in whole if count == width), width, wanted)
        rows = itertools.chain(first, rows)
    for location, row, wrong in rows:
        cells = list(row)
        wrong = _problem_of(cells, wrong)
        if not wrong and not width:
            width = len(cells)
            _check_width(location, width, wanted)
        if not wrong and len(cells) != width:
            wrong = f"{len(cells)} columns instead of {width}"
        if wrong:
            yield "", "", f"{location}: {wrong}"
        else:
            yield candidate(location, [f"column {i + 1}" for i in wanted], [cells[i] for i in wanted])


def _problem_of(cells: Cells, wrong: str) -> str:
    """Return what is wrong with a row; a blank line does not decide the number of columns."""
    return wrong or (find_line_problem(next(iter(cells))) if len(cells) == 1 else "")


def _check_width(location: str, width: int, wanted: Sequence[int]) -> None:
    """Raise `UserError` if a row of so many columns lacks a wanted one."""
    if width <= max(wanted) and len(wanted) == 1:
        raise UserError(
            f"dataset.column={wanted[0] + 1}: {location} has {width} columns. Choose one of them."
        )
    if width <= max(wanted):
        raise UserError(
            f"{location} has {width} columns, but columns {wanted[0] + 1} and {wanted[1] + 1} are needed. Choose "
            "others with dataset.columns=[NUMBER,NUMBER], what separates the columns with dataset.delimiter="
            "tab|comma|semicolon|pipe|space (or ' ||| '), or dataset.format=tsv|csv|jsonl|parquet."
        )


def _named_pairs(rows: Rows, names: Sequence[str]) -> Pairs:
    """Yield two values of each row of JSON or Parquet. Raises `UserError` for names that the first row does not have."""
    checked = False
    for location, row, wrong in rows:
        if wrong:
            yield "", "", f"{location}: {wrong}"
            continue
        if not checked:
            if all(isinstance(value_of(row, name), list | Mapping) for name in names):
                raise UserError(
                    f"{location}: {' and '.join(names)} are lists or objects, not text. If they are whole columns, write "
                    f"one object per row, as pandas does with to_json(FILE, orient='records', lines=True); otherwise choose "
                    f"text in them, such as {_setting([f'{name}.KEY' for name in names])}, or convert the file."
                )
            check_columns(location, names, list(_names(row)), _remedy(names))
            checked = True
        yield candidate(location, names, [value_of(row, name) for name in names])


def _setting(columns: Sequence[str]) -> str:
    """Return the setting that chooses these columns of a text or of pairs."""
    return f"dataset.column={columns[0]}" if len(columns) == 1 else f"dataset.columns=[{','.join(columns)}]"


def _remedy(columns: Sequence[str]) -> str:
    return COLUMN_REMEDY if len(columns) == 1 else COLUMNS_REMEDY


def json_rows(path: Path, lines: Iterator[tuple[str, str]]) -> Rows:
    """Yield the objects of a JSON file: one per line, or of one array, the whole file or the only one in its object.

    A file whose first line is not an object is read into memory, unless two of the next lines in a row are objects.
    """
    start = [*itertools.islice(lines, 2)]
    first = start[0][0] if start else ""
    row, wrong = _parsed(first)
    only = not any(text.strip() for text, _ in start[1:])  # otherwise it is a row
    if first.lstrip()[:1] in ("[", "{") and (wrong or not isinstance(row, dict) or (only and _arrays(row))):
        start += itertools.islice(lines, _FIRST)
        objects = [isinstance(_parsed(text)[0], dict) for text, _ in start]
        # One JSON text has a comma or bracket between two objects.
        if not any(one and other for one, other in itertools.pairwise(objects)):
            start += lines
            document, problem = _parsed("\n".join(text for text, _ in start))
            if not problem and not any(wrong for _, wrong in start):
                arrays = [document] if isinstance(document, list) else _arrays(document)
                for index, row in enumerate(arrays[0] if len(arrays) == 1 else [document], start=1):
                    yield f"{path} element {index}", *_object(row)
                return
    for line_number, (text, wrong) in enumerate(itertools.chain(start, lines), start=1):
        row = None
        if not (wrong := wrong or find_line_problem(text)):
            row, wrong = _parsed(text)
        yield f"{path} line {line_number}", *((cast(Cells, {}), wrong) if wrong else _object(row))


def _object(row: object) -> tuple[Cells, str]:
    """Return a value of JSON and what is wrong with it as a row."""
    if isinstance(row, dict):
        return row, ""
    return {}, "not a JSON object; give one object per line, or one array of objects"


def _parsed(text: str) -> tuple[Any, str]:
    """Return the value of a JSON text, or what is wrong with it."""
    try:
        return parse_json(text), ""
    except (ValueError, RecursionError) as error:
        return None, f"not JSON ({error})"


def _arrays(document: Mapping[str, object]) -> list[list[object]]:
    """Return the values of an object that are arrays of objects."""
    return [
        value
        for value in document.values()
        if isinstance(value, list) and value and all(isinstance(row, dict) for row in value)
    ]


def parquet_rows(path: Path, show: bool = True) -> Rows:
    """Yield the rows of a Parquet file. Raises `UserError` for a file that cannot be read.

    Indices of classes, which the library `datasets` describes in the file, are replaced by the names of the classes.
    """
    with _open_parquet(path) as file:
        names = _class_names(file.schema_arrow.metadata or {})
        total = file.metadata.num_rows
        rows = itertools.chain.from_iterable(batch.to_pylist() for batch in file.iter_batches(_BATCH))
        for index, row in enumerate(progress(rows, f"Reading {path.name}", total) if show else rows, start=1):
            yield f"{path} row {index}", with_class_names(row, names), ""


def columns_with_classes(path: Path) -> set[str]:
    """Return the columns of a Parquet file that have indices of classes, which the library `datasets` describes in it.

    Raises:
        UserError: the file cannot be read.
    """
    with _open_parquet(path) as file:
        return {*_class_names(file.schema_arrow.metadata or {})}


@contextlib.contextmanager
def _open_parquet(path: Path) -> "Iterator[ParquetFile]":
    """Open a Parquet file. Raises `UserError` if it cannot be opened or read."""
    from pyarrow import ArrowException, parquet

    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except (OSError, ArrowException) as error:
        raise UserError(
            f"{path} cannot be read as Parquet: {error}. Replace the file with a complete copy."
        ) from error


def with_class_names(row: Mapping[str, object], names: Mapping[str, Sequence[str]]) -> dict[str, object]:
    """Return a row with the names of classes instead of their indices, except the index -1 of a hidden label.

    Args:
        names: the names of the classes of each column that has indices.
    """
    named = dict(row)
    for column, classes in names.items():
        if (index := row[column]) != HIDDEN:
            named[column] = classes[index] if isinstance(index, int) and 0 <= index < len(classes) else None
    return named


def _class_names(metadata: Mapping[bytes, bytes]) -> dict[str, list[str]]:
    """Return the names of the classes of each column with a `datasets.ClassLabel`, from the metadata of a Parquet file."""
    try:
        features = parse_json(metadata.get(b"huggingface", b"{}"))["info"]["features"]
        return {name: one["names"] for name, one in features.items() if one.get("_type") == "ClassLabel"}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def candidate(location: str, names: Sequence[str], values: Sequence[object]) -> tuple[str, str, str]:
    """Return two values as a candidate of `usable_pairs`, with the problems of both; one value is both."""
    problems = [
        f"{location} {name}: {problem}"
        for name, value in zip(names, values, strict=True)
        if (problem := find_problem(value))
    ]
    texts = [str(value) for value in values]
    return texts[0], texts[-1], "; ".join(dict.fromkeys(problems))


def _names(row: object, prefix: str = "") -> Iterator[str]:
    if isinstance(row, Mapping):
        for key, value in row.items():
            yield from _names(value, f"{prefix}.{key}" if prefix else key)
    elif prefix:
        yield prefix


def value_of(row: object, name: str) -> object:
    """Return the value of a name; a key that contains dots has priority over the path of a nested value."""
    if not isinstance(row, Mapping):
        return None
    if name in row:
        return row[name]
    key, _, rest = name.partition(".")
    return value_of(row.get(key), rest) if rest else None
