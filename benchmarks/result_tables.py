"""Write the tables of recorded results into the pages of the docs: python -m benchmarks.result_tables."""

import shlex
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import chain
from pathlib import Path

import numpy as np
from omegaconf import OmegaConf

from benchmarks import planned
from benchmarks.page import NOT_RECORDED, filled, table, update
from benchmarks.published_scores import published_scores
from benchmarks.results import (
    EVALUATE,
    PROGRAM,
    RESULTS,
    Line,
    current,
    read_lines,
    read_statistics,
    runs_of,
    task_class,
    unseeded,
)
from benchmarks.word_language_model import example_table
from seq2seq_lab.config.schema import CONF_DIR
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.base import Array, Metric
from seq2seq_lab.metrics.registry import BUILT_IN
from seq2seq_lab.metrics.significance import LEAST_TESTED, compare_means, holm
from seq2seq_lab.reporting.comparison import p_text
from seq2seq_lab.reporting.score_tables import CLUSTERS
from seq2seq_lab.runtime.tables import mean_and_deviation, with_interval, with_spread
from seq2seq_lab.tasks.base import Task

Cell = Callable[[Sequence[Line]], str]

MAIN_IN_FLOAT32 = "python -m seq2seq_lab model=attn attention=additive trainer.precision=fp32"
README_RUNS = {  # the rows of the README's table
    "`model=attn attention=additive`": "python -m seq2seq_lab model=attn attention=additive trainer.precision=bf16",
    "`model=vanilla`": "python -m seq2seq_lab model=vanilla trainer.precision=bf16",
    "`model=vanilla trainer.max_epochs=24`": (
        "python -m seq2seq_lab model=vanilla trainer.max_epochs=24 trainer.precision=bf16"
    ),
}
# Words of a command that choose the table of decoders and attention functions, and the words of each table.
OF_SWEEP = ("task=", "study=", "dataset=", "dataset.seed=", "trainer.precision=", "trainer.max_epochs=")
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
# The tables of planned runs by page, and the scores of each. Differences of the first score are tested. A name with `_by_`
# stands for a score of each group of examples.
TASK_TABLES: dict[str, dict[str, tuple[str, ...]]] = {
    "classification.md": {
        planned.NAMES: ("test/accuracy", "test/macro_f1", "test/ece"),
        planned.NAME_ENCODERS: ("test/accuracy", "test/macro_f1"),
        planned.SURNAMES: ("test/accuracy", "test/macro_f1", "test/ece", "test/accuracy_by_class"),
        planned.REVIEWS: ("test/word_auc", "test/word_precision", "test/word_recall", "test/accuracy"),
        planned.SST2: ("test/accuracy", "val/accuracy"),
    },
    "captions.md": {
        planned.CAPTIONS: (
            *("test/bleu", "test/accuracy", "test/loops", "test/at_limit"),
            *("test/pointing_game", "test/attention_in_region", "test/region_share"),
        ),
    },
    "dialogue.md": {
        planned.DIALOGUES: (
            *("test/accuracy", "test/accuracy_by_distance", "test/accuracy_by_phenomenon"),
            *("test/loops", "test/at_limit"),
        ),
    },
    "language_model.md": {
        planned.LANGUAGE_MODEL: (
            *("test/perplexity_per_word", "test/perplexity_per_token", "test/bits_per_character"),
            *("test/minimal_pairs", "test/minimal_pairs_by_phenomenon"),
        ),
        planned.WORD_LANGUAGE_MODEL: ("test/perplexity_per_word_carried", "val/perplexity_per_word_carried"),
    },
    "masked_language_model.md": {
        planned.PRETRAINING["pretraining"][0]: (
            *("test/token_accuracy", "test/ambiguous_accuracy", "test/unseen_accuracy", "val/token_accuracy"),
        ),
        planned.PRETRAINING["pretraining_sentiment"][0]: ("test/accuracy", "val/accuracy"),
        planned.PRETRAINING["pretraining_entailment"][0]: ("test/accuracy", "val/accuracy"),
        planned.PRETRAINING["pretraining_span"][0]: (
            "test/answer_f1",
            "test/answer_exact_match",
            "val/answer_f1",
        ),
    },
    "word_vectors.md": {planned.WORD_VECTORS: ("test/bleu", "test/aer", "test/loops", "test/at_limit")},
    "scan.md": dict.fromkeys(
        planned.SCAN,
        ("test/accuracy", "val/accuracy", "test/accuracy_by_source_length", "test/accuracy_by_target_length"),
    ),
    "formal.md": dict.fromkeys(
        (planned.COUNTING, *planned.COPYING), ("test/longer/accuracy", "test/accuracy", "val/accuracy")
    ),
    "g2p.md": {planned.PHONES: ("test/wer", "test/per", "val/wer")},
}
BEAM = planned.evaluation_command(planned.BEAM)
OWN_TABLES = ("source_length", "target_length")  # groups of examples with a table of their own
PICTURES = {  # by the planned table: the file in docs/images, and the scores by length that it shows of every seed
    **{
        name: (f"{name.lower().replace(', ', '_')}.png", ("test/accuracy_by_target_length",))
        for name in planned.SCAN
    },
    **{
        name: (
            f"{name.replace(' languages: ', '_')}.png",
            ("test/accuracy_by_target_length", "test/longer/accuracy_by_target_length"),
        )
        for name in (planned.COUNTING, *planned.COPYING)
    },
}
IMAGES = "images"  # a folder beside the pages
TITLES = {"bleu": "sacreBLEU"}  # replaces the label of the metric
SPLITS = {"val": "validation ", "test": "", "test/compositional": "compositional ", "test/longer": "longer "}
TESTS = ("test", "test/compositional")  # of the grammar
NOT_SHOWN = ("seed=", "logger=", "dataset.path=")  # words of a command that a label leaves out
UNKNOWN = "‡"  # marks a score that counts `<unk>` as three tokens
UNTESTED = "§"  # marks a row that cannot be tested, because its runs have no statistics per example
# The column of BLEU's statistics per sentence; with one reference the same for all systems.
REFERENCE_LENGTH = 1
INTERVAL = "95% CI"  # what follows "±" in the tables of single evaluations
SPREADS = {
    "std": ["- std: standard deviation over the seeds"],
    INTERVAL: ["- 95% CI: half of the 95% bootstrap interval over the test examples"],
}
MARKS = "¹²³⁴⁵⁶⁷⁸⁹"


