"""A self-contained HTML page with the runs, curves, metrics, outputs and attention of a comparison.

The page contains the data as JSON and Plotly, both compressed; `page.js` draws them, again after each choice of the reader.
"""

import html
import itertools
import math
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from os.path import commonpath
from string import Template
from typing import Any

from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.base import Declaration, GroupingDeclaration
from seq2seq_lab.metrics.significance import LEAST_TESTED, LEVEL
from seq2seq_lab.reporting.aer import MEANING
from seq2seq_lab.reporting.attention_groups import grouped_measures
from seq2seq_lab.reporting.comparison import SPEED, Table, cells, legend, note
from seq2seq_lab.reporting.effects import HEADS, SHOWN, effects, next_steps
from seq2seq_lab.reporting.figures import curve_labels, curve_points
from seq2seq_lab.reporting.frame import as_json, framed, packed, read, script
from seq2seq_lab.reporting.naming import MISSING, SEARCH_SEED, SEED, setting_value
from seq2seq_lab.reporting.run_page import heatmap_frame, steps
from seq2seq_lab.reporting.runs import ASPECTS, Group, Run, same_code
from seq2seq_lab.runtime.notebook import html_table

SECTIONS = {
    "summary": "Summary",
    "effects": "Effects",
    "runs": "Runs",
    "curves": "Curves",
    "groupings": "Groups",
    "settings": "Settings",
    "difference": "Difference",
    "attention": "Attention",
    "outputs": "Outputs",
    "next": "Next",
}
MAX_POINTS = 200  # of a curve
MAX_ROWS = 20_000  # outputs on the page
MAX_MAPPED_RUNS = 40  # if there are more, only the median runs show their attention
MAX_SIZE = 6_000_000  # bytes of a page: it has the attention of as many examples as fit
MAX_FRAME = 150_000  # bytes of the page without its data and Plotly
DIFFERING, EVERY = 0, 1  # columns of the table of runs that a choice of the reader shows
FILES = ("parts.js", "filter.js", "weights.js", "heatmap.js", "outputs.js", "page.js", "view.js")


