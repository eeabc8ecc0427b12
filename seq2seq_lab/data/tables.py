"""Read pairs from files that contain both sides: tab- or comma-separated columns, and JSON lines."""

import csv
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from seq2seq_lab.data.text import find_problem, read_lines
from seq2seq_lab.errors import UserError, did_you_mean
from seq2seq_lab.files import parse_json

Pairs = Iterator[tuple[str, str, str]]  # candidates of `usable_pairs`
Rows = Iterator[tuple[str, list[str], str]]  # place, cells, problem

COLUMNS_REMEDY = (
    "Choose two with dataset.columns=[NAME,NAME]. With null they are dataset.source and dataset.target."
)


def tab_rows(path: Path, counts: Counter[str]) -> Rows:
    """Yield the tab-separated cells of each line; quotation marks have no meaning."""
    for number, (text, wrong) in enumerate(read_lines(path, counts), start=1):
        yield f"{path} line {number}", text.split("\t"), wrong


def comma_rows(path: Path, counts: Counter[str]) -> Rows:
    """Yield the comma-separated cells of each line, quoted as in RFC 4180.

    The lines of a quoted cell with line breaks make one bad row. Raises `UserError` if a quoted cell is not closed before
    the end of the file.
    """
    opened = 0
    for number, (text, wrong) in enumerate(read_lines(path, counts), start=1):
        # Read a line that begins inside a quoted cell as one that begins with a quotation mark.
        cells, problem, open_at_end = _comma_cells(f'"{text}' if opened else text)
        if open_at_end:
            opened = opened or number
        elif opened:
            yield f"{path} lines {opened} to {number}", [], "a quoted cell contains a line break"
            opened = 0
        else:
            yield f"{path} line {number}", cells, wrong or problem
    if opened:
        raise UserError(
            f"{path} line {opened}: a quoted cell is not closed before the end of the file. Close it "
            "(quotation marks inside it are doubled), or use tab-separated columns, where they have no meaning."
        )


def _comma_cells(text: str) -> tuple[list[str], str, bool]:
    """Return the cells of a line, its problem, and whether its last cell continues on the next line."""
    if '"' not in text:
        return text.split(","), "", False
    # The default limit is 131,072 characters per cell.
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    # The reader takes the second line, which closes the cell, only if the first leaves one open.
    reader = csv.reader((text, '"'), strict=True)
    try:
        cells = next(reader)
    except csv.Error as error:
        return [], f"not RFC 4180 ({error})", False
    return cells, "", reader.line_num > 1


def table_pairs(
    path: Path,
    rows_of: Callable[[Path, Counter[str]], Rows],
    columns: Sequence[int] | Sequence[str] | None,
    counts: Counter[str],
) -> Pairs:
    """Yield two columns of a table: those numbered from 1, those named in the first line, or the first two.

    `rows_of` is `tab_rows` or `comma_rows`. A row with a different number of columns from the first is a bad pair. Raises
    `UserError` for columns that do not exist.
    """
    rows = rows_of(path, counts)
    wanted = [column - 1 for column in columns or (1, 2) if isinstance(column, int)]
    names = [column for column in columns or () if isinstance(column, str)]
    width = 0
    if names:
        place, header, wrong = next(rows, (str(path), [], ""))
        if wrong:
            raise UserError(
                f"{place}: {wrong}. With dataset.columns=[{','.join(names)}] the first line must be the names."
            )
        check_columns(place, names, header, COLUMNS_REMEDY)
        wanted, width = [header.index(name) for name in names], len(header)
    for place, cells, wrong in rows:
        # A blank line does not decide the number of columns.
        wrong = wrong or (find_problem(cells[0]) if len(cells) == 1 else "")
        if not wrong and not width:
            width = len(cells)
            if width <= max(wanted):
                raise UserError(
                    f"{place} has {width} columns, but columns {wanted[0] + 1} and {wanted[1] + 1} are needed. Choose "
                    "others with dataset.columns=[NUMBER,NUMBER], or the separator with dataset.format=tsv|csv|jsonl."
                )
        if not wrong and len(cells) != width:
            wrong = f"{len(cells)} columns instead of {width}"
        if wrong:
            yield "", "", f"{place}: {wrong}"
        else:
            yield candidate(
                place, [f"column {number + 1}" for number in wanted], [cells[number] for number in wanted]
            )