def main() -> None:
    """Write the tables into the pages."""
    try:
        update(pages(read_lines(RESULTS)))
    except UserError as error:
        raise SystemExit(f"error: {error}") from None


def pages(lines: Sequence[Line]) -> dict[Path, dict[str, list[str]]]:
    """Return the generated parts of each page by name."""
    sweeps = {name: sweep(lines, name) for name in SWEEPS}
    former = {name: part for name, part in sweeps.items() if name.startswith("former ")}
    root = RESULTS.parents[1]
    about_published, of_published = published_scores(lines)
    example = {"example of PyTorch": example_table(RESULTS.with_name("word_language_model.json"))}
    return {
        RESULTS.with_name("results.md"): {
            "two runs": two_runs(lines),
            "precisions": precisions(lines),
            "data seeds": data_seeds(lines),
            "phenomena": phenomena(lines),
            **{name: part for name, part in sweeps.items() if name not in former},
            "experiments": experiments(lines),
            "cost of the experiments": costs(lines),
            "published scores": [*about_published, "", *of_published],
            "published": published(lines),
            "recurrent and transformer": transformers(lines),
            "evaluations": evaluations(lines),
            "lengths": by_length(lines),
            "similarity": by_similarity(lines),
        },
        RESULTS.with_name("results_history.md"): {**former, "earlier runs": earlier(lines)},
        **{
            RESULTS.with_name(page): {name: task_table(lines, name, scores) for name, scores in parts.items()}
            | (example if page == "language_model.md" else {})
            for page, parts in TASK_TABLES.items()
        },
        root / "README.md": {"published scores": of_published},
        root / "CONTRIBUTING.md": {"planned runs": planned.summary(lines)},
    }


@cache
def of_task(task: str) -> type[Task]:
    """Return the class of a task by the value of the group `task`."""
    return task_class(OmegaConf.select(OmegaConf.load(CONF_DIR / "task" / f"{task}.yaml"), "_target_"))


def metric_of(name: str, task: str) -> Metric:
    """Return the metric of a score or of a score by group, such as `test/bleu` or `test/bleu_by_length`."""
    metrics = BUILT_IN | {metric.name: metric for metric in of_task(task).metrics}
    return metrics[name.rpartition("/")[2].partition("_by_")[0]]


