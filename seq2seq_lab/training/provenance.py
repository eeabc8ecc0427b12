"""Provenance: the data, code and machine of a run, on which its metrics depend besides its configuration."""

import hashlib
import importlib.util
import json
import logging
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from seq2seq_lab.config import extensions
from seq2seq_lab.config.schema import CONF_DIR, SLOTS, Config
from seq2seq_lab.config.trust import trusted_modules
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import sha256
from seq2seq_lab.runtime.device import device_name
from seq2seq_lab.tracking.git import git_commit, git_is_dirty
from seq2seq_lab.training import checkpoint

PACKAGE = Path(__file__).parents[1]
PACKAGES = (
    "numpy",
    "tokenizers",
    "hydra-core",
    "omegaconf",
    "sacrebleu",
)  # besides torch, what results may depend on

log = logging.getLogger(__name__)

_data_records: dict[str, dict[str, Any]] = {}  # by the settings of task and data set


def provenance(
    config: Config, data: Mapping[str, Any], weights: Mapping[str, Any], device: torch.device, ranks: int
) -> dict[str, Any]:
    """Return what `run.json` and `result.json` record of a run or an evaluation that starts now.

    Args:
        data: see `Task.data_record`.
        weights: see `initial_weights`.
    """
    return {
        "seed": config.seed,
        "commit": git_commit(),
        "dirty": git_is_dirty(),
        "data": dict(data),
        "components": components(config),
        "source": source(),
        **weights,
        "machine": {
            "device": device.type,
            "device_name": device_name(device),
            "threads": torch.get_num_threads(),
            "ranks": ranks,
            "torch": str(torch.__version__),
            "python": platform.python_version(),
            "packages": {name: version(name) for name in PACKAGES},
        },
    }


def components(config: Config) -> dict[str, str]:
    """Return the SHA-256 of the custom Python files that a run uses, by path in `--config-dir` or by module.

    A component may import any other file of its folder, so all files are included if one is used. An installed module that
    the user trusts is included without the files that it imports.
    """
    slots = [*(getattr(config, slot) for slot in SLOTS if slot != "logger"), *config.metric.values()]
    modules = {str(slot["_target_"]).rpartition(".")[0] for slot in slots if slot is not None}
    return extensions.hashes(modules) | dict(_installed(modules))


@cache
def source() -> str:
    """Return the SHA-256 of the package's Python files and of conf/."""
    files = [
        *((f"seq2seq_lab/{path.relative_to(PACKAGE).as_posix()}", path) for path in PACKAGE.rglob("*.py")),
        *((f"conf/{path.relative_to(CONF_DIR).as_posix()}", path) for path in CONF_DIR.rglob("*.yaml")),
    ]
    digest = hashlib.sha256()
    for name, path in sorted(files):
        digest.update(f"{name} {sha256(path)}\n".encode())
    return digest.hexdigest()


def initial_weights(config: Config) -> dict[str, Any]:
    """Return the first weights of a run.

    Returns:
        "weights": the SHA-256 of the file of `init_from`, None if it is not set or has no checkpoints; with `init_part`,
        "copied_weights": the names and shapes of the weights that are copied.
    """
    folder = Path(config.init_from or "") / "checkpoints"
    if config.init_from is None or not checkpoint.any_in(folder):
        return {"weights": None}
    best = checkpoint.best(folder)
    found: dict[str, Any] = {"weights": sha256(best / "model.safetensors")}
    if config.init_part is not None:
        shapes = checkpoint.saved_shapes(best, config.init_part)
        found["copied_weights"] = {name: list(shape) for name, shape in shapes.items()}
    return found


