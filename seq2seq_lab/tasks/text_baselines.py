"""The results of trivial baselines of tasks that generate text."""

from collections.abc import Sequence

from seq2seq_lab.metrics.accuracy import ExactMatch
from seq2seq_lab.metrics.base import Metric
from seq2seq_lab.metrics.bleu import Bleu
from seq2seq_lab.metrics.chrf import Chrf
from seq2seq_lab.metrics.measurement import measure
from seq2seq_lab.metrics.texts import References, TextOutputs
from seq2seq_lab.tasks.base import Baseline


def text_baseline(
    name: str, label: str, lines: Sequence[str], references: References, metrics: Sequence[Metric]
) -> Baseline:
    """Return the result of a baseline: those of BLEU, chrF and exact match of plain text that the task has.

    Args:
        name: see `Baseline`.
        label: see `Baseline`.
        lines: the output of the baseline for each pair.
        references: those that the model is scored against.
        metrics: the metrics of the task.
    """
    used = [
        metric
        for metric in metrics
        if isinstance(metric, ExactMatch)
        or (isinstance(metric, Bleu | Chrf) and not (metric.lowercased_tokenised or metric.unknown_replaced))
    ]
    outputs = TextOutputs(lines, references)
    measurement = measure(
        used, outputs, clusters=references.clusters, examples=references.examples, final=True
    )
    return Baseline(name, label, measurement)
