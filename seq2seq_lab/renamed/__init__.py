"""Programs of earlier versions: calling one prints the command that replaced it.

`seq2seq_lab/__init__.py` adds this folder to the package's path, so that `python -m seq2seq_lab.translate` finds it.
"""

import shlex
import sys
from collections.abc import Mapping

from seq2seq_lab.errors import UserError, report_errors


def print_new_command(old: str, new: str, renamed: Mapping[str, str] | None = None, added: str = "") -> None:
    """Print the command that replaced a program, with the arguments that were given, and exit with status 2.

    Args:
        old, new: the programs.
        renamed: the options that have another name now.
        added: words to print after the arguments.
    """
    names = renamed or {}
    given = shlex.join([names.get(word, word) for word in sys.argv[1:]])
    with report_errors():
        raise UserError(
            f"python -m seq2seq_lab.{old} is now: {' '.join(f'python -m seq2seq_lab.{new} {given} {added}'.split())}"
        )
