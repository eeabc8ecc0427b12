"""Draw exact match by length of every recorded seed into docs/images: python -m benchmarks.length_pictures."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from benchmarks.result_tables import IMAGES, PICTURES, planned_rows
from benchmarks.results import RESULTS, Line, read_lines
from seq2seq_lab.plots import Series, draw_series

DOTS_PER_INCH = 100


def main() -> None:
    """Write the pictures of the tables that have runs."""
    lines = read_lines(RESULTS)
    for name, (file, scores) in PICTURES.items():
        if (figure := draw(lines, name, scores)) is not None:
            figure.savefig(RESULTS.with_name(IMAGES) / file, dpi=DOTS_PER_INCH)


def draw(lines: Sequence[Line], name: str, scores: Sequence[str]) -> Figure | None:
    """Draw a line for each run of a planned table, with one color for each configuration; None without runs.

    Args:
        scores: by length, such as `test/accuracy_by_target_length`; each group is a number of words.
    """
    series = []
    for label, runs in planned_rows(lines, name)[1].items():
        for run in runs:
            groups = (group for score in scores for group in run.groups[score] if group["value"] is not None)
            x, y = zip(*sorted((int(group["group"]), group["value"]) for group in groups), strict=True)
            series.append(Series(label.strip("`"), x, y, [0.0] * len(x)))
    title = f"{name}: a line for each seed"
    return (
        draw_series(series, "words of the reference", "test exact match", title, limits=(0, 1))
        if series
        else None
    )


if __name__ == "__main__":
    main()
