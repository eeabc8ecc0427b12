"""Finished runs, read from their folders, and the groups of those that differ in nothing but the seed."""

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from seq2seq_lab.config import flat_keys
from seq2seq_lab.errors import UserError, did_you_mean
from seq2seq_lab.files import finished_result, read_result
from seq2seq_lab.study import NOT_COMPUTED
from seq2seq_lab.tracker.files import FILE_NAME, read_metrics

SEED = "seed"


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run.

    Attributes:
        folder: where it lies.
        settings: what it was told: the flat keys of the dashboard, then every dotted key of its configuration.
        result: what its `result.json` holds.
    """

    folder: Path
    settings: dict[str, str]
    result: dict[str, Any]

    @property
    def seed(self) -> str:
        """Its seed."""
        return self.settings[SEED]

    def metrics(self) -> list[dict[str, float]]:
        """Return the rows of its `metrics.jsonl`."""
        return read_metrics(self.folder / FILE_NAME)

    @functools.cached_property
    def translations(self) -> list[dict[str, Any]]:
        """Its translations of the first test set, in the order of the set."""
        return _json_lines(self.folder / "translations.test.jsonl")

    @functools.cached_property
    def attention(self) -> list[dict[str, Any]]:
        """Its attention over some sentences of the first test set; none where it has no attention."""
        return _json_lines(self.folder / "attention.test.jsonl")


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ in nothing but the seed, or in nothing that one looks at.

    Attributes:
        varies: what tells it from the other groups.
        runs: by their seeds.
    """

    varies: dict[str, str]
    runs: tuple[Run, ...]

    @property
    def label(self) -> str:
        """Its name."""
        return ", ".join(f"{key}={value}" for key, value in self.varies.items()) or "all runs"

    def figures(self, name: str) -> list[float]:
        """Return a figure of the results of its runs, of those that have it."""
        return [run.result[name] for run in self.runs if run.result.get(name) is not None]

    def median(self, name: str) -> Run:
        """Return the run whose figure is the median, the lower of two."""
        ordered = sorted(self.runs, key=lambda run: run.result[name])
        return ordered[(len(ordered) - 1) // 2]


def find_runs(paths: Iterable[Path]) -> tuple[list[Run], list[str]]:
    """Return the finished runs in folders, at any depth, and what was left out.

    Raises:
        UserError: there is no such folder, or no finished run in them.
    """
    runs: dict[Path, Run] = {}
    left_out = []
    for path in paths:
        if not path.is_dir():
            raise UserError(f"{path}: there is no such folder. Give folders of runs or of studies.")
        for folder in sorted({config.parent for config in path.rglob("config.yaml")}):
            if folder.name == ".hydra" or folder.resolve() in runs:
                continue
            result = finished_result(folder)
            if result is None:
                left_out.append(f"{folder}: {read_result(folder).get('status', 'not finished')}")
            else:
                runs[folder.resolve()] = Run(folder, settings_of(folder), result)
    if not runs:
        raise UserError(
            f"{' '.join(map(str, paths))}: no finished run lies there{''.join(f'; {one}' for one in left_out)}. Give "
            f"folders such as outputs/DATE/TIME or sweeps/NAME."
        )
    return list(runs.values()), left_out


def settings_of(folder: Path) -> dict[str, str]:
    """Return what a run was told, by key."""
    config: Any = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"))
    choices = json.loads((folder / "run.json").read_text("utf-8"))["choices"]
    computed = {key: value for key, value in config.items() if key not in NOT_COMPUTED}
    return {**{k: _text(v) for k, v in flat_keys(config, choices).items()}, **dict(_dotted(computed))}


def group_runs(runs: Sequence[Run], by: Sequence[str] = ()) -> list[Group]:
    """Return the runs in groups, in the order of their first runs.

    Args:
        by: the keys that tell the groups apart; none for as many as it takes to tell apart runs of the same seed.

    Raises:
        UserError: no run has a key of that name.
    """
    known = list(dict.fromkeys(key for run in runs for key in run.settings))
    for key in by:
        if key not in known:
            raise UserError(f"--by={key}: no run has that setting.{did_you_mean(key, known)}")
    keys = list(by) or distinguishing(runs, known)
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(_values(run, keys), []).append(run)
    return [
        Group(dict(zip(keys, values, strict=True)), tuple(sorted(members, key=lambda run: _order(run.seed))))
        for values, members in groups.items()
    ]


def distinguishing(runs: Sequence[Run], known: Sequence[str]) -> list[str]:
    """Return keys, in their order, that tell runs of one seed apart; one that tells no more apart is left out."""
    keys: list[str] = []
    for key in known:
        if key == SEED:
            continue
        before = len({_values(run, keys) for run in runs})
        if len({_values(run, [*keys, key]) for run in runs}) > before:
            keys.append(key)
    return keys


def same_test_set(runs: Sequence[Run]) -> bool:
    """Return whether runs were tested on the same sentences, and have kept their translations."""
    first, *others = [[(row["source"], row["reference"]) for row in run.translations] for run in runs]
    return bool(first) and all(other == first for other in others)


def _values(run: Run, keys: Sequence[str]) -> tuple[str, ...]:
    return tuple(run.settings.get(key, "–") for key in keys)


def _order(seed: str) -> tuple[int, str]:
    return (int(seed) if seed.isdigit() else 0, seed)


def _dotted(node: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for key, value in node.items():
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", _text(value)


def _text(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _json_lines(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
