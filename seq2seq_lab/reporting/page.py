"""A self-contained HTML page with the curves, metrics, outputs and attention of several runs."""

import html
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.base import GroupingDeclaration
from seq2seq_lab.reporting.comparison import Table, cells, note
from seq2seq_lab.reporting.runs import Group

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

TEMPLATE = Path(__file__).with_name("page.html")
TRAINING_LOSS = "train/loss"
MAX_POINTS = 200  # of a curve
MAX_ROWS = 20_000  # outputs on the page
MAX_MAPPED_RUNS = 40  # if there are more, only the median runs show their attention
MARGIN = {"l": 60, "r": 20, "t": 20, "b": 50}


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
    data = {
        "curves": {label: as_json(figure) for label, figure in curves(table).items()},
        "groups": {label: as_json(figure) for label, figure in groups(table).items()},
        "settings": as_json(settings(table)),
        "examples": examples(table.groups),
        "attention": attention(table),
    }
    return Template(TEMPLATE.read_text("utf-8")).substitute(
        title=html.escape(title),
        metric=html.escape(table.label),
        plotly=get_plotlyjs(),
        table=html_table(heads, rows),
        note="<br>".join(html.escape(text) for text in (note(table), *table.warnings)),
        data=json.dumps(data, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c"),
    )


def html_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in HTML."""

    def row(tag: str, texts: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts) + "</tr>"

    return f"<table>{row('th', heads)}{''.join(row('td', texts) for texts in rows)}</table>"


def as_json(figure: "Figure") -> dict[str, Any]:
    """Return a figure in the format of Plotly's scripts."""
    values: dict[str, Any] = json.loads(figure.to_json())
    return values


def names_of(groups: Sequence[Group]) -> dict[Path, str]:
    """Return the name of each run on the page; it includes the folder if another run has the same name."""
    names = {run.folder: f"{group.label}, seed {run.seed}" for group in groups for run in group.runs}
    count = Counter(names.values())
    return {folder: name if count[name] == 1 else f"{name} ({folder})" for folder, name in names.items()}


def colours(groups: Sequence[Group]) -> list[str]:
    """Return a colour for each group."""
    from plotly.colors import qualitative

    palette = qualitative.D3 if len(groups) <= len(qualitative.D3) else qualitative.Alphabet
    return [palette[number % len(palette)] for number in range(len(groups))]


def curves(table: Table) -> "dict[str, Figure]":
    """Return a figure for each metric of validation and for the training loss: a curve per run, a colour per group.

    The metric of the comparison comes first.
    """
    from plotly.graph_objects import Figure, Scatter

    names = names_of(table.groups)
    rows = {run.folder: run.metrics() for group in table.groups for run in group.runs}
    labels = {f"val/{name}": f"validation {one.label}" for name, one in table.metrics.items()}
    first = f"val/{table.metric}"
    labels = {first: labels[first], **labels, TRAINING_LOSS: "training loss"}
    figures = {}
    for key, label in labels.items():
        figure = Figure()
        for group, colour in zip(table.groups, colours(table.groups), strict=True):
            for number, run in enumerate(group.runs):
                points = thinned([(row["step"], row[key]) for row in rows[run.folder] if key in row])
                if points:
                    x, y = zip(*points, strict=True)
                    figure.add_trace(
                        Scatter(
                            x=x,
                            y=y,
                            name=group.label,
                            legendgroup=group.label,
                            showlegend=number == 0,
                            line={"color": colour},
                            mode="lines" if len(points) > 30 else "lines+markers",
                            hovertemplate=f"{html.escape(names[run.folder])}<br>step %{{x}}: %{{y:.4g}}<extra></extra>",
                        )
                    )
        if figure.data:
            figures[label] = figure.update_layout(
                xaxis_title="step", yaxis_title=label, hovermode="closest", margin=MARGIN
            )
    return figures


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most about `MAX_POINTS` of a curve's points, evenly spaced, and always the last one."""
    every = max(1, len(points) // MAX_POINTS)
    return [*points[:-1:every], *points[-1:]]


def groups(table: Table) -> "dict[str, Figure]":
    """Return a figure for each grouping: bars of the median runs, with counts and 95% intervals if there are any."""
    from plotly.graph_objects import Bar, Figure

    declared: dict[str, GroupingDeclaration] = {}
    for group in table.groups:
        declared = group.runs[0].declared.groupings | declared
    figures = {}
    for key, grouping in declared.items():
        figure = Figure()
        for group, colour in zip(table.groups, colours(table.groups), strict=True):
            run = group.median(table.score)
            rows = [] if run is None else run.result.get(f"test/{key}", [])
            if rows := [row for row in rows if row["value"] is not None]:
                figure.add_trace(
                    Bar(
                        x=[row["group"] for row in rows],
                        y=[row["value"] for row in rows],
                        name=group.label,
                        marker={"color": colour},
                        error_y={"array": [row["confidence"] for row in rows]},
                        customdata=[row["count"] for row in rows],
                        hovertemplate=f"%{{y:{grouping.declaration.format}}}, %{{customdata}} examples"
                        f"<extra>{html.escape(group.label)}</extra>",
                    )
                )
        if figure.data:
            label = grouping.declaration.label
            figures[f"{label} by {grouping.label}"] = figure.update_layout(
                xaxis_title=grouping.label, yaxis_title=f"test {label}", barmode="group", margin=MARGIN
            )
    return figures


def settings(table: Table) -> "Figure":
    """Return the metric against the settings that vary: parallel axes, a line per run; drag along an axis to select runs."""
    from plotly.graph_objects import Figure, Parcoords

    runs = [
        (group, run)
        for group in table.groups
        for run in group.runs
        if run.result.get(table.score) is not None
    ]
    axes = [axis(key, [group.varies[key] for group, _ in runs]) for key in table.groups[0].varies]
    axes.append(axis("seed", [run.seed for _, run in runs]))
    scores = [run.result[table.score] for _, run in runs]
    axes.append({"label": f"test {table.label}", "values": scores, "tickformat": ".4~g"})
    line = {"color": scores, "colorscale": "Viridis", "showscale": True}
    return Figure(Parcoords(dimensions=axes, line=line)).update_layout(margin={"l": 90, "r": 40, "t": 60})


def axis(key: str, texts: Sequence[str]) -> dict[str, Any]:
    """Return one of the parallel axes, with a tick at each value: numbers in proportion, other values evenly spaced."""
    known = sorted(set(texts), key=lambda text: (float(text) if is_number(text) else 0.0, text))
    places = [float(text) if all(map(is_number, known)) else float(i) for i, text in enumerate(known)]
    values = [places[known.index(text)] for text in texts]
    return {"label": key, "values": values, "tickvals": places, "ticktext": known}


def is_number(text: str) -> bool:
    """Return whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def examples(groups: Sequence[Group]) -> dict[str, Any]:
    """Return the outputs of every run, example by example; none if the test sets differ."""
    names = names_of(groups)
    runs = [(names[run.folder], run) for group in groups for run in group.runs]
    second = len(groups[0].runs) if len(groups) > 1 else 1
    if len({run.test_set for _, run in runs}) > 1 or not all(run.examples for _, run in runs):
        return {"total": 0, "runs": [], "second": 0, "inputs": [], "outputs": [], "scores": [], "score": ""}
    first = runs[0][1]
    rows = first.examples
    shown = max(20, MAX_ROWS // len(runs))
    return {
        "total": len(rows),
        "runs": [name for name, _ in runs],
        "second": second,  # the first run of another group, shown beside the first run at the start
        "inputs": [[row["input"], row["reference"]] for row in rows[:shown]],
        "outputs": [[row["output"] for row in run.examples[:shown]] for _, run in runs],
        "scores": [[row["score"] for row in run.examples[:shown]] for _, run in runs],
        "score": first.result["page"]["examples"]["columns"]["score"].replace("_", " "),
    }


def attention(table: Table) -> dict[str, Any]:
    """Return the heatmap or picture of each example by run; if there are many runs, only of the median runs."""
    maps: dict[str, dict[str, Any]] = {}
    names = names_of(table.groups)
    for group in table.groups:
        median = group.median(table.score)
        for run in group.runs if len(names) <= MAX_MAPPED_RUNS else [median] if median else []:
            for row in run.heatmaps:
                maps.setdefault(row["title"], {})[names[run.folder]] = {
                    "x": row["columns"],
                    "y": row["rows"],
                    "z": row["weights"],
                }
            for row in run.pictures:
                maps.setdefault(row["title"], {})[names[run.folder]] = {"picture": row["picture"]}
    return maps
