"""Finished runs, read from their folders, and the groups of those that differ in nothing but the seed."""

import functools
import hashlib
import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import OmegaConf

from seq2seq_lab.config.schema import canonical, dotted_settings, flat_keys
from seq2seq_lab.errors import UserError, did_you_mean
from seq2seq_lab.files import read_finished_result, read_json_lines, read_json_object, read_result
from seq2seq_lab.launching.study import NOT_COMPUTED, is_stale
from seq2seq_lab.tracking.files import METRICS_FILE, read_metrics

SEED = "seed"
UNKNOWN = "unknown"  # what a run of an earlier version did not record
ASPECTS = (
    "code",
    "own components",
    "precision",
    "machine",
)  # that are reported where they differ between runs
MOST_NAMED = 3  # runs in a warning
PARTS_OF_A_RUN = (
    "artifacts",
    "checkpoints",
    "evaluations",
    "wandb",
)  # folders in a run folder, not searched for runs

Value = TypeVar("Value", bound=Hashable)


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

    @property
    def multi_reference(self) -> bool:
        """Whether each source sentence was scored once, against all its references."""
        return self.settings.get("trainer.multi_reference") == "true"

    @functools.cached_property
    def recorded(self) -> dict[str, str]:
        """What its scores depend on besides its settings, in short: its data and each of `ASPECTS`."""
        record = {**self.record, **self.result.get("provenance", {})}
        commit = (
            f"{record['commit'][:7]}{' (changed)' if record.get('dirty') else ''}"
            if record.get("commit")
            else ""
        )
        changed = [f"{part} changed when resumed" for part in record.get("changed", ())]
        source, machine = record.get("source", "")[:7], record.get("machine")
        machines = [] if machine is None else [machine, *record.get("resumed_on", ())]
        components = record.get("components")
        return {
            "data": record.get("data", {}).get("fingerprint", UNKNOWN)[:7],
            "code": ", ".join(filter(None, [commit, f"source {source}" if source else "", *changed]))
            or UNKNOWN,
            "own components": UNKNOWN
            if components is None
            else ", ".join(f"{name} {digest[:7]}" for name, digest in sorted(components.items())) or "none",
            "precision": record.get("test_precision", record.get("precision", UNKNOWN)),
            "machine": "; then ".join(
                f"{one['device_name']}, {one['threads']} threads, torch {one['torch']}" for one in machines
            )
            or UNKNOWN,
        }

    @functools.cached_property
    def test_set(self) -> str:
        """A short hash of the sentences of its first test set and of their references, and how they are scored."""
        if not self.translations:
            return UNKNOWN
        pairs = json.dumps([(row["source"], row["reference"]) for row in self.translations])
        digest = hashlib.sha256(pairs.encode()).hexdigest()[:7]
        return f"{digest} (multi-reference)" if self.multi_reference else digest

    def metrics(self) -> list[dict[str, float]]:
        """Return the rows of its `metrics.jsonl`; none of an evaluation."""
        path = self.folder / METRICS_FILE
        return read_metrics(path) if path.is_file() else []

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
            result = read_finished_result(folder)
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
            f"folders such as outputs/DATE/TIME, sweeps/NAME or RUN/evaluations/NUMBER."
        )
    return list(runs.values()), left_out


