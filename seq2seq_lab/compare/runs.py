"""Finished runs, read from their folders, and the groups of those that differ in nothing but the seed."""

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from seq2seq_lab.config import flat_keys
from seq2seq_lab.errors import UserError, did_you_mean
from seq2seq_lab.files import finished_result, read_json_lines, read_result
from seq2seq_lab.study import NOT_COMPUTED
from seq2seq_lab.tracker.files import FILE_NAME, read_metrics

SEED = "seed"
PARTS_OF_A_RUN = (
    "artifacts",
    "checkpoints",
    "evaluations",
    "wandb",
)  # folders in a run folder, not searched for runs


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run.

    Attributes:
        folder: where it lies.
        settings: what it was told: the flat keys of the dashboard, then every dotted key of its configuration.
        result: what its `result.json` holds.
        record: what its `run.json` holds.
    """

    folder: Path
    settings: dict[str, str]
    result: dict[str, Any]
    record: dict[str, Any]

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
    runs: dict[str, Run] = {}
    left_out = []
    seen: set[Path] = set()
    for path in paths:
        if not path.is_dir():
            raise UserError(f"{path}: there is no such folder. Give folders of runs or of studies.")
        for folder in run_folders(path, seen):
            result = finished_result(folder)
            if result is None:
                left_out.append(f"{folder}: {read_result(folder).get('status', 'not finished')}")
                continue
            run = read_run(folder, result)
            run_id = run.record.get("run_id") or str(folder)
            if run_id in runs:
                # A copy fetched from W&B has no translations.
                run, copy = sorted((runs[run_id], run), key=lambda one: not one.translations)
                left_out.append(f"{copy.folder}: a copy of {run.folder} (run_id={run_id})")
            runs[run_id] = run
    if not runs:
        raise UserError(
            f"{' '.join(map(str, paths))}: no finished run lies there{''.join(f'; {one}' for one in left_out)}. Give "
            f"folders such as outputs/DATE/TIME or sweeps/NAME."
        )
    return list(runs.values()), left_out


def run_folders(folder: Path, seen: set[Path]) -> Iterator[Path]:
    """Yield the run folders in a folder, at any depth, or the folder itself; those in `seen` are left out.

    Copies of a run that its logger keeps, its checkpoints and its evaluations are not searched.

    Args:
        seen: resolved paths of the folders that were searched; those found here are added.
    """
    if (resolved := folder.resolve()) in seen:
        return
    seen.add(resolved)
    is_run = (folder / "config.yaml").is_file() and any(
        (folder / name).is_file() for name in ("run.json", "result.json")
    )
    if is_run:
        yield folder
    for inner in sorted(folder.iterdir()):
        if (
            inner.is_dir()
            and not inner.name.startswith(".")
            and not (is_run and inner.name in PARTS_OF_A_RUN)
        ):
            yield from run_folders(inner, seen)


def read_run(folder: Path, result: dict[str, Any]) -> Run:
    """Return a run with what it notes of itself.

    Args:
        result: what its `result.json` holds.
    """
    config: Any = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"))
    record = json.loads((folder / "run.json").read_text("utf-8"))
    computed = {key: value for key, value in config.items() if key not in NOT_COMPUTED}
    settings = {k: _text(v) for k, v in flat_keys(config, record["choices"]).items()}
    return Run(folder, settings | dict(_dotted(computed)), result, record)


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
    return read_json_lines(path) if path.is_file() else []
