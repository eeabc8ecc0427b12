"""Atomic writes, checksums, JSON files and locks of folders."""

import errno
import fcntl
import hashlib
import itertools
import json
import logging
import math
import os
import shutil
import time
import uuid
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from seq2seq_lab.errors import UserError

LOCK = ".lock"
CHECKSUM = "crc32"  # of a line of JSON without this key
MAX_JSON_BYTES = 2**26  # of a file with one JSON value
MAX_LINES_BYTES = 2**30  # of a file of lines, and of the arrays of a file of statistics
MAX_DEPTH = 32  # of nested values
# Of file systems of clusters that do not support an operation.
UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
REMOVE_ATTEMPTS = 3

log = logging.getLogger(__name__)


class FolderInUseError(UserError):
    """Another process uses the run folder."""


@contextmanager
def lock_folder(folder: Path, timeout: float = 2.0) -> Iterator[None]:
    """Lock a run folder for the duration of the block. If the file system does not support locks, log a warning.

    Args:
        timeout: seconds to wait for the lock; a check whether a run is active also holds it for a moment.

    Raises:
        FolderInUseError: another process holds the lock.
    """
    with (folder / LOCK).open("w") as file:
        try:
            locked = lock_file(file, timeout)
        except BlockingIOError as error:
            raise FolderInUseError(
                f"{folder} is in use by another run. Wait until it ends, or choose another folder."
            ) from error
        if not locked:
            log.warning(
                "%s cannot be locked on this file system: do not start two runs in this folder.", folder
            )
        yield


def lock_file(file: IO[Any], timeout: float) -> bool:
    """Lock a file until it is closed; return False if the file system does not support locks.

    Args:
        timeout: seconds to wait for the lock.

    Raises:
        BlockingIOError: another process holds the lock.
    """
    until = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= until:
                raise
            time.sleep(0.05)
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
            return False


def is_locked(folder: Path) -> bool:
    """Return whether another process holds the lock of a run folder; False if the lock may not be read."""
    try:
        file = (folder / LOCK).open("rb")
    except (FileNotFoundError, PermissionError):
        return False
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
    return False


def remove_folder(folder: Path) -> None:
    """Remove a folder. If it cannot be removed, as on NFS while a file in it is open, log a warning."""
    for attempt in range(REMOVE_ATTEMPTS):
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EBUSY, errno.ESTALE):
                raise
            if attempt == REMOVE_ATTEMPTS - 1:
                log.warning("%s cannot be removed: %s. The run continues.", folder, error.strerror)
            else:
                time.sleep(0.1)
        else:
            return


