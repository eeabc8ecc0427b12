"""Recorded runs and evaluations, docs/results.jsonl, and what is generated from it: preset headers, tables in two pages.

    python -m benchmarks.results add RUN_FOLDER --command "python -m seq2seq_lab …" --machine "2 cores of …"
    python -m benchmarks.results add RUN_FOLDER/evaluations/1 --command "python -m seq2seq_lab …" --machine "…" \\
        --evaluation "python -m seq2seq_lab.evaluate RUN --with RUN search=beam" --with-command "python -m seq2seq_lab …"
    python -m benchmarks.results headers
    python -m benchmarks.results check

`add` reads a finished run, or an evaluation of one, into a line of the file. A line that it replaces stays in the file,
marked as superseded. `headers` rewrites the measured part of each preset's header and the generated tables of
docs/results.md and README.md. `check` fails where one of them differs from the file.
"""

import argparse
import json
import re
import shlex
import statistics
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from benchmarks.page import Part, filled, table
from seq2seq_lab.config import schema as configuration
from seq2seq_lab.config.compose import check_job, choices, compose, composer
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import (
    read_finished_result,
    read_json_lines,
    read_record,
    read_result,
    write_atomically,
)
from seq2seq_lab.runtime.console import mean_and_deviation

RESULTS = Path(__file__).parents[1] / "docs" / "results.jsonl"
EXPERIMENTS = configuration.CONF_DIR / "experiment"

PROGRAM = ["python", "-m", "seq2seq_lab"]
EVALUATE = ["python", "-m", "seq2seq_lab.evaluate", "RUN"]
NOT_A_CHOICE = ("seed=", "logger=", "dataset.path=")  # words of a command that a table's label leaves out
MAIN = {  # the README's two runs
    "`model=attn attention=additive`": "python -m seq2seq_lab model=attn attention=additive",
    "`model=vanilla`": "python -m seq2seq_lab model=vanilla",
}
NOTE_MARKS = "¹²³⁴⁵⁶⁷⁸⁹"
PUBLISHED = {  # free-running perplexity, BLEU of lowercased spaCy tokens
    "sutskever2014": ("43.8", "13.8"),
    "cho2014": ("37.5", "20.6"),
    "bahdanau2015": ("25.6", "28.3"),
}
UNKNOWN = "‡"  # marks a score of text with `<unk>` that was counted in another way
UNKNOWN_NOTE = (
    "scored with `<unk>` as three tokens, about 0.2 BLEU too low; not rescored, since the translations no longer "
    "exist"
)
FIRST = "# ---- measured: made from docs/results.jsonl by `python -m benchmarks.results headers` ----"
LAST = "# ---- end of what is measured ----"
WIDTH = 119
LABEL = 16  # columns of a row's name
MEASURES = {
    "bleu": ("sacreBLEU", ".2f"),
    "chrf": ("chrF", ".2f"),
    "bleu_lowercased_tokenised": ("BLEU lowercased and tokenised", ".2f"),
    "ter": ("TER", ".2f"),
    "perplexity_teacher_forced": ("teacher-forced perplexity", ".2f"),
    "perplexity_free_running": ("free-running perplexity", ".2f"),
    "aer": ("AER", ".3f"),
    "bleu_unknown_replaced": ("sacreBLEU, unknown words replaced", ".2f"),
}
TIMES = ("train_seconds", "validation_seconds")
NO_EXPERIMENT = "None"  # as run.json records that no preset was chosen
PLACEHOLDER = re.compile(r"[A-Z]+")  # of a path in a command: DIR, FILE
OWN_PATH = re.compile(r"(^|[=\[{,:'\"])(/|~|\.\.?/)")


