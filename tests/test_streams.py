"""Standard streams with an encoding that does not have the characters of a text."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
from seq2seq_lab.errors import UserError, report_errors
with report_errors():
    print("caf\u00e9 \u05d0 \u2013")
    raise UserError("dataset.train=\u05d0")
"""


@pytest.mark.parametrize(
    ("encoding", "printed"),
    [
        ("ascii", r"caf\xe9 \u05d0 \u2013"),
        ("latin-1", "caf\u00e9 \\u05d0 \\u2013"),
        ("cp1252", "caf\u00e9 \\u05d0 \u2013"),
        ("ascii:surrogateescape", r"caf\xe9 \u05d0 \u2013"),
        ("utf-8", "caf\u00e9 \u05d0 \u2013"),
    ],
)
def test_a_character_that_the_encoding_does_not_have_is_written_as_its_code_point(
    encoding: str, printed: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=False,
    )
    assert done.stdout.decode(encoding.partition(":")[0]).rstrip() == printed
    assert done.stderr.startswith(b"error: dataset.train=")
    assert done.returncode == 2
