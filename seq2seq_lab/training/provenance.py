"""What the numbers of a run depend on besides its configuration: its data, its code and its machine."""

import hashlib
import importlib.util
import json
import platform
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch

from seq2seq_lab import build
from seq2seq_lab.config import extensions
from seq2seq_lab.config.schema import CONF_DIR, SLOTS, Config
from seq2seq_lab.config.trust import trusted_modules
from seq2seq_lab.data.corpus import Corpus, ParallelText
from seq2seq_lab.data.lines import Lines
from seq2seq_lab.files import sha256
from seq2seq_lab.runtime.device import device_name
from seq2seq_lab.tracking.git import git_commit, git_is_dirty
from seq2seq_lab.training import checkpoint

PACKAGE = Path(__file__).parents[1]
INPUTS = ("data", "components", "source")

_data_today: dict[str, dict[str, Any]] = {}  # by the settings of the data set


def provenance(config: Config, corpus: Corpus, device: torch.device, ranks: int) -> dict[str, Any]:
    """Return what `run.json` and `result.json` record of a run or an evaluation that starts now."""
    return {
        "seed": config.seed,
        "commit": git_commit(),
        "dirty": git_is_dirty(),
        "data": data(corpus),
        "components": components(config),
        "source": source(),
        "weights": initial_weights(config),
        "machine": {
            "device": device.type,
            "device_name": device_name(device),
            "threads": torch.get_num_threads(),
            "ranks": ranks,
            "torch": str(torch.__version__),
            "python": platform.python_version(),
        },
    }


def data(corpus: Corpus) -> dict[str, Any]:
    """Return hashes of a corpus' text, the number of pairs of each split, and what reading it counted."""
    splits = {"train": corpus.train, "validation": corpus.validation}
    tests = {name: _pairs_hash(text) for name, text in corpus.tests.items()}
    digest = hashlib.sha256()
    for name, pairs_hash in [*((name, _pairs_hash(text)) for name, text in splits.items()), *tests.items()]:
        digest.update(json.dumps([name, pairs_hash]).encode())
    return {
        "fingerprint": digest.hexdigest(),
        "sizes": {name: len(text) for name, text in (*splits.items(), *corpus.tests.items())},
        "tests": tests,
        "counts": dict(corpus.counts),
    }


def components(config: Config) -> dict[str, str]:
    """Return the SHA-256 of the user's own Python files that a run uses, by path in `--config-dir` or by module.

    A component may import any other file of its folder, so all of them are included as soon as one is used. Of an
    installed module that the user trusts, its own file is included.
    """
    slots = [*(getattr(config, slot) for slot in SLOTS if slot != "logger"), *config.metric.values()]
    modules = {str(slot["_target_"]).rpartition(".")[0] for slot in slots}
    return extensions.hashes(modules) | dict(_installed(modules))


@cache
def source() -> str:
    """Return the SHA-256 of the package's own Python files and of conf/."""
    files = [
        *((f"seq2seq_lab/{path.relative_to(PACKAGE).as_posix()}", path) for path in PACKAGE.rglob("*.py")),
        *((f"conf/{path.relative_to(CONF_DIR).as_posix()}", path) for path in CONF_DIR.rglob("*.yaml")),
    ]
    digest = hashlib.sha256()
    for name, path in sorted(files):
        digest.update(f"{name} {sha256(path)}\n".encode())
    return digest.hexdigest()


def initial_weights(config: Config) -> str | None:
    """Return the SHA-256 of the weights that `init_from` names; None without it, or where its checkpoints are gone."""
    if config.init_from is None or not checkpoint.any_in(Path(config.init_from) / "checkpoints"):
        return None
    return sha256(checkpoint.best(Path(config.init_from) / "checkpoints") / "model.safetensors")


def today(config: Config) -> dict[str, Any]:
    """Return data, components, source and initial weights that a run would have if it started now.

    Each data set is loaded once until `forget` is called.
    """
    key = json.dumps(config.dataset, sort_keys=True)
    if key not in _data_today:
        _data_today[key] = data(build.dataset(config).load())
    return {
        "data": _data_today[key],
        "components": components(config),
        "source": source(),
        "weights": initial_weights(config),
    }


def forget() -> None:
    """Clear the cache, so that `today` loads every data set again."""
    _data_today.clear()


def differences(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """Return which of data, components, source and initial weights differ between a record and now, and how."""
    if not recorded.keys() >= {*INPUTS}:
        return {"record": "no record of data and code (a run of an earlier version)"}
    found = {part: f"{part}: changed when the run was resumed" for part in recorded.get("changed", ())}
    if recorded["data"]["fingerprint"] != now["data"]["fingerprint"]:
        found["data"] = f"data ({_data_changes(recorded['data'], now['data'])})"
    before, after = recorded["components"], now["components"]
    if before != after:
        files = sorted(file for file in before.keys() | after.keys() if before.get(file) != after.get(file))
        found["components"] = f"own components ({', '.join(files)})"
    if recorded["source"] != now["source"]:
        commit = recorded["commit"]
        found["source"] = f"source of seq2seq_lab{f' (recorded at commit {commit[:7]})' if commit else ''}"
    if recorded.get("weights") != now.get("weights"):
        found["weights"] = "weights of init_from"
    return found


def _data_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return how the data changed: numbers of pairs, and test sets with other sentences."""
    sizes, now = before["sizes"], after["sizes"]
    changes = [
        f"{name}: {sizes.get(name, 0):,} pairs, now {now.get(name, 0):,}"
        for name in dict.fromkeys((*sizes, *now))
        if sizes.get(name) != now.get(name)
    ]
    changes += [
        f"{name}: other sentences"
        for name, pairs_hash in before["tests"].items()
        if sizes[name] == now.get(name) and pairs_hash != after["tests"][name]
    ]
    return "; ".join(changes) or "other sentences"


def _pairs_hash(text: ParallelText) -> str:
    """Return a SHA-256 that depends on the sentence pairs and their order."""
    return hashlib.sha256(Lines.of(text.source).digest() + Lines.of(text.target).digest()).hexdigest()


def _installed(modules: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the name and the SHA-256 of each installed module that the user trusts."""
    for module in sorted(modules):
        if extensions.file_of(module) is None and f"{module}.".startswith(trusted_modules()):
            spec = importlib.util.find_spec(module)
            if spec is not None and spec.has_location and spec.origin is not None:
                yield module, sha256(Path(spec.origin))
