"""The base class of metrics, and their declarations in `result.json`."""

import hashlib
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, TypeVar, get_args, get_type_hints

import numpy as np
import numpy.typing as npt

from seq2seq_lab.config.type_checks import fits
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.significance import ratio

Array = npt.NDArray[np.floating[Any]]
NAME = re.compile(r"[a-z][a-z0-9_]*")
RESERVED_ENDINGS = ("_confidence", "_signature")
RESERVED_NAMES = (
    *("examples", "seconds", "label"),  # entries of `result.json` after the prefix of a split or a baseline
    *("file", "allow_pickle"),  # arguments of `numpy.savez_compressed`, which writes the statistics by name
)
When = Literal["validation", "final"]
# Formats of numbers in a `result.json`, whose widths and digits are bounded.
FORMAT = re.compile(r"(.?[<>=^])?[+ -]?#?\d{0,2}[,_]?(\.\d{1,2})?[eEfFgG%]?")
LARGEST = 1e300  # of a number in a `result.json`
ATTRIBUTES = (  # that a metric has to set, with their types
    ("name", str, "a text"),
    ("label", str, "a text"),
    ("higher_is_better", bool | None, "True, False, or None if neither direction is better"),
)

Kind = TypeVar("Kind")


class Metric(ABC):
    """A quantity that is computed from the outputs of a model on a split.

    A metric is a function of sums: `rows` returns statistics for each example, and `value` computes the metric from the
    sum of any of these rows: of the whole split, of a group of examples, or of a bootstrap sample.

    Attributes:
        name: its key in `result.json` and W&B, after the prefix of the split: `bleu` in `test/bleu`.
        label: its name in tables and pictures.
        higher_is_better: whether a greater value is better; None if neither direction is, as for a ratio whose best value is
            1. No value of such a metric counts as the best. It is not a primary metric, and is monitored only if
            `trainer.monitor_mode` has a direction.
        format: the format specification of a value, as in `format(value, ".2f")`.
        when: `validation`: computed at each validation; `final`: only in the final evaluation, unless it is monitored.
        confidence: whether the final evaluation adds a 95% confidence interval.
        shown: whether it is in the validation line and the closing table.
        compared: whether it is a column of the comparison's table; the CSV file has all metrics.
        quiet_value: a value that needs no attention, such as 0 for a share of defective outputs. The validation line leaves
            the metric out while it has this value, and the comparison if all runs have it.
        per_example: whether each row is an example. Rows that are not, such as sums per process, are neither resampled nor
            grouped, and the run folder does not keep them.
        limits: the lowest and the highest value of an axis, both finite; None: chosen from the values.
        bounds: names of metrics that bound or anchor this one, such as `aer_oracle`; tables print them in parentheses.
        is_loss: whether it is a mean loss, which is drawn beside the training loss. The first one of a task decides between
            checkpoints with the same value of the monitored metric.
    """

    name: str
    label: str
    higher_is_better: bool | None
    format: str = ".2f"
    when: When = "validation"
    confidence: bool = False
    shown: bool = True
    compared: bool = True
    quiet_value: float | None = None
    per_example: bool = True
    limits: tuple[float, float] | None = None
    bounds: Sequence[str] = ()
    is_loss: bool = False

    @abstractmethod
    def rows(self, outputs: Any) -> Array:
        """Return the statistics [N, K] of N examples.

        Args:
            outputs: the outputs that the task's evaluator collected; the task defines their type.
        """

    @abstractmethod
    def value(self, totals_K: Array) -> float:
        """Return the metric from the sum of rows; NaN if it is not defined, as for some bootstrap samples."""

    def values(self, totals_SK: Array) -> Array:
        """Return the metric for each of S sums of rows."""
        return np.array([self.value(totals_K) for totals_K in totals_SK])

    def is_defined(self, totals_K: Array) -> bool:
        """Return whether the metric is defined for a group of examples with this sum of rows."""
        return True

    def signature(self, outputs: Any) -> str | None:
        """Return the text that identifies how the metric was computed, if it has one."""
        return None

    def unavailable(self, outputs: Any) -> str | None:
        """Return the reason why the metric cannot be computed from these outputs, or None if it can."""
        return None


