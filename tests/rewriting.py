"""Writes files of run folders as a run does, with their digests."""

from pathlib import Path

from seq2seq_lab.files import write_covered


def rewrite(path: Path, text: str) -> None:
    """Write a file of a run folder and its digest in the manifest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_covered(path.parent, "result" if path.name == "result.json" else "run", path.name, text)
