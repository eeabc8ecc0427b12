"""Scores beside their published counterparts, from docs/results.jsonl."""

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import planned
from benchmarks.page import filled, table
from benchmarks.planned import Cell, evaluation_command
from benchmarks.results import Line, unseeded
from seq2seq_lab.runtime.tables import mean_and_deviation

HEADS = ("score", "published ± std over runs", "here ± std over seeds", "seeds")


@dataclass(frozen=True)
class PublishedScore:
    """A published score and the planned runs with which it is compared.

    Attributes:
        title: names the data, the system and the score.
        published: the published score with its source.
        table: the planned table of the runs.
        commands: a pattern of the commands of the runs.
        name: of the score in `result.json`. Runs of one seed are averaged.
        form: how the score is formatted.
    """

    title: str
    published: str
    table: str
    commands: str
    name: str
    form: str

    @property
    def cells(self) -> list[Cell]:
        """The planned cells of the runs."""
        return [cell for cell in planned.cells_of(self.table) if re.search(self.commands, cell.command)]

    @property
    def evaluation(self) -> str | None:
        """The command of the evaluation with this score; None for a score at the end of the run."""
        settings = self.cells[0].evaluations
        return evaluation_command(settings[-1]) if settings else None


PUBLISHED_SCORES = (
    PublishedScore(
        "Multi30k, English to German, system of LIUM-CVC: BLEU of lowercased tokens, beam search",
        "38.1 ± 0.8 (arXiv:1707.04481)",
        planned.LIUM,
        r"experiment=lium_wmt17 dataset\.path=DIR$",
        "test/bleu_lowercased_tokenised",
        ".2f",
    ),
    PublishedScore(
        "Multi30k, English to German, smallest Transformer of Wu et al.: BLEU of lowercased tokens, beam search",
        "41.02 (arXiv:2105.14462)",
        planned.WU,
        r"experiment=wu2021 dataset\.path=DIR$",
        "test/bleu_lowercased_tokenised",
        ".2f",
    ),
    PublishedScore(
        "pronunciations of 15 languages (SIGMORPHON 2020), published for an LSTM with attention whose sizes are chosen for "
        "each language, here the default model: mean word error rate",
        "16.8% (Gorman 2020)",
        planned.PHONES,
        r"experiment=g2p ",
        "test/wer",
        ".1%",
    ),
    PublishedScore(
        "SCAN, commands longer than those of training, LSTM without attention: exact match",
        "13.8% (arXiv:1711.00350)",
        "SCAN, length",
        r"experiment=scan_lstm ",
        "test/accuracy",
        ".1%",
    ),
    PublishedScore(
        "SCAN, new commands with “jump”, LSTM without attention: exact match",
        "0.1% (arXiv:1711.00350)",
        "SCAN, add_jump",
        r"experiment=scan_lstm ",
        "test/accuracy",
        ".1%",
    ),
)


def published_scores(lines: Sequence[Line]) -> tuple[list[str], list[str]]:
    """Return the commands and machines of the scores that are recorded for at least one seed, and their table."""
    rows, notes = [], list[str]()
    for score in PUBLISHED_SCORES:
        if runs := runs_of_seeds(lines, score):
            values = [statistics.mean(run.scores[score.name] for run in same) for same in runs.values()]
            here = mean_and_deviation(values, score.form)
            seeds, count = ", ".join(map(str, runs)), len(score.cells[0].seeds)
            seeds += f" ({len(runs)} of {count} planned)" if len(runs) < count else ""
            rows.append([score.title, score.published, here, seeds])
            of_all = [run for same in runs.values() for run in same]
            trained = of_training(lines, of_all) if score.evaluation else of_all
            commits, evaluating = (
                ", ".join(dict.fromkeys(run.commit[:7] for run in runs_of)) for runs_of in (trained, of_all)
            )
            if evaluating != commits:
                commits += f", evaluated with {evaluating}"
            machines = "; ".join(dict.fromkeys(run.machine for run in of_all))
            command = " ".join(planned.shared_words(score.cells))
            evaluated = f", then `{score.evaluation}`" if score.evaluation else ""
            about = f"- {score.title}: `{command}`{evaluated}; commit {commits}; machine: {machines}"
            notes += filled(about, "  ")
    return notes, table(HEADS, rows, 2)


def of_training(lines: Sequence[Line], evaluations: Sequence[Line]) -> list[Line]:
    """Return the lines of the training of runs whose evaluations are given; those of the evaluations if there are none."""
    wanted = {(unseeded(line.command), line.seed): line for line in evaluations}
    found = {
        (unseeded(line.command), line.seed): line
        for line in lines
        if line.evaluation is None and not (line.superseded or line.others)
    }
    return [found.get(key, line) for key, line in wanted.items()]


def runs_of_seeds(lines: Sequence[Line], score: PublishedScore) -> dict[int, list[Line]]:
    """Return a line for each cell, for each seed for which all cells are recorded."""
    recorded = {
        (unseeded(line.command), line.seed, line.evaluation): line
        for line in lines
        if not (line.superseded or line.others)
    }
    runs: dict[int, list[Line]] = {}
    for seed in score.cells[0].seeds:
        keys = [(unseeded(cell.command), seed, score.evaluation) for cell in score.cells]
        if all(key in recorded for key in keys):
            runs[seed] = [recorded[key] for key in keys]
    return runs