def read_json_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, or an empty one if the file does not exist.

    Raises:
        UserError: the file does not contain a JSON object, or an object has a key twice.
    """
    if not path.is_file():
        return {}
    try:
        content = parse_json(read_bounded(path))
        if isinstance(content, dict):
            return content
        problem = "it is not a JSON object"
    except UserError:
        raise
    except ValueError as error:
        problem = str(error)
    raise UserError(f"{path} is damaged: {problem}. Restore the file from a copy.")


def read_bounded(path: Path, limit: int = MAX_JSON_BYTES) -> bytes:
    """Return the content of a file of a run.

    Args:
        limit: the greatest size in bytes.

    Raises:
        UserError: the file is larger.
    """
    with path.open("rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise UserError(
            f"{path} is larger than {limit:,} bytes, so it is not read. Restore it from a copy of the run."
        )
    return content


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: it is not JSON in UTF-8, has more than `MAX_DEPTH` levels, or an object has a key twice.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) < len(pairs):
            repeated = Counter(key for key, _ in pairs).most_common(1)[0][0]
            raise ValueError(f"the key {repeated!r} appears twice in an object")
        return content

    too_deep = f"it has more than {MAX_DEPTH} levels"
    try:
        value = json.loads(text if isinstance(text, str) else text.decode(), object_pairs_hook=unique)
    except RecursionError:
        raise ValueError(too_deep) from None
    if _is_deeper(value, MAX_DEPTH):
        raise ValueError(too_deep)
    return value


def _is_deeper(value: Any, levels: int) -> bool:
    """Return whether nested values have more than this many levels."""
    level = [value]
    for _ in range(levels):
        level = [
            item
            for one in level
            if isinstance(one, dict | list)
            for item in (one.values() if isinstance(one, dict) else one)
            if isinstance(item, dict | list)
        ]
        if not level:
            return False
    return True


def set_file_aside(path: Path, problem: str) -> None:
    """Rename a damaged file to NAME.damaged-N, and log a warning."""
    aside = next(
        one for n in itertools.count(1) if not (one := path.with_name(f"{path.name}.damaged-{n}")).exists()
    )
    path.rename(aside)
    log.warning("%s %s. It is now %s.", path, problem, aside.name)


def read_lines(path: Path) -> list[bytes]:
    """Return the lines of a file. Only "\\n" ends a line; U+0085, U+2028 and similar characters do not."""
    lines = read_bounded(path, MAX_LINES_BYTES).split(b"\n")
    return lines if lines[-1] else lines[:-1]


def checked_line(row: Mapping[str, Any]) -> str:
    """Return an object as a line of JSON with the checksum of its other text; see `parse_checked_line`."""
    text = json.dumps(row, ensure_ascii=False, allow_nan=False)
    return f'{text[:-1]}, "{CHECKSUM}": "{zlib.crc32(text.encode()):08x}"}}\n'


def parse_checked_line(line: bytes) -> dict[str, Any]:
    """Return the object of a line that `checked_line` wrote, without the checksum.

    Raises:
        ValueError: the line is damaged.
    """
    row = parse_json(line)
    if isinstance(row, dict) and CHECKSUM in row:
        del row[CHECKSUM]
        if row and checked_line(row).encode() == line + b"\n":
            return row
    raise ValueError("the checksum does not match")


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a JSON lines file, without a last line that a crash cut off.

    Raises:
        UserError: a line is not a JSON object.
    """
    rows: list[dict[str, Any]] = []
    lines = read_lines(path)
    for line_number, line in enumerate(lines, start=1):
        try:
            row = parse_json(line)
        except ValueError:
            if line_number == len(lines) and not path.read_bytes().endswith(b"\n"):
                break
            raise damaged_line_error(path, line_number, repr(line)) from None
        if not isinstance(row, dict):
            raise damaged_line_error(path, line_number, repr(line))
        rows.append(row)
    return rows


def damaged_line_error(path: Path, line_number: int, line: str) -> UserError:
    """Return the error for a damaged line."""
    return UserError(
        f"{path}, line {line_number} is damaged: {line[:80]}. Delete that line to use the rest of the file."
    )


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomically(path: Path, text: str) -> None:
    """Write a file under a temporary name and rename it."""
    with temporary_path(path) as temporary:
        temporary.write_text(text, "utf-8")
        flush(temporary)


@contextmanager
def temporary_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path for a new version of a file, which replaces the file unless the block raises an error.

    The block may also make a folder, which gets the name of one that does not exist.
    """
    # Parallel jobs, also on several machines, share a cache.
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary)
        temporary.unlink(missing_ok=True)


def remove_temporary_files(folder: Path) -> None:
    """Remove the files that killed processes have left in a run folder and its folders; see `temporary_path`.

    The run folder must be locked. The folder of W&B is left out.
    """
    pattern = f".*.{'[0-9a-f]' * 32}"
    for path in (*folder.glob(pattern), *folder.glob(f"*/{pattern}")):
        if path.parent.name != "wandb" and path.is_file():
            path.unlink(missing_ok=True)  # another process may have given it its name


def finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with None for infinities and NaN, which JSON does not have."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }


def write_json_lines(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Write a file of one JSON object per line."""
    write_atomically(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def make_numbered_folder(parent: Path, prefix: str = "") -> Path:
    """Create and return the folder `parent`/`prefix`N with the first N, from 1, that does not exist."""
    for n in itertools.count(1):
        with suppress(FileExistsError):
            (folder := parent / f"{prefix}{n}").mkdir(parents=True)
            break
    return folder


def flush(path: Path) -> None:
    """Write a file or the entries of a folder from the system's cache to the disk, if the file system can."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
    finally:
        os.close(descriptor)