def json_pairs(path: Path, names: Sequence[str], counts: Counter[str]) -> Pairs:
    """Yield two values of the JSON object on each line; a dotted name is the path of a nested value.

    Raises `UserError` for names that the first object does not have.
    """
    checked = False
    for number, (text, wrong) in enumerate(read_lines(path, counts), start=1):
        place = f"{path} line {number}"
        row: object = None
        if not (wrong := wrong or find_problem(text)):
            try:
                row = parse_json(text)
                if not isinstance(row, dict):
                    wrong = "not a JSON object; give one object per line, not an array"
            except (ValueError, RecursionError) as error:
                wrong = f"not JSON ({error})"
        if wrong:
            yield "", "", f"{place}: {wrong}"
            continue
        if not checked:
            check_columns(place, names, list(_names(row)), COLUMNS_REMEDY)
            checked = True
        yield candidate(place, names, [_value(row, name) for name in names])


def candidate(place: str, names: Sequence[str], values: Sequence[object]) -> tuple[str, str, str]:
    """Return two values as a candidate of `usable_pairs`, with the problems of both."""
    problems = [
        f"{place} {name}: {problem}"
        for name, value in zip(names, values, strict=True)
        if (problem := find_problem(value))
    ]
    source, target = map(str, values)
    return source, target, "; ".join(problems)


def check_columns(place: str, wanted: Sequence[str], names: Sequence[str], remedy: str) -> None:
    """Raise `UserError` with `remedy` for a wanted column that is not among `names`."""
    for name in wanted:
        if name not in names:
            listed = ", ".join(names[:20]) or "no columns"
            raise UserError(
                f"{place} has no column {name}; it has {listed}.{did_you_mean(name, names)} {remedy}"
            )


def _names(row: object, prefix: str = "") -> Iterator[str]:
    if isinstance(row, Mapping):
        for key, value in row.items():
            yield from _names(value, f"{prefix}.{key}" if prefix else key)
    elif prefix:
        yield prefix


def _value(row: object, name: str) -> object:
    """Return the value of a name; a key that contains dots has priority over the path of a nested value."""
    if not isinstance(row, Mapping):
        return None
    if name in row:
        return row[name]
    key, _, rest = name.partition(".")
    return _value(row.get(key), rest) if rest else None


def find_line(dataset: object, split: str, sentence: str) -> str:
    """Return "FILE line N" of a line or cell that equals a sentence of a split, or "" if none is found.

    The files are those of the setting of `dataset` that is named after the split. Without this setting they are the file
    `train` or `path`, which all splits are taken from, or the files of the split in the folder `path` or `hub`.
    """
    tests = getattr(dataset, "test", None)
    named = tests.get(split) if isinstance(tests, Mapping) else None
    own = _files(named or getattr(dataset, split, None), split)
    shared = _files([getattr(dataset, key, None) for key in ("train", "path", "hub")], split)
    for path in [*own] or shared:
        for number, (line, _) in enumerate(read_lines(path, Counter(), show=False), start=1):
            if sentence == line or sentence in _cells(path, line):
                return f"{path} line {number}"
    return ""


def _files(setting: object, split: str) -> Iterator[Path]:
    if isinstance(setting, list | tuple):
        for value in setting:
            yield from _files(value, split)
    elif isinstance(setting, str) and setting:
        path = Path(setting).expanduser()
        starts = ("validation.", "val.") if split == "validation" else (f"{split}.",)
        inside = (one for one in path.rglob("*") if one.name.startswith(starts) and one.is_file())
        yield from [path] if path.is_file() else sorted(inside)


def _cells(path: Path, line: str) -> Iterable[str]:
    """Return the cells of a line of a table, or the texts of a line of JSON, by the suffix of the file."""
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    if suffix not in (".json", ".jsonl"):
        return _comma_cells(line)[0] if suffix == ".csv" else line.split("\t")
    try:
        return _texts(parse_json(line))
    except (ValueError, RecursionError):
        return ()


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value
