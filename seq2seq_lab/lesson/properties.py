"""What the exercises share: a property, the function under test, and a mismatch."""

import copy
import math
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

from seq2seq_lab.lesson.student import Student

LONGEST = 600  # characters of a shown value
TOLERANCE = 1e-9  # of float64


class Mismatch(Exception):
    """A property does not hold.

    Args:
        given: the input.
        expected, got: what the function should return, and what it returned.
    """

    def __init__(self, given: str, expected: object, got: object) -> None:
        given, expected, got = (shorten(str(text)) for text in (given, expected, got))
        super().__init__(f"{given}: expected {expected}, got {got}")


class Solution:
    """The function under test. It gets copies of the arguments, and an exception in it is a mismatch.

    Args:
        function: fills the gap of an exercise.

    Attributes:
        changed: a call that changed its arguments in place; "" if none did, None before the first result.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.changed: str | None = None

    def __call__(self, given: str, *arguments: Any) -> Any:
        """Return what the function returns.

        Args:
            given: describes the arguments.

        Raises:
            Mismatch: the function raises an exception.
        """
        own = [copied(argument) for argument in arguments]
        try:
            result = self.function(*own)
        except (Exception, SystemExit) as error:  # whatever the function raises
            file = getattr(getattr(self.function, "__code__", None), "co_filename", "")
            raise Mismatch(given, "a result", describe_error(error, file)) from error
        self.changed = self.changed or ""
        for number, (before, after) in enumerate(zip(arguments, own, strict=True), start=1):
            if not (before.equal(after) if hasattr(before, "equal") else before == after):
                self.changed = self.changed or f"argument {number} after the call: {given}"
        return result


Property = Callable[[Solution, Student], None]
"""Raises `Mismatch` if the property does not hold. The first line of its docstring is its name."""


class Result(NamedTuple):
    """The result of a property; `problem` is empty if it holds."""

    exercise: str
    name: str
    problem: str

    def __str__(self) -> str:
        return f"failed  {self.name}\n        {self.problem}" if self.problem else f"passed  {self.name}"


def unchanged(solution: Solution, student: Student) -> None:
    """The arguments are not changed in place.

    The last property of each exercise: it is about all calls before it.
    """
    if solution.changed is None:
        raise Mismatch("every call", "a result", "an exception")
    if solution.changed:
        raise Mismatch(solution.changed, "what it was before", "another value")


def name_of(of: Property) -> str:
    """Return the name of a property."""
    return (of.__doc__ or "").partition("\n")[0].rstrip(".")


def copied(argument: Any) -> Any:
    """Return a copy of a tensor that keeps its gradient, or of a list; other arguments cannot be changed."""
    if isinstance(argument, list):
        return copy.deepcopy(argument)
    return argument.clone() if hasattr(argument, "clone") else argument


def shorten(text: str) -> str:
    """Return a text without its middle if it is long."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}"


def describe_error(error: BaseException, file: str) -> str:
    """Return the type and the message of an error, and the last line of a file that led to it."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    where = f" in line {lines[-1]}" if lines else ""
    return f"{type(error).__name__}{where}: {error}"


def expect_number(got: object, expected: float, given: str) -> None:
    """Compare a number.

    Raises:
        Mismatch: it is not a number, or differs.
    """
    if not isinstance(got, int | float):
        raise Mismatch(given, f"the number {expected:.6g}", f"a value of type {type(got).__name__}")
    if not math.isclose(got, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
        raise Mismatch(given, f"{expected:.6g}", f"{got:.6g}")