def title(name: str, task: str = "translation") -> str:
    """Return the name of a score in a text."""
    metric = metric_of(name, task)
    return TITLES.get(metric.name, metric.label)


def head(name: str, task: str = "translation") -> str:
    """Return the head of the column of a score."""
    return f"{SPLITS[name.rpartition('/')[0]]}{title(name, task)}"


def score(runs: Sequence[Line], name: str) -> str:
    """Format a score: the mean over runs, and for an evaluation ± half of its 95% interval."""
    values = [run.scores[name] for run in runs if name in run.scores]
    form = metric_of(name, runs[0].task).format
    shown = mean_and_deviation(values, form)
    if runs[0].evaluation and (half := runs[0].scores.get(f"{name}_confidence")) is not None:
        shown = f"{shown} ± {half:{form}}"
    # `<unk>` does not count in alignments and perplexities, and replaced unknown words are no longer `<unk>`.
    marked = values and not name.endswith(("/aer", "_running", "_forced", "_replaced"))
    return f"{shown} {UNKNOWN}" if marked and any(run.unknown for run in runs) else shown


def score_columns(*names: str) -> dict[str, Cell]:
    """Return the columns of scores of translations."""
    return {head(name): partial(score, name=name) for name in names}


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
    """Return the lines above a table: machine and signatures."""
    values = {"machine": distinct(run.machine for run in runs if machine)}
    for name in scores:
        signed = [run for run in runs if name in run.signatures]
        if signed:
            values[title(name, signed[0].task)] = distinct(f"`{run.signatures[name]}`" for run in signed)
    lines = [
        line
        for name, texts in values.items()
        if texts
        for line in filled(f"- {name}: {'; '.join(texts)}", "  ")
    ]
    return [*lines, ""]


def by_experiment(lines: Sequence[Line]) -> list[list[Line]]:
    """Return the runs of each experiment of translation."""
    runs = [run for run in current(lines) if run.task == "translation" and run.is_plain]
    return [current(lines, name) for name in distinct(run.experiment or "" for run in runs)]


def experiments(lines: Sequence[Line]) -> list[str]:
    """Return the test scores of every experiment, and validation BLEU."""
    perplexities = ("perplexity_teacher_forced", "perplexity_free_running")
    names = [f"test/{name}" for name in ("bleu", "chrf", "bleu_lowercased_tokenised", "ter", *perplexities)]
    runs = by_experiment(lines)
    columns: dict[str, Cell] = {
        "experiment": lambda runs: f"`{runs[0].experiment}`",
        "seed": lambda runs: ", ".join(str(run.seed) for run in runs),
        **score_columns(*names[:3]),
        "the same, `search=beam`": lambda runs: score_evaluated(lines, runs, BEAM, names[2]),
        **score_columns(*names[3:], "val/bleu", "val/bleu_lowercased_tokenised"),
    }
    return [*facts([*chain(*runs)], *names[:4], machine=False), *rows_of(runs, columns)]


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
    return [*notes, "", *rows_of(runs, columns)]


def sweep(lines: Sequence[Line], name: str) -> list[str]:
    """Return the means over seeds of the runs with the data and epochs of a sweep, for each model and attention."""
    groups: dict[str, list[Line]] = {}
    for run in current(lines):
        if run.experiment:
            continue
        words = unseeded(run.command)[3:]
        common = {word for word in words if word.startswith(OF_SWEEP)}
        if common == {*SWEEPS[name]}:
            own = (word for word in words if word not in common and not word.startswith(NOT_SHOWN))
            groups.setdefault(f"`{' '.join(own)}`", []).append(run)
    runs = [*chain(*groups.values())]
    names = ("test/bleu", "test/compositional/bleu", "test/bleu_lowercased_tokenised", "test/aer")
    measured = [name for name in names if any(name in run.scores for run in runs)]
    tested, explanation = tested_column([*groups.values()], "test/bleu")
    columns: dict[str, Cell] = {
        "settings": lambda same: next(key for key, runs in groups.items() if runs is same),
        "seeds": lambda same: str(len(same)),
        **score_columns(*measured),
        **tested,
        "parameters": parameters,
        "commit": commits,
    }
    bounds = distinct(aer_bounds(run, "test") for run in runs)
    of_aer = [f"- AER on this test set: {text}" for text in bounds]
    below = ["", *explanation] if explanation else []
    return [*of_aer, *facts(runs, *measured), *rows_of(groups.values(), columns), *below]


