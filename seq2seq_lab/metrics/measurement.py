"""The computation of the metrics of a split."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.base import Array, Grouping, Metric, Share, is_built_in
from seq2seq_lab.metrics.significance import confidence_interval

CONFIDENCE_SAMPLES = 1000  # as sacreBLEU's command line


@dataclass(frozen=True)
class GroupValue:
    """The value of a metric for one group of examples; None if it is not defined for them."""

    group: str
    count: int
    value: float | None
    confidence: float | None = None


@dataclass(frozen=True)
class Measurement:
    """The metrics of one split.

    Attributes:
        values: metrics and half widths of confidence intervals (`NAME_confidence`), by name without the split's prefix.
        signatures: signatures by the metric's name.
        groups: metrics by group of examples, by `Grouping.key`.
        statistics: rows by the metric's name, in the final evaluation. A metric from outside the package has the rows
            (value of the example, 1), or (0, 0) if the value is not defined, so that its own code is not needed to compare.
        clusters: the id of each example's cluster. Examples of one cluster are not independent: tests resample clusters.
        examples: a hash of the examples and of the way they are scored; values with equal hashes are comparable.
        not_finite: the names of metrics from outside the package whose value is NaN or infinite although it is defined.
    """

    values: dict[str, float]
    signatures: dict[str, str] = field(default_factory=dict)
    groups: dict[str, list[GroupValue]] = field(default_factory=dict)
    statistics: dict[str, Array] = field(default_factory=dict)
    clusters: npt.NDArray[np.int64] = field(default_factory=lambda: np.arange(0))
    examples: str = ""
    not_finite: Sequence[str] = ()

    def result(self, prefix: str) -> dict[str, Any]:
        """Return the entries of `result.json`, except those of `Declarations`.

        Args:
            prefix: the prefix of the split: `val`, `test` or `test/NAME`.
        """
        return {
            **{f"{prefix}/{name}": value for name, value in self.values.items()},
            **{f"{prefix}/{name}_signature": text for name, text in self.signatures.items()},
            **{f"{prefix}/{key}": [asdict(group) for group in groups] for key, groups in self.groups.items()},
            f"{prefix}/examples": self.examples,
        }


def measure(
    metrics: Sequence[Metric],
    outputs: Any,
    *,
    clusters: npt.NDArray[np.int64],
    examples: str,
    groupings: Sequence[Grouping] = (),
    final: bool = False,
    also: Collection[str] = (),
    samples: int = CONFIDENCE_SAMPLES,
    after_metric: Callable[[], None] | None = None,
) -> Measurement:
    """Compute the metrics of a split from its outputs.

    Args:
        clusters: see `Measurement.clusters`; `numpy.arange(N)` if the N examples are independent.
        examples: see `Measurement.examples`, and `digest`.
        final: add the metrics of the final evaluation, the confidence intervals and the groups of examples.
        also: names of metrics of the final evaluation to compute in any case.
        samples: the number of bootstrap samples of a confidence interval.
        after_metric: called after each metric, for example to stop after a signal.

    Raises:
        UserError: the rows of a metric are not an array of numbers [N, K], or its value is not a number.
    """
    values: dict[str, float] = {}
    signatures, statistics, not_finite = {}, {}, []
    rows_of: dict[tuple[type[Metric], str], Array] = {}  # a custom metric may have the name of a built-in one
    for metric in metrics:
        if not (final or metric.when == "validation" or metric.name in also) or metric.unavailable(outputs):
            continue
        rows = _rows(metric, outputs, len(clusters))
        totals_K = rows.sum(0)
        value = _value(metric, totals_K)
        if isinstance(metric, Share) and not metric.is_defined(totals_K):
            value = 0.0  # a share of nothing, for example of the words of empty outputs
        values[metric.name] = value
        if not (math.isfinite(value) or is_built_in(metric)) and metric.is_defined(totals_K):
            not_finite.append(metric.name)
        if (signature := metric.signature(outputs)) is not None:
            signatures[metric.name] = signature
        if metric.per_example:
            rows_of[type(metric), metric.name] = rows
        if metric.per_example and final:
            statistics[metric.name] = rows if is_built_in(metric) else _values_of_examples(metric, rows)
            if metric.confidence:
                interval = confidence_interval(metric.value, rows, clusters, samples)
                if interval is not None:
                    values[f"{metric.name}_confidence"] = interval
        if after_metric is not None:
            after_metric()
    groups = {}
    for grouping in groupings if final else ():
        metric, members = grouping.metric, grouping.groups(outputs)
        if members is not None:
            key = (type(metric), metric.name)
            if key not in rows_of:
                rows_of[key] = _rows(metric, outputs, len(clusters))
            rows = rows_of[key]
            groups[grouping.key] = [
                _group_value(metric, label, rows[[*index]], clusters[[*index]], samples)
                for label, index in members.items()
            ]
    return Measurement(values, signatures, groups, statistics, clusters, examples, not_finite)


def _value(metric: Metric, totals_K: Array) -> float:
    value: Any = metric.value(totals_K)
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "bif":
        raise UserError(
            f"metric {metric.name}: value() returned {value!r:.80} of type {type(value).__name__}. Return one number."
        )
    return float(array.item())


def _rows(metric: Metric, outputs: Any, examples: int) -> Array:
    try:
        rows = np.asarray(metric.rows(outputs))
    except AttributeError as error:
        if error.obj is not outputs:
            raise
        raise UserError(
            f"metric {metric.name} needs outputs with {error.name!r}, which this task does not have. Leave it out, or "
            f"choose another one."
        ) from error
    if rows.ndim != 2 or rows.dtype.kind not in "bif" or (metric.per_example and len(rows) != examples):
        allowed = f"[{examples}, K]" if metric.per_example else "[N, K]"
        raise UserError(
            f"metric {metric.name}: rows() returned an array of shape {list(rows.shape)} and type {rows.dtype}. Return "
            f"numbers {allowed}, a row for each example in the order of the split."
        )
    return rows.astype(np.float64)


def _values_of_examples(metric: Metric, rows: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.asarray(metric.values(rows), np.float64)
    defined = np.isfinite(values)
    return np.column_stack([np.where(defined, values, 0), defined])


def _group_value(
    metric: Metric, label: str, rows: Array, clusters: npt.NDArray[np.int64], samples: int
) -> GroupValue:
    if not len(rows) or not metric.is_defined(totals_K := rows.sum(0)):
        return GroupValue(label, len(rows), None)
    interval = confidence_interval(metric.value, rows, clusters, samples) if metric.confidence else None
    value = _value(metric, totals_K)
    return GroupValue(label, len(rows), value if math.isfinite(value) else None, interval)
