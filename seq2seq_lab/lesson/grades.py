"""`lesson grade`: check a folder of submissions, each in a process with a time limit, and write the points."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import seq2seq_lab
from seq2seq_lab.errors import UserError, print_visible, require
from seq2seq_lab.files import write_atomically
from seq2seq_lab.lesson.checks import SOLVES, properties_of
from seq2seq_lab.lesson.properties import Result, name_of

SUFFIXES = (".ipynb", ".py")
POINTS = "points.json"
GRADESCOPE = "results.json"
# The folder of this package may not be on the path, and files of a submission must not hide modules.
CHECK = """import sys
sys.path.append(sys.argv.pop(1))
from seq2seq_lab.lesson.__main__ import main
main()"""
CHECKED = (0, 1, 2)  # the statuses of `lesson check`


class Graded(NamedTuple):
    """The results of a submission.

    Attributes:
        end: why the process ended before all properties were checked; empty if it did not.
        results: one for each property of each exercise.
    """

    name: str
    student: str
    end: str
    seconds: float
    results: list[Result]

    @property
    def score(self) -> int:
        """The number of properties that hold, a point for each."""
        return sum(not result.problem for result in self.results)


def grade(folder: Path, exercises: Sequence[str], limit: float, output: Path) -> None:
    """Check all submissions, print a line for each, and write the points.

    Args:
        folder: has a file or a folder for each submission.
        limit: seconds for each submission.
        output: a new folder for `POINTS`, and `GRADESCOPE` in a folder for each submission.

    Raises:
        UserError: the folder has no submissions, or the output exists.
    """
    submissions = submissions_in(folder)
    require(limit > 0, "--time-limit", limit, "more than 0 seconds")
    if output.exists():
        raise UserError(f"{output} exists. Choose another folder with --output.")
    wanted = [(exercise, name_of(one)) for exercise in exercises for one in properties_of(exercise)]
    output.mkdir(parents=True)
    points = {}
    for name, path in submissions.items():
        graded = grade_submission(name, path, wanted, limit)
        (output / name).mkdir()
        write_json(output / name / GRADESCOPE, gradescope(graded))
        points[name] = {
            **{"score": graded.score, "max_score": len(wanted), "student": graded.student, "end": graded.end},
            "seconds": round(graded.seconds, 1),
            "exercises": {
                exercise: sum(one.exercise == exercise and not one.problem for one in graded.results)
                for exercise in exercises
            },
        }
        write_json(output / POINTS, points)
        print_visible(f"{name}  {graded.score} of {len(wanted)}" + (f"  {graded.end}" if graded.end else ""))
        sys.stdout.flush()


def submissions_in(folder: Path) -> dict[str, Path]:
    """Return the submissions by name: the notebooks and Python files of a folder, and its folders; print what is left out.

    Raises:
        UserError: there are none, or two have one name.
    """
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder. Give the folder of the submissions.")
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith((".", "__")):
            continue
        if not (path.is_dir() or is_submitted(path, folder)):
            print_visible(
                f"{path.name} is not graded: it is not a folder, a notebook (.ipynb) or a Python file (.py)."
            )
            continue
        name = path.name if path.is_dir() else path.stem
        if name in found:
            raise UserError(f"{found[name]} and {path} have one name. Rename one, or put both in one folder.")
        found[name] = path
    if not found:
        raise UserError(
            f"{folder} has no submissions. Give a folder with notebooks, Python files or folders."
        )
    return found


def grade_submission(name: str, path: Path, wanted: Sequence[tuple[str, str]], limit: float) -> Graded:
    """Check a copy of a submission in its own process."""
    # A submission may leave files that cannot be removed.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        copy, lines = Path(temporary) / "submission", Path(temporary) / "results.jsonl"
        try:
            copy_submission(path, copy)
        except OSError as error:
            end = f"it cannot be copied: {error}"
            return Graded(name, "", end, 0.0, [Result(*one, end) for one in wanted])
        files = sorted(str(one.relative_to(copy)) for one in copy.rglob("*") if is_submitted(one, copy))
        start = time.monotonic()
        given = ["--exercises", ",".join(dict.fromkeys(exercise for exercise, _ in wanted))]
        arguments = [*(f"./{file}" for file in files), *given, "--results", str(lines)]
        end = run_limited(arguments, copy, limit)
        seconds = time.monotonic() - start
        try:
            read = read_results(lines, len(files) > 1)
        except (ValueError, KeyError, TypeError):
            read, end = Read({}, [], "", ""), "the submission has changed its results"
    seen = {exercise for exercise, _ in read.problems}
    results = []
    for exercise, property_name in wanted:
        if exercise in seen:
            missing = end or "the process ended before this property"
        else:
            missing = f"no file defines {exercise}, or the process ended before its checks"
            missing = end or read.unsolved or missing
            if read.failed:
                missing += f"; files that did not run to their end: {'; '.join(read.failed)}"
        problem = read.problems.get((exercise, property_name), missing)
        results.append(Result(exercise, property_name, problem))
    return Graded(name, read.student, end, seconds, results)


def copy_submission(path: Path, folder: Path) -> None:
    """Copy a submission to a new folder."""
    if path.is_dir():
        shutil.copytree(path, folder, symlinks=True)
    else:
        folder.mkdir()
        shutil.copy(path, folder)


def is_submitted(path: Path, folder: Path) -> bool:
    """Return whether a file of a submission may contain a solution; hidden folders have copies that Jupyter saves."""
    hidden = any(part.startswith((".", "__")) for part in path.relative_to(folder).parts)
    return not hidden and path.suffix.lower() in SUFFIXES and path.is_file()


class Read(NamedTuple):
    """What `lesson check` has written.

    Attributes:
        problems: by (exercise, property), with the name of the file if the submission has several files.
        failed: the problems of the files that did not run to their end.
        unsolved: why no exercise is solved; empty if one is.
        student: the first ID of a student in the files.
    """

    problems: dict[tuple[str, str], str]
    failed: list[str]
    unsolved: str
    student: str


def read_results(path: Path, several: bool) -> Read:
    """Return the content of a file of results.

    Raises:
        ValueError, KeyError, TypeError: the lines are not those of `checks.record`.
    """
    if not path.is_file():
        return Read({}, [], "", "")
    complete = path.read_text("utf-8").split("\n")[:-1]  # the process may have ended within a line
    records = [json.loads(line) for line in complete]
    problems: dict[tuple[str, str], str] = {}
    failed, unsolved = [], ""
    for one in records:
        exercise, name, problem = (str(one[key]) for key in Result._fields)
        if exercise:
            shown = f"{one['file']}: {problem}" if several and problem else problem
            problems.setdefault((exercise, name), shown)
        elif name == SOLVES:
            unsolved = problem
        else:
            failed.append(problem)
    students = (str(one["student"]) for one in records if one["student"])
    return Read(problems, failed, unsolved, next(students, ""))


def run_limited(arguments: Sequence[str], folder: Path, limit: float) -> str:
    """Run `lesson check`, and end it and the processes that it has started; return why it ended early, or "".

    Its output is discarded: the results are in a file.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", CHECK, str(Path(seq2seq_lab.__file__).parents[1]), "check", *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        status = process.wait(limit)
    except subprocess.TimeoutExpired:
        return f"the time limit of {limit:g} s was reached"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if status < 0:
        return f"the process ended with signal {-status} ({signal.strsignal(-status)})"
    return f"the process ended with status {status}" if status not in CHECKED else ""


def gradescope(graded: Graded) -> dict[str, Any]:
    """Return the results of a submission in the format of Gradescope's `results.json`."""
    tests = [
        {
            **{"name": f"{one.exercise}: {one.name}", "score": int(not one.problem), "max_score": 1},
            "output": one.problem or "passed",
        }
        for one in graded.results
    ]
    return {"tests": tests, "score": graded.score}


def write_json(path: Path, value: object) -> None:
    """Write a value of JSON. Parts of names and messages that are not Unicode are written as escapes."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    write_atomically(path, text.encode("utf-8", "backslashreplace").decode("utf-8") + "\n")