def tested_column(groups: Sequence[Sequence[Line]], name: str) -> tuple[dict[str, Cell], list[str]]:
    """Return the column of the p-values of a score, and what it shows; both are empty if fewer than two rows are tested.

    Rows of runs without statistics per example are marked.
    """
    p_values = compare_with_best(groups, name)
    if len(p_values) < 2:
        return {}, []
    untested = [same for same in groups if not all(run.statistics for run in same)]

    def cell(same: Sequence[Line]) -> str:
        mark = f" {UNTESTED}" if any(one is same for one in untested) else ""
        return f"{p_values[id(same)]}{mark}"

    explanation = filled(
        f"- p, seeds: p-value of the {head(name, groups[0][0].task)} difference from the best row with statistics per "
        f"example of {LEAST_TESTED} or more runs (over seeds and test examples, Holm-corrected for "
        "all pairs of such rows). A large p-value does not show that two rows are equal.",
        "  ",
    )
    if untested:
        explanation += filled(
            f"- {UNTESTED} not tested: a run of this row has no recorded statistics per example", "  "
        )
    return {"p, seeds": cell}, explanation


def compare_with_best(groups: Sequence[Sequence[Line]], key: str) -> defaultdict[int, str]:
    """Return the p-value of each group's difference from the best one as text, by the identity of the list.

    Groups are tested if they have `LEAST_TESTED` or more runs with statistics per example.

    Args:
        key: the name of the score, such as `test/bleu`.

    Raises:
        UserError: the runs have different test examples; see `check_examples`.
    """
    split, _, metric = key.rpartition("/")
    texts: defaultdict[int, str] = defaultdict(lambda: "–")
    tested = [same for same in groups if len(same) >= LEAST_TESTED and all(run.statistics for run in same)]
    if len(tested) < 2:
        return texts
    tested.sort(
        key=lambda same: statistics.mean(run.scores[key] for run in same),
        reverse=BUILT_IN[metric].higher_is_better is not False,
    )
    rows = [[read_statistics(run) for run in same] for same in tested]
    check_examples([*chain(*tested)], [*chain(*rows)], split)
    clusters = rows[0][0][f"{split}/{CLUSTERS}"].astype(int)
    statistics_of = [[one[key].astype(float) for one in group] for group in rows]
    # The pairs with the best group come first.
    found = holm(compare_means(BUILT_IN[metric].values, statistics_of, clusters).p_values().tolist())
    texts |= {id(same): p_text(p) for same, p in zip(tested[1:], found[: len(tested) - 1], strict=True)} | {
        id(tested[0]): "best"
    }
    return texts


def check_examples(
    runs: Sequence[Line], statistics: Sequence[Mapping[str, Array]], split: str = "test"
) -> None:
    """Refuse runs with different test examples: their hashes differ, or the lengths of their references.

    Lines of earlier runs have no hash.

    Args:
        statistics: of each run; see `read_statistics`.

    Raises:
        UserError: names two runs with different test examples.
    """
    first: dict[str, tuple[Line, str | Array]] = {}
    for run, arrays in zip(runs, statistics, strict=True):
        own: dict[str, str | Array] = {}
        if split in run.examples:
            own["hash"] = run.examples[split]
        if f"{split}/bleu" in arrays:
            own["lengths"] = arrays[f"{split}/bleu"][:, REFERENCE_LENGTH]
        for kind, value in own.items():
            other, expected = first.setdefault(kind, (run, value))
            if not np.array_equal(value, expected):
                raise UserError(
                    f"{run.command}: its test examples differ from those of {other.command}, so they cannot be compared "
                    "example by example. Run both at one commit, or give the data its own table."
                )


