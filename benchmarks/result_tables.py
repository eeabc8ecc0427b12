"""The tables of recorded results in the docs, which `python -m benchmarks.results tables` generates."""

import shlex
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

from benchmarks import planned
from benchmarks.page import filled, table, update
from benchmarks.results import (
    EVALUATE,
    PROGRAM,
    RESULTS,
    Line,
    current,
    read_lines,
    read_statistics,
    unseeded,
)
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.registry import BUILT_IN
from seq2seq_lab.metrics.significance import LEAST_TESTED, compare_means, holm
from seq2seq_lab.reporting.comparison import p_text
from seq2seq_lab.reporting.score_tables import CLUSTERS
from seq2seq_lab.runtime.console import mean_and_deviation, with_spread

Cell = Callable[[Sequence[Line]], str]

README_RUNS = {  # the rows of the README's table
    "`model=attn attention=additive`": "python -m seq2seq_lab model=attn attention=additive",
    "`model=vanilla`": "python -m seq2seq_lab model=vanilla",
}
# Data and number of epochs of each table of decoders and attention functions.
SWEEPS: dict[str, tuple[str, ...]] = {
    "grammar sweep": (),
    "former grammar sweep": ("trainer.max_epochs=5",),
    "multi30k sweep": ("dataset=multi30k", "trainer.max_epochs=6"),
    "former multi30k sweep": ("dataset=multi30k", "trainer.max_epochs=5"),
}
RECURRENT = (  # the rows beside those of Transformers
    "python -m seq2seq_lab model=attn attention=additive",
    "python -m seq2seq_lab experiment=multi30k_de_en dataset.path=DIR",
)
PUBLISHED = {  # free-running perplexity, and BLEU of lowercased spaCy tokens
    "sutskever2014": ("43.8", "13.8"),
    "cho2014": ("37.5", "20.6"),
    "bahdanau2015": ("25.6", "28.3"),
}
SCORES = {
    "bleu": ("sacreBLEU", ".2f"),
    "chrf": ("chrF", ".2f"),
    "bleu_lowercased_tokenised": ("BLEU of lowercased tokens", ".2f"),
    "ter": ("TER", ".2f"),
    "perplexity_teacher_forced": ("teacher-forced perplexity", ".2f"),
    "perplexity_free_running": ("free-running perplexity", ".2f"),
    "aer": ("AER", ".3f"),
    "bleu_unknown_replaced": ("sacreBLEU, unknown words replaced", ".2f"),
}
SPLITS = {"val": "validation ", "test": "", "test/compositional": "compositional "}
TESTS = ("test", "test/compositional")  # of the grammar
NOT_SHOWN = ("seed=", "logger=", "dataset.path=")  # words of a command that a label leaves out
UNKNOWN = "‡"  # marks a score that counts `<unk>` as three tokens
# The column of BLEU's statistics per sentence; with one reference the same for all systems.
REFERENCE_LENGTH = 1
INTERVAL = "95% CI"  # what follows "±" in the tables of single evaluations
MARKS = "¹²³⁴⁵⁶⁷⁸⁹"


def main() -> None:
    """Write the tables into the pages."""
    update(pages(read_lines(RESULTS)))


