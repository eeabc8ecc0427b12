"""Finished runs, read from their folders, and groups of runs that differ only in the seed."""

import functools
import logging
import re
import shlex
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from seq2seq_lab.config import foreign
from seq2seq_lab.config.choices import NOT_CHOSEN
from seq2seq_lab.config.job_hash import NOT_COMPUTED
from seq2seq_lab.config.run_folder import SCORED, find_damage, read_record, read_result, read_run_json
from seq2seq_lab.config.run_folders import run_folders
from seq2seq_lab.config.schema import canonical, dotted_settings, flat_keys
from seq2seq_lab.config.upgrade import renamed_settings, upgraded_choices
from seq2seq_lab.errors import UserError, did_you_mean
from seq2seq_lab.files import read_json_lines, sha256
from seq2seq_lab.metrics.base import Array, Declarations
from seq2seq_lab.reporting import recorded
from seq2seq_lab.reporting.naming import (
    EXPERIMENT,
    SEARCH_SEED,
    SEED,
    differing_keys,
    name_settings,
    setting_value,
    text_of,
)
from seq2seq_lab.reporting.score_tables import VALIDATION, first_split, read_statistics, scored_splits
from seq2seq_lab.tasks.splits import dotted
from seq2seq_lab.tracking.files import METRICS_FILE, read_sound_metrics

COMPONENTS = "custom components"
ASPECTS = ("code", COMPONENTS, "precision", "machine")  # a difference between runs causes a warning
MAX_NAMED_RUNS = 3  # in a warning
FIRST = "test"  # the prefix of the first test set

log = logging.getLogger(__name__)

