"""The measured figures of the presets, docs/results.jsonl, and what shows them: headers in conf/experiment/, a page.

    python -m benchmarks.results add RUN_FOLDER --command "python -m seq2seq_lab …" --machine "2 cores of …"
    python -m benchmarks.results headers
    python -m benchmarks.results check

`add` reads a finished run into the line of its experiment and seed, `headers` rewrites the measured part of each
preset's header and the table of all of them in docs/results.md, `check` fails where one does not show what the file says.
"""

import argparse
import json
import re
import shlex
import statistics
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from benchmarks.page import Part, table
from seq2seq_lab import config as configuration
from seq2seq_lab.compose import check_job, choices, compose, composer
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import finished_result, read_json_lines, write_atomically
from seq2seq_lab.report import spread
from seq2seq_lab.run import read_record

RESULTS = Path(__file__).parents[1] / "docs" / "results.jsonl"
EXPERIMENTS = configuration.CONF_DIR / "experiment"

PART = Part(
    RESULTS.with_name("results.md"),
    first="<!-- presets: made from docs/results.jsonl by `python -m benchmarks.results headers` -->",
    last="<!-- end of the presets -->",
)

PROGRAM = ["python", "-m", "seq2seq_lab"]
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
}
PLACEHOLDER = re.compile(r"[A-Z]+")  # of a path in a command: DIR, FILE
OWN_PATH = re.compile(r"(^|[=\[{,:'\"])(/|~|\.\.?/)")


