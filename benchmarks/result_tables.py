"""The tables of docs/results.md and README.md, which `python -m benchmarks.results tables` generates."""

import shlex
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.page import filled, table, update
from benchmarks.results import EVALUATE, PROGRAM, RESULTS, Line, current, read_lines, unseeded
from seq2seq_lab.errors import UserError
from seq2seq_lab.runtime.console import mean_and_deviation

README_RUNS = {  # the rows of the README's table
    "`model=attn attention=additive`": "python -m seq2seq_lab model=attn attention=additive",
    "`model=vanilla`": "python -m seq2seq_lab model=vanilla",
}
SWEEPS: dict[
    str, tuple[str, ...]
] = {  # the settings that all runs of a table of decoders and attention functions have
    "grammar sweep": ("trainer.max_epochs=5",),
    "multi30k sweep": ("dataset=multi30k", "trainer.max_epochs=5"),
}
PUBLISHED = {  # free-running perplexity, and BLEU of lowercased spaCy tokens
    "sutskever2014": ("43.8", "13.8"),
    "cho2014": ("37.5", "20.6"),
    "bahdanau2015": ("25.6", "28.3"),
}
SCORES = {
    "bleu": ("sacreBLEU", ".2f"),
    "chrf": ("chrF", ".2f"),
    "bleu_lowercased_tokenised": ("BLEU lowercased and tokenised", ".2f"),
    "ter": ("TER", ".2f"),
    "perplexity_teacher_forced": ("teacher-forced perplexity", ".2f"),
    "perplexity_free_running": ("free-running perplexity", ".2f"),
    "aer": ("AER", ".3f"),
    "bleu_unknown_replaced": ("sacreBLEU, unknown words replaced", ".2f"),
}
TESTS = ("test", "test/compositional")  # of the grammar
NOT_SHOWN = ("seed=", "logger=", "dataset.path=")  # words of a command that a label leaves out
UNKNOWN = "‡"  # marks a score that counts `<unk>` as three tokens
UNKNOWN_NOTE = (
    "Scored with `<unk>` as three tokens, about 0.2 BLEU too low. The translations no longer exist, so it cannot be "
    "corrected."
)
MARKS = "¹²³⁴⁵⁶⁷⁸⁹"


def main() -> None:
    """Write the tables into the pages."""
    update(pages(read_lines(RESULTS)))


def pages(lines: Sequence[Line]) -> dict[Path, dict[str, list[str]]]:
    """Return the generated parts of each page by name."""
    return {
        RESULTS.with_name("results.md"): {
            "two runs": two_runs(lines),
            "phenomena": phenomena(lines),
            **{name: sweep(lines, name) for name in SWEEPS},
            "experiments": experiments(lines),
            "cost of the experiments": costs(lines),
            "published": published(lines),
            "evaluations": evaluations(lines),
            "earlier runs": earlier(lines),
            "lengths": by_length(lines),
        },
        RESULTS.parents[1] / "README.md": {"two runs": two_runs(lines)},
    }


def score(runs: Sequence[Line], name: str) -> str:
    """Format a score: the mean over runs, and for an evaluation ± half of its 95% interval."""
    values = [run.scores[name] for run in runs if name in run.scores]
    form = SCORES[name.rpartition("/")[2]][1]
    shown = mean_and_deviation(values, form)
    if runs[0].evaluation and (half := runs[0].scores.get(f"{name}_confidence")) is not None:
        shown = f"{shown} ± {half:{form}}"
    # `<unk>` does not count in alignments and perplexities, and replaced unknown words are no longer `<unk>`.
    marked = values and not name.endswith(("/aer", "_running", "_forced", "_replaced"))
    return f"{shown} {UNKNOWN}" if marked and any(run.unknown for run in runs) else shown


def mean(values: Iterable[float | None], form: str) -> str:
    """Format the mean of the values that are known."""
    known = [value for value in values if value is not None]
    return f"{statistics.mean(known):{form}}" if known else "–"


def parameters(run: Line) -> str:
    """Format the number of parameters, and the number of trained ones if it differs."""
    if run.parameters is None or run.trainable_parameters in (None, run.parameters):
        return "–" if run.parameters is None else f"{run.parameters:,}"
    return f"{run.parameters:,}, {run.trainable_parameters:,} of them trained"


