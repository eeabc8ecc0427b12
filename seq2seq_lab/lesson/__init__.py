"""The program `python -m seq2seq_lab.lesson`: notebooks with gaps, and checks of the functions that fill them."""

from collections.abc import Callable
from typing import Any


def check(function: Callable[..., Any], student: str = "") -> None:
    """Print whether the properties of an exercise hold for a function, which has the name of the exercise.

    Args:
        student: the ID with which the notebook was made.

    Raises:
        UserError: no exercise has this name.
    """
    from seq2seq_lab.lesson.checks import check_function

    check_function(function, student)
