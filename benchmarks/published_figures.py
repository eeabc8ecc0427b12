"""Five figures beside their published counterparts, from docs/results.jsonl."""

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import planned
from benchmarks.page import table
from benchmarks.planned import evaluation_command
from benchmarks.results import Line, unseeded
from seq2seq_lab.runtime.tables import mean_and_deviation

HEADS = ("figure", "published", "here ± std over seeds", "seeds")


@dataclass(frozen=True)
class Figure:
    """A published score and the planned runs with which it is compared.

    Attributes:
        name: of the system, the data and the score.
        published: the score, with its source.
        table: the planned table of the runs.
        commands: a pattern of the commands of its cells; the score of a seed is the mean over them.
        score: its name in `result.json`.
        form: how it is formatted.
    """

    name: str
    published: str
    table: str
    commands: str
    score: str
    form: str


FIGURES = (
    Figure(
        "recurrent model of LIUM-CVC on Multi30k, English to German, beam search: BLEU of lowercased tokens",
        "38.1 ± 0.8 (arXiv:1707.04481)",
        planned.LIUM,
        r"experiment=lium_wmt17 dataset\.path=DIR$",
        "test/bleu_lowercased_tokenised",
        ".2f",
    ),
    Figure(
        "smallest Transformer of Wu et al. on Multi30k, English to German, beam search: BLEU of lowercased tokens",
        "41.02 (arXiv:2105.14462)",
        planned.WU,
        r"experiment=wu2021 dataset\.path=DIR$",
        "test/bleu_lowercased_tokenised",
        ".2f",
    ),
    Figure(
        "pronunciations of 15 languages (SIGMORPHON 2020), recurrent model with attention: mean word error rate",
        "16.8% (Gorman 2020)",
        planned.PHONES,
        r"experiment=g2p ",
        "test/wer",
        ".1%",
    ),
    Figure(
        "SCAN, commands that are longer than in training, LSTM without attention: exact match",
        "13.8% (arXiv:1711.00350)",
        "SCAN, length",
        r"experiment=scan_lstm ",
        "test/accuracy",
        ".1%",
    ),
    Figure(
        "SCAN, new commands with “jump”, LSTM without attention: exact match",
        "0.1% (arXiv:1711.00350)",
        "SCAN, add_jump",
        r"experiment=scan_lstm ",
        "test/accuracy",
        ".1%",
    ),
)


def published_figures(lines: Sequence[Line]) -> list[str]:
    """Return a table of the figures that are recorded for at least one seed."""
    rows = []
    for figure in FIGURES:
        if values := scores_of_seeds(lines, figure):
            here = mean_and_deviation([*values.values()], figure.form)
            rows.append([figure.name, figure.published, here, ", ".join(map(str, values))])
    return table(HEADS, rows, 2)


def scores_of_seeds(lines: Sequence[Line], figure: Figure) -> dict[int, float]:
    """Return the score of each seed for which all cells of a figure are recorded."""
    cells = [
        cell
        for cell in planned.cells()
        if cell.table == figure.table and re.search(figure.commands, cell.command)
    ]
    found: dict[int, float] = {}
    for seed in cells[0].seeds:
        scores = [
            line.scores[figure.score]
            for cell in cells
            for line in lines
            if line.seed == seed
            and unseeded(line.command) == unseeded(cell.command)
            and line.evaluation == (evaluation_command(cell.evaluations[-1]) if cell.evaluations else None)
            and not (line.superseded or line.others)
        ]
        if len(scores) == len(cells):
            found[seed] = statistics.mean(scores)
    return found
