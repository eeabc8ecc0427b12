"""The report of an evaluation. The program prints it, writes it to the run folder and logs it; pages show it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from seq2seq_lab import plots
from seq2seq_lab.plots.attention import ATTENTION
from seq2seq_lab.runtime.tables import TextTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Examples of a split with the outputs of the model.

    Attributes:
        name: the kind of examples, in plural, for example "translations". The file is `NAME.SPLIT.jsonl`.
        rows: one mapping per example; all have the same keys.
        columns: the keys that are the `input`, `reference`, `output` and `score` of pages, by these names; empty for rows
            that pages do not show.
        note: the meaning of the score.
    """

    name: str
    rows: Sequence[Mapping[str, Any]]
    columns: Mapping[str, str]
    note: str = ""

    @classmethod
    def of(
        cls,
        name: str,
        inputs: Sequence[str],
        references: Sequence[str],
        *,
        outputs: Sequence[str],
        scores: Sequence[float],
        limit: int | None = None,
    ) -> Self:
        """Return examples with the columns of pages and no others.

        Args:
            limit: how many of them; None for all.
        """
        keys = ("input", "reference", "output", "score")
        rows = zip(inputs, references, outputs, scores, strict=True)
        records = [dict(zip(keys, row, strict=True)) for row in islice(rows, limit)]
        return cls(name=name, rows=records, columns=dict(zip(keys, keys, strict=True)))


@dataclass(frozen=True, kw_only=True)
class Heatmap:
    """A matrix of weights from 0 to 1.

    Attributes:
        title: for example the source sentence.
        columns, rows: the names of columns and rows.
        weights: for each name of `rows`, a row of weights.
        links: the (column, row) cells to outline.
        scale: what the weights are, for the color bar.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[str]
    weights: Sequence[Sequence[float]]
    links: Sequence[tuple[int, int]] = ()
    scale: str = ATTENTION

    def picture(self, file: str, title: str, logged: str) -> "Picture":
        """Return the heatmap as a picture of the run folder; see `Picture`."""
        weights_RC = np.array(self.weights)
        figure = plots.draw_attention(
            weights_RC, self.columns, self.rows, self.title, self.links, scale=self.scale
        )
        return Picture(file=file, figure=figure, title=title, logged=logged)


@dataclass(frozen=True, kw_only=True)
class Heatmaps:
    """Heatmaps of some examples.

    Attributes:
        maps: the heatmaps.
        name: the file is `NAME.SPLIT.jsonl`.
        keys: the keys of the file by the attributes of `Heatmap`.
    """

    maps: Sequence[Heatmap]
    name: str = "attention"
    keys: Mapping[str, str] = field(
        default_factory=lambda: {
            one: one for one in ("title", "columns", "rows", "weights", "links", "scale")
        }
    )

    @property
    def records(self) -> list[dict[str, Any]]:
        """The heatmaps for JSON, with weights of three decimals; without those of a diverged model, which are not finite."""
        return [
            {key: getattr(one, name) for name, key in self.keys.items()}
            | {
                self.keys["weights"]: [
                    [round(float(weight), 3) for weight in weights_S] for weights_S in one.weights
                ]
            }
            for one in self.maps
            if all(map(math.isfinite, chain.from_iterable(one.weights)))
        ]


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure of the run folder.

    Attributes:
        file: its path in the run folder, without suffix. At a validation the step is added to it.
        figure: the figure.
        title: shown by loggers and pages.
        logged: its name for loggers, without the prefix of the split; None if it is only a file.
    """

    file: str
    figure: "Figure"
    title: str
    logged: str | None = None


@dataclass(frozen=True, kw_only=True)
class ReportTable(TextTable):
    """A table of texts.

    Attributes:
        name: its name for loggers, without the prefix of the split.
    """

    name: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """The report of a task on one evaluation of a split.

    Attributes:
        examples: examples with outputs: some at a validation, all at the end.
        lines: lines to print. At a validation they replace the examples; at the end those of the validation split are
            part of the last screen.
        tables: tables for the log, loggers and pages.
        heatmaps: weights of some examples.
        pictures: figures. Pages show them only if heatmaps is None.
        worst: the entries of `PREFIX/worst_outputs` in `result.json`: texts, then `tasks.decoded.WorstOutput.record`.
        files: the content of further text files, by their path in the run folder.
        entries: entries of `result.json`.
    """

    examples: Examples | None = None
    lines: Sequence[str] = ()
    tables: Sequence[ReportTable] = ()
    heatmaps: Heatmaps | None = None
    pictures: Sequence[Picture] = ()
    worst: Sequence[Mapping[str, Any]] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    entries: Mapping[str, Any] = field(default_factory=dict)
