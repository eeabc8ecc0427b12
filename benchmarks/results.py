"""Recorded runs: adds a run to docs/results.jsonl.

    python -m benchmarks.results add RUN --command "python -m seq2seq_lab …" --machine "2 cores of …"
    python -m benchmarks.results add RUN/evaluations/1 --command "python -m seq2seq_lab …" --machine "…" \\
        --evaluation "python -m seq2seq_lab.evaluate RUN --ensemble RUN search=beam" \\
        --member "python -m seq2seq_lab …"

A line that a new one replaces stays in the file, marked as superseded. The statistics per example of a line, from which
`benchmarks.result_tables` tests differences, are in docs/statistics; that program writes the tables of the docs.
`benchmarks.planned` runs and adds a list of runs.
"""

import argparse
import hashlib
import io
import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import hydra
import numpy as np
from omegaconf import DictConfig, OmegaConf

from seq2seq_lab import evaluate
from seq2seq_lab.config import schema
from seq2seq_lab.config.compose import compose, composer
from seq2seq_lab.config.job_hash import without_hydra
from seq2seq_lab.config.run_folder import check_run_files, read_finished_result, read_record, read_result
from seq2seq_lab.config.upgrade import RENAMED
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import read_json_lines, write_atomically
from seq2seq_lab.metrics.base import Array, Declarations
from seq2seq_lab.reporting import score_tables
from seq2seq_lab.tasks.base import Task

RESULTS = Path(__file__).parents[1] / "docs" / "results.jsonl"
STATISTICS = "statistics"  # a folder beside the file
# Metrics of the comparison whose statistics per example are not kept: they are large, or columns of BLEU's.
NOT_KEPT = ("chrf", "length_ratio", "brevity_penalty")
SHOWN_BESIDE = "python -m seq2seq_lab model=vanilla trainer.precision=bf16"  # runs on its test set show its metrics by group
PROGRAM = ["python", "-m", "seq2seq_lab"]
EVALUATE = ["python", "-m", "seq2seq_lab.evaluate", "RUN"]
COSTS = {  # by their names in `result.json`
    "steps": "steps",
    "train_seconds": "train/seconds",
    "validation_seconds": "val/seconds",
    "peak_memory_mib": "peak_memory_mib",
}
NO_EXPERIMENT = "None"  # the choice of the group `experiment` if none is given
OWN_PATH = re.compile(r"(^|[=\[{,:'\"])(/|~|\.\.?/)")
PLACEHOLDER = re.compile(r"[A-Z]+")  # of a path in a command: DIR, FILE


@dataclass(frozen=True)
class Line:
    """A run, or an evaluation of a run. Values that are not known are None.

    Attributes:
        experiment: the value of the group `experiment`, if one was chosen.
        command: the command of the run, where DIR or FILE replaces a path.
        commit: of the package when the run or the evaluation started.
        settings: the configuration by dotted key, without classes, logger and cache.
        machine: cores, processor, version of torch, precision.
        task: the value of the group `task`.
        scores: by name in `result.json`.
        signatures: of the scores that have one, by the same names.
        groups: scores by group of examples, by name in `result.json`.
        examples: the hash of the examples of each test set by its split; scores on other examples are not comparable.
        units_per_second: of the units that the task counts, such as target tokens.
        evaluation: the command of the evaluation; None for the scores at the end of the run.
        others: the commands of the other runs of an ensemble.
        unknown: how `<unk>` was scored, if not as it is today: "three tokens".
        note: a remark shown with the scores, for example that they were not read from a run folder.
        superseded: whether a newer line replaces it in the tables.
        statistics: the name of the file in docs/statistics with its statistics per example, if they were kept.
    """

    experiment: str | None
    command: str
    commit: str
    seed: int
    machine: str
    scores: dict[str, float]
    signatures: dict[str, str]
    task: str = "translation"
    settings: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)
    parameters: int | None = None
    trainable_parameters: int | None = None
    steps: int | None = None
    train_seconds: float | None = None
    validation_seconds: float | None = None
    units_per_second: float | None = None
    peak_memory_mib: int | None = None
    evaluation: str | None = None
    others: list[str] = field(default_factory=list)
    unknown: str | None = None
    note: str | None = None
    superseded: bool = False
    statistics: str | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """The values that only one line may have that is not superseded."""
        return (
            *(self.experiment or "", self.others, unseeded(self.command)),
            *(self.evaluation or "", self.seed),
        )

    @property
    def is_plain(self) -> bool:
        """Whether the run changes nothing in its experiment but paths, the seed and the precision."""
        words = unseeded(self.command)[len(PROGRAM) :]
        kept = ("experiment=", "trainer.precision=")
        return all(word.startswith(kept) or is_placeholder(word) for word in words)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the arguments name."""
    try:
        add(arguments)
    except UserError as error:
        raise SystemExit(f"error: {error}") from None


def add(arguments: Sequence[str] | None) -> None:
    """Add a run or an evaluation.

    Raises:
        UserError: it cannot be added; see `add_line`.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.results", description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="action", required=True)
    adder = commands.add_parser("add", help="add a finished run or an evaluation to docs/results.jsonl")
    adder.add_argument("folder", type=Path, help="the run folder, or RUN/evaluations/NUMBER")
    adder.add_argument("--command", required=True, help="of the run; DIR or FILE replaces a path")
    adder.add_argument("--machine", required=True, help="cores, processor, version of torch, precision")
    adder.add_argument("--commit", help="of the code, if the run does not record it")
    adder.add_argument(
        "--evaluation", help=f"the command of an evaluation: {shlex.join(EVALUATE)} search=beam"
    )
    adder.add_argument("--member", action="append", default=[], help="command of another run of the ensemble")
    options = parser.parse_args(arguments)
    add_line(options)
    print(f"Added to {RESULTS.name}. To update the pages, run: python -m benchmarks.result_tables")


