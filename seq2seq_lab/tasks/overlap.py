"""Which texts of a run its pretraining has read: hashes of the training texts in the folder of a masked language model."""

import hashlib
import logging
from collections.abc import Collection, Iterable
from pathlib import Path

from seq2seq_lab.files import read_bounded, write_atomically

log = logging.getLogger(__name__)

FILE = "training_texts.txt"
MOST_TEXTS = 1_000_000
DIGITS = 16


def write_hashes(folder: Path, texts: Iterable[str]) -> None:
    """Write the hashes of the distinct training texts of a run to its folder, unless there are more than `MOST_TEXTS`."""
    found = set[str]()
    for text in texts:
        found.add(_hash(text))
        if len(found) > MOST_TEXTS:
            log.info("%s is not written: more than %s different texts.", FILE, f"{MOST_TEXTS:,}")
            return
    write_atomically(folder / FILE, "".join(f"{one}\n" for one in sorted(found)))


def read_hashes(folder: Path) -> frozenset[str] | None:
    """Return the hashes that `write_hashes` wrote; None if the folder has none."""
    path = folder / FILE
    if not path.is_file():
        return None
    return frozenset(read_bounded(path, (DIGITS + 1) * MOST_TEXTS).decode("ascii", "replace").split())


def count_known(texts: Iterable[str], hashes: Collection[str]) -> int:
    """Return how many texts have one of these hashes."""
    return sum(_hash(text) in hashes for text in texts)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:DIGITS]