def label(run: Line) -> str:
    """Return the choices of a run, or of the runs of an ensemble."""

    def choices(command: str) -> str:
        words = shlex.split(command)[len(PROGRAM) :]
        return f"`{' '.join(word for word in words if not word.startswith(NOT_SHOWN))}`"

    return " + ".join(map(choices, (run.command, *run.others)))


def distinct(values: Iterable[str]) -> list[str]:
    """Return the values in their order, each once, without empty ones."""
    return [value for value in dict.fromkeys(values) if value]


def facts(runs: Sequence[Line], *scores: str, without_machine: bool = False) -> list[str]:
    """Return the lines below a table: machine, signatures, notes."""
    signatures = {
        SCORES[name.rpartition("/")[2]][0]: distinct(
            f"`{run.signatures[name]}`" for run in runs if name in run.signatures
        )
        for name in scores
    }
    machines = {} if without_machine else {"machine": distinct(run.machine for run in runs)}
    values = {**machines, **signatures}
    lines = [
        line
        for name, texts in values.items()
        if texts
        for line in filled(f"- {name}: {'; '.join(texts)}", "  ")
    ]
    unknown = ["", *filled(f"{UNKNOWN} {UNKNOWN_NOTE}")] if any(run.unknown for run in runs) else []
    return ["", *lines, *unknown]


def by_experiment(lines: Sequence[Line]) -> dict[str, list[Line]]:
    """Return the runs of each experiment."""
    names = distinct(line.experiment or "" for line in current(lines))
    return {name: current(lines, name) for name in names}


def experiments(lines: Sequence[Line]) -> list[str]:
    """Return the test scores of every experiment, and validation BLEU."""
    names = [
        *("test/bleu", "test/chrf", "test/bleu_lowercased_tokenised", "test/ter"),
        *("test/perplexity_teacher_forced", "test/perplexity_free_running"),
        *("val/bleu", "val/bleu_lowercased_tokenised"),
    ]
    heads = [SCORES[name.rpartition("/")[2]][0] for name in names[:-2]]
    rows = [
        [f"`{name}`", ", ".join(str(run.seed) for run in runs), *(score(runs, measure) for measure in names)]
        for name, runs in by_experiment(lines).items()
    ]
    every = [run for runs in by_experiment(lines).values() for run in runs]
    shown = table(
        ["experiment", "seed", *heads, "validation: sacreBLEU", "… lowercased and tokenised"], rows, 1
    )
    return [*shown, *facts(every, *names[:4], without_machine=True)]


def costs(lines: Sequence[Line]) -> list[str]:
    """Return size, time and memory of every experiment, with the command and the machine."""
    found = by_experiment(lines)
    machines = distinct(run.machine for runs in found.values() for run in runs)
    marks = dict(zip(machines, MARKS[: len(machines)], strict=True))
    rows = []
    for runs in found.values():
        minutes = [None if run.train_seconds is None else run.train_seconds / 60 for run in runs]
        memory = [None if run.peak_memory_mib is None else run.peak_memory_mib / 1024 for run in runs]
        rows.append(
            [
                f"`{' '.join(unseeded(runs[0].command)[3:])}`",
                " ".join(distinct(map(parameters, runs))),
                mean((run.steps for run in runs), ",.0f"),
                mean(minutes, ".1f"),
                mean((run.target_tokens_per_second for run in runs), ",.0f"),
                mean(memory, ".2f"),
                " ".join(distinct(f"{run.commit[:7]} {marks[run.machine]}" for run in runs)),
            ]
        )
    heads = [
        "settings",
        *("parameters", "steps", "training, min", "target tokens/s", "peak memory, GiB", "commit"),
    ]
    notes = (line for machine in machines for line in filled(f"- {marks[machine]} {machine}", "  "))
    return [*table(heads, rows, 1), "", *notes]