Value = TypeVar("Value", bound=Hashable)


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run.

    Attributes:
        folder: the run folder.
        settings: the flat keys that W&B groups by, then every dotted key of its configuration.
        result: the contents of `result.json`.
        record: the contents of `run.json`.
        damaged: the problem of each damaged file of statistics or examples in the folder; these files are not used.
        split: the prefix, in the folder, of the examples that are compared and shown: `first_split`, or another one that
            `of_split` has put in its place.
    """

    folder: Path
    settings: dict[str, str]
    result: dict[str, Any]
    record: dict[str, Any]
    damaged: dict[str, str]
    split: str = FIRST

    @property
    def is_evaluation(self) -> bool:
        """Whether it is an evaluation of a run: then it has no training curves."""
        return "run" in self.result

    @property
    def seed(self) -> str:
        """The seed."""
        return self.settings[SEED]

    @functools.cached_property
    def declared(self) -> Declarations:
        """The declarations of its metrics."""
        return Declarations.read(self.result)

    @property
    def test_set(self) -> str:
        """Identifies the examples that are compared and how they are scored."""
        return str(self.result["test/examples"])

    def signature(self, metric: str) -> str:
        """Return how a metric was computed; empty if it has no signature."""
        return str(self.result.get(f"test/{metric}_signature", ""))

    @functools.cached_property
    def code(self) -> str:
        """The code that it used, without the commit: commits that differ only in other files have the same code."""
        record = {**self.record, **self.result["provenance"]}
        parts = [
            f"source {record['source'][:7]}",
            *(f"{part} changed when resumed" for part in record.get("changed", ())),
            *(f"length changed at step {one['step']:,}" for one in record.get("extended", ())),
        ]
        return ", ".join(parts)

    @functools.cached_property
    def recorded(self) -> dict[str, str]:
        """A summary of its data, each of `ASPECTS` and the settings of its command line, "overrides"."""
        record = {**self.record, **self.result["provenance"]}
        commit = record["commit"]
        checkout = f"{commit[:7]}{' (changed)' if record['dirty'] else ''}, " if commit else ""
        components = [f"{name} {digest[:7]}" for name, digest in sorted(record["components"].items())]
        machines = [record["machine"], *record.get("resumed_on", ())]
        is_validated = self.split == VALIDATION and not self.is_evaluation  # in the precision of the training
        return {
            "data": record["data"]["fingerprint"][:7],
            "code": f"{checkout}{self.code}",
            COMPONENTS: ", ".join(components) or "none",
            "precision": record["precision" if is_validated else "test_precision"],
            "overrides": shlex.join(renamed_settings(record["overrides"])) or "none"
            if "overrides" in record
            else "unknown",
            "machine": "; then ".join(
                f"{one['device_name']}, threads: {one['threads']}, torch {one['torch']}" for one in machines
            ),
        }

    @property
    def statistics_file(self) -> str:
        """The name of the file of `statistics`."""
        return f"scored/{dotted(self.split)}.npz"

    @functools.cached_property
    def statistics(self) -> dict[str, Array]:
        """The statistics per example of `split`; empty if the folder does not have them."""
        name = self.statistics_file
        return read_statistics(self.folder / name) if self._usable(name) else {}

    def _usable(self, name: str) -> bool:
        inside = (self.folder / name).resolve().is_relative_to(self.folder.resolve())
        return inside and name not in self.damaged and (self.folder / name).is_file()

    @functools.cached_property
    def metrics(self) -> list[dict[str, float]]:
        """The rows of its `metrics.jsonl`; none for an evaluation."""
        path = self.folder / METRICS_FILE
        return read_sound_metrics(path) if path.is_file() else []

    @functools.cached_property
    def examples(self) -> list[dict[str, Any]]:
        """The outputs of its test set, in the order of the set: "input", "reference", "output" and its "score".

        Translations have their "source_words", and maybe "phenomena", separated by commas.
        """
        return self._rows("examples")

    @functools.cached_property
    def heatmaps(self) -> list[dict[str, Any]]:
        """The attention weights of some outputs: "title", names of "columns" and "rows", "weights", maybe "links"."""
        return self._rows("heatmaps")

    @functools.cached_property
    def snapshots(self) -> list[tuple[int, list[dict[str, Any]]]]:
        """The steps of the snapshots, and the attention weights of each; see `heatmaps`. "note": the text below it."""
        found = sorted(self.folder.glob("attention/step_*.jsonl"))
        steps = [recorded.STEP_FILE.fullmatch(path.name) for path in found]
        return [(int(step[1]), self._rows("heatmaps", f"attention/{step[0]}")) for step in steps if step]

    @functools.cached_property
    def pictures(self) -> list[dict[str, Any]]:
        """Pictures of attention for inputs that are not sequences of tokens: "title", "picture" (PNG in base64)."""
        return self._rows("pictures")

    @functools.cached_property
    def tables(self) -> list[dict[str, Any]]:
        """Tables of the task on its test set: "title", "heads", "rows"."""
        return self._rows("tables")

    def _rows(self, kind: str, file: str | None = None) -> list[dict[str, Any]]:
        """Return the rows of a file that the task declares; `file` replaces the name of the file."""
        entry = self.result.get("page", {}).get(kind)
        if entry is None or not self._usable(file or entry["file"]):
            return []
        names = entry["columns"].items()
        return [
            {name: row.get(column) for name, column in names}
            | {name: row[name] for name in recorded.OPTIONAL if name in row}
            for row in read_json_lines(self.folder / (file or entry["file"]))
        ]


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ only in the seed, or only in settings that are not compared.

    Attributes:
        varies: the settings in which it differs from the other groups.
        runs: sorted by seed.
        own: those of these settings that the commands of its runs set; the others follow from them.
        others: settings that differ between runs and do not separate groups.
    """

    varies: dict[str, str]
    runs: tuple[Run, ...]
    own: frozenset[str] = frozenset()
    others: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The name of the group."""
        return ", ".join(f"{key}={value}" for key, value in self.varies.items()) or "all runs"

    def values(self, key: str) -> list[float]:
        """Return the values of a key of `result.json`, of the runs that have one."""
        return [run.result[key] for run in self.runs if run.result.get(key) is not None]

    def median(self, key: str) -> Run | None:
        """Return the run whose value is the median, the lower of two; None if no run has a value."""
        ordered = sorted(
            (run for run in self.runs if run.result.get(key) is not None), key=lambda run: run.result[key]
        )
        return ordered[(len(ordered) - 1) // 2] if ordered else None


def find_runs(
    paths: Iterable[Path], for_page: bool = False, split: str = FIRST
) -> tuple[list[Run], list[str]]:
    """Return the finished runs in folders, at any depth, and the skipped folders with the reasons.

    Args:
        for_page: also skip runs whose outputs and attention are malformed.
        split: see `of_split`; runs without scores of it are skipped.

    Raises:
        UserError: a folder does not exist, or no run is finished.
    """
    runs: dict[str, Run] = {}
    skipped = []
    seen: set[Path] = set()
    paths = [*paths]
    for path in paths:
        if not path.is_dir():
            raise UserError(f"{path}: folder not found. Give folders of runs or of studies.")
        for folder in run_folders(path, seen):
            try:
                run = read_finished(folder, for_page, split)
                if run.split != split:
                    raise UserError("scored on the validation split only; --validation compares such scores")
            except UserError as error:
                reason = str(error).removesuffix(".")
                skipped.append(reason if reason.startswith(f"{folder}") else f"{folder}: {reason}")
                continue
            skipped += [f"{folder / name}: {problem}" for name, problem in run.damaged.items()]
            known = run.record.get("run_id")
            run_id = known or _digest_of_records(run)
            if run_id in runs:
                # A copy fetched from W&B has no statistics.
                run, copy = sorted((runs[run_id], run), key=lambda one: not one.statistics)
                skipped.append(
                    f"{copy.folder}: a copy of {run.folder}{f' (run_id={known})' if known else ''}"
                )
            runs[run_id] = run
    found = [*runs.values()]
    differing = recorded.differing_counts(found)
    kept = [run for index, run in enumerate(found) if index not in differing]
    skipped += [f"{found[index].folder}: {reason}" for index, reason in differing.items()]
    if not kept:
        if split not in (FIRST, VALIDATION):
            _require_test_set(find_runs(paths)[0], split.removeprefix(f"{FIRST}/"))
        raise UserError(
            f"{' '.join(map(str, paths))}: no finished run found{''.join(f'; {one}' for one in skipped)}. Give folders such "
            f"as outputs/DATE/TIME, sweeps/NAME or RUN/evaluations/NUMBER."
        )
    return kept, skipped


def _require_test_set(runs: Sequence[Run], name: str) -> None:
    """Refuse the name of a test set that none of the runs has besides its first one."""
    names = [*dict.fromkeys(one for run in runs for one in further_tests(run.result))]
    if name not in names:
        raise UserError(
            f"--test={name}: no run has this test set.{did_you_mean(name, names)} Test sets besides the first one: "
            f"{', '.join(names) or 'none'}."
        )


def _digest_of_records(run: Run) -> str:
    """Return what identifies a run without an id: its records, which a copy has too; of an evaluation, its folder."""
    if not run.record.get("folder"):  # the mark of the folder in which the run was trained
        return str(run.folder)
    names = ("config.yaml", "run.json", "result.json")
    return " ".join(sha256(run.folder / name) for name in names)


def read_finished(folder: Path, for_page: bool, split: str = FIRST) -> Run:
    """Return the finished run in a folder.

    Args:
        for_page: also refuse a run whose outputs and attention are malformed.
        split: see `of_split`.

    Raises:
        UserError: the run has not finished or no scores of the split, or its files are damaged or malformed.
    """
    foreign.check_tree(folder)
    if (folder / "run.json").is_file():
        read_record(folder)  # of a version with another format
    result = read_result(folder)
    if (status := result.get("status", "not finished")) not in SCORED:
        error = str(result.get("error", "")).partition("\n")[0]
        raise UserError(error if status == "damaged" else ": ".join(filter(None, (status, error))))
    if damaged := find_damage(folder, "run"):
        raise UserError("; ".join(f"{name} {problem}" for name, problem in damaged.items()))
    run = replace(read_run(folder, result), split=first_split(result))
    if split != FIRST:
        recorded.check_page(run)
        run = replace(run, result=of_split(result, split), split=split)
    recorded.check_run(run)
    if for_page:
        recorded.check_page_rows(run)
    return run


def further_tests(result: Mapping[str, Any]) -> list[str]:
    """Return the names of the test sets of a `result.json` besides the first one."""
    start = f"{FIRST}/"
    return [split.removeprefix(start) for split in scored_splits(result) if split.startswith(start)]


def of_split(result: Mapping[str, Any], split: str) -> dict[str, Any]:
    """Return a `result.json` with other examples as its only test set: `SPLIT/…` replaces `test/…`.

    Args:
        split: the prefix of a further test set or of the validation split.

    Raises:
        UserError: the run has no scores of them.
    """
    if f"{split}/examples" not in result:
        raise UserError(f"no scores of {split}")
    found: dict[str, Any] = {}
    for key, value in result.items():
        # A metric, maybe that of a trivial baseline.
        baseline, name = re.fullmatch(r"(baseline/[^/]+/)?(.+)", key).groups(default="")  # type: ignore[union-attr]
        if name.startswith(f"{split}/"):
            found[f"{baseline}{FIRST}/{name.removeprefix(f'{split}/')}"] = value
        elif not name.startswith(f"{FIRST}/"):
            found[key] = value
    end = f".{dotted(split)}.jsonl"
    found["page"] = {
        kind: {**entry, "file": re.sub(rf"\.{FIRST}\.jsonl$", lambda _: end, entry["file"])}
        for kind, entry in result.get("page", {}).items()
    }
    return found


def read_run(folder: Path, result: dict[str, Any]) -> Run:
    """Return a run, or an evaluation of a run.

    Args:
        result: the contents of its `result.json`.

    Raises:
        UserError: an entry by which runs are grouped is missing or malformed.
    """
    config = foreign.load_plain(folder / "config.yaml")
    record = read_run_json(folder)
    record["choices"] = upgraded_choices(record.get("choices", {}))
    recorded.check_config(config, record["choices"])
    computed = {key: value for key, value in config.items() if key not in NOT_COMPUTED}
    experiment = record["choices"].get(EXPERIMENT, NOT_CHOSEN)
    settings = {} if experiment == NOT_CHOSEN else {EXPERIMENT: experiment}
    settings |= {k: text_of(v) for k, v in flat_keys(config, record["choices"]).items()}
    if "search" in record["choices"]:
        settings["search"] = canonical("search", record["choices"]["search"])
    evaluation = record.get("evaluation", {})
    settings["checkpoint"] = evaluation.get("checkpoint") or "best"
    settings["ensemble"] = "+".join(Path(member).name for member in evaluation.get("ensemble", ())) or "no"
    settings["precision"] = evaluation.get("precision", "auto")
    settings |= {key: text_of(value) for key, value in dotted_settings(computed)}
    if settings.get(SEARCH_SEED) == settings[SEED]:
        settings[SEARCH_SEED] = "seed"  # the default: it differs whenever the seeds of the runs do
    return Run(folder, settings, result, record, find_damage(folder, "result"))


def group_runs(runs: Sequence[Run], by: Sequence[str] = ()) -> list[Group]:
    """Return the runs in groups, in the order of their first runs. Runs of one group have the same test set and data.

    Args:
        by: the keys that distinguish the groups; none for those that `name_settings` returns.

    Raises:
        UserError: no run has such a key.
    """
    known = list(dict.fromkeys(key for run in runs for key in run.settings))
    for key in by:
        if key not in known:
            differing = ", ".join(differing_keys(runs)) or "none, except the seed"
            raise UserError(
                f"--by={key}: no run has this setting.{did_you_mean(key, known)} Settings that differ: {differing}."
            )
    naming = name_settings(runs)
    keys = list(by) or naming.keys
    own_of = {id(run): own for run, own in zip(runs, naming.own, strict=True)}
    others = tuple(key for key in naming.keys if key not in keys)
    groups = [
        Group(
            dict(zip(keys, values, strict=True)),
            tuple(members),
            frozenset().union(*(own_of[id(run)] for run in members)),
            others,
        )
        for values, members in _runs_by(
            runs, lambda run: tuple(setting_value(run, key) for key in keys)
        ).items()
    ]
    compared = "validation split" if runs[0].split == VALIDATION else "test set"
    groups = _split(groups, compared, lambda run: run.test_set)
    groups = _split(groups, "data", lambda run: run.recorded["data"])
    return [
        replace(group, runs=tuple(sorted(group.runs, key=lambda run: _order(run.seed)))) for group in groups
    ]


def differing(groups: Sequence[Group], metric: str) -> list[str]:
    """Return a warning for runs that have diverged, for those that a mean leaves out, for each of `ASPECTS` and the
    signature if it differs between runs, and for repeated seeds.

    Args:
        metric: the name of the metric by which the runs are compared.
    """
    runs = [run for group in groups for run in group.runs]
    diverged = [run for run in runs if run.result.get("status") == "diverged"]
    warnings = [f"warning: the training diverged: {_named_runs(diverged)}"] if diverged else []
    key = f"test/{metric}"
    lines = [group for group in groups if group.values(key)]
    if missing := [run for group in lines for run in group.runs if run.result.get(key) is None]:
        warnings.append(
            f"warning: {metric} has no value, and the mean is of the other runs: {_named_runs(missing)}"
        )
    values_of: dict[str, Callable[[Run], str]] = {
        **{name: lambda run, name=name: run.recorded[name] for name in ASPECTS},  # type: ignore[misc]
        f"signature of {metric}": lambda run: run.signature(metric),
    }
    scored = [run for run in runs if run.signature(metric)]  # a run of another task has none
    for name, value_of in values_of.items():
        runs_of = _runs_by(runs if name in ASPECTS else scored, value_of)
        if name == "code" and same_code(runs):
            continue
        if name == COMPONENTS:
            runs_of.pop("none", None)  # such as those of the program's own attention, in the same comparison
        if len(runs_of) > 1:
            values = "; ".join(f"{value} in {_named_runs(runs)}" for value, runs in runs_of.items())
            warnings.append(f"warning: {name} {'differ' if name == COMPONENTS else 'differs'}: {values}")
    for group in groups:
        for seed, same in _runs_by(group.runs, lambda run: run.seed).items():
            if len(same) > 1:
                warnings.append(
                    f"warning: {group.label}: seed={seed} occurs {len(same)} times: {_named_runs(same)}"
                )
    return warnings


def same_code(runs: Iterable[Run]) -> bool:
    """Return whether all runs used the same code, maybe at different commits."""
    return len({run.code for run in runs}) <= 1


def _runs_by(runs: Iterable[Run], value_of: Callable[[Run], Value]) -> dict[Value, list[Run]]:
    runs_of: dict[Value, list[Run]] = {}
    for run in runs:
        runs_of.setdefault(value_of(run), []).append(run)
    return runs_of


def _split(groups: Sequence[Group], name: str, value_of: Callable[[Run], str]) -> list[Group]:
    """Return groups split by a value, which then distinguishes all of them; unchanged if each group has one value."""
    if all(len({value_of(run) for run in group.runs}) == 1 for group in groups):
        return list(groups)
    return [
        replace(group, varies={**group.varies, name: value}, runs=tuple(members))
        for group in groups
        for value, members in _runs_by(group.runs, value_of).items()
    ]


def _named_runs(runs: Sequence[Run]) -> str:
    """Return the folders of runs; of many runs only the first ones."""
    names = ", ".join(str(run.folder) for run in runs[:MAX_NAMED_RUNS])
    return names if len(runs) <= MAX_NAMED_RUNS else f"{names} and {len(runs) - MAX_NAMED_RUNS} more"


def _order(seed: str) -> tuple[int, str]:
    return (int(seed) if seed.isdigit() else 0, seed)