@dataclass(frozen=True)
class Measured:
    """One run or one evaluation of a run, a line of the file; what is not known of it is None.

    Attributes:
        experiment: the preset; None for a run of no preset.
        command: as a user types it, with DIR or FILE in place of a path.
        commit: of the package when the run began, or when the evaluation was made.
        settings: every setting of the run by its dotted key, but for where it was logged and cached; what stands for a
            path as the command has it. A preset that has been changed since does not give them any more.
        machine: in words: cores, kind of processor, torch's version, precision.
        scores: by their names in `result.json`, as "test/bleu".
        signatures: of the scores that have one, by the same names.
        target_tokens_per_second: in training, the warm-up left out.
        groups: scores by source length and by phenomenon, as in `result.json`, by their names there.
        evaluation: the command of the evaluation that gave the scores; None: the end of the run itself.
        others: commands of the further runs of an ensemble.
        unknown: how `<unk>` was scored, where that is not how it is scored now: "three tokens".
        note: shown beside the figures, for example where they were not read from a run folder.
        superseded: another line has taken this one's place in the tables.
    """

    experiment: str
    command: str
    commit: str
    seed: int
    settings: dict[str, Any]
    machine: str
    parameters: int | None
    trainable_parameters: int | None
    scores: dict[str, float]
    signatures: dict[str, str]
    updates: int | None
    train_seconds: float | None
    validation_seconds: float | None
    target_tokens_per_second: float | None
    peak_memory_mib: int | None
    groups: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    evaluation: str | None = None
    others: list[str] = field(default_factory=list)
    unknown: str | None = None
    note: str | None = None
    superseded: bool = False

    @property
    def key(self) -> tuple[str, list[str], list[str], str, int]:
        """The values that identify a line; only one line that is not superseded may have them."""
        words = [] if self.experiment else unseeded(self.command)
        return self.experiment or "", self.others, words, self.evaluation or "", self.seed


def main(arguments: Sequence[str] | None = None) -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.results", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="action", required=True)
    adding = commands.add_parser("add", help="read a finished run or evaluation into docs/results.jsonl")
    adding.add_argument("folder", type=Path, help="the run folder, or RUN_FOLDER/evaluations/NUMBER")
    adding.add_argument("--command", required=True, help="as a user types it, DIR or FILE in place of a path")
    adding.add_argument("--machine", required=True, help="in words: cores, processor, torch, precision")
    adding.add_argument("--commit", help="of the code, where run.json names none or the tree was changed")
    adding.add_argument(
        "--evaluation", help=f"for an evaluation, its command: {shlex.join(EVALUATE)} search=beam"
    )
    adding.add_argument(
        "--with-command",
        dest="others",
        action="append",
        default=[],
        help="of an ensemble, the command of each further run, in the order of its --with",
    )
    commands.add_parser(
        "headers",
        help="rewrite the headers in conf/experiment/ and the tables in docs/results.md and README.md",
    )
    commands.add_parser("check", help="fail if one does not show what docs/results.jsonl says")
    options = parser.parse_args(arguments)
    try:
        if options.action == "add":
            new = (
                measured(options.folder, options.command, options.machine, options.commit)
                if options.evaluation is None
                else evaluated(options)
            )
            write_results(RESULTS, with_line(read_results(RESULTS), new))
            label = new.experiment or new.evaluation or new.command
            print(f"{RESULTS.name}: {label}, seed {new.seed}. Now: python -m benchmarks.results headers")
            return
        changed = outdated(EXPERIMENTS, read_results(RESULTS))
        if options.action == "headers":
            for path, text in changed.items():
                write_atomically(path, text)
                print(path.name)
        elif changed:
            raise UserError(
                f"{', '.join(path.name for path in changed)}: not what docs/results.jsonl says. "
                f"Run: python -m benchmarks.results headers"
            )
    except UserError as error:
        raise SystemExit(f"error: {error}") from None


def read_results(path: Path) -> list[Measured]:
    """Return the lines of the file."""
    return [Measured(**row) for row in read_json_lines(path)]


def write_results(path: Path, results: Iterable[Measured]) -> None:
    """Write the file."""
    lines = [json.dumps(asdict(result), ensure_ascii=False) + "\n" for result in results]
    write_atomically(path, "".join(lines))


def with_line(results: Sequence[Measured], new: Measured) -> list[Measured]:
    """Return the lines in order with `new` among them; the one of the same key is superseded by it.

    Raises:
        UserError: other lines of the experiment are of another command; a mean over them would say nothing.
    """
    others = [
        replace(old, superseded=True) if (old.key, old.superseded) == (new.key, new.superseded) else old
        for old in results
        if old != new
    ]
    for other in others:
        if (
            new.experiment
            and other.experiment == new.experiment
            and not other.superseded
            and not new.superseded
            and unseeded(other.command) != unseeded(new.command)
        ):
            raise UserError(
                f"--command={new.command!r}: seed {other.seed} of {new.experiment} was {other.command!r}. The lines "
                f"of a preset differ in their seed alone: take the old ones out, or name a preset of its own."
            )
    return sorted([*others, new], key=lambda result: (result.key, result.superseded))