def add_line(options: argparse.Namespace) -> None:
    """Add a run or an evaluation to the file, and its statistics per example.

    Raises:
        UserError: the run or the evaluation cannot be added; see `read_run` and `read_evaluation`. No file changes.
    """
    line = read_run(options) if options.evaluation is None else read_evaluation(options)
    arrays, recorded = example_statistics(options.folder), read_lines(RESULTS)
    for old in recorded:
        # The same run: keep what `benchmarks.explanation add` has measured.
        if old.key == line.key and not old.superseded and line.scores.items() <= old.scores.items():
            line, arrays = replace(line, scores=old.scores), read_statistics(old) | arrays
    if arrays:
        name = f"{hashlib.sha256(json.dumps(line.key).encode()).hexdigest()[:12]}.npz"
        line = replace(line, statistics=name)
    lines = with_line(recorded, line)
    if line.statistics:
        write_statistics(RESULTS.parent / STATISTICS / line.statistics, arrays)
    write_lines(RESULTS, lines)
    if line.command == SHOWN_BESIDE and line.evaluation is None:
        write_recorded(options.folder, line)


def example_statistics(folder: Path) -> dict[str, Array]:
    """Return the statistics per example of the test sets of a run folder by the split and the metric.

    Counts have the smallest type that holds them, others are float32.
    """
    declared = Declarations.read(read_result(folder)).metrics
    arrays: dict[str, Array] = {}
    for path in sorted(folder.glob("scored/test*.npz")):
        split = path.stem.replace(".", "/")
        for name, array in score_tables.read_statistics(path).items():
            if name == score_tables.CLUSTERS or (declared[name].compared and name not in NOT_KEPT):
                counts = array.min() >= 0 and (array == np.rint(array)).all()
                kind = np.min_scalar_type(int(array.max())) if counts else np.dtype(np.float32)
                arrays[f"{split}/{name}"] = array.astype(kind)
    return arrays