def page(table: Table, title: str) -> str:
    """Return the page.

    Raises:
        UserError: Plotly is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise UserError("--html needs Plotly: pip install 'seq2seq_lab[compare]'.") from error
    heads, rows, _ = cells(table)
    data, plotly = page_data(table), packed(get_plotlyjs())
    kept = len(data["attention"])
    room = MAX_SIZE - len(plotly) - len(packed(as_json({**data, "attention": []}))) - MAX_FRAME
    data["attention"] = fitting(data["attention"], room)
    main = Template(read("page.html")).substitute(
        metric=html.escape(table.label),
        effects=effects_table(table),
        next=steps(next_steps(table), {}),
        attention=attention_note(len(data["attention"]), kept),
        table=html_table(heads, rows),
        note="<br>".join(
            f"<bdi>{html.escape(text)}</bdi>"
            for text in (*about_aer(table), *legend(table), note(table), *table.warnings)
        ),
    )
    parts = [
        f'<script id="{name}" type="text/plain">{text}</script>'
        for name, text in (("plotly", plotly), ("data", packed(as_json(data))))
    ]
    return framed(title, SECTIONS, main, [*parts, *map(script, FILES), "<script>start();</script>"])


def about_aer(table: Table) -> list[str]:
    """Return the meaning of the AER, if a run has one."""
    runs = [run for group in table.groups for run in group.runs]
    return [MEANING] if any(run.result.get("test/aer") is not None for run in runs) else []


def fitting(examples: Sequence[dict[str, Any]], room: int) -> list[dict[str, Any]]:
    """Return the first examples whose attention takes at most `room` bytes of a page."""
    sizes = itertools.accumulate(len(packed(as_json(example))) for example in examples)
    return [example for example, size in zip(examples, sizes, strict=True) if size <= room]


def attention_note(shown: int, kept: int) -> str:
    """Return how many of the examples whose attention the runs have kept are on the page."""
    if shown == kept:
        return f"All {kept:,} examples whose attention these runs have kept."
    return (
        f"{shown:,} of the {kept:,} examples whose attention these runs have kept; more do not fit the page."
    )


def effects_table(table: Table) -> str:
    """Return the differences between lines that differ in one setting, and how sure they are, in HTML."""
    found = effects(table)
    if not found:
        return '<p class="note">No two lines differ in one setting only: no difference can be attributed to one.</p>'
    more = f" The {SHOWN} largest of {len(found):,}." if len(found) > SHOWN else ""
    rows = [one.cells(table) for one in found[:SHOWN]]
    explained = (
        f"Pairs of lines that differ in one setting, or in settings that vary together: the gain in {table.label}, over "
        f"seeds and examples. An interval that contains 0, or p above {LEVEL}: not decided. "
        f"p is corrected for all pairs of lines of the table; it needs {LEAST_TESTED} runs of both.{more}"
    )
    return f'<div class="scroll">{html_table(HEADS, rows)}</div><p class="note">{html.escape(explained)}</p>'


def page_data(table: Table) -> dict[str, Any]:
    """Return the data of the page, as plain values. Runs are numbered in the order of the groups, the best first."""
    runs = [run for group in table.groups for run in group.runs]
    indices = {id(run): index for index, run in enumerate(runs)}
    medians = [group.median(table.score) for group in table.groups]
    return {
        "metric": table.label,
        "split": table.split,
        "runs": names_of(table.groups),
        "groups": [
            {
                "label": group.label,
                "color": color,
                "runs": [indices[id(run)] for run in group.runs],
                "median": None if median is None else indices[id(median)],
            }
            for group, color, median in zip(table.groups, colors(len(table.groups)), medians, strict=True)
        ],
        "columns": columns(table, runs),
        "shared": shared_settings(runs),
        "curves": curves(table, runs),
        "groupings": groupings(table, medians),
        "axes": axes(table),
        "examples": examples(table.groups, runs),
        "attention": attention(runs if len(runs) <= MAX_MAPPED_RUNS else medians, indices),
    }


def names_of(groups: Sequence[Group]) -> list[str]:
    """Return the name of each run on the page; it includes the folder if another run has the same name."""
    names = [(f"{group.label}, seed {run.seed}", run) for group in groups for run in group.runs]
    count = Counter(name for name, _ in names)
    return [name if count[name] == 1 else f"{name} ({run.folder})" for name, run in names]


def colors(count: int) -> list[str]:
    """Return a color for each of `count` groups."""
    from plotly.colors import qualitative

    palette = qualitative.D3 if count <= len(qualitative.D3) else qualitative.Alphabet
    return [palette[i % len(palette)] for i in range(count)]


def columns(table: Table, runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the columns of the table of runs: settings, scores and facts.

    A column has a "label", a "kind" (setting | score | fact | name), "shown" (from which choice of columns on), and of
    each run a text and a value to sort by.
    """
    made = []

    def add(label: str, kind: str, shown: int, texts: Sequence[str], values: Sequence[Any] = ()) -> None:
        made.append(
            {
                "label": label,
                "kind": kind,
                "shown": shown,
                "texts": texts,
                "values": values or sortable(texts),
            }
        )

    varies = [group.varies for group in table.groups for _ in group.runs]
    for key in table.groups[0].varies:  # settings, and sometimes those of `naming.DATA`
        add(key, "setting", DIFFERING, [one[key] for one in varies])
    if SEED not in table.groups[0].varies:
        add(SEED, "setting", DIFFERING, [run.seed for run in runs])
    for name, one in table.metrics.items():
        values = [run.result.get(f"test/{name}") for run in runs]
        if any(value is not None for value in values):
            shown = DIFFERING if one.compared or name == table.metric else EVERY
            add(one.label, "score", shown, [one.text(value) for value in values], values)
    for label, values in sizes_and_speeds(runs).items():
        texts = [MISSING if value is None else f"{value:,.0f}" for value in values]
        add(label, "fact", EVERY, texts, values)
    for aspect in ("data", *ASPECTS):
        if aspect in table.groups[0].varies:  # it has a column already
            continue
        texts = [run.recorded[aspect] for run in runs]
        same = same_code(runs) if aspect == "code" else len(set(texts)) == 1
        add(aspect, "fact", EVERY if same else DIFFERING, texts, texts)
    add("folder", "name", DIFFERING, short_folders(runs))
    add("overrides", "fact", EVERY, [run.recorded["overrides"] for run in runs])
    commands = [
        shlex.join(["python", "-m", "seq2seq_lab.runs", str(run.folder), "--reproduce"]) for run in runs
    ]
    add("command to reproduce", "name", EVERY, commands)
    shown_keys = {SEED, SEARCH_SEED, *table.groups[0].varies}
    for key in differing_settings(runs):
        if key not in shown_keys:
            add(key, "setting", DIFFERING, [setting_value(run, key) for run in runs])
    return made


