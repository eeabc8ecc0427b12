"""Reading pairs out of files that hold both sides: columns between tabs or commas, JSON lines."""

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from seq2seq_lab.data.text import empty, fault, read_lines
from seq2seq_lab.errors import UserError, did_you_mean

Pairs = Iterator[tuple[str, str, str]]  # candidates of `usable_pairs`
Rows = Iterator[tuple[str, list[str], str]]  # place, cells, and what is wrong with them


def tab_rows(path: Path, counts: Counter[str]) -> Rows:
    """Yield the cells of each line between tabs; quotation marks mean nothing."""
    for number, (text, wrong) in enumerate(read_lines(path, counts), start=1):
        yield f"{path} line {number}", text.split("\t"), wrong


def comma_rows(path: Path, counts: Counter[str]) -> Rows:
    """Yield the cells of each line between commas, quoted as in RFC 4180.

    The lines over which a quoted cell goes make one bad row. Raises `UserError` for a cell that is not closed
    before the end of the file: everything after the mark would be in it.
    """
    opened = 0
    for number, (text, wrong) in enumerate(read_lines(path, counts), start=1):
        # A line that begins inside a quoted cell reads as one that begins with the mark.
        cells, problem, goes_on = _comma_cells(f'"{text}' if opened else text)
        if goes_on:
            opened = opened or number
        elif opened:
            yield f"{path} lines {opened} to {number}", [], "a quoted cell holds a line break"
            opened = 0
        else:
            yield f"{path} line {number}", cells, wrong or problem
    if opened:
        raise UserError(
            f"{path} line {opened}: a quoted cell is not closed before the end of the file. Close it, double "
            "quotation marks inside a quoted cell, or write tab-separated columns, where they mean nothing."
        )


def _comma_cells(text: str) -> tuple[list[str], str, bool]:
    """Return the cells of a line, what is wrong with it, and whether its last cell goes on in the next."""
    if '"' not in text:
        return text.split(","), "", False
    # The module's own limit is 131,072 characters a cell; what has been read may be as long as it is.
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    # The second line is read, and closes the cell, where the first leaves one open.
    reader = csv.reader((text, '"'), strict=True)
    try:
        cells = next(reader)
    except csv.Error as error:
        return [], f"not RFC 4180 ({error})", False
    return cells, "", reader.line_num > 1


def first_columns(path: Path, counts: Counter[str]) -> Pairs:
    """Yield the first two of the two or three columns of a tab-separated file."""
    return _cell_pairs(tab_rows(path, counts), (0, 1), {2, 3})


def table_pairs(
    path: Path,
    rows_of: Callable[[Path, Counter[str]], Rows],
    columns: Sequence[int] | Sequence[str] | None,
    counts: Counter[str],
) -> Pairs:
    """Yield two columns of a table: those numbered from 1, those named in the first line, or the first two.

    `rows_of` is `tab_rows` or `comma_rows`. All lines have as many columns as the first, or are bad pairs.
    Raises `UserError` for columns that are not there.
    """
    rows = rows_of(path, counts)
    numbers = (1, 2) if columns is None else [column for column in columns if isinstance(column, int)]
    names = [] if columns is None else [column for column in columns if isinstance(column, str)]
    if not names:
        yield from _cell_pairs(rows, [number - 1 for number in numbers], set())
        return
    for place, header, wrong in rows:
        if wrong:
            raise UserError(
                f"{place}: {wrong}. The first line has to hold the names of the columns, which "
                f"dataset.columns=[{','.join(names)}] asks for; without them, give numbers."
            )
        check_columns(place, names, header)
        yield from _cell_pairs(rows, [header.index(name) for name in names], {len(header)})


def _cell_pairs(rows: Rows, wanted: Sequence[int], widths: set[int]) -> Pairs:
    """Yield the cells numbered `wanted` (from 0); `widths` are the numbers of columns a row may have.

    Where it is empty, the first row says it.
    """
    source, target = wanted
    for place, cells, wrong in rows:
        # A blank line says nothing of columns.
        wrong = wrong or (empty(cells[0]) if len(cells) == 1 else "")
        if not wrong and not widths:
            widths = {len(cells)}
            if len(cells) <= max(wanted):
                raise UserError(
                    f"{place} has {len(cells)} columns; columns {source + 1} and {target + 1} are asked for. "
                    "Choose others with dataset.columns=[NUMBER,NUMBER], or say what separates them with "
                    "dataset.format=tsv|csv|jsonl."
                )
        if not wrong and len(cells) not in widths:
            wrong = f"{len(cells)} columns, not {' or '.join(map(str, sorted(widths)))}"
        if wrong:
            yield "", "", f"{place}: {wrong}"
            continue
        problems = [
            f"{place} column {number + 1}: {problem}"
            for number in wanted
            if (problem := empty(cells[number]))
        ]
        yield cells[source], cells[target], "; ".join(problems)


def json_pairs(path: Path, names: Sequence[str], counts: Counter[str]) -> Pairs:
    """Yield two values of each JSON object, one a line; a dotted name stands for a nested value.

    Raises `UserError` for names that are not in the first object.
    """
    routes = [name.split(".") for name in names]
    checked = False
    for number, (text, wrong) in enumerate(read_lines(path, counts), start=1):
        place = f"{path} line {number}"
        row: object = None
        if not (wrong := wrong or empty(text)):
            try:
                row = json.loads(text)
            except (ValueError, RecursionError) as error:
                wrong = f"not JSON ({error})"
            else:
                wrong = "" if isinstance(row, dict) else "not a JSON object; one a line is expected, no array"
        if wrong:
            yield "", "", f"{place}: {wrong}"
            continue
        if not checked:
            check_columns(place, names, list(_names(row)))
            checked = True
        yield candidate(place, names, [_value(row, route) for route in routes])


def candidate(place: str, names: Sequence[str], values: Sequence[object]) -> tuple[str, str, str]:
    """Return the candidate pair (see `usable_pairs`) of two values that ought to be sentences."""
    problems = [
        f"{place} {name}: {problem}"
        for name, value in zip(names, values, strict=True)
        if (problem := fault(value))
    ]
    source, target = map(str, values)
    return source, target, "; ".join(problems)


def check_columns(place: str, wanted: Sequence[str], there: Sequence[str]) -> None:
    """Raise `UserError` for a wanted column that is not there."""
    for name in wanted:
        if name not in there:
            raise UserError(
                f"dataset.columns=[{','.join(wanted)}]: {place} has no column {name}; it has "
                f"{', '.join(there[:20]) or 'none'}.{did_you_mean(name, there)} Name two of them with "
                "dataset.columns=[NAME,NAME]; null stands for dataset.source and dataset.target."
            )


def _names(row: object, prefix: str = "") -> Iterator[str]:
    if isinstance(row, Mapping):
        for key, value in row.items():
            yield from _names(value, f"{prefix}.{key}" if prefix else key)
    elif prefix:
        yield prefix


def _value(row: object, route: Sequence[str]) -> object:
    for key in route:
        row = row.get(key) if isinstance(row, Mapping) else None
    return row
