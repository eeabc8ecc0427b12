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
SOLVES = "a function has the name of an exercise"
GAP = "fill the gap"  # the error of a function that has not been written


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


def check_files(
    paths: Sequence[Path], student_id: str | None, results: Path | None, exercises: Sequence[str] = NAMES
) -> bool:
    """Check and print the exercises that the files solve; return whether all properties hold.

    A function that has not been written is checked only if no other file solves its exercise.

    Args:
        student_id: None: the one in the file, or else in the files before it.
        results: a file to which a line of JSON is added for each property.
        exercises: those to check.

    Raises:
        UserError: a file does not exist, or no file has the function of an exercise.
    """
    for path in paths:
        if not path.is_file():
            raise UserError(f"{path} is not a file. Give a notebook or a Python file with the solution.")
    if results is not None:
        results.parent.mkdir(parents=True, exist_ok=True)
    failed, student = 0, student_id or ""
    functions: list[str] = []
    gaps: dict[str, tuple[Callable[..., Any], Path, str]] = {}
    solved: set[str] = set()

    def check_one(name: str, function: Callable[..., Any], path: Path, student: str) -> int:
        print_visible(f"{name}, {path}" + (f", student {student}" if student else ""))
        return report(run_properties(name, function, student), student, results, str(path))

    for path in paths:
        with folder_on_path(path):
            submission = execute(path)
            functions += [name for name, item in submission.names.items() if inspect.isfunction(item)]
            if student_id is None:
                student = submission.student or student
            if submission.problem:
                failed += report([Result("", RUNS, submission.problem)], student, results)
            for name, function in submission.solutions.items():
                if name not in exercises:
                    continue
                if is_gap(function):
                    gaps.setdefault(name, (function, path, student))
                else:
                    solved.add(name)
                    failed += check_one(name, function, path, student)
    for name, (function, path, student) in gaps.items():
        if name not in solved:
            failed += check_one(name, function, path, student)
    if not (failed or solved):
        files = ", ".join(map(str, paths))
        near = [f"{function}:{hint}" for function in functions if (hint := did_you_mean(function, exercises))]
        listed = f" {'; '.join(near)}" if near else ""
        problem = f"{files}: no function has the name of an exercise.{listed} Names: {', '.join(exercises)}."
        record(Result("", SOLVES, problem), "", results)
        raise UserError(problem)
    return not failed


def is_gap(function: Callable[..., Any]) -> bool:
    """Return whether a function is that of the notebook, which has not been written."""
    code = getattr(function, "__code__", None)
    return code is not None and GAP in code.co_consts and code.co_names == (NotImplementedError.__name__,)


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


def report(results: Iterable[Result], student_id: str, file: Path | None = None, solution: str = "") -> int:
    """Print results, and add them to a file; return how many failed."""
    failed = 0
    for result in results:
        print_visible(result)
        sys.stdout.flush()
        failed += bool(result.problem)
        record(result, student_id, file, solution)
    return failed


def record(result: Result, student_id: str, file: Path | None, solution: str = "") -> None:
    """Add a result to a file, if there is one.

    Args:
        solution: the file with the function; empty if the result is not that of a function.
    """
    if file is not None:
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps({**result._asdict(), "student": student_id, "file": solution}) + "\n")


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
