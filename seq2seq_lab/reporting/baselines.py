"""The results of trivial baselines, recorded and shown beside those of a model.

In `result.json`, `baseline/NAME/label` is the name of a baseline in tables, and `baseline/NAME/test/METRIC` a metric on the
test set whose metrics of the model are `test/METRIC`; the same with `test/OTHER` for further test sets, and with `val` in an
evaluation of the validation split.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from seq2seq_lab.metrics.base import Declaration, Declarations
from seq2seq_lab.runtime.heartbeat import heartbeat
from seq2seq_lab.runtime.tables import TextTable
from seq2seq_lab.tasks.base import Task

PREFIX, LABEL = "baseline/", "/label"


def measured(task: Task, splits: Sequence[Any]) -> dict[str, Any]:
    """Compute the baselines of a task on splits; return the entries of `result.json`."""
    result: dict[str, Any] = {}
    for split in splits:
        heartbeat.beat("computing the baselines")
        for one in task.baselines(split):
            key = f"{PREFIX}{one.name}"
            result |= {f"{key}{LABEL}": one.label, **one.measurement.result(f"{key}/{split.prefix}")}
    return result


def labels(result: Mapping[str, Any]) -> dict[str, str]:
    """Return the label of each baseline of a `result.json` by the start of its keys, `baseline/NAME`."""
    return {
        key.removesuffix(LABEL): text
        for key, text in result.items()
        if key.startswith(PREFIX) and key.endswith(LABEL)
    }


def best(result: Mapping[str, Any], declared: Declarations, split: str) -> tuple[str, str] | None:
    """Return the label and the key of the trivial baseline with the best primary metric; None without baselines.

    Args:
        split: the prefix of the examples.
    """
    name = f"{split}/{declared.primary}"
    found = {
        (label, key): result[f"{key}/{name}"]
        for key, label in labels(result).items()
        if result.get(f"{key}/{name}") is not None
    }
    choose = max if declared.metrics[declared.primary].higher_is_better else min
    return choose(found, key=found.__getitem__) if found else None


def tables(
    result: Mapping[str, Any], metrics: Mapping[str, Declaration], splits: Sequence[str]
) -> Iterator[TextTable]:
    """Yield a table of the metrics that the baselines have: of the model, and of each baseline. None without baselines.

    Args:
        metrics: the declarations of the metrics, by name.
        splits: the prefixes of the test sets.
    """
    baselines = labels(result)
    shown = [
        name
        for name, one in metrics.items()
        if one.shown and any(f"{key}/{split}/{name}" in result for key in baselines for split in splits)
    ]
    rows = []
    for split in splits:
        suffix = "" if len(splits) == 1 else f", {split}"
        for start, label in {
            "": "this model",
            **{f"{key}/": label for key, label in baselines.items()},
        }.items():
            cells = [value_text(result, f"{start}{split}/{name}", metrics[name]) for name in shown]
            if any(f"{start}{split}/{name}" in result for name in shown):
                rows.append([f"{label}{suffix}", *cells])
    if baselines and shown:
        heads = ["", *(metrics[name].label for name in shown)]
        yield TextTable("compared with trivial baselines", heads, rows)


def value_text(result: Mapping[str, Any], key: str, one: Declaration) -> str:
    """Return the value of a key as text, with its interval if it has one."""
    text, confidence = one.text(result.get(key)), result.get(f"{key}_confidence")
    return text if confidence is None else f"{text} ± {one.text(confidence)}"


def notes(
    groups: Sequence[tuple[str, Sequence[Mapping[str, Any]]]], metrics: Mapping[str, Declaration]
) -> Iterator[str]:
    """Yield a line with the baselines of runs for each first test set; one for all test sets with the same values.

    Args:
        groups: the label of each group of runs with the same test set, and their results (`result.json`).
        metrics: the declarations of the metrics, by name; a baseline without a value of one of them is left out.
    """
    of_sets: dict[str, list[tuple[str, Sequence[Mapping[str, Any]]]]] = {}
    for label, results in groups:
        of_sets.setdefault(results[0]["test/examples"], []).append((label, results))
    lines: dict[str, list[str]] = {}
    for members in of_sets.values():
        text = _values([result for _, results in members for result in results], metrics)
        lines.setdefault(text, []).extend(label for label, _ in members)
    for text, named in lines.items():
        if text:
            where = f" of {', '.join(f'[{label}]' for label in named)}" if len(lines) > 1 else ""
            yield f"Trivial baselines{where}: {text}."


def _values(results: Sequence[Mapping[str, Any]], metrics: Mapping[str, Declaration]) -> str:
    """Return the values of the baselines of runs with the same test set; empty without baselines.

    A baseline that depends on a setting in which the runs differ, such as the tokenizer, has the range of its values.
    """
    texts = []
    for label, key in {label: key for result in results for key, label in labels(result).items()}.items():
        of_label = [result for result in results if result.get(f"{key}{LABEL}") == label]
        values = [
            f"{one.label} {_range(one, [result.get(f'{key}/test/{name}') for result in of_label])}"
            for name, one in metrics.items()
            if one.compared and any(f"{key}/test/{name}" in result for result in of_label)
        ]
        if values:
            texts.append(f"{label}: {', '.join(values)}")
    return "; ".join(texts)


def _range(one: Declaration, values: Sequence[float | None]) -> str:
    texts = list(dict.fromkeys(one.text(value) for value in sorted(v for v in values if v is not None)))
    return " to ".join((texts[0], texts[-1])) if len(texts) > 1 else "".join(texts) or "–"