@dataclass(frozen=True)
class Measured:
    """One run of a preset, a line of the file; what is not known of it is None.

    Attributes:
        command: as a user types it, with DIR or FILE in place of a path.
        commit: of the package when the run began.
        settings: every setting of the run by its dotted key, but for where it was logged and cached; what stands for a
            path as the command has it. A preset that has been changed since does not give them any more.
        machine: in words: cores, kind of processor, torch's version, precision.
        scores: by their names in `result.json`, as "test/bleu".
        signatures: of the scores that have one, by the same names.
        target_tokens_per_second: in training, the warm-up left out.
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.results", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="action", required=True)
    adding = commands.add_parser("add", help="read a finished run into docs/results.jsonl")
    adding.add_argument("folder", type=Path, help="the run folder")
    adding.add_argument("--command", required=True, help="as a user types it, DIR or FILE in place of a path")
    adding.add_argument("--machine", required=True, help="in words: cores, processor, torch, precision")
    adding.add_argument("--commit", help="of the code, where run.json names none or the tree was changed")
    commands.add_parser(
        "headers", help="rewrite the headers in conf/experiment/ and the table in docs/results.md"
    )
    commands.add_parser("check", help="fail if one does not show what docs/results.jsonl says")
    options = parser.parse_args(arguments)
    try:
        if options.action == "add":
            new = measured(options.folder, options.command, options.machine, options.commit)
            write_results(RESULTS, with_line(read_results(RESULTS), new))
            print(
                f"{RESULTS.name}: {new.experiment}, seed {new.seed}. Now: python -m benchmarks.results headers"
            )
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
    """Return the lines by experiment and seed, `new` in place of the one it repeats.

    Raises:
        UserError: other lines of the experiment are of another command; a mean over them would say nothing.
    """
    key = (new.experiment, new.seed)
    others = [result for result in results if (result.experiment, result.seed) != key]
    for other in others:
        if other.experiment == new.experiment and unseeded(other.command) != unseeded(new.command):
            raise UserError(
                f"--command={new.command!r}: seed {other.seed} of {new.experiment} was {other.command!r}. The lines "
                f"of a preset differ in their seed alone: take the old ones out, or name a preset of its own."
            )
    return sorted([*others, new], key=lambda result: (result.experiment, result.seed))


def measured(folder: Path, command: str, machine: str, commit: str | None) -> Measured:
    """Return the line of a run.

    Raises:
        UserError: the run has not finished, was a trial, is no preset's or of no known commit, or the command
            does not give it.
    """
    result = finished_result(folder)
    if result is None:
        raise UserError(
            f"{folder}: no run has finished there. Give the folder of one, or resume={folder} first."
        )
    record = read_record(folder)
    node = OmegaConf.load(folder / "config.yaml")
    assert isinstance(node, DictConfig)
    config = configuration.plain(node)
    if config["trainer"]["fast_dev_run"]:
        raise UserError(f"{folder}: a run with trainer.fast_dev_run=true measures nothing. Run it whole.")
    experiment = record["choices"]["experiment"]
    if not (EXPERIMENTS / f"{experiment}.yaml").is_file():
        raise UserError(
            f"{folder}: experiment={experiment} is no preset. Allowed: "
            f"{', '.join(configuration.group_values('experiment'))}."
        )
    had = recorded_settings(command, config)
    check_command(command, experiment, had)
    scores = {
        name: round(value, 4)
        for name, value in result.items()
        if name.startswith(("test/", "val/")) and name != "val/seconds" and isinstance(value, float)
    }
    suffix = "_signature"
    return Measured(
        experiment=experiment,
        command=command,
        commit=commit_of(folder, record, commit),
        seed=config["seed"],
        settings=had,
        machine=machine,
        parameters=result["num_parameters"],
        trainable_parameters=result.get("num_trainable_parameters"),
        scores=scores,
        signatures={
            name.removesuffix(suffix): value for name, value in result.items() if name.endswith(suffix)
        },
        updates=result["updates"],
        train_seconds=result["train/seconds"],
        validation_seconds=result["val/seconds"],
        target_tokens_per_second=result["train/target_tokens_per_second"],
        peak_memory_mib=result["peak_memory_mib"],
    )


def commit_of(folder: Path, record: Mapping[str, Any], given: str | None) -> str:
    """Return the commit of a run's code: the recorded one, or the one given where that is not enough.

    Raises:
        UserError: neither says it, or they disagree.
    """
    recorded = record.get("commit")
    if recorded is not None and not record["dirty"]:
        if given is not None and not recorded.startswith(given):
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
    said = dict(settings(composed(command)[0]))
    return {
        key: said[key] if stands_for_a_path(said.get(key)) else value
        for key, value in settings(config)
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
        raise UserError(f"--command={command!r}: the run is one of experiment={experiment}.")
    for key, value in settings(said):
        if key in had and value != had[key]:
            raise UserError(
                f"--command={command!r} gives {key}={value}, and the run had {had[key]}. Give the command it was "
                f"started with."
            )


def settings(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every dotted key of a plain configuration that is no section, with its value."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from settings(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


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
    """Return the words of a command without its seed."""
    return [word for word in shlex.split(command) if not word.startswith("seed=")]


def outdated(folder: Path, results: Sequence[Measured]) -> dict[Path, str]:
    """Return the presets, and the page, that do not show the results, with the text they should have."""
    texts = {path: path.read_text("utf-8") for path in [*sorted(folder.glob("*.yaml")), PART.page]}
    wanted = {
        path: PART.replaced(text, overview(results))
        if path == PART.page
        else with_header(text, path.stem, results)
        for path, text in texts.items()
    }
    return {path: text for path, text in wanted.items() if text != texts[path]}


def with_header(text: str, experiment: str, results: Sequence[Measured]) -> str:
    """Return a preset's text with the measured part of its header as the results have it.

    A preset without results keeps the command that its header names.

    Raises:
        UserError: the part has no end.
    """
    lines = text.splitlines()
    runs = [result for result in results if result.experiment == experiment]
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
    measures = {f"test/{name}": MEASURES[name] for name in ("bleu", "chrf", "bleu_lowercased_tokenised")}
    lines = []
    for experiment in dict.fromkeys(result.experiment for result in results):
        runs = [result for result in results if result.experiment == experiment]
        scores = [
            spread([run.scores[name] for run in runs if name in run.scores], form)
            for name, (_, form) in measures.items()
        ]
        minutes = [seconds / 60 for seconds in known(runs, "train_seconds")]
        time = f"{statistics.mean(minutes):.0f}" if minutes else "–"
        lines.append([f"`{experiment}`", *scores, ", ".join(distinct(map(parameter_count, runs))), time])
    heads = ["experiment", *(label for label, _ in measures.values()), "parameters", "minutes of training"]
    return table(heads, lines, 1)


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
            f"{label} {spread(values, form)}"
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