def interval(run: Line | None, name: str = "test/bleu") -> str:
    """Format a score with half of its interval."""
    if run is None or name not in run.scores:
        return "–"
    form = metric_of(name, run.task).format
    return with_interval(run.scores[name], run.scores.get(f"{name}_confidence"), form)


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
        "`search=beam`": lambda runs: score_evaluated(lines, runs, BEAM, "test/bleu"),
        "compositional, greedy": partial(score, name="test/compositional/bleu"),
        "AER": partial(score, name="test/aer"),
        "commit": commits,
    }

    def order(runs: Sequence[Line]) -> tuple[bool, int]:
        run = runs[0]
        return "dataset" in run.command, -(run.parameters or 0)

    runs = [*chain(*groups.values())]
    return [*facts(runs, "test/bleu"), *rows_of(sorted(groups.values(), key=order), columns)]


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
    names_of_tasks = chain.from_iterable(TASK_TABLES.values())
    of_tasks = {unseeded(cell.command) for name in names_of_tasks for cell in planned.cells_of(name)}
    runs = [
        line
        for line in lines
        if line.evaluation and not line.superseded and unseeded(line.command) not in of_tasks
    ]
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
    return [*facts(runs, *names), *rows_of([[run] for run in runs], columns, 3, INTERVAL), *below]


def earlier(lines: Sequence[Line]) -> list[str]:
    """Return the validation and test scores of superseded lines."""
    bleu = ("val/bleu", "val/bleu_lowercased_tokenised", "test/bleu", "test/bleu_lowercased_tokenised")
    names = (*bleu, "test/accuracy")
    superseded = [[line] for line in lines if line.superseded]
    has_others = any(runs[0].task != "translation" for runs in superseded)
    others: dict[str, Cell] = {"primary score of another task": primary_score} if has_others else {}
    columns: dict[str, Cell] = {
        "run": label,
        "search": search,
        "what was different": lambda runs: runs[0].note or "",
        "seed": lambda runs: str(runs[0].seed),
        **score_columns(*names),
        **others,
        "commit": commits,
    }
    return rows_of(superseded, columns, 4, INTERVAL)


def primary_score(runs: Sequence[Line]) -> str:
    """Format the primary score of a run of another task than translation, with its name."""
    task = runs[0].task
    name = f"test/{of_task(task).primary}"
    return "–" if task == "translation" else f"{title(name, task)} {score(runs, name)}"