def current(results: Iterable[Measured], experiment: str | None = None) -> list[Measured]:
    """Return the runs, of one preset if it is named, whose figures are shown: no evaluations, none superseded."""
    return [
        result
        for result in results
        if not (result.superseded or result.evaluation) and experiment in (None, result.experiment)
    ]


def measured(folder: Path, command: str, machine: str, commit: str | None) -> Measured:
    """Return the line of a run.

    Raises:
        UserError: the run has not finished, was a trial, is of an unknown preset or commit, or the command
            does not give it.
    """
    result = read_finished_result(folder)
    if result is None:
        raise UserError(
            f"{folder}: no run has finished there. Give the folder of one, or resume={folder} first."
        )
    record = read_record(folder)
    if "evaluation" in record:
        raise UserError(f"{folder}: this is an evaluation of a run. Give its command with --evaluation.")
    node = OmegaConf.load(folder / "config.yaml")
    assert isinstance(node, DictConfig)
    config = configuration.plain(node)
    if config["trainer"]["fast_dev_run"]:
        raise UserError(f"{folder}: a run with trainer.fast_dev_run=true measures nothing. Run it whole.")
    experiment = record["choices"]["experiment"]
    if experiment != NO_EXPERIMENT and not (EXPERIMENTS / f"{experiment}.yaml").is_file():
        raise UserError(
            f"{folder}: experiment={experiment} is no preset. Allowed: "
            f"{', '.join(configuration.group_values('experiment'))}."
        )
    had = recorded_settings(command, config)
    check_command(command, experiment, had)
    return Measured(
        experiment=None if experiment == NO_EXPERIMENT else experiment,
        command=command,
        commit=commit_of(folder, record, commit),
        seed=config["seed"],
        settings=had,
        machine=machine,
        parameters=result["num_parameters"],
        trainable_parameters=result.get("num_trainable_parameters"),
        **scored(result),
        updates=result["updates"],
        train_seconds=result["train/seconds"],
        validation_seconds=result["val/seconds"],
        target_tokens_per_second=result["train/target_tokens_per_second"],
        peak_memory_mib=result["peak_memory_mib"],
    )