class Share(Metric):
    """A share of things, from rows of two numbers: those that count, and all of them."""

    higher_is_better: bool | None = True
    format, limits, confidence = ".1%", (0.0, 1.0), True

    def is_defined(self, totals_K: Array) -> bool:
        """See `Metric.is_defined`."""
        return bool(totals_K[1] > 0)

    def value(self, totals_K: Array) -> float:
        """See `Metric.value`."""
        return ratio(totals_K)


@dataclass(frozen=True)
class Grouping:
    """A metric by group of examples, for example BLEU by source length.

    Attributes:
        name: the property by which the examples are grouped; the key in `result.json` is `METRIC_by_NAME`.
        label: the name of the property in tables and pictures.
        metric: a metric of examples.
        groups: returns the indices of the examples of each group by its label, or None if the outputs have no groups.
        ordered: whether to keep the order of the groups, such as lengths; otherwise tables sort them by value.
    """

    name: str
    label: str
    metric: Metric
    groups: Callable[[Any], Mapping[str, Sequence[int]] | None]
    ordered: bool = True

    @property
    def key(self) -> str:
        """The key in `result.json`, after the prefix of the split."""
        return f"{self.metric.name}_by_{self.name}"


def is_built_in(metric: Metric) -> bool:
    """Return whether a metric is part of this package."""
    return type(metric).__module__.startswith(f"{__package__}.")


@dataclass(frozen=True)
class Declaration:
    """The record of a metric in `result.json`, with which its values can be shown and compared without its code.

    Attributes:
        built_in: whether the metric is part of this package; the comparison then computes it with the package's code.
    """

    label: str
    higher_is_better: bool | None
    format: str
    shown: bool
    compared: bool
    per_example: bool
    limits: Sequence[float] | None
    bounds: Sequence[str]
    built_in: bool
    quiet_value: float | None = None  # earlier runs do not record this and the next one
    is_loss: bool = False

    def text(self, value: float | None) -> str:
        """Return a value as text."""
        return "–" if value is None else f"{value:{self.format}}"


HINTS = get_type_hints(Declaration)


@dataclass(frozen=True)
class GroupingDeclaration:
    """The record of a grouping in `result.json`."""

    label: str
    ordered: bool
    declaration: Declaration


@dataclass(frozen=True)
class Declarations:
    """The record of a task's metrics in `result.json`.

    Attributes:
        metrics: by name.
        groupings: by `Grouping.key`.
        primary: the name of the task's primary metric.
    """

    metrics: dict[str, Declaration]
    groupings: dict[str, GroupingDeclaration]
    primary: str

    @classmethod
    def of(cls, metrics: Sequence[Metric], groupings: Sequence[Grouping], primary: str) -> Self:
        """Return the declarations of metrics.

        Raises:
            UserError: an attribute of a metric is missing or invalid, or two metrics have one name.
        """
        _check(metrics, primary)
        return cls(
            {metric.name: _declaration(metric) for metric in metrics},
            {
                one.key: GroupingDeclaration(one.label, one.ordered, _declaration(one.metric))
                for one in groupings
            },
            primary,
        )

    def result(self) -> dict[str, Any]:
        """Return the entry `metrics` of `result.json`."""
        return {"metrics": asdict(self)}

    @classmethod
    def read(cls, result: Mapping[str, Any]) -> Self:
        """Return the declarations in a `result.json`.

        Raises:
            UserError: a declaration, or a value of a declared metric or grouping, is not what a run records.
        """
        entry = _recorded(result, "metrics", dict)
        declared = cls(
            {name: _read_declaration(one) for name, one in _recorded(entry, "metrics", dict).items()},
            {
                key: GroupingDeclaration(
                    _recorded(one, "label", str),
                    _recorded(one, "ordered", bool),
                    _read_declaration(_recorded(one, "declaration", dict)),
                )
                for key, one in _recorded(entry, "groupings", dict).items()
            },
            _recorded(entry, "primary", str),
        )
        _recorded(declared.metrics, declared.primary, Declaration)
        for key, value in result.items():
            prefix, _, last = key.rpartition("/")
            name = last.removesuffix("_confidence")
            if not prefix:  # an entry of the whole run, which may have the name of a metric
                continue
            if name in declared.metrics:
                _check_number(key, value)
            elif name in declared.groupings:
                for row in _recorded(result, key, list):
                    _recorded(row, "group", str)
                    _recorded(row, "count", int)
                    _check_number(f"{key}.value", row.get("value"))
        return declared

    def directions(self) -> dict[str, Literal["max", "min"]]:
        """Return `max` or `min`, the direction of better values, for each metric that has one."""
        return {
            name: "max" if one.higher_is_better else "min"
            for name, one in self.metrics.items()
            if one.higher_is_better is not None
        }


