"""`lesson check`: run the properties of an exercise against a solution."""

import importlib
import inspect
import json
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from seq2seq_lab.errors import UserError, did_you_mean, print_visible
from seq2seq_lab.lesson.exercises import NAMES
from seq2seq_lab.lesson.notebook import is_notebook, read_cells
from seq2seq_lab.lesson.properties import Mismatch, Property, Result, Solution, describe_error, name_of
from seq2seq_lab.lesson.student import student_of

RUNS = "the file runs from its first line to its last"


class Submission(NamedTuple):
    """A file that has been executed.

    Attributes:
        names: what it defines.
        problem: the error that ended it; empty if it ran to its end.
    """

    names: dict[str, Any]
    problem: str

    @property
    def solutions(self) -> dict[str, Callable[..., Any]]:
        """The functions that solve exercises, by name, without those that are imported from the package."""
        own = {name: self.names.get(name) for name in NAMES}
        return {
            name: function
            for name, function in own.items()
            if callable(function) and not str(getattr(function, "__module__", "")).startswith("seq2seq_lab.")
        }

    @property
    def student(self) -> str:
        """The ID of the student that the file defines."""
        return str(self.names.get("STUDENT", ""))


def check_files(paths: Sequence[Path], student_id: str | None, results: Path | None) -> bool:
    """Check and print the exercises that the files solve; return whether all properties hold.

    Args:
        student_id: None: the one in the file.
        results: a file to which a line of JSON is added for each property.

    Raises:
        UserError: a file does not exist, or no file has the function of an exercise.
    """
    for path in paths:
        if not path.is_file():
            raise UserError(f"{path} is not a file. Give a notebook or a Python file with the solution.")
    if results is not None:
        results.parent.mkdir(parents=True, exist_ok=True)
    failed, found = 0, False
    functions: list[str] = []
    for path in paths:
        with folder_on_path(path):
            submission = execute(path)
            functions += [name for name, item in submission.names.items() if inspect.isfunction(item)]
            student = submission.student if student_id is None else student_id
            if submission.problem:
                found = True
                failed += report([Result("", RUNS, submission.problem)], student, results)
            for name, function in submission.solutions.items():
                found = True
                print_visible(f"{name}, {path}" + (f", student {student}" if student else ""))
                failed += report(run_properties(name, function, student), student, results)
    if not found:
        files = ", ".join(map(str, paths))
        near = [f"{function}:{hint}" for function in functions if (hint := did_you_mean(function, NAMES))]
        listed = f" {'; '.join(near)}" if near else ""
        raise UserError(
            f"{files}: no function has the name of an exercise.{listed} Names: {', '.join(NAMES)}."
        )
    return not failed


def check_function(function: Callable[..., Any], student_id: str) -> None:
    """Check and print the exercise that a function solves; see `seq2seq_lab.lesson.check`."""
    name = getattr(function, "__name__", "")
    if name not in NAMES:
        near = did_you_mean(name, NAMES)
        raise UserError(f"{name} is not an exercise.{near} Exercises: {', '.join(NAMES)}.")
    report(run_properties(name, function, student_id), student_id)


def properties_of(exercise: str) -> tuple[Property, ...]:
    """Return the properties of an exercise."""
    module = importlib.import_module(f"seq2seq_lab.lesson.exercises.{exercise}")
    properties: tuple[Property, ...] = module.PROPERTIES
    return properties


def run_properties(exercise: str, function: Callable[..., Any], student_id: str) -> Iterator[Result]:
    """Yield the result of each property."""
    solution, student = Solution(function), student_of(student_id)
    for holds in properties_of(exercise):
        problem = ""
        try:
            holds(solution, student)
        except Mismatch as mismatch:
            problem = str(mismatch)
        yield Result(exercise, name_of(holds), problem)


def report(results: Iterable[Result], student_id: str, file: Path | None = None) -> int:
    """Print results, and add them to a file; return how many failed."""
    failed = 0
    for result in results:
        print_visible(result)
        sys.stdout.flush()
        failed += bool(result.problem)
        if file is not None:
            with file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps({**result._asdict(), "student": student_id}) + "\n")
    return failed


@contextmanager
def folder_on_path(path: Path) -> Iterator[None]:
    """Let a file import from its folder."""
    before = [*sys.path]
    sys.path.append(str(path.resolve().parent))
    try:
        yield
    finally:
        sys.path[:] = before


def execute(path: Path) -> Submission:
    """Run the cells of a notebook, or a Python file, up to the first error."""
    module = types.ModuleType("submission")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    if is_notebook(path):
        module.__dict__["display"] = print  # which Jupyter provides
    name = str(path)
    try:
        for name, code in read_cells(path):
            exec(compile(code, name, "exec"), module.__dict__)
    except (Exception, SystemExit) as error:  # whatever the file raises
        return Submission(module.__dict__, f"{name}: {describe_error(error, name)}")
    return Submission(module.__dict__, "")
