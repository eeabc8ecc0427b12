"""ROUGE, computed by the package rouge-score."""

import re
from functools import cached_property
from importlib.metadata import version
from typing import Any, Literal, get_args

import numpy as np

from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.base import Array, Metric
from seq2seq_lab.metrics.texts import TextOutputs

Kind = Literal["rouge1", "rouge2", "rougeL"]
KINDS: tuple[Kind, ...] = get_args(Kind)
LETTERS = re.compile("[a-zA-Z0-9]")  # that rouge-score reads


class RougeScore(Metric):
    """The mean F1 of n-grams, or of the longest common subsequence (Lin 2004, W04-1013), times 100.

    Of several references of an output, the one with the highest F1 counts. The words are those of rouge-score: the letters
    a to z and digits, in lower case. Words in other letters are lost, so the metric is for English.

    Args:
        kind: `rouge1` and `rouge2` for 1-grams and 2-grams, `rougeL` for the longest common subsequence.
        stemmer: whether to compare the stems of words of more than three letters (Porter).
    """

    higher_is_better, limits, confidence = True, (0.0, 100.0), True

    def __init__(self, kind: Kind, stemmer: bool) -> None:
        self.kind, self.stemmer = kind, stemmer
        end = kind.removeprefix("rouge")
        self.name, self.label = f"rouge_{end.lower()}", f"ROUGE-{end}"

    @cached_property
    def _scorer(self) -> Any:
        try:
            from rouge_score.rouge_scorer import RougeScorer
        except ImportError as error:
            raise UserError(
                f"metric={self.name} needs rouge-score: pip install 'seq2seq_lab[rouge]'."
            ) from error
        return RougeScorer([self.kind], use_stemmer=self.stemmer)

    def unavailable(self, outputs: TextOutputs) -> str | None:
        """See `Metric.unavailable`."""
        count = len(outputs.scored)
        if any(LETTERS.search(line) for i in range(count) for line in outputs.references.of(i)):
            return None
        return "rouge-score reads the letters a to z and digits only, and the references have none."

    def rows(self, outputs: TextOutputs) -> Array:
        """See `Metric.rows`."""
        scores = (
            self._scorer.score_multi(outputs.references.of(i), line)[self.kind].fmeasure
            for i, line in enumerate(outputs.scored)
        )
        return np.array([[score, 1] for score in scores], np.float64)

    def value(self, totals_K: Array) -> float:
        """See `Metric.value`."""
        return float(100 * totals_K[0] / totals_K[1])

    def signature(self, outputs: TextOutputs) -> str:
        """See `Metric.signature`."""
        return f"{self.kind}|stem:{'yes' if self.stemmer else 'no'}|rouge-score:{version('rouge-score')}"


class Rouge(RougeScore):
    """`RougeScore` for a run, which needs rouge-score from the start.

    Raises:
        UserError: rouge-score is not installed.
    """

    def __init__(self, kind: Kind, stemmer: bool) -> None:
        super().__init__(kind, stemmer)
        self._scorer  # noqa: B018  (an error before the training)
