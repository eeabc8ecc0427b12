"""Atomic writes, checksums, JSON files and locks of run folders.

`manifest.json` of a run folder lists the SHA-256 of the files that programs read, in two parts: "run", from which a run is
opened, and "result", which the end of a run writes. Checkpoints have manifests of their own, the rows of `metrics.jsonl`
checksums.
"""

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
from typing import Any, Literal

from seq2seq_lab.errors import UserError

LOCK = ".lock"
MANIFEST = "manifest.json"
SCORED = ("finished", "diverged")  # the statuses of runs that have ended with scores
CHECKSUM = "crc32"  # of a line of JSON without this key
MAX_JSON_BYTES = 2**26  # of a file with one JSON value
MAX_LINES_BYTES = 2**30  # of a file of lines, and of the arrays of a file of statistics
MAX_DEPTH = 32  # of nested values
RECORD_TYPES: dict[str, Any] = {
    "choices": dict,
    "evaluation": dict,
    "overrides": list,
    "changed": list,
    "inputs": dict,
    "folder": list,
    "copy_of": dict,
}
MAX_NUMBER = 1e15  # of seconds, steps and parameters
# The ends of keys in result.json whose values are numbers, and texts.
NUMBERS = ("seconds", "_per_second", "steps")
TEXTS = ("_signature", "/label", "/examples")
RUN_FORMAT = 4  # of run.json and config.yaml: raise it if a version cannot read the runs of the one before

Part = Literal["run", "result"]
Listing = dict[str, dict[str, list[str]]]  # the accepted digests of each file, by the part of the manifest

# Of file systems of clusters that do not support an operation.
UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
REMOVE_ATTEMPTS = 3

log = logging.getLogger(__name__)


class FolderInUseError(UserError):
    """Another process uses the run folder."""


@contextmanager
def lock_folder(folder: Path, timeout: float = 2.0) -> Iterator[None]:
    """Lock a run folder for the duration of the block.

    Args:
        timeout: seconds to wait for the lock; a check whether a run is active also holds it for a moment.

    Raises:
        FolderInUseError: another process holds the lock.
    """
    until = time.monotonic() + timeout
    with (folder / LOCK).open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= until:
                    raise FolderInUseError(
                        f"{folder} is in use by another run. Wait until it ends, or choose another folder."
                    ) from error
                time.sleep(0.05)
            except OSError as error:
                if error.errno not in UNSUPPORTED:
                    raise
                log.warning(
                    "%s cannot be locked (%s): do not start two runs in this folder.", folder, error.strerror
                )
                break
        yield


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
    """Return whether nested values have more than a number of levels."""
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


def find_damage(folder: Path, part: Part, *names: str) -> dict[str, str]:
    """Return what is wrong with files of a part of the manifest, by name: "is missing" or "is damaged".

    If the manifest itself cannot be used, it is the only name.

    Args:
        names: the names of the files to check; none for all files of the part.
    """
    try:
        listed = read_manifest(folder)[part]
    except FileNotFoundError:
        return {MANIFEST: "is missing"}
    except ValueError:
        return {MANIFEST: "is damaged"}
    checked = names or tuple(listed)
    missing = {name: "is missing" for name in checked if not (folder / name).is_file()}
    return missing | {
        name: "is damaged"
        for name in checked
        if name not in missing and sha256(folder / name) not in listed.get(name, ())
    }


def check_run_files(folder: Path) -> None:
    """Refuse a run if a file that it is opened from is not as the run wrote it.

    Raises:
        UserError: names the file, or another version wrote the run.
    """
    if not (folder / MANIFEST).is_file():
        read_record(folder)  # a run of an earlier format has no manifest
    for name, problem in find_damage(folder, "run").items():
        raise UserError(
            f"{folder / name} {problem}. A run is opened only if its files are as it wrote them ({MANIFEST}). Restore the "
            f"file from a copy of the run, or start a new run."
        )