def run_folders(folder: Path, seen: set[Path]) -> Iterator[Path]:
    """Yield the run folders in a folder, at any depth, or the folder itself; those in `seen` are left out.

    Copies of a run that its logger keeps, its checkpoints and its evaluations are not searched, nor are the files of a
    study's job that were set aside.

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
            and not is_stale(inner)
            and not (is_run and inner.name in PARTS_OF_A_RUN)
        ):
            yield from run_folders(inner, seen)


def read_run(folder: Path, result: dict[str, Any]) -> Run:
    """Return a run, or an evaluation of a run, with its record.

    Args:
        result: what its `result.json` holds.
    """
    config: Any = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"))
    record = read_json_object(folder / "run.json")
    computed = {key: value for key, value in config.items() if key not in NOT_COMPUTED}
    settings = {k: _text(v) for k, v in flat_keys(config, record["choices"]).items()}
    if "search" in record["choices"]:
        settings["search"] = canonical("search", record["choices"]["search"])
    evaluation = record.get("evaluation", {})
    settings["checkpoint"] = evaluation.get("checkpoint") or "best"
    settings["ensemble"] = "+".join(Path(member).name for member in evaluation.get("ensemble", ())) or "no"
    settings["precision"] = evaluation.get("precision", "auto")
    return Run(
        folder, settings | {key: _text(value) for key, value in dotted_settings(computed)}, result, record
    )


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
    groups = [
        Group(dict(zip(keys, values, strict=True)), tuple(members))
        for values, members in _grouped(runs, lambda run: _values(run, keys)).items()
    ]
    for name, value_of in SPLIT_BY:
        groups = _split(groups, name, value_of)
    return [
        Group(group.varies, tuple(sorted(group.runs, key=lambda run: _order(run.seed)))) for group in groups
    ]


def _test_set(run: Run) -> str:
    return run.test_set


def _recorded(name: str) -> Callable[[Run], str]:
    return lambda run: run.recorded[name]


SPLIT_BY = (("test set", _test_set), ("data", _recorded("data")))  # runs that differ in these share no line


def differing(groups: Sequence[Group]) -> list[str]:
    """Return a warning for each of `ASPECTS` that differs between runs, and for runs of one line that are not comparable.

    They name the runs. Runs of an earlier version have no record: theirs is "unknown".
    """
    runs = [run for group in groups for run in group.runs]
    found = [
        f"warning: {name} differs: {_named_by(of_value)}"
        for name in ASPECTS
        if len(of_value := _grouped(runs, _recorded(name))) > 1
    ]
    for group in groups:
        for name, value_of in SPLIT_BY:
            of_value = _grouped(group.runs, value_of)
            if UNKNOWN in of_value and len(of_value) > 1:
                found.append(
                    f"warning: {group.label}: the {name} of a run is not recorded, and may differ from the others: "
                    f"{_named_runs(of_value[UNKNOWN])}"
                )
        for seed, of_seed in _grouped(group.runs, lambda run: run.seed).items():
            if len(of_seed) > 1:
                found.append(
                    f"warning: {group.label}: seed={seed} counts {len(of_seed)} times: {_named_runs(of_seed)}"
                )
    return found


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
    """Return whether runs were tested on the same sentences in the same way, and have kept their translations."""
    return len({run.test_set for run in runs}) == 1 and bool(runs[0].translations)


def _grouped(runs: Iterable[Run], value_of: Callable[[Run], Value]) -> dict[Value, list[Run]]:
    """Return runs by a value of theirs."""
    found: dict[Value, list[Run]] = {}
    for run in runs:
        found.setdefault(value_of(run), []).append(run)
    return found


def _split(groups: Sequence[Group], name: str, value_of: Callable[[Run], str]) -> list[Group]:
    """Return groups split by a value, which then tells all of them apart; unchanged if none holds two known values."""
    if all(len({value_of(run) for run in group.runs} - {UNKNOWN}) < 2 for group in groups):
        return list(groups)
    return [
        Group({**group.varies, name: value}, tuple(members))
        for group in groups
        for value, members in _grouped(group.runs, value_of).items()
    ]


def _named_by(runs_of: Mapping[str, Sequence[Run]]) -> str:
    return "; ".join(f"{value} in {_named_runs(runs)}" for value, runs in runs_of.items())


def _named_runs(runs: Sequence[Run]) -> str:
    """Return the folders of runs; if there are many, only the first ones."""
    names = [str(run.folder) for run in runs[:MOST_NAMED]]
    return ", ".join(names) + (f" and {len(runs) - MOST_NAMED} more" if len(runs) > MOST_NAMED else "")


def _values(run: Run, keys: Sequence[str]) -> tuple[str, ...]:
    return tuple(run.settings.get(key, "–") for key in keys)


def _order(seed: str) -> tuple[int, str]:
    return (int(seed) if seed.isdigit() else 0, seed)


def _text(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _json_lines(path: Path) -> list[dict[str, Any]]:
    return read_json_lines(path) if path.is_file() else []