def _recorded(entry: Any, key: str, kind: type[Kind]) -> Kind:
    """Return a value of a mapping in `result.json`.

    Raises:
        UserError: it has another type, or is missing.
    """
    value = entry.get(key) if isinstance(entry, Mapping) else None
    if not isinstance(value, kind):
        raise UserError(f"result.json is damaged: {key}={value!r:.80} is not a value that a run records.")
    return value


def _check_number(key: str, value: object) -> None:
    """Refuse a value that is neither null nor a number that a float can have."""
    if value is not None and (
        isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < LARGEST
    ):
        raise UserError(f"result.json is damaged: {key}={value!r:.80} is not a number.")


def _read_declaration(entry: Any) -> Declaration:
    """Return a declaration in `result.json`; see `Declarations.read`."""
    values = entry if isinstance(entry, Mapping) else {}
    optional = {"quiet_value", "is_loss"}
    for key in sorted(values.keys() | (HINTS.keys() - optional)):
        right = key in HINTS and key in values and fits(values[key], HINTS[key])
        if not right or (key == "format" and not FORMAT.fullmatch(values[key])):
            raise UserError(
                f"result.json is damaged: {key}={values.get(key)!r:.80} is not a part of the declaration of a metric."
            )
    return Declaration(**values)


def _declaration(metric: Metric) -> Declaration:
    names = [name for name in Declaration.__dataclass_fields__ if name != "built_in"]
    return Declaration(**{name: getattr(metric, name) for name in names}, built_in=is_built_in(metric))


def _check(metrics: Sequence[Metric], primary: str) -> None:
    seen: set[str] = set()
    for metric in metrics:
        where = f"{type(metric).__module__}.{type(metric).__qualname__}"
        for attribute, kind, remedy in ATTRIBUTES:
            if not isinstance(value := getattr(metric, attribute, "missing"), kind):
                raise UserError(f"metric {where}: {attribute}={value}. Set it to {remedy}.")
        try:
            format(0.5, metric.format)
        except ValueError as error:
            raise UserError(
                f"metric {where}: format={metric.format} is not a format of numbers. Use one such as .2f or .1%."
            ) from error
        allowed = NAME.fullmatch(metric.name) and metric.name not in RESERVED_NAMES
        if not allowed or metric.name.endswith(RESERVED_ENDINGS):
            raise UserError(
                f"metric {where}: name={metric.name} is not allowed. Use lower-case letters, digits and _, no ending "
                f"{' or '.join(RESERVED_ENDINGS)}, and none of the names {', '.join(RESERVED_NAMES)}."
            )
        if metric.name in seen:
            raise UserError(
                f"metric {where}: name={metric.name} is the name of another metric. Choose another name."
            )
        seen.add(metric.name)
        if metric.when not in get_args(When):
            raise UserError(
                f"metric {where}: when={metric.when} is not allowed. Values: {', '.join(get_args(When))}."
            )
        match metric.limits:
            case None:
                pass
            case (int() | float() as low, int() | float() as high) if -math.inf < low < high < math.inf:
                pass
            case _:
                raise UserError(
                    f"metric {where}: limits={metric.limits} is not allowed. Use two finite numbers, the lower one "
                    f"first, or None to choose the limits from the values."
                )
    for metric in metrics:
        if unknown := [bound for bound in metric.bounds if bound not in seen]:
            raise UserError(
                f"metric {metric.name}: bounds={metric.bounds} contains names that no metric has: {', '.join(unknown)}. "
                f"Metrics: {', '.join(sorted(seen))}."
            )
    assert primary in seen, primary
    if next(metric for metric in metrics if metric.name == primary).higher_is_better is None:
        raise UserError(
            f"metric {primary}: higher_is_better=None is not allowed for the primary metric of a task. Set it to True or "
            f"False, or choose another primary metric."
        )


def digest(examples: Iterable[object]) -> str:
    """Return a short hash of JSON values, for `Measurement.examples`."""
    return hashlib.sha256(json.dumps([*examples]).encode()).hexdigest()[:7]