def short_folders(runs: Sequence[Run]) -> list[str]:
    """Return the folder of each run without the parent folders that all runs share."""
    folders = [run.folder.absolute() for run in runs]
    shared = commonpath([folder.parent for folder in folders])
    return [str(folder.relative_to(shared)) for folder in folders]


def sizes_and_speeds(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """Return the sizes and speeds of each run by label."""
    labels = {"num_parameters": "parameters", "steps": "steps", "train/seconds": "seconds of training"}
    for run in runs:
        for match in filter(None, map(SPEED.fullmatch, run.result)):
            labels[match[0]] = f"{match[1].replace('_', ' ')}/s"
    return {
        label: [run.result.get(key) for run in runs]
        for key, label in labels.items()
        if any(run.result.get(key) is not None for run in runs)
    }


def sortable(texts: Sequence[str]) -> Sequence[Any]:
    """Return the values to sort texts by: floats if all texts are numbers, else the texts."""
    return [float(text) for text in texts] if all(map(is_number, texts)) else texts


def differing_settings(runs: Sequence[Run]) -> list[str]:
    """Return the settings that are not the same in all runs."""
    known = dict.fromkeys(key for run in runs for key in run.settings)
    return [key for key in known if len({setting_value(run, key) for run in runs}) > 1]


def shared_settings(runs: Sequence[Run]) -> dict[str, str]:
    """Return the settings that are the same in all runs."""
    differing = set(differing_settings(runs))
    return {key: value for key, value in runs[0].settings.items() if key not in differing}


def curves(table: Table, runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the metrics of validation and the training loss: of each run the steps and the values.

    The metric of the comparison comes first.
    """
    made = []
    for key, label in curve_labels(table).items():
        points = [thinned(curve_points(run, key)) for run in runs]
        if any(points):
            lines = [
                {"x": [x for x, _ in line], "y": [float(f"{y:.6g}") for _, y in line]} for line in points
            ]
            made.append({"label": label, "lines": lines})
    return made


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return every k-th point of a curve and the last one, at most about 2 `MAX_POINTS`.

    k is a power of two, so that curves of different lengths keep common steps, over which the page computes means.
    """
    every = 2 ** max(0, (len(points) // MAX_POINTS).bit_length() - 1)
    return [*points[:-1:every], *points[-1:]]


def groupings(table: Table, medians: Sequence[Run | None]) -> list[dict[str, Any]]:
    """Return the metrics by group of examples of the median runs, with counts and 95% intervals if there are any."""
    declared: dict[str, GroupingDeclaration] = {}
    for group in table.groups:
        declared = group.runs[0].declared.groupings | declared
    made = []
    for key, grouping in declared.items():
        rows = [[] if run is None else run.result.get(f"test/{key}", []) for run in medians]
        found = bars(grouping.declaration, grouping.label, rows)
        if any(found["bars"]):
            made.append(found)
    return [*made, *attention_groupings(medians)]


def bars(one: Declaration, label: str, rows: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Return a metric by group of examples, without groups that have no value, and the order of the others.

    Args:
        label: what the examples are grouped by.
        rows: of each run, as in `result.json`.
    """
    groups = dict.fromkeys(row["group"] for of_run in rows for row in of_run)
    known = {row["group"] for of_run in rows for row in of_run if row["value"] is not None}
    return {
        "label": f"{one.label} by {label}",
        "order": [group for group in groups if group in known],
        "axis": label,
        "metric": one.label,
        "limits": one.limits,
        "bars": [
            [{**row, "text": one.text(row["value"])} for row in of_run if row["value"] is not None]
            for of_run in rows
        ],
    }


def attention_groupings(medians: Sequence[Run | None]) -> Iterator[dict[str, Any]]:
    """Yield the measures of attention by group; see `groupings`."""
    measured = [{} if run is None else grouped_measures(run) for run in medians]
    declared = {name: one for run in medians if run is not None for name, one in run.declared.metrics.items()}
    keys = dict.fromkeys((label, name) for one in measured for label, own in one.items() for name in own)
    for label, name in keys:
        found = [own.get(label, {}).get(name, ()) for own in measured]
        yield bars(declared[name], label, [[*map(asdict, rows)] for rows in found])


def axes(table: Table) -> list[dict[str, Any]]:
    """Return parallel axes of the settings that differ between the runs, and at the end one of the metric.

    Runs without a value of the metric are left out.
    """
    scored = [
        ({SEED: run.seed, **group.varies}, run.result[table.score])
        for group in table.groups
        for run in group.runs
        if run.result.get(table.score) is not None
    ]
    keys = dict.fromkeys((*table.groups[0].varies, SEED))
    texts = {key: [settings[key] for settings, _ in scored] for key in keys}
    of_settings = [axis(key, values) for key, values in texts.items() if len(set(values)) > 1]
    scores = [score for _, score in scored]
    return [*of_settings, {"label": f"{table.split} {table.label}", "values": scores, "tickformat": ".4~g"}]


def axis(key: str, texts: Sequence[str]) -> dict[str, Any]:
    """Return one of the parallel axes, with a tick at each value: numbers in proportion, other values evenly spaced."""
    known = sorted(set(texts), key=lambda text: (float(text) if is_number(text) else 0.0, text))
    ticks = [float(text) if all(map(is_number, known)) else float(i) for i, text in enumerate(known)]
    values = [ticks[known.index(text)] for text in texts]
    return {"label": key, "values": values, "tickvals": ticks, "ticktext": known}


def is_number(text: str) -> bool:
    """Return whether a text is a finite number."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def examples(groups: Sequence[Group], runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the outputs on each test set, example by example; runs without outputs are left out.

    A set has the indices of its "runs", and for each of them "outputs" and "scores".
    """
    sets: dict[str, list[int]] = {}
    for index, run in enumerate(runs):
        if run.examples:
            sets.setdefault(run.test_set, []).append(index)
    group_of = [index for index, group in enumerate(groups) for _ in group.runs]
    shown = max(20, MAX_ROWS // max(1, sum(map(len, sets.values()))))
    return [_example_set(name, indices, group_of, runs, shown) for name, indices in sets.items()]


def _example_set(
    name: str, indices: Sequence[int], group_of: Sequence[int], runs: Sequence[Run], shown: int
) -> dict[str, Any]:
    own = [runs[index] for index in indices]
    rows, entry = own[0].examples, own[0].result["page"]["examples"]
    others = [position for position, index in enumerate(indices) if group_of[index] != group_of[indices[0]]]
    return {
        "label": f"{name}: {len(rows):,} examples, {len(own)} {'run' if len(own) == 1 else 'runs'}",
        "runs": list(indices),
        "total": len(rows),
        # At the start, the first run of another group is shown beside the first run.
        "second": others[0] if others else min(1, len(own) - 1),
        "inputs": [[row["input"], row["reference"]] for row in rows[:shown]],
        "outputs": [[row["output"] for row in run.examples[:shown]] for run in own],
        "scores": [[row["score"] for row in run.examples[:shown]] for run in own],
        "score": entry["columns"]["score"].replace("_", " "),
        "note": entry.get("note", ""),
    }


def attention(runs: Sequence[Run | None], indices: dict[int, int]) -> list[dict[str, Any]]:
    """Return the heatmaps or pictures of each example by the index of the run, those of the test set first.

    A heatmap has frames: one, or one for each validation.
    """
    maps: dict[str, dict[int, dict[str, Any]]] = {}
    for run in runs:
        if run is None:
            continue
        index = indices[id(run)]
        for row in run.heatmaps:
            maps.setdefault(row["title"], {})[index] = {"frames": [heatmap_frame(row)]}
        for row in run.pictures:
            maps.setdefault(row["title"], {})[index] = {"picture": row["picture"]}
    for run in runs:
        for step, rows in run.snapshots if run is not None else ():
            for row in rows:
                title = f"validation: {row['title']}"
                frames = maps.setdefault(title, {}).setdefault(indices[id(run)], {"frames": []})["frames"]
                frames.append({"step": step, "note": row.get("note", ""), **heatmap_frame(row)})
    return [{"title": title, "maps": of_run} for title, of_run in maps.items()]
