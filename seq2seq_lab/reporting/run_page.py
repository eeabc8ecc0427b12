"""The page of a run: one HTML file with its scores, attention, outputs, figures and next steps."""

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seq2seq_lab import plots
from seq2seq_lab.data.words import words
from seq2seq_lab.files import write_atomically
from seq2seq_lab.metrics.measurement import GroupValue
from seq2seq_lab.plots.attention import ATTENTION
from seq2seq_lab.reporting import advice, score_tables
from seq2seq_lab.reporting.aer import about_aer
from seq2seq_lab.reporting.animation import over_training
from seq2seq_lab.reporting.attention_groups import attention_tables
from seq2seq_lab.reporting.figures import training_curves
from seq2seq_lab.reporting.frame import framed, script
from seq2seq_lab.reporting.runs import Run, read_finished
from seq2seq_lab.runtime.direction import direction_of_words
from seq2seq_lab.runtime.notebook import html_table
from seq2seq_lab.runtime.tables import TextTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FILE = "report.html"
HEATMAPS = 6  # on the page
PICTURES = 6
OUTPUTS = 12  # of the lowest scores
UNKNOWN = "The settings of the command are not recorded."
SLIDERS = 2  # samples whose attention is shown over the training
FILES = ("parts.js", "weights.js", "heatmap.js", "over_training.js", "run_page.js")
TYPICAL_ROWS = 12  # outputs of about this length are shown first
MAX_CELLS = 900  # of a heatmap


def write_run_page(folder: Path, commands: Mapping[str, Sequence[str]]) -> Path:
    """Write the page of a finished run to its folder, and return the file.

    Args:
        commands: the words of commands to continue with, quoted for a shell, by purpose.

    Raises:
        UserError: the run has not finished, or its files are damaged.
    """
    path = folder / FILE
    write_atomically(path, run_page(read_finished(folder, for_page=True), commands))
    return path


def run_page(run: Run, commands: Mapping[str, Sequence[str]]) -> str:
    """Return the page of a run; see `write_run_page`."""
    sections = {
        "Scores": scores(run),
        "Attention": attention(run),
        "Attention over the training": sliders(run),
        "Curves": curves(run),
        "Groups of examples": groups(run),
        "Outputs": outputs(run),
        "What to do next": steps(advice.advise(run), commands),
        "Model card": card(run),
    }
    about = f"<p>{escaped(summary(run))}</p><pre>{escaped(advice.training_command(run) or UNKNOWN)}</pre>"
    return report(title(run), about, {name: text for name, text in sections.items() if text}, FILES)


def report(title: str, about: str, sections: Mapping[str, str], files: Iterable[str]) -> str:
    """Return a page with sections in HTML by name.

    Args:
        title: plain text.
        about: the HTML above the sections.
        files: the JavaScript files of the page.
    """
    links = {name.lower().replace(" ", "-"): name for name in sections}
    body = [
        f'<section id="{anchor}"><h2>{name}</h2>{sections[name]}</section>' for anchor, name in links.items()
    ]
    return framed(title, links, f'<div class="report">{about}{"".join(body)}</div>', [*map(script, files)])


def escaped(text: object) -> str:
    """Return a text for HTML whose direction is isolated from the text around it."""
    return f"<bdi>{html.escape(str(text))}</bdi>"


def figure(drawn: "Figure", name: str) -> str:
    """Return a figure as inline SVG that has the colors of the page, with buttons to copy and to save it.

    Args:
        name: of the saved file, without suffix.
    """
    return f'<figure data-name="{html.escape(name)}">{plots.render_svg(drawn)}</figure>'


def title(run: Run) -> str:
    """Return the task, the choices of the run that matter to a reader, and its folder."""
    choices = [run.settings[key] for key in ("task", "dataset", "model") if run.settings.get(key)]
    return f"{': '.join(dict.fromkeys(choices))}, {run.folder.name}"


def summary(run: Run) -> str:
    """Return the primary metric on `first_split`, its interval, the best trivial baseline, and what an AER is of."""
    declared, result = run.declared, run.result
    one, split = declared.metrics[declared.primary], score_tables.first_split(result)
    value = score_tables.cell(result, declared, split, declared.primary)
    text = f"{one.label} {value} on {score_tables.split_text(split)}"
    if result.get(f"{split}/{declared.primary}_confidence"):
        text += " (± 95% interval over its examples, not over seeds)"
    return " ".join(
        filter(None, (f"{text}.", advice.against_baseline(result, declared), about_aer(result, declared)))
    )


def curves(run: Run) -> str:
    """Return the curves of the training; nothing for an evaluation."""
    if run.is_evaluation:
        return ""
    return figure(training_curves(run.metrics, run.declared, run.result["unit"]), "curves")


