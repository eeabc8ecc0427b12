"""`lesson check` passes right solutions, and fails planted mistakes in a property that names the mistake's place."""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import solutions
from mistakes import MISTAKES, code_of

from seq2seq_lab.errors import UserError
from seq2seq_lab.lesson import check
from seq2seq_lab.lesson.__main__ import main
from seq2seq_lab.lesson.checks import RUNS, execute, properties_of, run_properties
from seq2seq_lab.lesson.exercises import NAMES
from seq2seq_lab.lesson.notebook import make_notebook
from seq2seq_lab.lesson.properties import name_of

IDS = [f"{exercise}-{place}-{number}" for number, (exercise, place, _) in enumerate(MISTAKES)]


def solved(exercise: str, code: str, student: str = "") -> dict[str, Any]:
    """Return the notebook of an exercise whose gap contains this code."""
    notebook = make_notebook(exercise, student)
    (gap,) = [cell for cell in notebook["cells"] if "gap" in cell["metadata"].get("tags", ())]
    gap["source"] = code.splitlines(keepends=True)
    return notebook


def status_of(*arguments: object) -> int:
    """Return the exit status of the program."""
    try:
        main([*map(str, arguments)])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.mark.parametrize("student", ["", "anna", "ben 3", "学生"])
@pytest.mark.parametrize("exercise", NAMES)
def test_the_right_solution_has_all_properties(exercise: str, student: str) -> None:
    results = [*run_properties(exercise, getattr(solutions, exercise), student)]
    assert len(results) >= 9
    assert [str(result) for result in results if result.problem] == []


def test_there_are_mistakes_of_every_exercise() -> None:
    counts = Counter(exercise for exercise, _, _ in MISTAKES)
    assert {*counts} == {*NAMES}
    assert min(counts.values()) >= 8


@pytest.mark.parametrize(("exercise", "place", "changes"), MISTAKES, ids=IDS)
def test_a_mistake_fails_first_in_the_property_of_its_place(
    exercise: str, place: str, changes: dict[str, str]
) -> None:
    names: dict[str, Any] = {}
    exec(code_of(exercise, changes), names)
    properties = properties_of(exercise)
    (expected,) = [name_of(one) for one in properties if one.__name__ == place]
    for student in ("", "anna"):
        failed = [result for result in run_properties(exercise, names[exercise], student) if result.problem]
        assert failed
        assert failed[0].name == expected, failed[0]
        assert ": expected " in failed[0].problem
        assert ", got " in failed[0].problem


def test_the_lines_name_each_property_and_the_input_that_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(code_of("bleu", {"min(1, math.exp(1 - r / c))": "1"}))
    assert status_of("check", file) == 1
    head, *lines = capsys.readouterr().out.splitlines()
    assert head == f"bleu, {file}"
    assert next(line for line in lines if line.startswith("failed")).startswith("failed  Output shorter than")
    assert "bleu of ['a b c d e'] against ['a b c d e f g h']: expected 54.8812, got 100" in lines[5]
    assert sum(line.startswith(("passed  ", "failed  ")) for line in lines) == len(properties_of("bleu"))
    file.write_text(code_of("bleu", {}))
    assert status_of("check", file) == 0
    assert "failed" not in capsys.readouterr().out