def sweep(lines: Sequence[Line], name: str) -> list[str]:
    """Return the means over seeds of the runs that have the settings of a sweep, and differ in model and attention."""
    common = SWEEPS[name]
    runs = [
        run
        for run in current(lines)
        if {
            word
            for word in unseeded(run.command)[3:]
            if word.split("=")[0] in ("dataset", "trainer.max_epochs")
        }
        == {*common}
    ]
    measures = [
        *("test/bleu", "test/compositional/bleu", "test/bleu_lowercased_tokenised", "test/aer"),
    ]
    measures = [measure for measure in measures if any(measure in run.scores for run in runs)]
    groups: dict[str, list[Line]] = {}
    for run in runs:
        key = " ".join(word for word in label(run).strip("`").split() if word not in common)
        groups.setdefault(f"`{key}`", []).append(run)
    heads = ["settings", "seeds", *(column(measure) for measure in measures), "parameters"]
    timed = any(run.target_tokens_per_second for run in runs)
    rows = [
        [
            key,
            str(len(same)),
            *(score(same, measure) for measure in measures),
            *distinct(map(parameters, same)),
            *([mean((run.target_tokens_per_second for run in same), ",.0f")] if timed else []),
            ", ".join(distinct(run.commit[:7] for run in same)),
        ]
        for key, same in groups.items()
    ]
    bounds = distinct(aer_bounds(run, "test") for run in runs)
    shown = table([*heads, *(["target tokens/s"] if timed else []), "commit"], rows, 1)
    return [*shown, *facts(runs, *measures), *(f"- AER on this test set: {text}" for text in bounds)]


def column(measure: str) -> str:
    """Return the head of a score's column."""
    split, _, name = measure.rpartition("/")
    return ("compositional " if split == "test/compositional" else "") + SCORES[name][0]


def published(lines: Sequence[Line]) -> list[str]:
    """Return perplexity and BLEU of the models of papers beside those of a tutorial."""
    rows = []
    for name, (perplexity, bleu) in PUBLISHED.items():
        runs = current(lines, name)
        ours = [
            score(runs, f"test/{measure}")
            for measure in ("perplexity_free_running", "bleu_lowercased_tokenised")
        ]
        rows.append([f"`{name}`", perplexity, ours[0], bleu, ours[1], parameters(runs[0])])
    heads = ["experiment", "perplexity, published", "here", "BLEU, published", "here", "parameters"]
    return table(heads, rows, 1)


def search(run: Line) -> str:
    """Return the settings of an evaluation's search."""
    words = shlex.split(run.evaluation or "")[len(EVALUATE) :]
    words = [word for word in words if word not in ("--ensemble", "RUN", "--replace-unknown")]
    return f"`{' '.join(words)}`" if words else "greedy"


def evaluations(lines: Sequence[Line]) -> list[str]:
    """Return the scores of other searches, of ensembles, and with unknown words replaced."""
    names = ("bleu", "bleu_lowercased_tokenised", "ter", "bleu_unknown_replaced")
    runs = [line for line in lines if line.evaluation and not line.superseded]
    notes = distinct(run.note or "" for run in runs)
    marks = {**dict(zip(notes, MARKS[: len(notes)], strict=True)), None: ""}
    rows = [
        [
            label(run),
            str(run.seed),
            search(run),
            *(score([run], f"test/{name}") for name in names),
            f"{run.commit[:7]} {marks[run.note]}".strip(),
        ]
        for run in runs
    ]
    heads = ["run, or ensemble", "seed", "search", *(SCORES[name][0] for name in names), "commit"]
    below = (line for note in notes for line in ("", *filled(f"{marks[note]} {note}")))
    return [*table(heads, rows, 3), *facts(runs, *(f"test/{name}" for name in names)), *below]


def earlier(lines: Sequence[Line]) -> list[str]:
    """Return the validation and test scores of the lines that newer ones have superseded."""
    names = ("val/bleu", "val/bleu_lowercased_tokenised", "test/bleu", "test/bleu_lowercased_tokenised")
    rows = [
        [label(run), search(run), run.note or "", *(score([run], name) for name in names), run.commit[:7]]
        for run in lines
        if run.superseded
    ]
    heads = ["validation BLEU", "… lowercased, tokenised", "test BLEU", "… lowercased, tokenised", "commit"]
    return table(["run", "search", "what was different", *heads], rows, 3)


