"""Runs the command line in this process; few tests need a separate process."""

import sys

import pytest

from seq2seq_lab.launching import cli


def run(*arguments: str) -> int:
    """Do what the program does with these arguments, and return its exit status."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["seq2seq_lab", *arguments])
        patch.setenv("HYDRA_FULL_ERROR", "1")  # the program sets it, for longer than a test
        try:
            cli.main()
        except SystemExit as end:
            return int(end.code or 0)
    return 0
