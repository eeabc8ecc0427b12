"""The counter of lines of code."""

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