def read_manifest(folder: Path) -> Listing:
    """Return the accepted SHA-256 digests of the files in a manifest, by part and name.

    Raises:
        FileNotFoundError: the folder has no manifest.
        ValueError: the manifest is damaged.
    """
    content = parse_json(read_bounded(folder / MANIFEST))
    if not isinstance(content, dict) or content.pop("sha256", None) != _digest(content):
        raise ValueError(f"{folder / MANIFEST} is damaged")
    for part in ("run", "result"):
        files = content.get(part)
        if not isinstance(files, dict) or not all(isinstance(one, list) for one in files.values()):
            raise ValueError(f"{folder / MANIFEST} is damaged: {part} is not a list of files")
        if outside := [name for name in files if name.startswith("/") or ".." in name.split("/")]:
            raise ValueError(f"{folder / MANIFEST} names a file outside of the run: {outside[0]}")
    return content


def write_manifest(folder: Path, parts: Mapping[str, Iterable[str]]) -> None:
    """Write a manifest of the current contents of files, given by part and name."""
    _write_listing(
        folder, {part: {name: [sha256(folder / name)] for name in names} for part, names in parts.items()}
    )


def cover(folder: Path, part: Part, names: Iterable[str]) -> None:
    """Make the current contents of files, and of the files in folders, a part of the manifest."""
    listed = _listing(folder)
    paths = [path for name in names for path in (folder / name, *sorted((folder / name).rglob("*")))]
    listed[part] = {path.relative_to(folder).as_posix(): [sha256(path)] for path in paths if path.is_file()}
    _write_listing(folder, listed)


def write_covered(folder: Path, part: Part, name: str, text: str) -> None:
    """Write a file of a run folder and its digest.

    The manifest accepts both contents until the file is replaced: a crash at any time leaves a valid folder.
    """
    new = hashlib.sha256(text.encode()).hexdigest()
    listed = _listing(folder)
    before = listed[part].get(name, [])
    listed[part][name] = [*before, new]
    _write_listing(folder, listed)
    write_atomically(folder / name, text)
    listed[part][name] = [new]
    _write_listing(folder, listed)


def _listing(folder: Path) -> Listing:
    """Return the content of the manifest, empty if the folder has none."""
    try:
        return read_manifest(folder)
    except FileNotFoundError:
        return {"run": {}, "result": {}}
    except ValueError:
        raise UserError(f"{folder / MANIFEST} is damaged. Restore it from a copy of the run.") from None


