"""The cache of tokenized text: tokenizers and the ids of every split."""

import errno
import hashlib
import importlib.metadata
import json
import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from seq2seq_lab.config import extensions
from seq2seq_lab.data.build_lock import build_lock
from seq2seq_lab.data.languages import CASES, language_code
from seq2seq_lab.data.lines import Lines
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.tokenizers.base import SPECIALS, UNK
from seq2seq_lab.data.words import has_attached
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import LOCK, lock_file, sha256

# Increase it when a change of the code changes the ids of the same text and options, or the files.
FORMAT = 4
MANIFEST = "manifest.json"
UNFINISHED = "unfinished."  # the beginning of the name of a folder that is being written
ABANDONED_SECONDS = 3600.0  # an unfinished folder of this age that no process has locked is removed

logger = logging.getLogger(__name__)


class Saved(Protocol):
    """The tokenizers of an entry."""

    def save(self, folder: Path) -> None:
        """Write them to a folder."""
        ...


class Entry(NamedTuple):
    """Tokenized text.

    Attributes:
        ids: by the names given to `cached_tokens`.
        from_cache: whether the ids were read from the cache.
    """

    tokenizers: Any
    ids: dict[str, Ragged]
    from_cache: bool


def cached_tokens(
    key: str,
    names: Sequence[str],
    cache: Path | None,
    *,
    build: Callable[[], tuple[Saved, Sequence[Ragged]]],
    load: Callable[[Path], Saved],
) -> Entry:
    """Return tokenized text from the cache, or build it and add it to the cache.

    Jobs may share a cache: an entry `cache`/tokenized/KEY appears only when it is complete, one process builds it while the
    others wait (see `build_lock`), and a damaged entry is logged and written again.

    Args:
        key: see `text_key`.
        names: the names of the texts.
        cache: the folder of the cache, or None for no cache.
        build: returns the tokenizers, and the ids of each text in the order of `names`.
        load: reads the tokenizers from the folder that they were saved to.

    Raises:
        UserError: the folder cannot be written.
    """

    def built() -> Entry:
        tokenizers, ids = build()
        return Entry(tokenizers, dict(zip(names, ids, strict=True)), from_cache=False)

    if cache is None:
        return built()
    folder = cache / "tokenized" / key
    with _writing(cache):
        folder.parent.mkdir(parents=True, exist_ok=True)
    while (found := _read(folder, names, load)) is None:
        with ExitStack() as lock:
            with _writing(cache):
                lock.enter_context(build_lock(folder))
            if not folder.exists() and (entry := _write(built, cache, folder)) is not None:
                return entry
        logger.info("Another process has written %s; its files are used", folder)
    logger.info("Tokenized text read from %s", folder)
    return found


def _write(build: Callable[[], Entry], cache: Path, folder: Path) -> Entry | None:
    """Build an entry and write it to `folder`; return None if another process has written it meanwhile."""
    _remove_unfinished(folder.parent)
    with _writing(cache):
        temporary = tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=folder.parent)
    with temporary as path, (Path(path) / LOCK).open("w") as file:
        lock_file(file, timeout=0)
        entry = build()
        with _writing(cache):
            return entry if _publish(entry, Path(path) / "entry", folder) else None