def scores(run: Run) -> str:
    """Return the tables of scores over all examples and of the task, and the signatures."""
    tables = score_tables.overall_tables(run.result, everything=False)
    tables += [TextTable(**row) for row in run.tables]
    signatures = score_tables.signatures(run.result, everything=False)
    lines = "".join(f'<p class="note">{escaped(f"{label}: {text}")}</p>' for label, text in signatures)
    return "".join(map(titled, tables)) + lines


def titled(table: TextTable) -> str:
    """Return a table in HTML below its title."""
    return f'<h3>{escaped(table.title)}</h3><div class="scroll">{html_table(table.heads, table.rows)}</div>'


def attention(run: Run) -> str:
    """Return the heatmaps of some outputs, each with the columns of highest weight; else the pictures of the task."""
    shown = [row for row in run.heatmaps if len(row["rows"]) * len(row["columns"]) <= MAX_CELLS]
    # Those with gold links first: they equal the reference.
    shown.sort(key=lambda row: (not row.get("links"), abs(len(row["rows"]) - TYPICAL_ROWS)))
    references = {row["input"]: row["reference"] for row in run.examples}
    parts = [
        heatmap(row, index, references.get(row["title"]))
        for index, row in enumerate(shown[:HEATMAPS], start=1)
    ]
    for row in run.pictures[:PICTURES]:
        picture = f'<img alt="" src="data:image/png;base64,{row["picture"]}">'
        parts.append(f'<h3>{escaped(row["title"])}</h3><div class="scroll">{picture}</div>')
    return f'<div class="maps">{"".join(f"<div>{part}</div>" for part in parts)}</div>' if parts else ""


def sliders(run: Run) -> str:
    """Return the attention of some samples over the training, for the sliders of `over_training.js`."""
    parts = []
    for title, rows in [*over_training(run).items()][:SLIDERS]:
        if not rows:
            continue
        frames = [{"step": row["step"], "note": row["note"], **heatmap_frame(row)} for row in rows]
        text = json.dumps({"title": title, "frames": frames}, ensure_ascii=False).replace("<", "\\u003c")
        parts.append(f'<div><script class="frames" type="application/json">{text}</script></div>')
    return f'<div class="maps">{"".join(parts)}</div>' if parts else ""


