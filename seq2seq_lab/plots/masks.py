"""Pictures of the masks of a batch."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from seq2seq_lab.plots.labels import fitted_labels, label_cells

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = ("#eeeeee", "#2b6cb0", "#bdbdbd")
MEANINGS = ("masked", "seen", "row of padding")
CELL = 0.22  # inches
LONGEST_LABEL = 1.0  # inches


def draw_masks(
    masks_BTS: Mapping[str, npt.NDArray[np.bool_]],
    labels: Mapping[str, Sequence[tuple[Sequence[str], Sequence[str]]]],
    padding: str,
) -> "Figure":
    """Draw which positions each position of a batch may attend to: a row per example, a column per mask.

    Args:
        masks_BTS: True where row T may attend to column S, by the title of the mask.
        labels: for each example the tokens along S and T, padding included, by the title of the mask.
        padding: the token of padding; no row of it is used.
    """
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    count = len(next(iter(masks_BTS.values())))
    sizes = [mask_BTS.shape[1:] for mask_BTS in masks_BTS.values()]
    width = sum(CELL * columns + LONGEST_LABEL + 0.2 for _, columns in sizes)
    height = count * (CELL * max(rows for rows, _ in sizes) + LONGEST_LABEL + 0.2) + 0.4
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(count, len(sizes), squeeze=False, width_ratios=[columns for _, columns in sizes])
    for (example, index), axes in np.ndenumerate(grid):
        title = [*masks_BTS][index]
        columns, rows = labels[title][example]
        unused_T1 = np.array([token == padding for token in rows])[:, None]
        axes.imshow(
            np.where(unused_T1, 2, masks_BTS[title][example].astype(int)),
            cmap=ListedColormap(COLORS),
            vmin=0,
            vmax=len(COLORS) - 1,
            interpolation="nearest",
        )
        (columns, column_font), (rows, row_font) = (
            fitted_labels(tokens, 0.75 * CELL * 72, LONGEST_LABEL) for tokens in (columns, rows)
        )
        label_cells(axes, columns, rows, column_font, row_font)
        axes.set_xticks(np.arange(len(columns) + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(len(rows) + 1) - 0.5, minor=True)
        axes.grid(which="minor", color="white", linewidth=1)
        axes.tick_params(which="minor", length=0)
        if example == count - 1:
            axes.set_xlabel(title)
    handles: list[Any] = [
        Patch(color=color, label=label) for color, label in zip(COLORS, MEANINGS, strict=True)
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=8)
    return figure