def _write_listing(folder: Path, listed: Listing) -> None:
    content = {"sha256": _digest(listed), **listed}
    write_atomically(folder / MANIFEST, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _digest(listed: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(listed, sort_keys=True).encode()).hexdigest()


def set_file_aside(path: Path, problem: str) -> None:
    """Rename a damaged file to NAME.damaged-N, and log a warning."""
    aside = next(
        one
        for number in itertools.count(1)
        if not (one := path.with_name(f"{path.name}.damaged-{number}")).exists()
    )
    path.rename(aside)
    log.warning("%s %s. It is now %s.", path, problem, aside.name)


def read_result(folder: Path) -> dict[str, Any]:
    """Return the content of a run's `result.json`, empty if it does not exist.

    The status of a damaged file is "damaged".
    """
    if not (folder / "result.json").is_file():
        return {}
    for name, problem in find_damage(folder, "result", "result.json").items():
        return {"status": "damaged", "error": f"{name} {problem}"}
    try:
        result = read_json_object(folder / "result.json")
    except UserError as error:
        return {"status": "damaged", "error": str(error)}
    for key, value in result.items():
        right = True
        if key.endswith(NUMBERS) or key.startswith("num_"):
            # NaN is not in this range, and True is not a number.
            right = value is None or (type(value) in (int, float) and 0 <= value <= MAX_NUMBER)
        elif key.endswith(TEXTS) or key in ("status", "error"):
            right = isinstance(value, str)
        if not right:
            return {"status": "damaged", "error": f"result.json has a wrong value of {key}: {value!r:.80}"}
    return result


def read_record(folder: Path) -> dict[str, Any]:
    """Return the contents of a run's `run.json`: the groups' choices, the logger's run id, precisions, provenance.

    Raises:
        UserError: the run ended before it began to train, or a version with another format wrote it.
    """
    record = read_run_json(folder)
    if not record:
        raise UserError(f"{folder}: this run has not begun to train (no run.json). Start it again.")
    if (found := record.get("format")) != RUN_FORMAT:
        version = "0.1" if found is None else "a newer version"
        if isinstance(found, int) and found < RUN_FORMAT:
            version = f"the commit {commit}" if (commit := record.get("commit")) else "an earlier commit"
        raise UserError(
            f"{folder}: format={found} of run.json is not supported; this version reads format {RUN_FORMAT}. Use {version} "
            f"of seq2seq_lab to read this run."
        )
    if "choices" not in record:
        raise UserError(
            f"{folder / 'run.json'} is damaged: it has no choices. Restore it from a copy of the run."
        )
    return record


def read_evaluated_run(folder: Path) -> str | None:
    """Return the run that an evaluation folder belongs to, or None for any other folder."""
    run: str | None = read_run_json(folder).get("evaluation", {}).get("run")
    return run


def read_run_json(folder: Path) -> dict[str, Any]:
    """Return the content of `run.json`, in which the values that every program reads have their types."""
    record = read_json_object(folder / "run.json")
    for key, kind in RECORD_TYPES.items():
        items: Any = record.get(key, kind())
        if not isinstance(items, kind) or not all(isinstance(one, str) for one in items):
            raise UserError(
                f"{folder / 'run.json'} is damaged: {key} is not a {kind.__name__} of texts. Restore it."
            )
    if not isinstance(record.get("run_id"), str | None):
        raise UserError(f"{folder / 'run.json'} is damaged: run_id is not a text. Restore it.")
    for group, choice in record.get("choices", {}).items():
        if (
            not isinstance(choice, str)
            or choice.startswith("/")
            or ".." in (*choice.split("/"), *group.split("/"))
        ):
            raise UserError(f"{folder / 'run.json'} is damaged: choices.{group}={choice!r:.80}. Restore it.")
    return record


def folder_marks(folder: Path) -> list[str]:
    """Return two marks of a folder: a hash of its path, and the number of its inode.

    A folder that is moved or mounted elsewhere keeps the second one, one that is restored in its place the first, and a copy
    has neither.
    """
    return [
        hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16],
        f"inode {folder.stat().st_ino}",
    ]


def read_finished_result(folder: Path) -> dict[str, Any] | None:
    """Return the result of a run that has ended with scores (`SCORED`), or None for any other run."""
    result = read_result(folder)
    return result if result.get("status") in SCORED else None


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
    for number, line in enumerate(lines, start=1):
        try:
            row = parse_json(line)
        except ValueError:
            if number == len(lines) and not path.read_bytes().endswith(b"\n"):
                break
            raise damaged_line_error(path, number, repr(line)) from None
        if not isinstance(row, dict):
            raise damaged_line_error(path, number, repr(line))
        rows.append(row)
    return rows


def damaged_line_error(path: Path, number: int, line: str) -> UserError:
    """Return the error for a damaged line."""
    return UserError(
        f"{path}, line {number} is damaged: {line[:80]}. Delete that line to use the rest of the file."
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
    """Yield a temporary path for a new version of a file, which replaces the file unless the block raises an error."""
    # Parallel jobs, also on several machines, share a cache.
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with None for infinities and NaN, which JSON lacks."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }


def write_json_lines(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Write a file of one JSON object per line."""
    write_atomically(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def make_numbered_folder(parent: Path, prefix: str = "") -> Path:
    """Create and return the folder `parent`/`prefix`N with the first N, from 1, that does not exist."""
    for number in itertools.count(1):
        with suppress(FileExistsError):
            (folder := parent / f"{prefix}{number}").mkdir(parents=True)
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
