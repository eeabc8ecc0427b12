"""Generated corpora in the user's cache: generating takes longer than reading."""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

from seq2seq_lab.data import corpus
from seq2seq_lab.data.corpus import Gold
from seq2seq_lab.data.download import cache_folder
from seq2seq_lab.files import write_atomically

log = logging.getLogger(__name__)


class Pair(NamedTuple):
    """A generated sentence pair."""

    gold: Gold
    phenomena: frozenset[str]


Splits: TypeAlias = Mapping[str, Sequence[Pair]]


def cached(arguments: Mapping[str, object], generate: Callable[[], Splits]) -> Splits:
    """Return generated splits from the cache, or generate them and add them to it.

    The name of the file follows from the arguments and the code of the generator. A file that is damaged is written again,
    and a cache that cannot be written is not used.

    Args:
        arguments: of the data set, as JSON values.
    """
    key = hashlib.sha256(json.dumps([arguments, _code()], sort_keys=True).encode()).hexdigest()
    file = cache_folder(None) / "grammar" / f"{key}.json"
    if (found := _read(file)) is not None:
        return found
    splits = generate()
    content = json.dumps(
        {name: [_record(pair) for pair in pairs] for name, pairs in splits.items()}, ensure_ascii=False
    )
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, f"{_digest(content)}\n{content}")
    except OSError as error:
        log.info("The generated data are not kept: %s cannot be written (%s).", file, error.strerror)
    return splits


def _read(file: Path) -> Splits | None:
    """Return the content of a file; None if it does not exist or is damaged."""
    try:
        digest, _, content = file.read_text("utf-8").partition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    if digest != _digest(content):
        log.info("%s is damaged and is written again.", file)
        return None
    return {name: [_pair(*record) for record in records] for name, records in json.loads(content).items()}


def _record(pair: Pair) -> list[object]:
    gold = pair.gold
    assert not gold.possible  # the grammar has sure links only
    sides = (gold.source_words, gold.target_words, gold.target_classes, gold.target_agreement)
    subjects = (gold.source_subjects, gold.target_subjects)
    return [*("\t".join(side or ()) for side in sides), *subjects, sorted(gold.links), sorted(pair.phenomena)]


def _pair(
    source: str,
    target: str,
    classes: str,
    agreement: str,
    source_subjects: list[tuple[int, int]],
    target_subjects: list[tuple[int, int]],
    links: list[tuple[int, int]],
    phenomena: list[str],
) -> Pair:
    words, others, parts, agrees = (tuple(side.split("\t")) for side in (source, target, classes, agreement))
    gold = Gold(
        words,
        others,
        frozenset(_positions(links)),
        target_classes=parts,
        target_agreement=agrees,
        source_subjects=_positions(source_subjects),
        target_subjects=_positions(target_subjects),
    )
    return Pair(gold, frozenset(phenomena))


def _positions(pairs: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    return tuple([(first, second) for first, second in pairs])  # JSON has lists


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _code() -> str:
    """Return a hash of the code and the words that generate."""
    folder = Path(__file__).parent
    files = [*sorted(folder.glob("*.py")), folder / "lexicon.txt", Path(corpus.__file__)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
