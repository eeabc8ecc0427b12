"""`lesson grade`: one submission cannot disturb the others."""

import json
import os
from pathlib import Path

import pytest
from mistakes import code_of
from test_lesson_checks import solved, status_of

from seq2seq_lab.lesson import grades
from seq2seq_lab.lesson.__main__ import exercises_of
from seq2seq_lab.lesson.checks import properties_of
from seq2seq_lab.lesson.properties import name_of

LIMIT = 15  # seconds; a check of BLEU takes one or two
COUNT = len(properties_of("bleu"))
RIGHT = code_of("bleu", {}).replace("import torch\n", "")
WRONG = code_of("bleu", {"min(1, math.exp(1 - r / c))": "1"})


def after_properties(count: int, then: str) -> str:
    """Return a solution that does something else after so many properties have been checked."""
    wrapped = f"""
import os, signal, sys, subprocess, time
calls = []
right = bleu
def bleu(hypotheses, references):
    calls.append(hypotheses)
    if len(calls) > {count}:
        {then}
    return right(hypotheses, references)
"""
    return RIGHT + wrapped


@pytest.mark.slow
def test_a_folder_of_submissions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, output = tmp_path / "submissions", tmp_path / "graded"
    codes = {
        "right": RIGHT,
        "wrong": WRONG,
        "loop": after_properties(2, "while True: time.sleep(1)"),
        "exits": "import sys\nsys.exit(0)\n",
        "exits_in_the_function": after_properties(2, "sys.exit(0)"),
        "ends_its_process": after_properties(2, "os._exit(0)"),
        "ends_its_process_first": "import os\nos._exit(1)\n",
        "ends_with_status_3": after_properties(2, "os._exit(3)"),
        "crashes": after_properties(2, "os.kill(os.getpid(), signal.SIGSEGV)"),
        "ends_with_another_signal": after_properties(2, "os.kill(os.getpid(), 35)"),
        "floods": after_properties(2, "print('x' * 10_000_000); os.write(2, b'x' * 10_000_000)"),
        "leaves_a_process": after_properties(2, "subprocess.Popen(['sleep', '601.5'], stdout=None)"),
        "leaves_a_locked_folder": "import os\nos.makedirs('a/b')\nos.chmod('a', 0)\n" + RIGHT,
        "reads_input": "input()\n" + RIGHT,
        "changes_its_results": "import sys\nopen(sys.argv[-1], 'w').write('1\\n')\n" + RIGHT,
        "random": "import random\nrandom.Random\n" + RIGHT,  # hides no module
        "other": "def blue():\n    pass\n",
    }
    folder.mkdir()
    for name, code in codes.items():
        (folder / f"{name}.py").write_text(code)
    (folder / "notebook").mkdir()
    notebook = solved("bleu", "from helper import right\ndef bleu(a, b):\n    return right(a, b)\n", "anna")
    (folder / "notebook" / "mine.ipynb").write_text(json.dumps(notebook))
    (folder / "notebook" / "helper.py").write_text(RIGHT.replace("def bleu", "def right"))
    (folder / "notebook" / ".ipynb_checkpoints").mkdir()
    (folder / "notebook" / ".ipynb_checkpoints" / "mine-checkpoint.ipynb").write_text("{}")
    (folder / "empty").mkdir()
    (folder / "readme.txt").write_text("not a submission")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}

    options = ["--exercises", "4", "--time-limit", LIMIT, "--output", output]
    assert status_of("grade", folder, *options) == 0
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before

    points = json.loads((output / "points.json").read_text())
    assert points.keys() == {*codes, "notebook", "empty"}
    scores = {name: one["score"] for name, one in points.items()}
    full = ("right", "random", "notebook", "floods", "leaves_a_process", "leaves_a_locked_folder")
    assert {name: scores[name] for name in full} == dict.fromkeys(full, COUNT)
    assert scores["wrong"] == COUNT - 3
    partly = (*("loop", "ends_its_process", "ends_with_status_3", "ends_with_another_signal", "crashes"),)
    assert {name: scores[name] for name in partly} == dict.fromkeys(partly, 2)
    assert scores["exits_in_the_function"] == 3  # the last property is about the calls that returned
    none = ("exits", "ends_its_process_first", "reads_input", "changes_its_results", "other", "empty")
    assert {name: scores[name] for name in none} == dict.fromkeys(none, 0)
    assert points["notebook"]["student"] == "anna"
    assert points["loop"]["end"] == f"the time limit of {LIMIT} s was reached"
    assert points["ends_with_status_3"]["end"] == "the process ended with status 3"
    assert points["crashes"]["end"] == "the process ended with signal 11 (Segmentation fault)"
    assert points["right"] | {"seconds": 0} == {
        **{"score": COUNT, "max_score": COUNT, "student": "", "end": "", "seconds": 0},
        "exercises": {"bleu": COUNT},
    }
    assert f"wrong  {COUNT - 3} of {COUNT}" in capsys.readouterr().out.splitlines()

    for name, score in scores.items():
        results = json.loads((output / name / "results.json").read_text())
        assert results.keys() == {"tests", "score"}
        assert results["score"] == score == sum(test["score"] for test in results["tests"])
        assert [test["name"] for test in results["tests"]] == [
            f"bleu: {name_of(one)}" for one in properties_of("bleu")
        ]
        for test in results["tests"]:
            assert test.keys() == {"name", "score", "max_score", "output"}
            assert test["max_score"] == 1
            assert (test["output"] == "passed") == test["score"]
    said = {
        name: json.loads((output / name / "results.json").read_text())["tests"][-1]["output"]
        for name in scores
    }
    assert "SystemExit" in said["exits"]
    assert "before this property" in said["ends_its_process"]
    assert "ended before its checks" in said["ends_its_process_first"]
    assert "EOFError" in said["reads_input"]
    assert "bleu" in said["other"]
    leftover = [
        path for path in Path("/proc").glob("[0-9]*/cmdline") if _command(path) == b"sleep\000601.5\0"
    ]
    assert leftover == []