@contextmanager
def _writing(cache: Path) -> Iterator[None]:
    """Raise `UserError` if the cache cannot be written: NumPy's error about a full disk has no errno."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cache_dir={cache} cannot be written ({error.strerror or error}). Free some disk space, or set "
            f"cache_dir=FOLDER to another folder."
        ) from error


def _remove_unfinished(parent: Path) -> None:
    """Remove what processes that were killed have left: old folders that no process has locked.

    Where the file system does not support locks, a process may still be writing them: they stay.
    """
    for folder in parent.glob(f"{UNFINISHED}*"):
        # It is in use, another process removes it, or it is another user's.
        with suppress(BlockingIOError, FileNotFoundError, PermissionError):
            if time.time() - folder.stat().st_mtime > ABANDONED_SECONDS:
                with (folder / LOCK).open("w") as file:
                    if lock_file(file, timeout=0):
                        shutil.rmtree(folder)


def text_key(
    texts: Mapping[str, Sequence[str]], about: object, options: Mapping[str, object], fitted: Saved | None
) -> str:
    """Return the SHA-256, in hexadecimal, of everything that determines tokenized text.

    This is every text with its name, the options, the format of the entry, the versions of the libraries, and the user's
    Python files if the tokenizer is an extension.

    Args:
        about: further JSON values that determine the ids, such as the languages.
        options: the configuration of the tokenizer, as plain (JSON) values.
        fitted: the tokenizers, if they are not to be fitted on the texts.
    """
    digest = hashlib.sha256()

    def add(text: str) -> None:
        data = text.encode("utf-8")
        digest.update(len(data).to_bytes(8, "little") + data)

    code = extensions.fingerprint(str(options.get("_target_", "")).rpartition(".")[0])
    # The place of spaCy is kept for the other tokenizers, whose keys do not depend on whether it is installed.
    spacy = str(options.get("_target_", "")).rpartition(".")[2] == "SpacyTokenizer"
    versions = [_version("tokenizers"), _version("spacy") if spacy else None]
    add(json.dumps([FORMAT, versions, code, about, dict(options)], sort_keys=True))
    if fitted is not None:
        with tempfile.TemporaryDirectory() as folder:
            fitted.save(Path(folder))
            add(json.dumps(file_hashes(Path(folder)), sort_keys=True))
    for change in changes_of(texts, about, options):
        add(change)
    for name, lines in texts.items():
        add(name)
        digest.update(Lines.of(lines).digest())
    return digest.hexdigest()


def changes_of(texts: Mapping[str, Sequence[str]], about: object, options: Mapping[str, object]) -> list[str]:
    """Return the changes of the tokenizers that changed the tokens of these texts; see `text_key` for the arguments.

    The keys of other texts are those of earlier versions.
    """
    labels = about if isinstance(about, list | tuple) else [about]
    small = bool(options.get("lowercase"))
    changes = {
        "rules 3": any(map(has_attached, texts.values())),  # of `Tokenizer.rules`
        "final sigma": small and any("Σ" in line for lines in texts.values() for line in lines),
        "case by language": any(isinstance(one, str) and language_code(one) in CASES for one in labels),
        "unknown in the text": any(
            SPECIALS[UNK] in (line.lower() if small else line) for lines in texts.values() for line in lines
        ),
    }
    return [name for name, applies in changes.items() if applies]


def _version(library: str) -> str | None:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


def _file(folder: Path, index: int, array: str) -> Path:
    """Return the file of an array. An index names the text, because not every name of a text is a valid file name."""
    return folder / f"{index}.{array}.npy"


def _load(folder: Path, index: int) -> Ragged:
    """Return the arrays of a text, mapped into memory: processes share them, and load only what they read."""
    # Copy-on-write, because torch needs writable arrays.
    return Ragged(
        *(
            torch.from_numpy(np.load(_file(folder, index, array), mmap_mode="c"))
            for array in ("tokens", "offsets")
        )
    )


def _read(folder: Path, names: Sequence[str], load: Callable[[Path], Saved]) -> Entry | None:
    """Return an entry, or None if there is none. A damaged entry is logged and removed."""
    if not folder.exists():
        return None
    try:
        if json.loads((folder / MANIFEST).read_text(encoding="utf-8")) == file_hashes(folder):
            ids = {name: _load(folder, index) for index, name in enumerate(names)}
            return Entry(load(folder / "tokenizer"), ids, from_cache=True)
        reason = "its files do not match its manifest"
    except (FileNotFoundError, UnicodeDecodeError, json.JSONDecodeError, UserError) as error:
        reason = str(error)
    logger.warning("The tokenized text %s is damaged (%s) and is written again", folder, reason)
    # Another job may have removed the entry already.
    with (
        tempfile.TemporaryDirectory(prefix="damaged.", dir=folder.parent) as temporary,
        suppress(FileNotFoundError),
    ):
        folder.rename(Path(temporary) / "entry")
    return None


def _publish(entry: Entry, folder: Path, target: Path) -> bool:
    """Write an entry to a folder and rename it to `target`; return False if another process has written it."""
    entry.tokenizers.save(folder / "tokenizer")
    for index, text in enumerate(entry.ids.values()):
        np.save(_file(folder, index, "tokens"), text.tokens.numpy())
        np.save(_file(folder, index, "offsets"), text.offsets.numpy())
    (folder / MANIFEST).write_text(json.dumps(file_hashes(folder), indent=2), encoding="utf-8")
    try:
        folder.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def file_hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file in `folder` except the manifest, by its relative path."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path != folder / MANIFEST]
    return {path.relative_to(folder).as_posix(): sha256(path) for path in files}