def readme_runs(lines: Sequence[Line]) -> dict[str, Line]:
    """Return the README's two runs by their labels.

    Raises:
        UserError: one is not recorded, or their test sets differ.
    """
    found: dict[str, Line] = {}
    for name, command in README_RUNS.items():
        same = [run for run in current(lines) if unseeded(run.command) == command.split()]
        if len(same) != 1:
            raise UserError(
                f"docs/results.jsonl has {len(same)} runs of {command!r}, not 1. Run it and add its folder."
            )
        found[name] = same[0]
    one, other = (
        {name: [(group["group"], group["count"]) for group in groups] for name, groups in run.groups.items()}
        for run in found.values()
    )
    if one != other:
        raise UserError(
            f"docs/results.jsonl: the runs of {' and '.join(found)} have different groups of test sentences. Run both at "
            f"one commit and add their folders."
        )
    return found


def grouped(run: Line, name: str, form: str = ".2f") -> dict[str, str]:
    """Format the values of a score by group of sentences."""
    return {group["group"]: mean([group["value"]], form) for group in run.groups[name]}


def counts(run: Line, name: str) -> dict[str, int]:
    """Return the number of sentences of each group."""
    return {group["group"]: group["count"] for group in run.groups[name]}


def aer_bounds(run: Line, split: str) -> str:
    """Return the AER of the best alignment with one link per word and of the diagonal, if they are recorded."""
    if f"{split}/aer_oracle" not in run.scores:
        return ""
    return (
        f"oracle {run.scores[f'{split}/aer_oracle']:.3f}, diagonal {run.scores[f'{split}/aer_diagonal']:.3f}"
    )


def two_runs(lines: Sequence[Line]) -> list[str]:
    """Return BLEU by source length, and AER, of the README's two runs."""
    found = readme_runs(lines)
    first = next(iter(found.values()))
    rows = []
    for split in TESTS:
        sizes = counts(first, f"{split}/bleu_by_length")
        numbers = [f"{sum(sizes.values()):,}", *(f"{size:,}" for size in sizes.values())]
        rows.append([f"{split}: sentences", *numbers, aer_bounds(first, split)])
        for name, run in found.items():
            values = grouped(run, f"{split}/bleu_by_length").values()
            rows.append([name, score([run], f"{split}/bleu"), *values, score([run], f"{split}/aer")])
    heads = ["BLEU by source words", "all", *counts(first, "test/bleu_by_length"), "AER"]
    times = "; ".join(
        f"{name} {run.train_seconds:.0f} s of training and {run.validation_seconds:.0f} s of validation"
        for name, run in found.items()
    )
    commits = ", ".join(distinct(run.commit[:7] for run in found.values()))
    seeds = ", ".join(distinct(str(run.seed) for run in found.values()))
    more = [*filled(f"- time: {times}", "  "), f"- seed {seeds}, commit {commits}"]
    return [*table(heads, rows, 1), *facts([*found.values()], "test/bleu"), *more]


def phenomena(lines: Sequence[Line]) -> list[str]:
    """Return the share of exact translations by phenomenon of the README's two runs."""
    found = readme_runs(lines)
    heads, columns = ["exact translations"], []
    for split in TESTS:
        key = f"{split}/accuracy_by_phenomenon"
        heads += [f"{split}: sentences", *found]
        columns.append({name: f"{size:,}" for name, size in counts(next(iter(found.values())), key).items()})
        columns += [grouped(run, key, ".1%") for run in found.values()]
    return table(heads, [[name, *(column[name] for column in columns)] for name in columns[0]], 1)


def by_length(lines: Sequence[Line]) -> list[str]:
    """Return BLEU by source length of `tatoeba_en_fr`."""
    (run,) = current(lines, "tatoeba_en_fr")
    sizes = counts(run, "test/bleu_by_length")
    rows = [
        ["BLEU", *grouped(run, "test/bleu_by_length").values()],
        ["sentences", *(f"{size:,}" for size in sizes.values())],
    ]
    return table(["source words", *sizes], rows, 1)