def test_names_and_errors_that_are_not_unicode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(grades, "print_visible", said.append)  # the streams of a test refuse such names
    folder, output = tmp_path / "submissions", tmp_path / "graded"
    folder.mkdir()
    name = os.fsdecode(b"M\374ller")  # a name from an archive in another encoding
    (folder / f"{name}.PY").write_text("raise ValueError('\\ud800')\n")
    (folder / "last.zip").write_text("")
    assert status_of("grade", folder, "--exercises", "4", "--time-limit", LIMIT, "--output", output) == 0
    assert [line for line in said if "last.zip is not graded" in line]
    assert [*json.loads((output / "points.json").read_text())] == [name]
    (found, *_) = json.loads((output / name / "results.json").read_text())["tests"]
    assert found["output"].endswith("ValueError in line 1: \ud800")


def test_an_exercise_without_a_solution_names_all_files_that_failed(tmp_path: Path) -> None:
    folder, output = tmp_path / "submissions", tmp_path / "graded"
    (folder / "anna").mkdir(parents=True)
    (folder / "anna" / "a_softmax.py").write_text("raise ValueError('first')\n")
    (folder / "anna" / "beam.py").write_text("import missing\n")
    (folder / "anna" / "bleu.py").write_text(RIGHT)
    options = ("--exercises", "bleu,beam_step", "--time-limit", LIMIT, "--output", output)
    assert status_of("grade", folder, *options) == 0
    tests = json.loads((output / "anna" / "results.json").read_text())["tests"]
    assert {test["output"] for test in tests[:COUNT]} == {"passed"}
    (said,) = {test["output"] for test in tests[COUNT:]}
    assert said.startswith("no file defines beam_step")
    assert "a_softmax.py: ValueError in line 1: first; " in said
    assert "beam.py: ModuleNotFoundError in line 1: No module named 'missing'" in said


def test_a_notebook_that_is_not_filled_does_not_count_beside_a_solution(tmp_path: Path) -> None:
    folder, output = tmp_path / "submissions", tmp_path / "graded"
    assert status_of("start", "4", "--student", "ida", "--output", folder / "ida") == 0
    (folder / "ida" / "mine.py").write_text(WRONG)
    options = ("--exercises", "4", "--time-limit", LIMIT, "--output", output)
    assert status_of("grade", folder, *options) == 0
    assert json.loads((output / "points.json").read_text())["ida"]["student"] == "ida"
    outputs = results_of(output / "ida")
    assert len([one for one in outputs if one == "passed"]) == COUNT - 3
    assert all(one.startswith("mine.py: ") for one in outputs if one != "passed")


def test_only_the_exercises_that_are_graded_are_run(tmp_path: Path) -> None:
    folder, output = tmp_path / "submissions", tmp_path / "graded"
    folder.mkdir()
    (folder / "jan.py").write_text(RIGHT + "\ndef masked_softmax(s, m):\n    import os\n    os._exit(3)\n")
    (folder / "fritz.py").write_text("def maskedsoftmax(s, m):\n    pass\n")
    options = ("--exercises", "1", "--time-limit", LIMIT)
    assert status_of("grade", folder, "--exercises", "4", "--time-limit", LIMIT, "--output", output) == 0
    assert set(results_of(output / "jan")) == {"passed"}
    assert status_of("grade", folder, *options, "--output", tmp_path / "first") == 0
    (said,) = set(results_of(tmp_path / "first" / "fritz"))
    assert "Did you mean 'masked_softmax'?" in said


def results_of(folder: Path) -> list[str]:
    """Return the outputs of a submission's tests."""
    tests = json.loads((folder / "results.json").read_text())["tests"]
    return [test["output"] for test in tests]


def _command(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_errors_of_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "none").mkdir()
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "a.py").write_text("")
    (tmp_path / "twice").mkdir()
    for suffix in ("py", "ipynb"):
        (tmp_path / "twice" / f"a.{suffix}").write_text("")
    (tmp_path / "none" / "a.py").symlink_to(tmp_path / "nowhere")
    for arguments, said in (
        (["missing"], "is not a folder"),
        (["none"], "no submissions"),
        (["twice"], "one name"),
        (["some", "--output", tmp_path / "none"], "--output"),
        (["some", "--exercises", "4,blue"], "bleu"),
        (["some", "--exercises", ","], "--exercises=,"),
        (["some", "--time-limit", "0"], "--time-limit"),
    ):
        assert status_of("grade", tmp_path / str(arguments[0]), *arguments[1:]) == 2
        assert said in capsys.readouterr().err


def test_an_exercise_counts_once_however_often_it_is_named() -> None:
    assert exercises_of("4, bleu,4,") == ["bleu"]