def recorded_weights(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a record has of `initial_weights`."""
    return {key: record[key] for key in ("weights", "copied_weights") if key in record}


def current(config: Config, read_data: Callable[[Config], dict[str, Any]]) -> dict[str, Any]:
    """Return data, components, source and initial weights of a run that starts now.

    Each data set is read once until `clear_cache` is called.

    Args:
        read_data: returns `Task.data_record` of the task of a configuration.
    """
    key = json.dumps([config.task, config.dataset], sort_keys=True)
    if key not in _data_records:
        _data_records[key] = read_data(config)
    return {
        "data": _data_records[key],
        "components": components(config),
        "source": source(),
        **initial_weights(config),
    }


def clear_cache() -> None:
    """Clear the cache, so that `current` reads every data set again."""
    _data_records.clear()


def differences(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """Return which of data, components, source and initial weights differ between a record and now, and how."""
    found = {part: f"{part}: changed when the run was resumed" for part in recorded.get("changed", ())}
    if recorded["data"]["fingerprint"] != now["data"]["fingerprint"]:
        found["data"] = f"data ({_data_changes(recorded['data'], now['data'])})"
    found |= _component_changes(recorded["components"], now["components"])
    if recorded["source"] != now["source"]:
        commit = recorded["commit"]
        found["source"] = f"source of seq2seq_lab{f' (recorded at commit {commit[:7]})' if commit else ''}"
    if recorded.get("weights") != now.get("weights"):
        found["weights"] = "weights of init_from"
    return found


def warn_of_changed_components(folder: Path, record: Mapping[str, Any], config: Config) -> None:
    """Log a warning if the custom components of an opened run are not those of its record; see `changed_components`."""
    for what in changed_components(record, config):
        log.warning("%s: changed since the run started: %s.", folder, what)


def changed_components(record: Mapping[str, Any], config: Config) -> list[str]:
    """Return how the custom components differ from those of a record, as in `differences`; empty if they are the same.

    Without the folder of the components, nothing is compared: a run can be opened without that of its data set.
    """
    now = components(config)
    return [*_component_changes(record["components"], now).values()] if now else []


def require_equal(of_ranks: Sequence[tuple[Mapping[str, str], Mapping[str, Any]]]) -> None:
    """Require that all ranks train on the same data with the same code, since their gradients are averaged.

    Args:
        of_ranks: the `TaskData.identity` and the provenance of each rank.

    Raises:
        UserError: names the first rank that differs from rank 0, and how.
    """
    (identity, record), *others = of_ranks
    for rank, (own_identity, own) in enumerate(others, start=1):
        found = [*differences(record, own).values()]
        found += [] if found else [name for name in identity if identity[name] != own_identity.get(name)]
        if found:
            raise UserError(
                f"Rank {rank} differs from rank 0: {'; '.join(found)}. Give the machines of all ranks the same files and "
                f"the same version of seq2seq_lab."
            )


def _component_changes(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Return the entry of `differences` for custom components, empty if they are the same.

    All files of the folder are recorded, so the run has not used a file that was added.
    """
    files = sorted(file for file, digest in before.items() if now.get(file) != digest)
    return {"components": f"custom components ({', '.join(files)})"} if files else {}


def _data_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return how the data changed: sizes of splits, and test sets with other examples."""
    sizes, now = before["sizes"], after["sizes"]
    changes = [
        f"{name}: {sizes.get(name, 0):,} examples, now {now.get(name, 0):,}"
        for name in dict.fromkeys((*sizes, *now))
        if sizes.get(name) != now.get(name)
    ]
    changes += [
        f"{name}: other examples"
        for name, pairs_hash in before["tests"].items()
        if sizes[name] == now.get(name) and pairs_hash != after["tests"][name]
    ]
    return "; ".join(changes) or "other examples"


def _installed(modules: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the name and the SHA-256 of each installed module that the user trusts."""
    for module in sorted(modules):
        if extensions.file_of(module) is None and f"{module}.".startswith(trusted_modules()):
            spec = importlib.util.find_spec(module)
            if spec is not None and spec.has_location and spec.origin is not None:
                yield module, sha256(Path(spec.origin))
