"""Tables that fit the terminal."""

import io
import re
from itertools import pairwise

import pytest
from rich.cells import cell_len
from rich.console import Console

from seq2seq_lab.runtime import console
from seq2seq_lab.runtime.tables import FittedTable, print_table, with_interval

HEADS = ["folder", "settings", "BLEU ± std", "parameters", "difference [95% CI]"]
ROWS = [
    ["outputs/2026-11-26/18-25-01", "attention=additive seed=2", "97.08 ± 0.15", "1,018,760", "baseline"],
    [
        "outputs/2026-11-26/19-00-00",
        "attention=dot seed=10",
        "96.82 ± 0.57",
        "907,784",
        "-0.26 [-0.90, +0.38]",
    ],
    ["书" * 40, "x" * 90, "–", "1", "–"],
]


def lines_at(width: int, table: FittedTable) -> list[str]:
    buffer = io.StringIO()
    Console(file=buffer, width=width, color_system=None).print(table)
    return buffer.getvalue().splitlines()


@pytest.mark.parametrize("width", range(60, 161, 10))
def test_a_table_fits_and_keeps_words_and_numbers_whole(width: int) -> None:
    lines = lines_at(width, FittedTable("runs", HEADS, [ROWS], 3))
    assert max(map(cell_len, lines)) <= width
    text = "\n".join(lines)
    for row in ROWS[:2]:
        assert all(word in text for word in [*row[2:], *re.findall(r"\w+=?", row[1]), "2026-11-26/"])
    for head in HEADS:
        assert all(word in text for word in head.split())


def test_columns_of_numbers_come_in_blocks_with_the_columns_of_texts() -> None:
    lines = lines_at(60, FittedTable("runs", HEADS, [ROWS[:2]], 3))
    heads = [line for line in lines if line.startswith("┃ folder")]
    assert len(heads) > 1
    assert sum(line.count("attention=dot") for line in lines) == len(heads)
    wide = lines_at(200, FittedTable("runs", HEADS, [ROWS[:2]], 3))
    assert len([line for line in wide if line.startswith("┃ folder")]) == 1


def test_optional_columns_are_left_out_first_and_named() -> None:
    heads, rows = (
        ["folder", "status", "settings", "time"],
        [[*row[:2], row[1], "0:01:00"] for row in ROWS[:2]],
    )
    table = FittedTable("runs", heads, [rows], 1, ("time", "status"), "--json prints all.")
    assert "Not shown" not in "\n".join(lines_at(120, table))
    assert lines_at(64, table)[-1] == "Not shown: time. --json prints all."
    assert lines_at(50, table)[-1] == "Not shown: time, status. --json prints all."
    assert "0:01:00" not in "\n".join(lines_at(60, table))


def test_a_table_is_no_wider_than_its_texts() -> None:
    table = FittedTable("", ["a", "b"], [[["1", "2"]], [["3", "4"]]], 1)
    assert {*map(cell_len, lines_at(80, table))} == {table.natural_width} == {9}


def test_control_characters_do_not_change_the_width_of_a_column() -> None:
    lines = lines_at(80, FittedTable("", ["a", "b"], [[["x\ny", "2"], ["\x1b[31mred", "10"]]], 1))
    assert len({*map(cell_len, lines)}) == 1
    assert "x\\ny" in "\n".join(lines)


def test_a_pipe_gets_each_row_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    console.console.cache_clear()
    print_table("runs", HEADS, ROWS[:2], 3)
    lines = capsys.readouterr().out.splitlines()
    for row in ROWS[:2]:
        assert [line for line in lines if all(text in line for text in row)]


def test_prose_is_wrapped_between_words_and_long_words_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.StringIO()
    screen = Console(file=buffer, width=60, force_terminal=True, force_interactive=True, color_system=None)
    monkeypatch.setattr(console, "console", lambda: screen)
    path = "/a/" + "folder" * 12
    console.print_prose("a line of several words " * 6 + path + " and the rest")
    lines = buffer.getvalue().splitlines()
    assert path in lines
    assert all(cell_len(line) <= 60 for line in lines if line != path)
    assert all(cell_len(line) + 1 + cell_len(after.split()[0]) > 60 for line, after in pairwise(lines[:-2]))


def test_a_value_without_an_interval_is_shown_alone() -> None:
    assert with_interval(-0.26, 0.64, "+.1f") == "-0.3 ± 0.6"
    assert with_interval(0.26, None, "+.1f") == "+0.3"
