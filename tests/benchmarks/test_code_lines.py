"""The counter of lines of code."""

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.code_lines import code_lines

TEXT = '''"""A module.

With a docstring of three lines."""

import os  # a comment behind code counts nothing


# a comment
class A:
    """A class."""

    text = """
    a text, not a docstring
    """

    def f(self) -> int:
        """A function."""
        return (
            1  # one
            +

            2
        )
'''


def test_only_lines_with_code_count() -> None:
    assert code_lines(TEXT) == 11


def test_a_closed_reader_ends_the_program_without_a_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "benchmarks.code_lines"]
    ended = subprocess.run(
        command, cwd=Path(__file__).parents[2], stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (1, b"")
