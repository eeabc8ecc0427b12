"""Run folders that may come from someone else: the only module that reads their `config.yaml`.

A recorded configuration is plain data: no resolver, no reference, no YAML alias, and bounds on its size and depth. The
files that it names outside the run folder are read only if the user names them on the command line, or if this user started
the run and the files have not changed since.
"""

import functools
import hashlib
import logging
import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig, OmegaConf

from seq2seq_lab.config import schema as configuration
from seq2seq_lab.config.run_folder import read_record
from seq2seq_lab.config.type_checks import fits
from seq2seq_lab.config.upgrade import upgraded
from seq2seq_lab.errors import STORAGE_REMEDIES, UserError
from seq2seq_lab.files import LOCK, MAX_DEPTH, read_bounded, read_json_object, sha256

MAX_CONFIG_BYTES = 2**20  # of config.yaml
MAX_ENTRIES = 100_000  # files and folders of a run folder
MAX_FOLDER_DEPTH = 16  # of a run folder
# The largest values of a run of someone else that is opened, unless the command sets them.
OPENED_BOUNDS = {
    **{"search.size": 1000, "search.nbest": 1000},
    **{"search.max_length_factor": 100, "search.max_length_extra": 10_000},
    **{"task.eval_batch_size": 10_000, "task.generated_length": 10_000},
}
# Sections whose files are not read when a run is resumed: its checkpoint contains what was read from them.
NOT_RESUMED = ("embedding", "init_from", "logger")
INPUTS = "inputs"  # the key of `run.json`: the digests of the files that the configuration names
# Settings of these names are paths or names of the hub; other texts are paths if they contain a separator or name a file.
PATH_NAMES = frozenset(
    ("path", "train", "validation", "test", "alignments", "hub", "url", "file", "files", "folder")
)
# Not searched for the files of a data set: folders that programs write to.
NOT_DATA = frozenset(("outputs", "sweeps", "wandb", "artifacts", "__pycache__"))

_OF_RUNS = ("run.json", LOCK)

log = logging.getLogger(__name__)


def load_config(path: Path) -> DictConfig:
    """Return a recorded configuration; see `load_plain`."""
    return OmegaConf.create(load_plain(path))


def load_plain(path: Path) -> dict[str, Any]:
    """Return the values of a recorded configuration in the form of this version, after a check of its form only.

    Raises:
        UserError: the file is not YAML, too large or too deep, or contains an alias, a reference or a resolver.
    """
    text = read_bounded(path, MAX_CONFIG_BYTES)
    try:
        if (found := _find_foreign_form(text)) is not None:
            problem = f"contains {found}, which no run records"
        elif isinstance(node := OmegaConf.create(text.decode()), DictConfig):
            plain: Any = OmegaConf.to_container(node)
            return upgraded(plain)
        else:
            problem = "has no keys and values"
    except (yaml.YAMLError, ValueError) as error:  # ValueError: not UTF-8, or a number of thousands of digits
        problem = f"is not valid YAML: {error}"
    raise UserError(f"{path} {problem}. Restore the file from a copy of the run.")


def _find_foreign_form(text: bytes) -> str | None:
    """Return what a YAML text has that no run records, without building a document from it; None if it has nothing."""
    depth = 0
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            return "a YAML alias"
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.ScalarEvent) and "${" in event.value:
            return f"the reference {event.value[:80]!r}"
        if depth > MAX_DEPTH:
            return f"more than {MAX_DEPTH} levels"
    return None


def read_opened_record(folder: Path) -> dict[str, Any]:
    """Return the `run.json` of a run that is opened, continued or repeated.

    Raises:
        UserError: see `read_record`, or an entry that is needed for this is missing or malformed.
    """
    record = read_record(folder)
    precisions = [one.value for one in configuration.Precision if one is not configuration.Precision.auto]
    machine = record.get("machine")
    right = {
        "precision": record.get("precision") in precisions,
        "test_precision": record.get("test_precision") in precisions,
        "weights": fits(record.get("weights", 0), str | None),
        "components": isinstance(record.get("components"), dict),
        "machine": isinstance(machine, dict)
        and all(fits(machine.get(key), int) and machine[key] > 0 for key in ("threads", "ranks")),
    }
    if wrong := [key for key, one in right.items() if not one]:
        raise UserError(
            f"{folder / 'run.json'} is damaged: {wrong[0]}={record.get(wrong[0])!r:.80}. Restore it from a copy of the run."
        )
    return record