def scored(result: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the scores of a `result.json`, their signatures and the scores of groups, as a line has them."""
    suffix = "_signature"
    return {
        "scores": {
            name: round(value, 4)
            for name, value in result.items()
            if name.startswith(("test/", "val/")) and name != "val/seconds" and isinstance(value, float)
        },
        "signatures": {
            name.removesuffix(suffix): value for name, value in result.items() if name.endswith(suffix)
        },
        "groups": {
            name: value
            for name, value in result.items()
            if name.startswith("test/") and isinstance(value, list)
        },
    }


def evaluated(options: argparse.Namespace) -> Measured:
    """Return the line of an evaluation.

    Raises:
        UserError: the folder holds no evaluation, or the commands do not give it.
    """
    folder, run = options.folder, options.folder.parent.parent
    result = read_result(folder)
    if "search" not in result or not (run / "config.yaml").is_file():
        raise UserError(f"{folder}: no evaluation was written there. Give RUN_FOLDER/evaluations/NUMBER.")
    words = shlex.split(options.evaluation)
    if words[: len(EVALUATE)] != EVALUATE:
        raise UserError(f"--evaluation={options.evaluation!r} does not begin with `{shlex.join(EVALUATE)}`.")
    if words.count("--with") != len(options.others):
        raise UserError(
            f"--evaluation={options.evaluation!r} has {words.count('--with')} times --with, and --with-command was "
            f"given {len(options.others)} times. Give the command of each further run."
        )
    changes = [word for word in words if word.startswith("search")]
    said = composed(shlex.join([*shlex.split(options.command), *changes]))[0]["search"]
    if said != result["search"]:
        raise UserError(
            f"--evaluation={options.evaluation!r} gives search={said}, and {folder} had {result['search']}."
        )
    of_run, of_evaluation = read_record(run), result.get("provenance", {})
    trained = measured(
        run, options.command, options.machine, None if names_commit(of_run) else options.commit
    )
    return replace(
        trained,
        commit=commit_of(folder, of_evaluation, None if names_commit(of_evaluation) else options.commit),
        settings={},
        evaluation=options.evaluation,
        others=options.others,
        updates=None,
        train_seconds=None,
        validation_seconds=None,
        target_tokens_per_second=None,
        peak_memory_mib=None,
        **scored(result),
    )


def names_commit(record: Mapping[str, Any]) -> bool:
    """Return whether a run recorded the commit of its code, without changes to it."""
    return record.get("commit") is not None and not record["dirty"]


def commit_of(folder: Path, record: Mapping[str, Any], given: str | None) -> str:
    """Return the commit of a run's code: the recorded one, or the one given where that is not enough.

    Raises:
        UserError: neither says it, or they disagree.
    """
    recorded = record.get("commit")
    if names_commit(record):
        if given is not None and not str(recorded).startswith(given):
            raise UserError(f"--commit={given}: {folder} was run at {recorded}. Leave --commit out.")
        return str(recorded)
    if given is None:
        problem = "names no commit" if recorded is None else f"was run with changes to {recorded}"
        raise UserError(f"{folder}: run.json {problem}. Say with --commit=HASH which commit has the code.")
    if not re.fullmatch(r"[0-9a-f]{7,40}", given):
        raise UserError(f"--commit={given}: a commit is 7 to 40 hexadecimal digits, as `git log` shows them.")
    return given


def recorded_settings(command: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a line says of a run's configuration: see `Measured.settings`."""
    said = dict(configuration.dotted_settings(composed(command)[0]))
    return {
        key: said[key] if stands_for_a_path(said.get(key)) else value
        for key, value in configuration.dotted_settings(config)
        if not (key.startswith("logger.") or key.endswith("cache_dir"))
    }


def stands_for_a_path(value: object) -> bool:
    """Say whether a value in a command is DIR, FILE or the like."""
    return isinstance(value, str) and PLACEHOLDER.fullmatch(value) is not None


def check_command(command: str, experiment: str, had: Mapping[str, Any]) -> None:
    """Refuse a command that a user could not type, or that does not give the settings that the run had.

    A setting that the run did not know yet may have any value.

    Raises:
        UserError: names the setting.
    """
    for word in shlex.split(command):
        if OWN_PATH.search(word):
            raise UserError(f"--command: {word} is a path of this machine. Write DIR or FILE in its place.")
    said, chosen = composed(command)
    if chosen["experiment"] != experiment:
        raise UserError(f"--command={command!r}: the run had experiment={experiment}.")
    for key, value in configuration.dotted_settings(said):
        if key in had and value != had[key]:
            raise UserError(
                f"--command={command!r} gives {key}={value}, and the run had {had[key]}. Give the command it was "
                f"started with."
            )


def composed(command: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the configuration and the groups' choices that a command gives.

    Raises:
        UserError: it does not start the program, or does not compose.
    """
    words = shlex.split(command)
    if words[: len(PROGRAM)] != PROGRAM:
        raise UserError(f"{command!r}: a command begins with `{shlex.join(PROGRAM)}`.")
    with composer():
        node = compose(words[len(PROGRAM) :])
        chosen = choices(node.hydra.runtime.choices)
        check_job(node, (), resumed=True)  # what stands for a path names no file of vectors
    return configuration.plain(node), chosen


def unseeded(command: str) -> list[str]:
    """Return the words of a command without its seed, and without its logger, which changes no score."""
    return [word for word in shlex.split(command) if not word.startswith(("seed=", "logger="))]


def outdated(folder: Path, results: Sequence[Measured]) -> dict[Path, str]:
    """Return the presets and pages that do not show the results, with the text they should have."""
    pages = dict.fromkeys(part.page for part in PARTS)
    old = {path: path.read_text("utf-8") for path in [*sorted(folder.glob("*.yaml")), *pages]}
    new = {
        path: text if path in pages else with_header(text, path.stem, results) for path, text in old.items()
    }
    for part, lines in PARTS.items():
        new[part.page] = part.replaced(new[part.page], lines(results))
    return {path: text for path, text in new.items() if text != old[path]}


def with_header(text: str, experiment: str, results: Sequence[Measured]) -> str:
    """Return a preset's text with the measured part of its header as the results have it.

    A preset without results keeps the command that its header names.

    Raises:
        UserError: the part has no end.
    """
    lines = text.splitlines()
    runs = current(results, experiment)
    found = re.search(rf"^#   ({shlex.join(PROGRAM)} .*\bexperiment={experiment}\b.*)$", text, re.MULTILINE)
    bare = f"{shlex.join(PROGRAM)} experiment={experiment}"
    part = [FIRST, *header(runs, found[1] if found else bare), LAST]
    if FIRST not in lines:
        start = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
        return "\n".join([*lines[:start], "#", *part, *lines[start:], ""])
    if LAST not in lines:
        raise UserError(
            f"conf/experiment/{experiment}.yaml: no line {LAST!r} follows {FIRST!r}. Put it back."
        )
    return "\n".join([*lines[: lines.index(FIRST)], *part, *lines[lines.index(LAST) + 1 :], ""])


def overview(results: Sequence[Measured]) -> list[str]:
    """Return a table of all presets: their test scores, parameters and time."""
    presets = [result for result in current(results) if result.experiment]
    lines = []
    for experiment in dict.fromkeys(result.experiment for result in presets):
        runs = current(results, experiment)
        scores = [score(runs, name) for name in ("test/bleu", "test/chrf", "test/bleu_lowercased_tokenised")]
        minutes = [seconds / 60 for seconds in known(runs, "train_seconds")]
        time = f"{statistics.mean(minutes):.0f}" if minutes else "–"
        count = ", ".join(distinct(map(parameter_count, runs)))
        seeds = ", ".join(str(run.seed) for run in runs)
        lines.append([f"`{experiment}`", seeds, *scores, count, time, commits(runs)])
    heads = [
        "sacreBLEU",
        "chrF",
        "BLEU lowercased and tokenised",
        "parameters",
        "minutes of training",
        "commit",
    ]
    return [*table(["experiment", "seed", *heads], lines, 1), *unknown_line(presets)]


def score(runs: Sequence[Measured], name: str) -> str:
    """Return what a table shows of a score: the mean over runs, for an evaluation ± half its 95% interval."""
    values = [run.scores[name] for run in runs if name in run.scores]
    form = MEASURES[name.rpartition("/")[2]][1]
    shown = mean_and_deviation(values, form)
    if runs[0].evaluation and (half := runs[0].scores.get(f"{name}_confidence")) is not None:
        shown = f"{shown} ± {half:{form}}"
    # Alignment does not depend on it, and no `<unk>` is left where it is replaced.
    unmarked = name.endswith(("/aer", "_running", "_unknown_replaced"))
    marked = values and not unmarked and any(run.unknown for run in runs)
    return f"{shown} {UNKNOWN}" if marked else shown


def commits(runs: Iterable[Measured]) -> str:
    """Return the commits of runs as a table shows them."""
    return ", ".join(distinct(run.commit[:7] for run in runs))


def unknown_line(runs: Iterable[Measured]) -> list[str]:
    """Return the explanation of the mark, if one of the runs has it."""
    return (
        ["", *filled(f"{UNKNOWN} {UNKNOWN_NOTE[0].upper()}{UNKNOWN_NOTE[1:]}.")]
        if any(run.unknown for run in runs)
        else []
    )


def main_runs(results: Sequence[Measured]) -> dict[str, list[Measured]]:
    """Return the README's two runs, a list of seeds each, by their labels.

    Raises:
        UserError: one is not recorded, or they were scored over different groups of sentences.
    """
    found = {
        label: [run for run in current(results) if unseeded(run.command) == command.split()]
        for label, command in MAIN.items()
    }
    for label, runs in found.items():
        if not runs:
            raise UserError(
                f"docs/results.jsonl has no run of {label}. Run {MAIN[label]} and add its folder."
            )
    if len({groups_of(run) for runs in found.values() for run in runs}) > 1:
        raise UserError(
            f"docs/results.jsonl: the runs of {' and '.join(found)} were scored over different groups of sentences "
            f"(lengths, phenomena or their counts). Run both again at one commit and add their folders."
        )
    return found


def groups_of(run: Measured) -> str:
    """Return the groups that a run was scored over, without its scores."""
    kept = ("low", "high", "phenomenon", "count")
    return json.dumps(
        {
            name: [[group.get(key) for key in kept] for group in groups]
            for name, groups in sorted(run.groups.items())
        }
    )


def grouped(runs: Sequence[Measured], name: str, place: int, key: str, form: str) -> str:
    """Return what a table shows of the score of one group of sentences."""
    return mean_and_deviation(
        [value for run in runs if (value := run.groups[name][place][key]) is not None], form
    )


def facts(runs: Sequence[Measured]) -> list[str]:
    """Return the lines below a table of runs: seeds, machine, commit, signature, notes."""
    values = {
        "seed": distinct(str(run.seed) for run in runs),
        "machine": distinct(run.machine for run in runs),
        "commit": distinct(run.commit[:7] for run in runs),
        "BLEU": distinct(f"`{run.signatures['test/bleu']}`" for run in runs if "test/bleu" in run.signatures),
        "note": distinct(run.note or "" for run in runs),
    }
    return [
        "",
        *(
            line
            for name, texts in values.items()
            if texts
            for line in filled(f"- {name}: {'; '.join(texts)}", "  ")
        ),
    ]


def by_length(found: Mapping[str, Sequence[Measured]], name: str) -> list[list[str]]:
    """Return the rows of BLEU by source length: how many sentences, then a row for each label."""
    first = next(iter(found.values()))[0].groups[f"{name}/bleu_by_length"]
    counts = [group["count"] for group in first]
    bounds = next(iter(found.values()))[0].scores
    rows = [
        [
            f"{name}: sentences",
            f"{sum(counts):,}",
            *(f"{count:,}" for count in counts),
            aer_bounds(bounds, name),
        ]
    ]
    for label, runs in found.items():
        bleu = [grouped(runs, f"{name}/bleu_by_length", place, "bleu", ".2f") for place in range(len(first))]
        rows.append([label, score(runs, f"{name}/bleu"), *bleu, score(runs, f"{name}/aer")])
    return rows


def aer_bounds(scores: Mapping[str, float], name: str) -> str:
    """Return the AER of an oracle and of a diagonal on a test set, in words; nothing where they were not computed."""
    if f"{name}/aer_oracle" not in scores:
        return ""
    return f"oracle {scores[f'{name}/aer_oracle']:.3f}, diagonal {scores[f'{name}/aer_diagonal']:.3f}"


def lengths(groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the heads of the columns of BLEU by source length."""
    labels = [f"{group['low']}–{group['high']}" for group in groups]
    return [f"≤{groups[0]['high']}", *labels[1:-1], f">{groups[-2]['high']}"]


def grammar(results: Sequence[Measured]) -> list[str]:
    """Return the tables of the README's two runs: BLEU by source length, exact translations by phenomenon."""
    found = main_runs(results)
    splits = ("test", "test/compositional")
    runs = [run for runs in found.values() for run in runs]
    heads = ["BLEU by source words", "all", *lengths(runs[0].groups["test/bleu_by_length"]), "AER"]
    rows = [row for name in splits for row in by_length(found, name)]
    times = [
        [label, *(f"{statistics.mean(known(of, name)):.0f} s" for name in TIMES)]
        for label, of in found.items()
    ]
    shown = {
        name: {
            row["phenomenon"]: place
            for place, row in enumerate(runs[0].groups[f"{name}/accuracy_by_phenomenon"])
        }
        for name in splits
    }
    exact = [
        [phenomenon, *(cell for name in splits for cell in accuracies(found, name, shown[name][phenomenon]))]
        for phenomenon in shown["test"]
    ]
    return [
        *table(heads, rows, 1),
        "",
        *table(["", "training", "validation"], times, 1),
        "",
        *table(
            ["exact translations", *(head for name in splits for head in (f"{name}: sentences", *found))],
            exact,
            1,
        ),
        *facts(runs),
    ]


def accuracies(found: Mapping[str, Sequence[Measured]], name: str, place: int) -> list[str]:
    """Return the cells of a phenomenon on a test set: how many sentences, then the share that is exact by label."""
    name = f"{name}/accuracy_by_phenomenon"
    count = next(iter(found.values()))[0].groups[name][place]["count"]
    return [f"{count:,}", *(grouped(runs, name, place, "accuracy", ".1%") for runs in found.values())]


def readme(results: Sequence[Measured]) -> list[str]:
    """Return the README's table: what its two commands gave."""
    found = main_runs(results)
    runs = [run for runs in found.values() for run in runs]
    test, rare = (runs[0].groups[f"{name}/bleu_by_length"] for name in ("test", "test/compositional"))
    phenomena = {
        row["phenomenon"]: (place, row["count"])
        for place, row in enumerate(runs[0].groups["test/accuracy_by_phenomenon"])
    }
    every = found.values()
    rows = [
        [
            f"BLEU, {sum(group['count'] for group in test):,} test sentences",
            *(score(of, "test/bleu") for of in every),
        ],
        *(
            [
                f"… {words} words ({test[place]['count']} sentences)",
                *(grouped(of, "test/bleu_by_length", place, "bleu", ".2f") for of in every),
            ]
            for place, words in ((0, f"up to {test[0]['high']}"), (-1, f"above {test[-2]['high']}"))
        ),
        [
            f"BLEU, {sum(group['count'] for group in rare):,} sentences with combinations of words never seen together",
            *(score(of, "test/compositional/bleu") for of in every),
        ],
        *(
            [
                f"exact translations of {name}s ({phenomena[name][1]})",
                *(
                    grouped(of, "test/accuracy_by_phenomenon", phenomena[name][0], "accuracy", ".1%")
                    for of in every
                ),
            ]
            for name in ("negation", "relative clause")
        ),
        [
            f"alignment error rate (with one link per target word: {aer_bounds(runs[0].scores, 'test')})",
            *(score(of, "test/aer") for of in every),
        ],
        [
            "training, validation",
            *(", ".join(f"{statistics.mean(known(of, name)):.0f} s" for name in TIMES) for of in every),
        ],
    ]
    return [*table(["", *found], rows, 1), *facts(runs)]


def published(results: Sequence[Measured]) -> list[str]:
    """Return the table of the papers' models: perplexity and BLEU of a tutorial beside those of the presets."""
    rows = []
    for experiment, (perplexity, bleu) in PUBLISHED.items():
        runs = current(results, experiment)
        ours = [
            score(runs, f"test/{name}") for name in ("perplexity_free_running", "bleu_lowercased_tokenised")
        ]
        rows.append(
            [f"`{experiment}`", perplexity, ours[0], bleu, ours[1], *distinct(map(parameter_count, runs))]
        )
    heads = ["experiment", "perplexity, published", "here", "BLEU, published", "here", "parameters"]
    return [
        *table(heads, rows, 1),
        *unknown_line(run for name in PUBLISHED for run in current(results, name)),
    ]


def evaluations(results: Sequence[Measured]) -> list[str]:
    """Return the table of the evaluations: other searches, ensembles, unknown words replaced."""
    names = ("bleu", "bleu_lowercased_tokenised", "ter", "bleu_unknown_replaced")
    shown = [result for result in results if result.evaluation and not result.superseded]
    notes = distinct(run.note or "" for run in shown)
    marks = dict(zip(notes, NOTE_MARKS[: len(notes)], strict=True))
    lines = [
        [
            of_runs(run),
            str(run.seed),
            search_of(run),
            *(score([run], f"test/{name}") for name in names),
            f"{run.commit[:7]} {marks[run.note]}" if run.note else run.commit[:7],
        ]
        for run in shown
    ]
    heads = ["run, or ensemble", "seed", "search", *(MEASURES[name][0] for name in names), "commit"]
    return [
        *table(heads, lines, 3),
        "",
        *filled(f"- machine: {'; '.join(distinct(run.machine for run in shown))}", "  "),
        *(line for note in notes for line in ("", *filled(f"{marks[note]} {note}"))),
        *unknown_line(shown),
    ]


def choices_of(command: str) -> str:
    """Return what a command chooses, without the program, the seed, the logger and the place of the data."""
    words = shlex.split(command)[len(PROGRAM) :]
    return " ".join(word for word in words if not word.startswith(NOT_A_CHOICE))


def of_runs(run: Measured) -> str:
    """Return what the runs of a line chose, those of an ensemble with + between them."""
    return " + ".join(f"`{choices_of(command)}`" for command in (run.command, *run.others))


def search_of(run: Measured) -> str:
    """Return the settings and options of an evaluation's command, without those that a column of their own shows."""
    words = shlex.split(run.evaluation or "")[len(EVALUATE) :]
    words = [word for word in words if word not in ("--with", "RUN", "--replace-unknown")]
    return f"`{' '.join(words)}`" if words else "greedy"


def earlier(results: Sequence[Measured]) -> list[str]:
    """Return the table of the runs that another one has superseded: their validation and test scores."""
    names = ("val/bleu", "val/bleu_lowercased_tokenised", "test/bleu", "test/bleu_lowercased_tokenised")
    rows = [
        [
            of_runs(run),
            search_of(run),
            run.note or "",
            *(score([run], name) for name in names),
            run.commit[:7],
        ]
        for run in results
        if run.superseded
    ]
    heads = ["validation BLEU", "… lowercased, tokenised", "test BLEU", "… lowercased, tokenised", "commit"]
    return table(["run", "search", "what was different", *heads], rows, 3)


def tatoeba(results: Sequence[Measured]) -> list[str]:
    """Return BLEU by source length of `tatoeba_en_fr`."""
    runs = current(results, "tatoeba_en_fr")
    groups = runs[0].groups["test/bleu_by_length"]
    bleu = [grouped(runs, "test/bleu_by_length", place, "bleu", ".2f") for place in range(len(groups))]
    rows = [["BLEU", *bleu], ["sentences", *(f"{group['count']:,}" for group in groups)]]
    return table(["source words", *lengths(groups)], rows, 1)


def part(page: Path, name: str) -> Part:
    """Return the place of a generated table in a page."""
    made = f"<!-- {name}: made from docs/results.jsonl by `python -m benchmarks.results headers` -->"
    return Part(page, made, f"<!-- end of the {name} -->")


PAGE = RESULTS.with_name("results.md")
PARTS: dict[Part, Callable[[Sequence[Measured]], list[str]]] = {
    part(RESULTS.parents[1] / "README.md", "two runs"): readme,
    part(PAGE, "grammar"): grammar,
    part(PAGE, "presets"): overview,
    part(PAGE, "published"): published,
    part(PAGE, "evaluations"): evaluations,
    part(PAGE, "earlier runs"): earlier,
    part(PAGE, "lengths"): tatoeba,
}


def header(runs: Sequence[Measured], command: str) -> list[str]:
    """Return the measured part of a header: the command, and a paragraph for each machine it ran on."""
    if not runs:
        return [f"#   {command}", "#", "# Not yet measured."]
    lines = [f"#   {runs[0].command}"]
    for machine in dict.fromkeys(run.machine for run in runs):
        same = [run for run in runs if run.machine == machine]
        seeds = ", ".join(str(run.seed) for run in same)
        how = f"once, seed {seeds}"
        if len(same) > 1:
            how = f"with seeds {seeds} (n={len(same)}, mean ± standard deviation)"
        lines += ["#", *wrapped("# ", f"Measured {how}, on {machine}:")]
        for name, values in rows(same):
            for value in values:
                lines += wrapped(f"#   {name:<{LABEL}}", value)
                name = ""
    return lines


def rows(runs: Sequence[Measured]) -> list[tuple[str, list[str]]]:
    """Return (name, lines) of what is known of runs that differ in their seed."""
    splits = dict.fromkeys(name.rpartition("/")[0] for run in runs for name in run.scores)
    scored = []
    for split in sorted(splits, key=lambda split: (split == "val", split)):
        scores = [
            f"{label} {mean_and_deviation(values, form)}"
            for measure, (label, form) in MEASURES.items()
            if (values := [run.scores[name] for run in runs if (name := f"{split}/{measure}") in run.scores])
        ]
        scored.append(("validation" if split == "val" else split, [", ".join(scores)]))
    times = [
        f"{statistics.mean(values):{form}} {what}"
        for values, form, what in (
            ([seconds / 60 for seconds in known(runs, "train_seconds")], ".1f", "minutes of training"),
            ([seconds / 60 for seconds in known(runs, "validation_seconds")], ".1f", "of validation"),
            (known(runs, "target_tokens_per_second"), ",.0f", "target tokens a second"),
        )
        if values
    ]
    return [
        *scored,
        ("signatures", distinct(value for run in runs for value in run.signatures.values())),
        ("parameters", distinct(map(parameter_count, runs))),
        ("updates", distinct(f"{value:,}" for value in known(runs, "updates"))),
        ("time", [", ".join(times)] if times else []),
        ("peak memory", [f"{value / 1024:.2f} GiB" for value in sorted(known(runs, "peak_memory_mib"))[-1:]]),
        ("commit", distinct(run.commit[:7] for run in runs)),
        ("scores", [UNKNOWN_NOTE] if any(run.unknown for run in runs) else []),
    ]


def parameter_count(run: Measured) -> str:
    """Return how many parameters a run's model has, and how many are trained where that is not all."""
    if run.parameters is None:
        return ""
    trained = run.trainable_parameters
    return f"{run.parameters:,}" + (
        "" if trained in (None, run.parameters) else f", {trained:,} of them trained"
    )


def known(runs: Sequence[Measured], name: str) -> list[Any]:
    """Return an attribute of the runs that have it."""
    return [value for run in runs if (value := getattr(run, name)) is not None]


def distinct(values: Iterable[str]) -> list[str]:
    """Return the values in their order, each once, empty ones left out."""
    return [value for value in dict.fromkeys(values) if value]


def wrapped(start: str, text: str) -> list[str]:
    """Return a text as lines of a comment, the further ones indented as the first is."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=start,
        subsequent_indent="#".ljust(len(start)),
        break_long_words=False,
        break_on_hyphens=False,
    )


if __name__ == "__main__":
    main()