def heatmap_frame(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a heatmap for `heatmap.js`: names, directions, weights, and the (column, row) cells of gold links."""
    columns, rows = row["columns"], row["rows"]
    return {
        "x": columns,
        "y": rows,
        "directions": [direction_of_words(columns), direction_of_words(rows)],
        "z": row["weights"],
        "links": row.get("links") or [],
        "scale": row.get("scale") or ATTENTION,
    }


def heatmap(row: Mapping[str, Any], index: int, reference: str | None) -> str:
    """Return one heatmap as a figure, and a table of its rows.

    Args:
        reference: the reference output, if it is known.
    """
    links = {(column, output) for column, output in row.get("links") or ()}
    weights_RC = np.array(row["weights"])
    lines, right, aligned = [], 0, 0
    for output, (name, weights_C) in enumerate(zip(row["rows"], weights_RC, strict=True)):
        gold = [row["columns"][column] for column, other in sorted(links) if other == output]
        best = int(weights_C.argmax())
        is_right = (best, output) in links
        aligned, right = aligned + bool(gold), right + is_right
        most = f"{row['columns'][best]} ({weights_C[best]:.2f})"
        verdict = "" if not gold else "right" if is_right else "wrong"
        lines.append([str(output + 1), name, most, ", ".join(gold), verdict])
    heads, note = ["row", "output", "attends most to (weight)", "gold alignment", ""], ""
    if aligned:
        note = f"{right} of {aligned} aligned words attend most to a word that they are aligned with."
    else:
        note = "" if reference is None else f"reference: {reference}"
        heads, lines = heads[:3], [line[:3] for line in lines]
    scale = row.get("scale") or ATTENTION
    drawn = plots.draw_attention(weights_RC, row["columns"], row["rows"], None, links, scale=scale)
    table = f'<div class="scroll">{html_table(heads, lines)}</div>'
    words = f"<details><summary>what each row attends to</summary>{table}</details>"
    return (
        f'<h3>{escaped(row["title"])}</h3><p class="note">{escaped(note)}</p>{figure(drawn, f"attention_{index}")}'
        f"{words if scale == ATTENTION else ''}"
    )


def groups(run: Run) -> str:
    """Return the metrics by group of examples: figures of ordered groups, tables of the others and of attention."""
    parts = []
    for key, grouping, columns in score_tables.test_groups(run.result):
        if grouping.ordered:
            values = {name: [GroupValue(**row) for row in rows] for name, rows in columns.items()}
            parts.append(figure(plots.draw_groups(values, grouping), key))
        else:
            parts.append(titled(score_tables.group_table(grouping, columns)))
    return "".join([*parts, *map(titled, attention_tables(run))])


def outputs(run: Run) -> str:
    """Return the worst outputs of `first_split`: those that did not end as they should, then by score."""
    entry = run.result.get("page", {}).get("examples")
    scored = [(index, row) for index, row in enumerate(run.examples) if row["score"] is not None]
    if entry is None or not scored:
        return ""
    defects = {one["number"]: score_tables.defects(one) for one in score_tables.worst_outputs(run.result)}
    wrong = [(index, row) for index, row in scored if row["output"] != row["reference"]]
    wrong.sort(key=lambda pair: (not defects.get(pair[0]), float(pair[1]["score"])))
    note = f"{entry.get('note', '')} {len(wrong):,} of {len(scored):,} outputs differ from the reference"
    note += "; the worst of them:" if wrong else "."
    names = ("input", "reference", "output", "score")
    rows = ""
    for index, row in wrong[:OUTPUTS]:
        score = ", ".join((format(row["score"], ".2f"), *defects.get(index, ())))
        cells = (
            escaped(row["input"]),
            escaped(row["reference"]),
            marked(row["output"], row["reference"]),
            score,
        )
        labelled = zip(names, cells, strict=True)  # a narrow window shows the labels instead of the heads
        rows += f"<tr>{''.join(f'<td data-label={name}>{cell}</td>' for name, cell in labelled)}</tr>"
    heads = "".join(f"<th>{name}</th>" for name in names)
    found = "".join(f"<p>{escaped(line)}</p>" for line in advice.defects(run))
    table = f'<table id="texts"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
    return f'{found}<p class="note">{escaped(note.strip())}</p><div class="scroll">{table}</div>'


def marked(text: str, reference: str) -> str:
    """Return a text with the words marked that differ from the reference."""
    spans, done, parts = words(text), 0, []
    ours, theirs = ([one[start:end] for start, end in words(one)] for one in (text, reference))
    for kind, first, last, _, _ in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if first < last:
            start, end = spans[first][0], spans[last - 1][1]
            between, part = map(html.escape, (text[done:start], text[start:end]))
            parts.append(between + (part if kind == "equal" else f"<mark>{part}</mark>"))
            done = end
    return f"<bdi>{''.join(parts)}</bdi>"


def steps(advised: Iterable[advice.Advice], commands: Mapping[str, Sequence[str]]) -> str:
    """Return advice with its reasons, and the commands to continue with."""
    items = "".join(
        f"<li>{escaped(one.reason)}{f' Read {html.escape(one.reading)}.' if one.reading else ''}"
        f"{f'<pre>{html.escape(one.command)}</pre>' if one.command else ''}</li>"
        for one in advised
    )
    lines = "".join(
        f"<p>{escaped(purpose)}</p><pre>{html.escape(' '.join(command))}</pre>"
        for purpose, command in commands.items()
    )
    return f"<ul>{items}</ul>{lines}"


def card(run: Run) -> str:
    """Return the model card: the model, its data, its training and its limits."""
    record, settings = run.record, run.settings
    sizes = ", ".join(f"{name} {count:,}" for name, count in record["data"]["sizes"].items())
    facts = [
        ("task", settings.get("task", "")),
        ("data", f"{settings.get('dataset') or 'of the task'} (fingerprint {run.recorded['data']}): {sizes}"),
        ("licence of the data", advice.licence(settings)),
        *(evaluation_facts(run.result) if run.is_evaluation else training_facts(run.result)),
        ("seed", run.seed),
        ("machine", run.recorded["machine"]),
        ("code", run.recorded["code"]),
        ("settings that were given", run.recorded["overrides"]),
        ("limits", advice.limits(run)),
    ]
    return f'<div class="scroll">{html_table(["", ""], facts)}</div>'


def training_facts(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the rows of the model card about the training."""
    unit = result["unit"].replace("_", " ")
    return [
        (
            "parameters",
            f"{result['num_parameters']:,}, {result['num_trainable_parameters']:,} of them trained",
        ),
        (
            "training",
            f"{result['steps']:,} steps, {result['train/seconds']:,.0f} s, unit of the loss: {unit}",
        ),
        ("checkpoint", f"{result['best_checkpoint']}, the best by {result['monitor']}"),
        ("precision", f"training {result['precision']}, test {result['test_precision']}"),
    ]


def evaluation_facts(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the rows of the model card about the evaluated run."""
    return [
        ("evaluated run", result["run"]),
        ("checkpoint", result["checkpoint"]),
        ("precision", result["precision"]),
    ]