def write_statistics(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write statistics per example."""
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content.getvalue())


def read_statistics(line: Line) -> dict[str, Array]:
    """Return the statistics per example of a line by the split and the metric; empty if they were not kept."""
    if not line.statistics:
        return {}
    with np.load(RESULTS.parent / STATISTICS / line.statistics, allow_pickle=False) as arrays:
        return dict(arrays)


def write_recorded(folder: Path, line: Line) -> None:
    """Write the metrics by group that runs on the same test set show beside theirs."""
    prefix = "test/"
    recorded = {
        "label": "model=vanilla, recorded",
        "command": line.command,
        "commit": line.commit,
        "test/examples": read_result(folder)["test/examples"],
        "groups": {
            name.removeprefix(prefix): rows
            for name, rows in line.groups.items()
            if name.startswith(prefix) and "/" not in name.removeprefix(prefix)
        },
    }
    write_atomically(score_tables.RECORDED, json.dumps(recorded, ensure_ascii=False, indent=1) + "\n")


def read_lines(path: Path) -> list[Line]:
    """Return the lines of the file, whose settings have the keys of this version."""
    return [current_line(row) for row in read_json_lines(path)]


def current_line(row: Mapping[str, Any]) -> Line:
    """Return a recorded line with the keys of this version; see `RENAMED`."""
    text = json.dumps(row)
    for old, new in RENAMED.items():
        if old in text:  # faster than the pattern, and false for most lines
            text = re.sub(rf"\b{re.escape(old)}\b", new, text)
    return Line(**json.loads(text))


def write_lines(path: Path, lines: Iterable[Line]) -> None:
    """Write the file. Lines that do not change keep the keys that they were recorded with, which their commit reads."""
    recorded = {
        json.dumps(asdict(current_line(row))): row
        for row in (read_json_lines(path) if path.is_file() else ())
    }
    rows = (recorded.get(json.dumps(asdict(line)), asdict(line)) for line in lines)
    write_atomically(path, "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows))


def with_line(lines: Sequence[Line], new: Line) -> list[Line]:
    """Return the sorted lines with a new one, which supersedes the one of the same key, or replaces it if scores agree."""
    others = []
    for old in lines:
        replaced = old.key == new.key and not (old.superseded or new.superseded)
        if old != new and not (replaced and old.scores == new.scores):
            others.append(replace(old, superseded=True, statistics=None) if replaced else old)
    return sorted([*others, new], key=lambda line: (line.key, line.superseded))


def current(lines: Iterable[Line], experiment: str | None = None) -> list[Line]:
    """Return the runs that are neither evaluations nor superseded; of one experiment without changes, if it is given."""
    return [
        line
        for line in lines
        if not (line.superseded or line.evaluation)
        and (experiment is None or (line.experiment == experiment and line.is_plain))
    ]


def runs_of(lines: Iterable[Line], command: str) -> list[Line]:
    """Return the current runs of a command, whatever their seed."""
    return [line for line in current(lines) if unseeded(line.command) == unseeded(command)]


def read_run(options: argparse.Namespace, folder: Path | None = None) -> Line:
    """Return the line of a run.

    Raises:
        UserError: the run has not finished, was a trial, or the command does not start it.
    """
    folder = folder or options.folder
    result = read_finished_result(folder)
    if result is None:
        raise UserError(f"{folder}: not a finished run. To finish one, run it with resume={folder}.")
    check_run_files(folder)
    record = read_record(folder)
    if "evaluation" in record:
        raise UserError(f"{folder}: this is an evaluation. Give its command with --evaluation.")
    config = schema.plain(DictConfig(OmegaConf.load(folder / "config.yaml")))
    if config["trainer"]["fast_dev_run"]:
        raise UserError(f"{folder}: trainer.fast_dev_run=true. Only whole runs can be added.")
    experiment = record["choices"]["experiment"]
    command, chosen = composed(options.command)
    if chosen != experiment:
        raise UserError(f"--command={options.command!r}: the run has experiment={experiment}.")
    for key, (wanted, actual) in differences(command, dict(schema.dotted_settings(config))).items():
        raise UserError(f"--command={options.command!r} gives {key}={wanted}. The run has {key}={actual}.")
    return Line(
        experiment=None if experiment == NO_EXPERIMENT else experiment,
        command=options.command,
        commit=commit_of(folder, record, options.commit),
        seed=config["seed"],
        task=record["choices"]["task"],
        settings={key: value for key, value in command.items() if is_recorded(key)},
        machine=options.machine,
        parameters=result["num_parameters"],
        trainable_parameters=result.get("num_trainable_parameters"),
        **{name: result[key] for name, key in COSTS.items()},
        units_per_second=result[f"train/{result['unit']}_per_second"],
        **scored(result),
    )


def read_evaluation(options: argparse.Namespace) -> Line:
    """Return the line of an evaluation.

    Raises:
        UserError: the folder is not an evaluation, or the commands do not start it.
    """
    folder, run = options.folder, options.folder.parent.parent
    result = read_result(folder)
    if "search" not in result or not (run / "config.yaml").is_file():
        raise UserError(f"{folder}: not an evaluation. Give RUN/evaluations/NUMBER.")
    words = shlex.split(options.evaluation)
    if words[: len(EVALUATE)] != EVALUATE:
        raise UserError(
            f"--evaluation={options.evaluation!r}: it has to start with `{shlex.join(EVALUATE)}`."
        )
    changes = [word for word in words if "=" in word and not word.startswith("--")]
    wanted, _ = composed(shlex.join([*shlex.split(options.command), *changes]))
    actual = dict(schema.dotted_settings(schema.plain(DictConfig(OmegaConf.load(folder / "config.yaml")))))
    for key, (value, own) in differences(wanted, actual).items():
        raise UserError(
            f"--evaluation={options.evaluation!r} gives {key}={value}. The evaluation has {key}={own}."
        )
    given = evaluate.parser().parse_intermixed_args(words[len(EVALUATE) - 1 :])
    if len(given.others) != len(options.member):
        raise UserError(
            f"--evaluation={options.evaluation!r} --member={options.member}: give a --member for each --ensemble."
        )
    opened = read_record(folder)["evaluation"]
    for name, value, own in (
        ("--checkpoint", given.checkpoint, opened["checkpoint"]),
        ("--precision", given.precision, opened["precision"]),
        ("--ensemble", len(given.others), max(0, len(opened["ensemble"]) - 1)),
        ("--validation", given.validation, any(key.startswith("val/") for key in result)),
        (
            "--replace-unknown",
            given.replace_unknown,
            any(key.endswith("_unknown_replaced") for key in result),
        ),
    ):
        if value != own:
            raise UserError(
                f"--evaluation={options.evaluation!r} has {name}={value}. The evaluation has {name}={own}."
            )
    measured: dict[str, Any] = {
        **dict.fromkeys((*COSTS, "units_per_second")),
        **scored(result),
        "commit": commit_of(folder, result.get("provenance", {}), options.commit),
        "settings": {},
        "evaluation": options.evaluation,
        "others": options.member,
    }
    return replace(read_run(options, run), **measured)


def scored(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return scores, signatures, groups and the hashes of the examples of a `result.json`."""
    suffix = "_signature"
    groupings = Declarations.read(result).groupings
    measured = {name: value for name, value in result.items() if name.startswith(("test/", "val/"))}
    return {
        "scores": {
            name: round(value, 4)
            for name, value in measured.items()
            if isinstance(value, float) and name != "val/seconds"
        },
        "signatures": {
            name.removesuffix(suffix): text for name, text in measured.items() if name.endswith(suffix)
        },
        "groups": {name: value for name, value in measured.items() if name.rpartition("/")[2] in groupings},
        "examples": {split: str(result[f"{split}/examples"]) for split in score_tables.scored_splits(result)},
    }


def commit_of(folder: Path, record: Mapping[str, Any], given: str | None) -> str:
    """Return the recorded commit of a run's code, or the given one if the record has none or the code may have had changes.

    Raises:
        UserError: the commit is not known, or the two disagree.
    """
    recorded = record.get("commit") if record.get("dirty") is False else None
    if recorded is not None and recorded.startswith(given or ""):
        return str(recorded)
    if recorded is not None or given is None or not re.fullmatch(r"[0-9a-f]{7,40}", given):
        raise UserError(
            f"--commit={given}: {folder} records commit {record.get('commit')}, dirty={record.get('dirty')}. Give 7 to 40 "
            f"hexadecimal digits of the commit that has the code, or leave out --commit if a clean one is recorded."
        )
    return given


def is_recorded(key: str) -> bool:
    """Return whether a line keeps this setting: not where a run logs and caches, and no class, which a commit may move."""
    return not key.startswith(("logger.", "hydra.")) and not key.endswith(("cache_dir", "_target_"))


def differences(wanted: Mapping[str, Any], actual: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the settings that two configurations have with different values; placeholders of paths match any value.

    Settings that change no number are left out. `trainer.monitor=null` is the primary metric, by whose name runs recorded it
    before null was the default.
    """
    primary = f"val/{task_class(wanted['task._target_']).primary}"
    wanted, actual = (
        {**one, "trainer.monitor": one.get("trainer.monitor") or primary} for one in (wanted, actual)
    )
    return {
        key: (value, actual[key])
        for key, value in wanted.items()
        if key in actual
        and value != actual[key]
        and not key.startswith(
            ("logger.", "study.", "trainer.keep_checkpoints", "trainer.checkpoint_every", "trainer.threads")
        )
        and not is_placeholder(f"{key}={value}")
        and (key != "model.bridge" or wanted.get("encoder", key) is not None)  # without an encoder, unused
    }


def task_class(target: str) -> type[Task]:
    """Return the class of a task by the path in its YAML file."""
    found = hydra.utils.get_class(target)
    assert issubclass(found, Task), target
    return found


def is_placeholder(word: str) -> bool:
    """Return whether a word of a command sets a path to a placeholder, such as DIR."""
    key, _, value = word.partition("=")
    return not key.startswith("hydra.") and PLACEHOLDER.fullmatch(value) is not None


def composed(command: str) -> tuple[dict[str, Any], str]:
    """Return the configuration of a command by dotted key, and its experiment.

    Raises:
        UserError: the command does not start the program, or contains a path of this machine.
    """
    words = shlex.split(command)
    if words[: len(PROGRAM)] != PROGRAM:
        raise UserError(f"--command={command!r}: it has to start with `{shlex.join(PROGRAM)}`.")
    for word in words:
        if OWN_PATH.search(word):
            raise UserError(f"--command: {word} contains a path of this machine. Write DIR or FILE instead.")
    with composer():
        node = compose(words[len(PROGRAM) :])
    experiment = str(node.hydra.runtime.choices["experiment"])
    return dict(schema.dotted_settings(schema.plain(without_hydra(node)))), experiment


@cache
def unseeded(command: str) -> tuple[str, ...]:
    """Return the words of a command without its seed, and without its logger, which changes no score."""
    return tuple(word for word in shlex.split(command) if not word.startswith(("seed=", "logger=")))


if __name__ == "__main__":
    main()