def test_an_error_in_the_function_names_its_line_and_does_not_end_the_checks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.py"
    for line, error in (("1 / 0", "ZeroDivisionError"), ("raise SystemExit(0)", "SystemExit")):
        file.write_text(f"def beam_step(beam, log_probs_KV, size, eos):\n    {line}\n")
        assert status_of("check", file) == 1
        out = capsys.readouterr().out
        assert out.count("failed  ") == len(properties_of("beam_step"))
        assert f"got {error} in line 2" in out


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def bleu(:", "SyntaxError"),
        ("import math\nmath.sqrt(-1)\n", "ValueError in line 2"),
        ("raise SystemExit(0)", "SystemExit in line 1"),
        ("\udcff", "SyntaxError"),
    ],
)
def test_a_file_that_does_not_run_is_a_failure(
    code: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.py"
    file.write_bytes(code.encode(errors="surrogateescape"))
    before = [*sys.path]
    assert status_of("check", file) == 1
    assert sys.path == before
    out = capsys.readouterr().out
    assert f"failed  {RUNS}" in out
    assert said in out


def test_the_results_of_a_wrong_type_are_failures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.py"
    tensors = [
        f"arguments[0]{kind}" for kind in (".bool()", ".int()", ".float()", "[:1]", "[0]", " + 1j", ".sum()")
    ]
    tensors += [f"({one}, {one}, {one})" for one in tensors]
    for value in (
        *tensors,
        "[(range(3), arguments)]",
        "[((float('inf'),), 0)]",
        "None",
        "'text'",
        "[1, 2, 3]",
        "float('nan')",
        "[((1,), 'a')]",
        "object()",
    ):
        file.write_text("".join(f"def {name}(*arguments):\n    return {value}\n" for name in NAMES))
        assert status_of("check", file) == 1
        # `unchanged`, and `three_values` of a list of three, do not read the result.
        assert capsys.readouterr().out.count("passed  ") <= len(NAMES) + 1


def test_a_notebook_may_have_lines_of_ipython_and_cells_of_the_student(tmp_path: Path) -> None:
    notebook = solved("bleu", code_of("bleu", {}))
    for source in (
        "%matplotlib inline\nif True:\n    !ls\n",
        "%%bash\nls\n",
        "x = (7\n% 2)\n",
        "names = !ls\ntime = %timeit -o 1\nbleu?\n?bleu\nlen??\ndisplay('a?')\nx = '?'\n",
        "display(3)\n",
    ):
        notebook["cells"].insert(0, {"cell_type": "code", "metadata": {}, "source": [source]})
    (tmp_path / "mine.ipynb").write_text(json.dumps(notebook))
    assert status_of("check", tmp_path / "mine.ipynb") == 0


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("bom.py", b"\xef\xbb\xbfvalue = 'caf\xc3\xa9'\n"),
        ("coding.py", b"# -*- coding: latin-1 -*-\nvalue = 'caf\xe9'\n"),
        (
            "bom.ipynb",
            b"\xef\xbb\xbf"
            + json.dumps(
                {"cells": [{"cell_type": "code", "metadata": {}, "source": ["value = 'caf\u00e9'"]}]}
            ).encode(),
        ),
    ],
)
def test_files_of_every_editor_are_read(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    found = execute(tmp_path / name)
    assert (found.problem, found.names["value"]) == ("", "caf\u00e9")


def test_a_file_that_is_not_a_notebook_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in ("", "[]", "{}", '{"cells": [1]}', '{"cells": [{"cell_type": "code", "metadata": 1}]}'):
        (tmp_path / "mine.ipynb").write_text(text)
        assert status_of("check", tmp_path / "mine.ipynb") == 1
        assert "not a notebook" in capsys.readouterr().out


def test_errors_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other.py").write_text("def blue():\n    pass\n")
    for arguments, said in (
        (["check", tmp_path / "missing.py"], "missing.py is not a file"),
        (["check", tmp_path / "other.py"], "masked_softmax"),
        (["check", tmp_path / "other.py"], "Did you mean 'bleu'?"),
        (["start", "blue"], "bleu"),
        (["start", "6"], "5 beam_step"),
        (["start"], "N"),
        ([], "COMMAND"),
    ):
        assert status_of(*arguments) == 2
        assert said in capsys.readouterr().err


def test_the_check_in_a_notebook_refuses_another_function() -> None:
    with pytest.raises(UserError, match="bleu"):
        check(lambda: None)


def test_the_student_is_that_of_the_file_or_of_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text("STUDENT = 'anna'\n" + code_of("bleu", {}))
    assert status_of("check", tmp_path / "mine.py", "--results", tmp_path / "lines") == 0
    assert "student anna" in capsys.readouterr().out
    assert status_of("check", tmp_path / "mine.py", "--student", "ben", "--results", tmp_path / "lines") == 0
    assert "student ben" in capsys.readouterr().out
    records = [json.loads(line) for line in (tmp_path / "lines").read_text().splitlines()]
    count = len(properties_of("bleu"))
    assert [one["student"] for one in records] == ["anna"] * count + ["ben"] * count


def test_torch_is_imported_only_for_exercises_that_need_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(code_of("bleu", {}).replace("import torch\n", ""))
    code = (
        "import sys\nfrom seq2seq_lab.lesson.__main__ import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\nprint('torch' in sys.modules)\n"
    )
    for arguments in (["start", "1"], ["check", "mine.py"], ["check", "missing.py"], ["--help"]):
        command = [sys.executable, "-c", code, *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout.endswith("False\n")


def test_the_page_on_exercises_shows_what_the_program_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "lesson.md").read_text("utf-8")
    code, printed = re.findall(r"^```(?:python|text)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(code)
    assert status_of("check", "mine.py", "--student", "anna") == 1
    assert capsys.readouterr().out.startswith(printed)
    listed = re.findall(r"^\| (\d) \| `(\w+)`", page, re.MULTILINE)
    assert listed == [(str(number), name) for number, name in enumerate(NAMES, start=1)]
