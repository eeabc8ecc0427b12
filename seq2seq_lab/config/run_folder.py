"""The records of a run folder, and its manifest.

`manifest.json` lists the SHA-256 of the files that programs read, in two parts: "run", from which a run is opened, and
"result", which the end of a run writes. Checkpoints have manifests of their own, the rows of `metrics.jsonl` checksums.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from seq2seq_lab.errors import UserError
from seq2seq_lab.files import parse_json, read_bounded, read_json_object, sha256, write_atomically

MANIFEST = "manifest.json"
SCORED = ("finished", "diverged")  # the statuses of runs that have ended with scores
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
RUN_FORMAT = (
    4  # of run.json and config.yaml: raise it if a version cannot read the runs of the previous version
)

Part = Literal["run", "result"]
Listing = dict[str, dict[str, list[str]]]  # the accepted digests of each file, by the part of the manifest


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
        raise UserError(
            f"{folder} contains no run that has begun to train (no run.json). Give the folder of a run, such as "
            f"outputs/DATE/TIME, or start a new run."
        )
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
    """Return two marks of a folder: a hash of its path, and its inode number.

    A folder that is moved or mounted elsewhere keeps the second value, one that is restored to its path the first. A copy
    keeps neither.
    """
    return [
        hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16],
        f"inode {folder.stat().st_ino}",
    ]


def read_finished_result(folder: Path) -> dict[str, Any] | None:
    """Return the result of a run that has ended with scores (`SCORED`), or None for any other run."""
    result = read_result(folder)
    return result if result.get("status") in SCORED else None
