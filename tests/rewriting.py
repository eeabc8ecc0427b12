"""Writes files of run folders as a run does, with their digests, and interrupts such writes."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from seq2seq_lab.config.run_folder import write_covered


def rewrite(path: Path, text: str) -> None:
    """Write a file of a run folder and its digest in the manifest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_covered(path.parent, "result" if path.name == "result.json" else "run", path.name, text)


@contextmanager
def crash_at_replacement(number: int) -> Iterator[None]:
    """Raise KeyboardInterrupt instead of replacing a file, from the replacement with this index on."""
    replace, numbers = Path.replace, itertools.count()

    def crash(path: Path, target: Path) -> Path:
        if next(numbers) >= number:
            raise KeyboardInterrupt
        return replace(path, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", crash)
        yield
