"""Files that are whole or not there, and how to tell that they have not changed."""

import hashlib
import os
from pathlib import Path


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomically(path: Path, text: str) -> None:
    """Write a file under a temporary name and rename it."""
    temporary = path.with_name(f".{path.name}.writing")
    temporary.write_text(text, "utf-8")
    flush(temporary)
    temporary.replace(path)


def flush(path: Path) -> None:
    """Have the system write a file or a folder's entries to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