def check_tree(folder: Path) -> None:
    """Refuse a run folder of someone else that leads outside the folder: a link out of it, a pipe or a device.

    Raises:
        UserError: names the entry, or the folder has too many entries or levels.
    """
    if is_own(folder):
        return
    root, entries = folder.resolve(), 0
    for parent, names, files in os.walk(folder):
        if Path(parent) == folder and "wandb" in names:
            names.remove("wandb")  # W&B's record has links, and no program reads it
        depth = len(Path(parent).relative_to(folder).parts)
        entries += len(names) + len(files)
        if depth > MAX_FOLDER_DEPTH or entries > MAX_ENTRIES:
            raise UserError(
                f"{folder} has more than {MAX_FOLDER_DEPTH} levels or {MAX_ENTRIES:,} entries, so it is not opened. Remove "
                f"what is not part of the run."
            )
        for path in (Path(parent, name) for name in (*names, *files)):
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode) and _leads_out(path, root):
                raise UserError(
                    f"{path} is a link to itself, or out of the folder of a run that was not started here by this user. "
                    f"Remove the link, or put a copy of the file in its place."
                )
            if not (stat.S_ISLNK(mode) or stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise UserError(f"{path} is neither a file nor a folder. Remove it to open the run.")


def _leads_out(link: Path, root: Path) -> bool:
    """Return whether a link leads out of a folder, or in a circle."""
    try:
        return not link.resolve().is_relative_to(root)
    except (OSError, RuntimeError):  # the link leads to itself
        return True


def _list_folder() -> Path:
    """Return the list of the runs that this user has started: a folder with an empty file for each."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "seq2seq_lab" / "runs"


def _identity(folder: Path) -> str | None:
    """Return the SHA-256 of configuration and record of a run; None if one is missing."""
    paths = [folder / name for name in ("config.yaml", "run.json")]
    if not all(path.is_file() for path in paths):
        return None
    return hashlib.sha256("".join(map(sha256, paths)).encode()).hexdigest()


def remember(folder: Path) -> None:
    """Add a run that this user has started to the list, which is outside of all run folders. A copy of the run is on it too.

    If the list cannot be written, log a warning with the consequence.
    """
    identity = _identity(folder)
    assert identity is not None, "the run has been recorded"
    try:
        _list_folder().mkdir(parents=True, exist_ok=True)
        (_list_folder() / identity).touch()
    except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home folder
        remedy = STORAGE_REMEDIES.get(getattr(error, "errno", 0), "Set XDG_STATE_HOME to another folder")
        log.warning(
            "The list of your runs cannot be written (%s). `evaluate` will ask for the data of this run. %s.",
            error,
            remedy,
        )


def is_own(folder: Path) -> bool:
    """Return whether this user has started a run, on a machine with this list, and its record is unchanged."""
    identity = _identity(folder)
    try:
        return identity is not None and (_list_folder() / identity).is_file()
    except RuntimeError:  # the user has no home folder
        return False


def named_inputs(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the files, folders, addresses and names of the hub that a configuration names, by dotted key.

    Args:
        config: the plain configuration.
    """
    slots = [name for name in configuration.SLOTS if name != "logger"]
    sections = {
        name: config[name] for name in (*slots, "metric", "embedding", "init_from") if config.get(name)
    }
    found = {}
    for key, value in texts(sections, ""):
        names = key.split(".")
        if names[-1] in ("_target_", "cache_dir") or value in _defaults():
            continue
        known = names[0] == "init_from" or not PATH_NAMES.isdisjoint(names[1:])
        if known or _is_path(value):
            found[key] = value
    return found


def resumed_inputs(config: Mapping[str, Any]) -> list[str]:
    """Return the keys of `named_inputs` that a resumed run reads: they may change if the data are the same."""
    return [key for key in named_inputs(config) if key.partition(".")[0] not in NOT_RESUMED]


def texts(value: object, key: str) -> Iterator[tuple[str, str]]:
    """Yield each text in nested values with its key; the key of a list item is its index."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from texts(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from texts(item, f"{key}.{index}")
    elif isinstance(value, str) and value:
        yield key, value


def _is_path(text: str) -> bool:
    """Return whether a text that is not known to be a path names a file, or a folder by a path with a separator."""
    path = Path(text).expanduser() if text.startswith("~/") else Path(text)
    try:
        return path.is_file() or (os.sep in text and path.exists())
    except (OSError, ValueError):  # too long for a name, or with a null character
        return False


@functools.cache
def _defaults() -> frozenset[str]:
    """Return the texts in the data sets of conf/, such as the name of a data set of the hub: they need no permission."""
    nodes = [OmegaConf.load(path) for path in sorted((configuration.CONF_DIR / "dataset").glob("*.yaml"))]
    return frozenset(
        text
        for node in nodes
        for key, text in texts(OmegaConf.to_container(node), "")
        if key in ("hub", "url", "member")
    )


def input_digests(config: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the SHA-256 of each of `named_inputs`, what `run.json` records; None for what is not a local file or folder."""
    return {key: _digest(key, value) for key, value in named_inputs(config).items()}


def _digest(key: str, value: str) -> str | None:
    path = Path(value).expanduser()
    try:
        if key == "init_from":
            return _identity(path)
        if path.is_file():
            return sha256(path)
        if path.is_dir():
            files = [*islice(_files_in(path), MAX_ENTRIES + 1)]
            if len(files) > MAX_ENTRIES:  # not a folder of data, such as the root of a disk
                return None
            lines = [f"{file.relative_to(path).as_posix()} {sha256(file)}\n" for file in files]
            return hashlib.sha256("".join(lines).encode()).hexdigest()
    except (OSError, ValueError):  # the error is raised where the file is read
        return None
    return None


def _files_in(folder: Path) -> Iterator[Path]:
    """Yield the files of a data folder in the order of their names, without hidden ones and those of runs below it.

    A run that has just started has no `run.json` yet, but its lock.
    """
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name in NOT_DATA:
            continue
        if path.is_file():
            yield path
        elif path.is_dir() and not (path.is_symlink() or any((path / name).is_file() for name in _OF_RUNS)):
            yield from _files_in(path)


def check_inputs(
    folder: Path,
    config: Mapping[str, Any],
    given: Collection[str],
    sections: Sequence[str] | None = None,
    leaving: Sequence[str] = (),
) -> None:
    """Refuse files outside the run folder that a recorded configuration names, unless the user has permitted them.

    A file is permitted if this command sets its key, its group or a section of its key, or if this user has started the run
    and the file has the recorded SHA-256.

    Args:
        folder: the run.
        config: its plain configuration, after the changes of this command.
        given: the keys and groups that the command line sets.
        sections: the sections to check; None for all.
        leaving: the sections that are not used.

    Raises:
        UserError: names the keys, and how to name them in the command.
    """
    inputs = {
        key: value
        for key, value in named_inputs(config).items()
        if (section := key.partition(".")[0]) not in leaving
        and (sections is None or section in sections)
        and not any(key == one or key.startswith(f"{one}.") for one in given)
        and not _is_inside(value, folder)
    }
    if not inputs:
        return
    own = is_own(folder)
    recorded = read_json_object(folder / "run.json").get(INPUTS, {}) if own else {}
    refused = {
        key: value
        for key, value in inputs.items()
        if key not in recorded or recorded[key] != _digest(key, value)
    }
    if not refused:
        return
    missing = [
        key for key, value in refused.items() if recorded.get(key) and not Path(value).expanduser().exists()
    ]
    named = " ".join(f"{key}={refused[key]}" for key in missing or refused)
    if missing:
        raise UserError(
            f"{folder}: {named}: not found. Relative paths start at {Path.cwd()}. Name the files in this command: "
            f"{' '.join(f'{_setting(key)}=PATH' for key in missing)}."
        )
    reason = (
        "changed since this run recorded its SHA-256, or were not recorded"
        if own
        else "named by a run that is not on the list of runs that you started here"
    )
    raise UserError(
        f"{folder}: {named}: these files, or data sets of the hub, are {reason}. To use them, name them in this command: "
        f"{' '.join(f'{_setting(key)}=…' for key in refused)}."
    )


def check_bounds(folder: Path, config: Mapping[str, Any], given: Collection[str]) -> None:
    """Refuse a run of someone else whose settings need very much memory or time when it is opened.

    Args:
        config: its plain configuration, after the changes of this command.
        given: the keys and groups that the command line sets.

    Raises:
        UserError: names the key.
    """
    if is_own(folder):
        return
    for key, most in OPENED_BOUNDS.items():
        section, name = key.split(".")
        value = (config.get(section) or {}).get(name)
        if isinstance(value, int | float) and value > most and not {section, key} & {*given}:
            raise UserError(
                f"{folder}: {key}={value} of a run that is not on the list of runs that you started here is above {most}. "
                f"Set another value in this command, for example {key}={min(most, 5)}, or the same one if it is wanted."
            )


def _setting(key: str) -> str:
    """Return the key of a setting without the indices of list items."""
    return ".".join(name for name in key.split(".") if not name.isdecimal())


def _is_inside(value: str, folder: Path) -> bool:
    try:
        path = Path(value).expanduser().resolve()
        return path.exists() and path.is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):
        return False


def remove_logger_and_cache(node: DictConfig, folder: Path, given: Collection[str]) -> None:
    """Remove the cache folder and the logger from the configuration of a run of someone else.

    Args:
        node: its configuration, which is changed.
        given: the keys that the command line sets; with `logger.project` the run keeps its logger.
    """
    if is_own(folder):
        return
    node.cache_dir = None
    if node.dataset is not None and "cache_dir" in node.dataset:
        node.dataset.cache_dir = None
    if "logger.project" not in given and node.logger.get("project") is not None:
        log.warning(
            "%s is not on the list of runs that you started here: it continues without its logger. To log it, set "
            "logger.project=NAME.",
            folder,
        )
        node.logger = OmegaConf.load(configuration.CONF_DIR / "logger" / "none.yaml")
    elif "entity" in node.logger and "logger.entity" not in given:
        node.logger.entity = None
