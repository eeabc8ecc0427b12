"""The confusion matrix of a split, and the metrics of each class, in reports."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from seq2seq_lab import plots
from seq2seq_lab.metrics.base import Array
from seq2seq_lab.tasks.report import Heatmap, Picture, ReportTable

SHARE = "share of the true class"  # the scale of the picture
TITLE = "confusion matrix: share of each true class (rows) by predicted class (columns)"


@dataclass(frozen=True)
class Confusion:
    """A confusion matrix.

    Attributes:
        counts_CC: the number of examples by true class (rows) and predicted class (columns).
        classes: the names of the classes.
    """

    counts_CC: Array
    classes: Sequence[str]

    @classmethod
    def of(
        cls, true_N: npt.NDArray[np.int64], predicted_N: npt.NDArray[np.int64], classes: Sequence[str]
    ) -> Self:
        """Return the matrix of N examples, whose classes are given by their indices."""
        counts_CC = np.zeros((len(classes), len(classes)))
        np.add.at(counts_CC, (true_N, predicted_N), 1)
        return cls(counts_CC, classes)

    def rows(self) -> list[list[str]]:
        """Return class, number of examples, precision, recall and F1 of each class; "–" if one is not defined."""

        def ratio(part: float, whole: float) -> str:
            return f"{part / whole:.3f}" if whole else "–"

        rows, counts_CC = [], self.counts_CC
        for i, name in enumerate(self.classes):
            correct, predicted, true = counts_CC[i, i], counts_CC[:, i].sum(), counts_CC[i].sum()
            scores = (ratio(correct, predicted), ratio(correct, true), ratio(2 * correct, predicted + true))
            rows.append([name, f"{int(true):,}", *scores])
        return rows

    def tables(self, unit: str) -> list[ReportTable]:
        """Return the metrics by class, and the matrix.

        Args:
            unit: what an example is, in plural.
        """
        counts = [
            [name, *(f"{int(count):,}" for count in row)]
            for name, row in zip(self.classes, self.counts_CC, strict=True)
        ]
        return [
            ReportTable(
                name="classes",
                title="metrics by class",
                heads=("class", unit, "precision", "recall", "F1"),
                rows=self.rows(),
            ),
            ReportTable(
                name="confusion_matrix",
                title="confusion matrix",
                heads=("true \\ predicted", *self.classes),
                rows=counts,
            ),
        ]

    def picture(self, prefix: str) -> Picture:
        """Return the picture of the matrix.

        Args:
            prefix: the prefix of the split.
        """
        return Picture(
            file=f"confusion.{prefix}",
            figure=plots.draw_confusion(self.counts_CC, self.classes),
            title="confusion matrix",
            logged="confusion",
        )

    def heatmap(self) -> Heatmap:
        """Return the matrix for pages."""
        shares_CC = self.counts_CC / np.maximum(1, self.counts_CC.sum(1, keepdims=True))
        return Heatmap(
            title=TITLE, columns=self.classes, rows=self.classes, weights=shares_CC.tolist(), scale=SHARE
        )
