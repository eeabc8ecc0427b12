"""One HTML page that holds all it shows: curves, scores, translations and attention of several runs."""

import html
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.scores import LengthBin
from seq2seq_lab.reporting.comparison import SCORE, Table, cells, note
from seq2seq_lab.reporting.runs import Group, same_test_set

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

TEMPLATE = Path(__file__).with_name("page.html")
CURVES = {
    "val/bleu": "validation BLEU",
    "val/loss_teacher_forced": "validation loss, reading the reference (nats a token)",
    "val/loss_free_running": "validation loss, reading its own words (nats a token)",
    "val/aer": "validation alignment error rate",
    "train/loss": "training loss (nats a token)",
}
MOST_POINTS = 200  # of a curve
MOST_ROWS = 20_000  # translations on the page
MOST_MAPPED = 40  # runs that all show their attention
MARGIN = {"l": 60, "r": 20, "t": 20, "b": 50}


def page(table: Table, title: str) -> str:
    """Return the page, which needs no network.

    Raises:
        UserError: Plotly is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise UserError("--html needs Plotly: pip install 'seq2seq_lab[compare]'.") from error
    groups = [line.group for line in table.lines]
    heads, rows, _ = cells(table)
    data = {
        "curves": {name: as_json(figure) for name, figure in curves(groups).items()},
        "lengths": as_json(lengths(groups)),
        "settings": as_json(settings(groups)),
        "translations": translations(groups),
        "attention": attention(groups),
    }
    return Template(TEMPLATE.read_text("utf-8")).substitute(
        title=html.escape(title),
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
    """Return a figure as Plotly's scripts take it."""
    made: dict[str, Any] = json.loads(figure.to_json())
    return made


def names_of(groups: Sequence[Group]) -> dict[Path, str]:
    """Return what each run is called on the page; with its folder where another is called the same."""
    names = {run.folder: f"{group.label}, seed {run.seed}" for group in groups for run in group.runs}
    often = Counter(names.values())
    return {folder: name if often[name] == 1 else f"{name} ({folder})" for folder, name in names.items()}


def colours(groups: Sequence[Group]) -> list[str]:
    """Return a colour a group."""
    from plotly.colors import qualitative

    palette = qualitative.D3 if len(groups) <= len(qualitative.D3) else qualitative.Alphabet
    return [palette[number % len(palette)] for number in range(len(groups))]


def curves(groups: Sequence[Group]) -> "dict[str, Figure]":
    """Return a figure a measure: a curve a run, a colour a group; the legend shows and hides groups."""
    from plotly.graph_objects import Figure, Scatter

    names = names_of(groups)
    rows = {run.folder: run.metrics() for group in groups for run in group.runs}
    made = {}
    for name, label in CURVES.items():
        figure = Figure()
        for group, colour in zip(groups, colours(groups), strict=True):
            for number, run in enumerate(group.runs):
                points = thinned([(row["step"], row[name]) for row in rows[run.folder] if name in row])
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
                            hovertemplate=f"{html.escape(names[run.folder])}<br>update %{{x}}: %{{y:.4g}}<extra></extra>",
                        )
                    )
        if figure.data:
            made[name] = figure.update_layout(
                xaxis_title="update", yaxis_title=label, hovermode="closest", margin=MARGIN
            )
    return made


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most about `MOST_POINTS` of a curve's points, evenly, the last one always."""
    every = max(1, len(points) // MOST_POINTS)
    return [*points[:-1:every], *points[-1:]]


def lengths(groups: Sequence[Group]) -> "Figure":
    """Return BLEU against source length: bars of the runs of median BLEU, with counts and, if recorded, 95% intervals."""
    from plotly.graph_objects import Bar, Figure

    figure = Figure()
    for group, colour in zip(groups, colours(groups), strict=True):
        run = group.median(SCORE)
        bins = [LengthBin(**row) for row in run.result["test/bleu_by_length"] if row["bleu"] is not None]
        figure.add_trace(
            Bar(
                x=[one.label for one in bins],
                y=[one.bleu for one in bins],
                name=group.label,
                marker={"color": colour},
                error_y={"array": [one.confidence for one in bins]},
                customdata=[one.count for one in bins],
                hovertemplate="%{y:.2f}, %{customdata} sentences<extra>"
                + html.escape(group.label)
                + "</extra>",
            )
        )
    return figure.update_layout(
        xaxis_title="source words", yaxis_title="test BLEU", barmode="group", margin=MARGIN
    )


def settings(groups: Sequence[Group]) -> "Figure":
    """Return scores against what varies: parallel axes, a line a run; drag along an axis to choose runs."""
    from plotly.graph_objects import Figure, Parcoords

    runs = [(group, run) for group in groups for run in group.runs]
    axes = [axis(key, [group.varies[key] for group, _ in runs]) for key in groups[0].varies]
    axes.append(axis("seed", [run.seed for _, run in runs]))
    scores = [run.result[SCORE] for _, run in runs]
    axes.append({"label": "test BLEU", "values": scores})
    line = {"color": scores, "colorscale": "Viridis", "showscale": True}
    return Figure(Parcoords(dimensions=axes, line=line)).update_layout(margin={"l": 90, "r": 40, "t": 60})


def axis(key: str, texts: Sequence[str]) -> dict[str, Any]:
    """Return one of the parallel axes, with a tick at each value: numbers where they lie, other values side by side."""
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


def translations(groups: Sequence[Group]) -> dict[str, Any]:
    """Return the translations of every run, sentence by sentence; no sentences where the test sets differ."""
    names = names_of(groups)
    runs = [(names[run.folder], run) for group in groups for run in group.runs]
    second = len(groups[0].runs) if len(groups) > 1 else 1
    if not same_test_set([run for _, run in runs]):
        return {"of": 0, "runs": [], "second": 0, "sentences": [], "hypotheses": [], "scores": []}
    every = runs[0][1].translations
    rows = every[: max(20, MOST_ROWS // len(runs))]
    return {
        "of": len(every),
        "runs": [name for name, _ in runs],
        "second": second,  # the first run of another group: what is shown beside the first at the beginning
        "sentences": [[row["source"], row["reference"]] for row in rows],
        "hypotheses": [[row["hypothesis"] for row in run.translations[: len(rows)]] for _, run in runs],
        "scores": [[row["sentence_bleu"] for row in run.translations[: len(rows)]] for _, run in runs],
    }


def attention(groups: Sequence[Group]) -> dict[str, Any]:
    """Return the attention of every run that has it, of many runs of the median ones, by sentence: a heatmap each."""
    maps: dict[str, dict[str, Any]] = {}
    names = names_of(groups)
    few = len(names) <= MOST_MAPPED
    for group in groups:
        for run in group.runs if few else [group.median(SCORE)]:
            for row in run.attention:
                maps.setdefault(row["source"], {})[names[run.folder]] = {
                    "x": row["source_tokens"],
                    "y": row["target_tokens"],
                    "z": row["weights"],
                }
    return maps