def readme_runs(lines: Sequence[Line]) -> dict[str, Line]:
    """Return the README's runs by their labels.

    Raises:
        UserError: one is not recorded, or their test sets differ.
    """
    found: dict[str, Line] = {}
    for name, command in README_RUNS.items():
        same = [run for run in runs_of(lines, command) if run.seed == 1]
        if len(same) != 1:
            raise UserError(
                f"docs/results.jsonl has {len(same)} runs of {command!r}, not 1. Run it and add its folder."
            )
        found[name] = same[0]
    first, *others = ({name: counts(run, name) for name in run.groups} for run in found.values())
    if any(other != first for other in others):
        raise UserError(
            f"docs/results.jsonl: the runs of {' and '.join(found)} have different groups of test sentences. Run them at "
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
    every = shlex.join([*EVALUATE, "task.multi_reference=true"])
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
    return [*facts(runs, "test/bleu"), *rows_of([[run] for run in runs], columns, spread=INTERVAL)]


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
    """Return BLEU by source length, and AER, of the README's runs."""
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
    above = [*filled(f"- time: {times}", "  "), f"- seed {seeds}, commit {commits(runs)}"]
    below = filled(over_seeds(lines), "  ")
    return [*above, *facts(runs, "test/bleu"), *table(heads, rows, 1), "", *below]


def over_seeds(lines: Sequence[Line]) -> str:
    """Return the means over the seeds of the README's runs as text."""
    texts = []
    for command in (*README_RUNS.values(), MAIN_IN_FLOAT32):
        same = runs_of(lines, command)
        if not same:
            continue
        seeds = ", ".join(str(run.seed) for run in same)
        aer = f", AER {score(same, 'test/aer')}" if "test/aer" in same[0].scores else ""
        texts.append(
            f"{label(same)} {score(same, 'test/bleu')} BLEU ({score(same, 'test/compositional/bleu')} on "
            f"test/compositional){aer} (seeds {seeds})"
        )
    return f"- mean ± standard deviation over the seeds: {'; '.join(texts)}"


def precisions(lines: Sequence[Line]) -> list[str]:
    """Return the scores of the main command in both precisions: of each seed, and means over the seeds."""
    commands = (README_RUNS["`model=attn attention=additive`"], MAIN_IN_FLOAT32)
    same = [runs_of(lines, command) for command in commands]
    groups = [*([run] for run in chain(*same)), *(runs for runs in same if len(runs) > 1)]
    columns: dict[str, Cell] = {
        "precision": lambda runs: str(runs[0].settings["trainer.precision"]),
        "seeds": lambda runs: ", ".join(str(run.seed) for run in runs),
        **score_columns(*(f"{split}/{name}" for name in ("bleu", "aer", "loops") for split in TESTS)),
        "commit": commits,
    }
    return [*facts([*chain(*same)], "test/bleu"), *rows_of(groups, columns, 2)]


def data_seeds(lines: Sequence[Line]) -> list[str]:
    """Return the scores of the README's runs of four epochs on other draws of the data, with other held-out combinations."""
    groups: dict[str, list[Line]] = {}
    for command in [*README_RUNS.values()][:2]:
        words = command.split()
        for run in current(lines):
            own = [word for word in unseeded(run.command) if not word.startswith("dataset.seed=")]
            if sorted(own) == sorted(words) and run.seed == 1:
                groups.setdefault(shlex.join(unseeded(run.command)), []).append(run)
    columns: dict[str, Cell] = {
        "`model`": lambda runs: f"`{runs[0].settings['model.name']}`",
        "`dataset.seed`": lambda runs: str(runs[0].settings["dataset.seed"]),
        **score_columns(*(f"{split}/{name}" for name in ("bleu", "aer", "loops") for split in TESTS)),
        "commit": commits,
    }
    return [*facts([*chain(*groups.values())], "test/bleu"), *rows_of(groups.values(), columns, 2)]


def phenomena(lines: Sequence[Line]) -> list[str]:
    """Return the share of exact translations by phenomenon of the README's runs of four epochs."""
    found = dict([*readme_runs(lines).items()][:2])
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


def planned_rows(lines: Sequence[Line], name: str) -> tuple[list[str], dict[str, list[Line]]]:
    """Return the words that all commands of a planned table have, and the recorded runs by the words that differ."""
    cells = planned.cells_of(name)
    shared = planned.shared_words(cells)
    return shared, {
        f"`{' '.join(word for word in unseeded(cell.command) if word not in shared)}`": runs_of(
            lines, cell.command
        )
        for cell in cells
    }


def task_table(lines: Sequence[Line], name: str, scores: Sequence[str]) -> list[str]:
    """Return a table of planned runs with the means over the seeds, or a sentence if none is recorded.

    A table of one configuration has a row for each score. Scores by length have tables of their own, and a picture.

    Args:
        name: of the planned table.
        scores: the columns; see `TASK_TABLES`.
    """
    shared, groups = planned_rows(lines, name)
    cells = planned.cells_of(name)
    missing = []
    for (settings, same), planned_cell in zip(groups.items(), cells, strict=True):
        if seeds := {*planned_cell.seeds} - {run.seed for run in same}:
            named = [settings] if len(cells) > 1 else []
            named += [f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, sorted(seeds)))}"] if same else []
            missing.append(", ".join(named))
    paths = chain.from_iterable(planned.placeholders(one.command) for one in cells)
    options = " ".join([shlex.quote(name), *(f"--path {path}=PATH" for path in distinct(paths))])
    remedy = f"`python -m benchmarks.planned run FOLDER --only {options}` runs what is missing."
    recorded = [same for same in groups.values() if same]
    if not recorded:
        return [f"{NOT_RECORDED} {remedy}"]
    runs = [*chain(*recorded)]
    word = INTERVAL if all(len(same) == 1 for same in recorded) else "std"
    p_values, explanation = dict[str, Cell](), list[str]()
    if len({run.examples.get(scores[0].rpartition("/")[0]) for run in runs}) == 1:
        p_values, explanation = tested_column(recorded, scores[0])
    evaluated, commands = dict[str, Cell](), list[str]()
    for setting in cells[0].evaluations:
        command, first = planned.evaluation_command(setting), f"`{setting.split()[0]}`"
        evaluated[f"{head(scores[0], runs[0].task)}, {first}"] = partial(
            score_evaluated, lines, command=command, name=scores[0]
        )
        commands += filled(f"- {first}: `{command}`", "  ")
    columns: dict[str, Cell] = {
        "settings": lambda same: next(label for label, one in groups.items() if one is same),
        "seeds": lambda same: ", ".join(str(run.seed) for run in same),
        **task_columns(
            runs,
            [one for one in scores if not one.endswith(OWN_TABLES)],
            mean_or_interval if word == INTERVAL else score,
        ),
        **evaluated,
        **p_values,
        "parameters": parameters,
        "training, min": mean_column("train_seconds", ".1f", 60),
        "commit": commits,
    }
    if len(groups) > 1:
        made, of_rows = rows_of(recorded, columns, spread=word), " with the settings of a row"
    else:
        texts = {name: cell(runs) for name, cell in columns.items() if name != "settings"}
        rows = [[with_spread(name, word, [text]), text] for name, text in texts.items()]
        made, of_rows = table(["test", ""], rows, 1), ""
    about = filled(f"- command: `{shlex.join(shared)}`{of_rows}", "  ")
    above = [*about, *commands, *sizes(runs), *facts(runs, *scores)]
    absent = filled(f"- not recorded: {'; '.join(missing)}. {remedy}", "  ") if missing else []
    by_group = chain(*(group_table(groups, one) for one in scores if one.endswith(OWN_TABLES)))
    picture = [f"![Exact match by length]({IMAGES}/{PICTURES[name][0]})", ""] if name in PICTURES else []
    return [*above, *made, "", *by_group, *picture, *SPREADS[word], *explanation, *absent]


