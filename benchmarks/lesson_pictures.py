"""Draw the pictures of the lessons in docs/tutorial.md.

    python -m benchmarks.lesson_pictures --seeds STUDY --location RUN --bahdanau RUN --transformer RUN \\
        --bottleneck STUDY --emergence STUDY

The other pictures are of `demo`, the run in the package. RUN are runs of `python -m seq2seq_lab` with `attention=location`,
`decoder=bahdanau` and `model=transformer`. STUDY are folders of `python -m seq2seq_lab` with `-m seed=1,2,3
trainer.precision=fp32`, `study=bottleneck` and `study=emergence`. Pictures whose runs are not given stay as they are.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import seq2seq_lab
from seq2seq_lab import plots
from seq2seq_lab.config.run_folder import read_result
from seq2seq_lab.config.run_folders import DEMO_FOLDER
from seq2seq_lab.errors import report_errors
from seq2seq_lab.metrics.base import Declarations
from seq2seq_lab.metrics.measurement import GroupValue
from seq2seq_lab.plots.attributions import Panel, draw_attributions
from seq2seq_lab.reporting.attention_groups import grouped_measures
from seq2seq_lab.reporting.comparison import compare_folders
from seq2seq_lab.reporting.figures import draw_grouping, training_curves
from seq2seq_lab.reporting.runs import Run, find_runs
from seq2seq_lab.reporting.score_tables import RECORDED
from seq2seq_lab.tracking.files import METRICS_FILE, read_metrics

FOLDER = Path(__file__).parents[1] / "docs" / "images"
SENTENCE = "the sad nurses do not see him."
MASKED = (
    ["the king sleeps.", SENTENCE],
    ["le roi dort.", "les infirmières tristes ne le voient pas."],
)
EXPLAINED = ("the white cow sleeps.", "la vache blanche dort.")
METHODS = ("attention", "occlusion")
LENGTH = "bleu_by_length"
MEASURES = ("aer", "aer_oracle")
DOTS_PER_INCH = 100


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the pictures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.lesson_pictures", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--seeds", type=Path, metavar="STUDY")
    parser.add_argument("--location", type=Path, metavar="RUN")
    parser.add_argument("--bahdanau", type=Path, metavar="RUN")
    parser.add_argument("--transformer", type=Path, metavar="RUN")
    parser.add_argument("--bottleneck", type=Path, metavar="STUDY")
    parser.add_argument("--emergence", type=Path, metavar="STUDY")
    options = parser.parse_args(arguments)
    with report_errors():
        for name, figure in pictures(**vars(options)):
            (FOLDER / f"{name}.png").write_bytes(plots.render_png(figure, DOTS_PER_INCH))
            print(f"written: {FOLDER / name}.png")


def pictures(
    seeds: Path | None,
    *,
    location: Path | None,
    bahdanau: Path | None,
    transformer: Path | None,
    bottleneck: Path | None,
    emergence: Path | None,
) -> Iterator[tuple[str, Figure]]:
    """Yield the name of the file and the figure of each lesson whose runs are given."""
    result = read_result(DEMO_FOLDER)
    declared = Declarations.read(result)
    vanilla = json.loads(RECORDED.read_text("utf-8"))["groups"][LENGTH]
    groups = {"model=attn": result[f"test/{LENGTH}"], "model=vanilla": vanilla}
    lengths = {name: [GroupValue(**row) for row in rows] for name, rows in groups.items()}
    demo = seq2seq_lab.load(DEMO_FOLDER, device="cpu")
    yield "lesson_1", plots.draw_groups(lengths, declared.groupings[LENGTH])
    if bottleneck is not None:
        table = compare_folders([bottleneck])
        yield (
            "lesson_1_bottleneck",
            draw_grouping(table, LENGTH, table.groups[0].runs[0].declared.groupings[LENGTH]),
        )
    yield "lesson_2", demo.plot_attention(SENTENCE)
    if seeds is not None:
        yield "lesson_2_phenomena", by_phenomenon(find_runs([seeds])[0])
    if location is not None:
        yield "lesson_3", beside({"attention=additive": demo, "attention=location": opened(location)})
    if bahdanau is not None:
        yield "lesson_4", beside({"decoder=luong": demo, "decoder=bahdanau": opened(bahdanau)})
    curves = training_curves(read_metrics(DEMO_FOLDER / METRICS_FILE), declared, result["unit"])
    yield "lesson_5", curves
    if transformer is not None:
        yield "lesson_7_masks", opened(transformer).plot_masks(*MASKED)
    if emergence is not None:
        yield "lesson_8", over_steps(find_runs([emergence])[0])
    explained = demo.attribute(*EXPLAINED, METHODS)
    panels = [Panel(name, own.scores_TU) for name, own in explained.attributions.items()]
    yield "lesson_9", draw_attributions(panels, explained.words, explained.tokens, " → ".join(EXPLAINED))


def by_phenomenon(runs: Sequence[Run]) -> Figure:
    """Draw AER by phenomenon, with that of the best links of one source word for each target word.

    Bars are means over the runs, with standard deviations.
    """
    measured = [grouped_measures(run)["phenomenon"] for run in runs]
    groups = [row.group for row in measured[0]["aer"]]
    found = {name: np.array([[row.value for row in one[name]] for one in measured]) for name in MEASURES}
    mean, oracle = (found[name].mean(0) for name in MEASURES)
    order = mean.argsort()
    names = [groups[i] for i in order]
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    deviations = found["aer"].std(0, ddof=1)[order]
    label = f"attention, {len(runs)} seeds"
    axes.barh(names, mean[order], xerr=deviations, color="#7fb3d5", ecolor="#1b4f72", label=label)
    axes.plot(oracle[order], names, "k|", markersize=12, label="oracle")
    axes.set_xlabel(runs[0].declared.metrics["aer"].label)
    axes.legend(frameon=False, loc="lower right")
    return figure


def over_steps(runs: Sequence[Run]) -> Figure:
    """Draw the validation AER and BLEU of runs by step, a line for each run."""
    figure = Figure(figsize=(7, 5), layout="constrained")
    both = figure.subplots(2, 1, sharex=True)
    for key, axes in zip(("aer", "bleu"), both, strict=True):
        declared = runs[0].declared.metrics[key]
        for run in sorted(runs, key=lambda run: int(run.settings["seed"])):
            rows = [row for row in read_metrics(run.folder / METRICS_FILE) if f"val/{key}" in row]
            steps, values = zip(*((row["step"], row[f"val/{key}"]) for row in rows), strict=True)
            axes.plot(steps, values, label=f"seed {run.settings['seed']}")
        axes.set_ylabel(declared.label)
        axes.set_ylim(0, declared.limits[1] if declared.limits else None)
        axes.grid(alpha=0.3)
    both[1].set_xlabel("step")
    both[0].legend(frameon=False)
    return figure


def opened(folder: Path) -> Any:
    """Return a run on the CPU."""
    return seq2seq_lab.load(folder, device="cpu")


def beside(runs: Mapping[str, Any]) -> Figure:
    """Draw the attention of two runs for the same sentence."""
    figure = Figure(figsize=(10, 4.6), layout="constrained")
    for axes, (title, run) in zip(figure.subplots(1, len(runs)), runs.items(), strict=True):
        (prediction,) = run.predict([SENTENCE])
        prediction.figure(ax=axes)
        axes.set_title(title)
    return figure


if __name__ == "__main__":
    main()