def pages(lines: Sequence[Line]) -> dict[Path, dict[str, list[str]]]:
    """Return the generated parts of each page by name."""
    sweeps = {name: sweep(lines, name) for name in SWEEPS}
    former = {name: part for name, part in sweeps.items() if name.startswith("former ")}
    root = RESULTS.parents[1]
    return {
        RESULTS.with_name("results.md"): {
            "two runs": two_runs(lines),
            "phenomena": phenomena(lines),
            **{name: part for name, part in sweeps.items() if name not in former},
            "experiments": experiments(lines),
            "cost of the experiments": costs(lines),
            "published": published(lines),
            "recurrent and transformer": transformers(lines),
            "evaluations": evaluations(lines),
            "lengths": by_length(lines),
            "similarity": by_similarity(lines),
        },
        RESULTS.with_name("results_history.md"): {**former, "earlier runs": earlier(lines)},
        root / "CONTRIBUTING.md": {"planned runs": planned.summary(lines)},
        root / "README.md": {"two runs": two_runs(lines)},
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


def score_columns(*names: str) -> dict[str, Cell]:
    """Return the columns of scores."""
    parts = {name: name.rpartition("/") for name in names}
    return {
        f"{SPLITS[split]}{SCORES[last][0]}": partial(score, name=name)
        for name, (split, _, last) in parts.items()
    }


def mean_column(name: str, form: str, unit: float = 1) -> Cell:
    """Return a column of means of a field of `Line`."""

    def cell(runs: Sequence[Line]) -> str:
        known = [value / unit for run in runs if (value := getattr(run, name)) is not None]
        return f"{statistics.mean(known):{form}}" if known else "–"

    return cell


def distinct(values: Iterable[str]) -> list[str]:
    """Return the values in their order, each once, without empty ones."""
    return [value for value in dict.fromkeys(values) if value]


def parameters(runs: Sequence[Line]) -> str:
    """Format the number of parameters, and the number of trained ones if it differs."""
    run = runs[0]
    if run.parameters is None:
        return "–"
    differs = run.trainable_parameters not in (None, run.parameters)
    return f"{run.parameters:,}" + (f", {run.trainable_parameters:,} of them trained" if differs else "")


def commits(runs: Sequence[Line]) -> str:
    """Format the commits of runs."""
    return ", ".join(distinct(run.commit[:7] for run in runs))


def label(runs: Sequence[Line]) -> str:
    """Return what a run chooses, or the runs of an ensemble."""
    words = (shlex.split(command)[len(PROGRAM) :] for command in (runs[0].command, *runs[0].others))
    return " + ".join(
        f"`{' '.join(word for word in choices if not word.startswith(NOT_SHOWN))}`" for choices in words
    )


def rows_of(
    groups: Iterable[Sequence[Line]], columns: Mapping[str, Cell], names: int = 1, spread: str = "std"
) -> list[str]:
    """Return a table with a row for each group of runs.

    Args:
        spread: the word in the heads of columns for what follows "±".
    """
    rows = [[cell(runs) for cell in columns.values()] for runs in groups]
    heads = [with_spread(head, spread, [row[i] for row in rows]) for i, head in enumerate(columns)]
    return table(heads, rows, names)


def facts(runs: Sequence[Line], *scores: str, machine: bool = True) -> list[str]:
    """Return the lines below a table: machine and signatures."""
    values = {"machine": distinct(run.machine for run in runs if machine)}
    for name in scores:
        found = distinct(f"`{run.signatures[name]}`" for run in runs if name in run.signatures)
        values[SCORES[name.rpartition("/")[2]][0]] = found
    lines = [
        line
        for name, texts in values.items()
        if texts
        for line in filled(f"- {name}: {'; '.join(texts)}", "  ")
    ]
    return ["", *lines]


def by_experiment(lines: Sequence[Line]) -> list[list[Line]]:
    """Return the runs of each experiment."""
    return [current(lines, name) for name in distinct(line.experiment or "" for line in current(lines))]


def experiments(lines: Sequence[Line]) -> list[str]:
    """Return the test scores of every experiment, and validation BLEU."""
    names = [f"test/{name}" for name in [*SCORES][:6]]
    runs = by_experiment(lines)
    columns: dict[str, Cell] = {
        "experiment": lambda runs: f"`{runs[0].experiment}`",
        "seed": lambda runs: ", ".join(str(run.seed) for run in runs),
        **score_columns(*names[:3]),
        "the same, `search=beam`": lambda runs: score_of_beams(lines, runs, names[2]),
        **score_columns(*names[3:], "val/bleu", "val/bleu_lowercased_tokenised"),
    }
    return [*rows_of(runs, columns), *facts([*chain(*runs)], *names[:4], machine=False)]


def costs(lines: Sequence[Line]) -> list[str]:
    """Return size, time and memory of every experiment, with the command and the machine."""
    runs = by_experiment(lines)
    machines = distinct(run.machine for same in runs for run in same)
    marks = dict(zip(machines, MARKS[: len(machines)], strict=True))
    columns: dict[str, Cell] = {
        "settings": lambda runs: f"`{' '.join(unseeded(runs[0].command)[3:])}`",
        "parameters": parameters,
        "steps": mean_column("steps", ",.0f"),
        "training beside other jobs, min": mean_column("train_seconds", ".1f", 60),
        "peak memory, GiB": mean_column("peak_memory_mib", ".2f", 1024),
        "commit": lambda runs: f"{commits(runs)} {' '.join(distinct(marks[run.machine] for run in runs))}",
    }
    notes = (line for machine in machines for line in filled(f"- {marks[machine]} {machine}", "  "))
    return [*rows_of(runs, columns), "", *notes]


def sweep(lines: Sequence[Line], name: str) -> list[str]:
    """Return the means over seeds of the runs with the data and epochs of a sweep, for each model and attention."""
    groups: dict[str, list[Line]] = {}
    for run in current(lines):
        if run.experiment:
            continue
        words = unseeded(run.command)[3:]
        common = {word for word in words if word.startswith(("dataset=", "trainer.max_epochs="))}
        if common == {*SWEEPS[name]}:
            own = (word for word in words if word not in common and not word.startswith(NOT_SHOWN))
            groups.setdefault(f"`{' '.join(own)}`", []).append(run)
    runs = [*chain(*groups.values())]
    names = ("test/bleu", "test/compositional/bleu", "test/bleu_lowercased_tokenised", "test/aer")
    measured = [name for name in names if any(name in run.scores for run in runs)]
    p_values = compare_with_best([*groups.values()], "bleu")
    tested: dict[str, Cell] = {"p, seeds": lambda same: p_values[id(same)]} if len(p_values) > 1 else {}
    columns: dict[str, Cell] = {
        "settings": lambda same: next(key for key, runs in groups.items() if runs is same),
        "seeds": lambda same: str(len(same)),
        **score_columns(*measured),
        **tested,
        "parameters": parameters,
        "commit": commits,
    }
    bounds = distinct(aer_bounds(run, "test") for run in runs)
    below = [f"- AER on this test set: {text}" for text in bounds]
    if tested:
        below += filled(
            f"- p, seeds: p-value of the sacreBLEU difference from the best row with statistics per sentence of "
            f"{LEAST_TESTED} or more runs (over seeds and test sentences, Holm-corrected for all "
            "pairs of such rows). A large p-value does not show that two rows are equal.",
            "  ",
        )
    return [*rows_of(groups.values(), columns), *facts(runs, *measured), *below]


def compare_with_best(groups: Sequence[Sequence[Line]], metric: str) -> defaultdict[int, str]:
    """Return the p-value of each group's difference from the best one as text, by the identity of the list.

    Groups are tested if they have `LEAST_TESTED` or more runs with statistics per sentence.

    Raises:
        UserError: the runs have different test sentences (the lengths of their references differ).
    """
    key = f"test/{metric}"
    texts: defaultdict[int, str] = defaultdict(lambda: "–")
    tested = [same for same in groups if len(same) >= LEAST_TESTED and all(run.statistics for run in same)]
    if len(tested) < 2:
        return texts
    tested.sort(key=lambda same: -statistics.mean(run.scores[key] for run in same))
    rows = [[read_statistics(run) for run in same] for same in tested]
    lengths = [one["test/bleu"][:, REFERENCE_LENGTH] for one in chain(*rows)]
    for run, own in zip(chain(*tested), lengths, strict=True):
        if not np.array_equal(own, lengths[0]):
            raise UserError(
                f"{run.command}: its test sentences differ from those of {tested[0][0].command}, so they cannot be compared "
                "sentence by sentence. Run both at one commit, or give the data its own table in SWEEPS."
            )
    clusters = rows[0][0][f"test/{CLUSTERS}"].astype(int)
    statistics_of = [[one[key].astype(float) for one in group] for group in rows]
    # The pairs with the best group come first.
    found = holm(compare_means(BUILT_IN[metric].values, statistics_of, clusters).p_values().tolist())
    texts |= {id(same): p_text(p) for same, p in zip(tested[1:], found[: len(tested) - 1], strict=True)} | {
        id(tested[0]): "best"
    }
    return texts


def interval(run: Line | None, name: str = "test/bleu") -> str:
    """Format a score with half of its interval."""
    if run is None or name not in run.scores:
        return "–"
    return f"{run.scores[name]:.2f} ± {run.scores[f'{name}_confidence']:.2f}"


def transformers(lines: Sequence[Line]) -> list[str]:
    """Return the scores of Transformers beside those of recurrent models, as means over the seeds."""
    groups: dict[str, list[Line]] = {}
    for run in current(lines):
        command = shlex.join(unseeded(run.command))
        transformer = str(run.settings.get("model.name")).startswith("transformer")
        # Lowercased text has no mixed-case scores.
        if command in RECURRENT or (transformer and not run.settings.get("tokenizer.lowercase")):
            groups.setdefault(command, []).append(run)
    columns: dict[str, Cell] = {
        "settings": label,
        "seeds": lambda runs: str(len(runs)),
        "parameters": parameters,
        "sacreBLEU, greedy": partial(score, name="test/bleu"),
        "`search=beam`": lambda runs: score_of_beams(lines, runs, "test/bleu"),
        "compositional, greedy": partial(score, name="test/compositional/bleu"),
        "AER": partial(score, name="test/aer"),
        "commit": commits,
    }

    def order(runs: Sequence[Line]) -> tuple[bool, int]:
        run = runs[0]
        return "dataset" in run.command or run.experiment is not None, -(run.parameters or 0)

    runs = [*chain(*groups.values())]
    return [*rows_of(sorted(groups.values(), key=order), columns), *facts(runs, "test/bleu")]


def score_of_beams(lines: Sequence[Line], runs: Sequence[Line], name: str) -> str:
    """Format a score of the evaluations of runs with the default beam search: the mean and deviation over the seeds."""
    values = [line.scores[name] for line in beams(lines, runs) if name in line.scores]
    return mean_and_deviation(values, SCORES[name.rpartition("/")[2]][1])


def beams(lines: Sequence[Line], runs: Sequence[Line]) -> list[Line]:
    """Return the evaluations of runs with the default beam search."""
    commands = [run.command for run in runs]
    return [line for line in lines if is_beam(line) and line.command in commands]


def is_beam(line: Line) -> bool:
    """Return whether a line is the evaluation of one run with the default beam search."""
    ending = (line.evaluation or "").endswith(" search=beam")
    return ending and not line.others and not line.superseded


def published(lines: Sequence[Line]) -> list[str]:
    """Return perplexity and BLEU of the models of papers beside those of a tutorial."""
    columns: dict[str, Cell] = {
        "experiment": lambda runs: f"`{runs[0].experiment}`",
        "perplexity, published": lambda runs: PUBLISHED[runs[0].experiment or ""][0],
        "perplexity, here": partial(score, name="test/perplexity_free_running"),
        "BLEU, published": lambda runs: PUBLISHED[runs[0].experiment or ""][1],
        "BLEU, here": partial(score, name="test/bleu_lowercased_tokenised"),
        "parameters": parameters,
    }
    return rows_of([current(lines, name) for name in PUBLISHED], columns)


def search(runs: Sequence[Line]) -> str:
    """Return the settings of an evaluation's search."""
    words = shlex.split(runs[0].evaluation or "")[len(EVALUATE) :]
    words = [word for word in words if word not in ("--ensemble", "RUN", "--replace-unknown")]
    return f"`{' '.join(words)}`" if words else "greedy"


def evaluations(lines: Sequence[Line]) -> list[str]:
    """Return the scores of other searches, of ensembles, and with unknown words replaced."""
    names = [f"test/{name}" for name in ("bleu", "bleu_lowercased_tokenised", "ter", "bleu_unknown_replaced")]
    runs = [line for line in lines if line.evaluation and not line.superseded]
    notes = distinct(run.note or "" for run in runs)
    marks = {**dict(zip(notes, MARKS[: len(notes)], strict=True)), "": ""}
    columns: dict[str, Cell] = {
        "run, or ensemble": label,
        "seed": lambda runs: str(runs[0].seed),
        "search": search,
        **score_columns(*names),
        "commit": lambda runs: f"{commits(runs)} {marks[runs[0].note or '']}".strip(),
    }
    below = (line for note in notes for line in ("", *filled(f"{marks[note]} {note}")))
    return [*rows_of([[run] for run in runs], columns, 3, INTERVAL), *facts(runs, *names), *below]


def earlier(lines: Sequence[Line]) -> list[str]:
    """Return the validation and test scores of the lines that newer ones have superseded."""
    names = ("val/bleu", "val/bleu_lowercased_tokenised", "test/bleu", "test/bleu_lowercased_tokenised")
    columns: dict[str, Cell] = {
        "run": label,
        "search": search,
        "what was different": lambda runs: runs[0].note or "",
        **score_columns(*names),
        "commit": commits,
    }
    return rows_of([[line] for line in lines if line.superseded], columns, 3, INTERVAL)


def readme_runs(lines: Sequence[Line]) -> dict[str, Line]:
    """Return the README's two runs by their labels.

    Raises:
        UserError: one is not recorded, or their test sets differ.
    """
    found: dict[str, Line] = {}
    for name, command in README_RUNS.items():
        same = [run for run in current(lines) if unseeded(run.command) == command.split() and run.seed == 1]
        if len(same) != 1:
            raise UserError(
                f"docs/results.jsonl has {len(same)} runs of {command!r}, not 1. Run it and add its folder."
            )
        found[name] = same[0]
    one, other = ({name: counts(run, name) for name in run.groups} for run in found.values())
    if one != other:
        raise UserError(
            f"docs/results.jsonl: the runs of {' and '.join(found)} have different groups of test sentences. Run both at "
            f"one commit and add their folders."
        )
    return found


def grouped(run: Line, name: str, form: str = ".2f") -> dict[str, str]:
    """Format the values of a score by group of sentences."""
    values = {group["group"]: group["value"] for group in run.groups[name]}
    return {group: "–" if value is None else f"{value:{form}}" for group, value in values.items()}


def counts(run: Line, name: str) -> dict[str, int]:
    """Return the number of sentences of each group."""
    return {group["group"]: group["count"] for group in run.groups[name]}


def by_similarity(lines: Sequence[Line]) -> list[str]:
    """Return BLEU of `tatoeba_en_fr` by the similarity of the source to those in training, with one or all references."""
    every = shlex.join([*EVALUATE, "trainer.multi_reference=true"])
    ways = {None: "each pair, with its reference", every: "each source sentence, with all of its references"}
    name = "test/bleu_by_similarity"
    runs = [
        line
        for line in lines
        if line.experiment == "tatoeba_en_fr"
        and not line.superseded
        and line.evaluation in ways
        and name in line.groups
    ]
    if not runs:
        return ["Not yet measured."]
    columns: dict[str, Cell] = {
        "scored": lambda runs: ways[runs[0].evaluation],
        "all": lambda runs: interval(runs[0]),
    }
    for group in counts(runs[0], name):
        columns[group] = partial(in_group, name=name, group=group)
    return [*rows_of([[run] for run in runs], columns, spread=INTERVAL), *facts(runs, "test/bleu")]


def in_group(runs: Sequence[Line], name: str, group: str) -> str:
    """Format the score of a group of sentences with half of its interval, and the size of the group."""
    (found,) = (one for one in runs[0].groups[name] if one["group"] == group)
    return f"{found['value']:.2f} ± {found['confidence']:.2f} ({found['count']:,})"


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
    runs = [*found.values()]
    rows = []
    for split in TESTS:
        sizes = [*counts(runs[0], f"{split}/bleu_by_length").values()]
        numbers = [f"{size:,}" for size in (sum(sizes), *sizes)]
        rows.append([f"{split}: sentences", *numbers, aer_bounds(runs[0], split)])
        for name, run in found.items():
            values = grouped(run, f"{split}/bleu_by_length").values()
            rows.append([name, score([run], f"{split}/bleu"), *values, score([run], f"{split}/aer")])
    heads = ["BLEU by source words", "all", *counts(runs[0], "test/bleu_by_length"), "AER"]
    times = "; ".join(
        f"{name} {run.train_seconds:.0f} s of training and {run.validation_seconds:.0f} s of validation"
        for name, run in found.items()
    )
    seeds = ", ".join(distinct(str(run.seed) for run in runs))
    more = [*filled(f"- time: {times}", "  "), f"- seed {seeds}, commit {commits(runs)}"]
    return [*table(heads, rows, 1), *facts(runs, "test/bleu"), *more, *filled(over_seeds(lines), "  ")]


def over_seeds(lines: Sequence[Line]) -> str:
    """Return the means over the seeds of the README's two runs as text."""
    texts = []
    for name, command in README_RUNS.items():
        same = [run for run in current(lines) if unseeded(run.command) == command.split()]
        seeds = ", ".join(str(run.seed) for run in same)
        aer = f", AER {score(same, 'test/aer')}" if "test/aer" in same[0].scores else ""
        texts.append(
            f"{name} {score(same, 'test/bleu')} BLEU ({score(same, 'test/compositional/bleu')} on test/compositional){aer}"
        )
    return f"- mean ± standard deviation over seeds {seeds}: {'; '.join(texts)}"


def phenomena(lines: Sequence[Line]) -> list[str]:
    """Return the share of exact translations by phenomenon of the README's two runs."""
    found = readme_runs(lines)
    heads, columns = ["exact translations"], list[dict[str, str]]()
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
    rows = [["BLEU", *grouped(run, "test/bleu_by_length").values()], ["sentences", *map(str, sizes.values())]]
    return table(["source words", *sizes], rows, 1)