def score_evaluated(lines: Sequence[Line], runs: Sequence[Line], command: str, name: str) -> str:
    """Format a score of the evaluations of runs with a command: the mean and deviation over the seeds."""
    keys = [(unseeded(run.command), run.seed) for run in runs]
    values = [
        line.scores[name]
        for line in lines
        if line.evaluation == command
        and not (line.superseded or line.others)
        and (unseeded(line.command), line.seed) in keys
        and name in line.scores
    ]
    return mean_and_deviation(values, metric_of(name, runs[0].task).format)


def group_table(groups: Mapping[str, Sequence[Line]], name: str) -> list[str]:
    """Return a table with a row for each group of examples and a column for each recorded row of a planned table."""
    recorded = {label: runs for label, runs in groups.items() if runs}
    first = next(iter(recorded.values()))[0]
    title = f"{head(name, first.task)} by {name.partition('_by_')[2].replace('_', ' ')}"
    sizes = counts(first, name)
    heads, columns = [title, "examples"], [[*sizes], [f"{size:,}" for size in sizes.values()]]
    for label, runs in recorded.items():
        columns.append([mean_in_group(runs, name, group) for group in sizes])
        heads.append(with_spread(label, "std", columns[-1]))
    rows = [[*row] for row in zip(*columns, strict=True)]
    return [*table(heads, rows, 1), ""]


def task_columns(
    runs: Sequence[Line], names: Sequence[str], formatted: Callable[..., str]
) -> dict[str, Cell]:
    """Return the columns of scores that a run has, without those that have their quiet value in all runs.

    The head of a score by group of examples has the size of the group.

    Args:
        formatted: formats a score of the runs of a row.
    """
    columns: dict[str, Cell] = {}
    for name in names:
        column, metric = head(name, runs[0].task), metric_of(name, runs[0].task)
        for group, size in next((counts(run, name) for run in runs if name in run.groups), {}).items():
            columns[f"{column} by {name.partition('_by_')[2]}: {group} ({size:,})"] = partial(
                mean_in_group, name=name, group=group
            )
        if {run.scores[name] for run in runs if name in run.scores} - {metric.quiet_value}:
            columns[column] = partial(formatted, name=name)
    return columns


def mean_or_interval(runs: Sequence[Line], name: str) -> str:
    """Format the mean and the deviation of a score over the seeds; of one run, the score and half of its interval."""
    has_interval = len(runs) == 1 and runs[0].scores.get(f"{name}_confidence")
    return interval(runs[0], name) if has_interval else score(runs, name)


def mean_in_group(runs: Sequence[Line], name: str, group: str) -> str:
    """Format the mean and the deviation over the seeds of the score of a group of examples."""
    found = (one["value"] for run in runs for one in run.groups.get(name, ()) if one["group"] == group)
    values = [value for value in found if value is not None]
    return mean_and_deviation(values, metric_of(name, runs[0].task).format)


def sizes(runs: Sequence[Line]) -> list[str]:
    """Return the number of test examples, from the statistics of the runs."""
    arrays = (read_statistics(run) for run in runs)
    found = distinct(f"{len(one[f'test/{CLUSTERS}']):,}" for one in arrays if one)
    return [f"- test examples: {', '.join(found)}"] if found else []


if __name__ == "__main__":
    main()
