"""`lesson start` writes notebooks that run, with other sentences for each student."""

import json
from pathlib import Path

import nbformat
import pytest
from mistakes import code_of
from test_lesson_checks import solved, status_of

from seq2seq_lab.data.grammar.phrase import PHENOMENA
from seq2seq_lab.lesson.exercises import NAMES
from seq2seq_lab.lesson.student import HELD_OUT, SHOWN, student_of


@pytest.mark.parametrize("exercise", NAMES)
def test_a_notebook_is_valid_and_runs_with_the_right_solution(
    exercise: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert status_of("start", exercise, "--student", "anna") == 0
    path = Path(f"{exercise}.ipynb")
    text = path.read_text("utf-8")
    nbformat.validate(nbformat.reads(text, as_version=nbformat.NO_CONVERT))
    notebook = json.loads(text)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    assert {*notebook["cells"][0]} == {"id", "cell_type", "metadata", "source"}
    assert "{{" not in text
    assert "$$" in text
    (gap,) = [cell for cell in notebook["cells"] if cell["metadata"].get("tags") == ["gap"]]
    assert any(f"def {exercise}(" in line for line in gap["source"])
    assert status_of("check", path) == 1  # not filled yet
    assert "fill the gap" in capsys.readouterr().out

    filled = solved(exercise, code_of(exercise, {}), "anna")
    names: dict[str, object] = {}
    for cell in filled["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    out = capsys.readouterr().out
    assert "passed  " in out
    assert "failed" not in out
    path.write_text(json.dumps(filled))
    assert status_of("check", path) == 0


def test_a_file_is_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, name in enumerate(NAMES, start=1):
        assert status_of("start", number, "--output", tmp_path / "new" / "folder") == 0
        path = tmp_path / "new" / "folder" / f"{name}.ipynb"
        assert f"lesson check {path}" in capsys.readouterr().out
        path.write_text("mine")
        assert status_of("start", name, "--output", path.parent) == 2
        assert str(path) in capsys.readouterr().err
        assert path.read_text() == "mine"


def test_a_student_has_a_part_of_the_lexicon_and_a_held_out_construction() -> None:
    students = {name: student_of(name) for name in map(str, range(40))}
    assert {one.phenomenon for one in students.values()} >= {*PHENOMENA} - {"number"}
    assert len({one.missing for one in students.values()}) == 40
    for one in students.values():
        assert (len(one.shown), len(one.held_out)) == (SHOWN, HELD_OUT)
        sentences = [pair.source_words for pair in [*one.shown, *one.held_out]]
        assert len({*sentences}) == SHOWN + HELD_OUT
        assert one.missing.isdisjoint(word for words in sentences for word in words)
        assert len(one.missing) > 60
    negated = next(one for one in students.values() if one.phenomenon == "negation")
    assert all("pas" in pair.target_words for pair in negated.held_out)
    assert not any("not" in pair.source_words for pair in negated.shown)


def test_the_same_student_has_the_same_sentences() -> None:
    first = student_of("anna")
    student_of.cache_clear()
    assert student_of("anna") == first
    assert (
        student_of("anna").phenomenon == "relative clause"
    )  # for all versions: a notebook is used for weeks
