"""Draw the diagram of encoder, attention and decoder of docs/models.md.

python -m benchmarks.diagram
"""

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PATH = Path(__file__).parents[1] / "docs" / "images" / "model.svg"
Point: TypeAlias = tuple[float, float]

ENCODER, ATTENTION, DECODER, TOKENS = "#cfe3f7", "#fbe0c3", "#d6efd0", "#eeeeee"
SOURCE = ("the", "old", "king", "sleeps")
WEIGHTS = (0.05, 0.05, 0.85, 0.05)  # of the step that outputs "roi"
TARGET = ("<sos>", "le", "vieux")
OUTPUT = ("le", "vieux", "roi")
WIDTH, HEIGHT = 1.25, 0.55  # of a box


def main() -> None:
    """Write the picture."""
    # The same file from the same code: no date, and ids that do not depend on chance.
    with mpl.rc_context({"svg.hashsalt": "seq2seq_lab", "svg.fonttype": "path", "mathtext.fontset": "cm"}):
        figure = Figure(figsize=(9.5, 5.6))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, 15.4), ylim=(-0.5, 8.9))
        axes.axis("off")
        draw_encoder(axes)
        draw_attention(axes)
        draw_decoder(axes)
        figure.savefig(PATH, format="svg", metadata={"Date": None}, facecolor="white")
    print(f"written: {PATH}")


def encoder_at(j: int) -> Point:
    """Return the center of the encoder's output at a position."""
    return 1.2 + 1.75 * j, 2.6


def decoder_at(t: int) -> Point:
    """Return the center of the decoder's state at a step."""
    return 9.5 + 2.2 * t, 2.6


def draw_encoder(axes: "Axes") -> None:
    """Draw the source tokens and the states of an encoder that reads in both directions."""
    label(axes, (3.8, -0.1), "encoder: two RNNs, one from each end", ENCODER)
    for j, word in enumerate(SOURCE):
        x, y = encoder_at(j)
        box(axes, (x, 0.6), word, color=TOKENS)
        box(axes, (x, y), f"$h_{j + 1}$", color=ENCODER)
        arrow(axes, (x, 0.9), (x, y - 0.3))
        if j:
            arrow(axes, (x - 1.75 + WIDTH / 2, y + 0.1), (x - WIDTH / 2, y + 0.1))
            arrow(axes, (x - WIDTH / 2, y - 0.1), (x - 1.75 + WIDTH / 2, y - 0.1))
    last, first = encoder_at(len(SOURCE) - 1), decoder_at(0)
    arrow(axes, (last[0] + WIDTH / 2, 2.6), (first[0] - WIDTH / 2, 2.6))
    axes.text((last[0] + first[0]) / 2, 2.75, "bridge", ha="center", fontsize=10)


def draw_attention(axes: "Axes") -> None:
    """Draw the weights of one step, and the context that they give."""
    context = (5.2, 5.4)
    box(axes, context, r"context $c_t=\sum_j\,\alpha_{tj}h_j$", color=ATTENTION, width=3.4, height=0.95)
    for j, weight in enumerate(WEIGHTS):
        x, y = encoder_at(j)
        end = (context[0] - 1.2 + 0.8 * j, context[1] - 0.52)
        arrow(axes, (x, y + 0.3), end, width=0.6 + 5 * weight, color="#d9822b")
        axes.text(
            x - 0.08,
            y + 0.55,
            f"$\\alpha_{{t{j + 1}}}$={weight:.2f}",
            fontsize=9,
            ha="right",
            color="#8a4b08",
        )
    label(axes, (1.75, 5.4), "attention:\n$\\alpha_t=$softmax(score$(s_t,\\,h_j)$)", ATTENTION)
    x, y = decoder_at(2)
    axes.annotate(
        "query $s_t$",
        xy=(context[0] + 1.75, 5.25),
        xytext=(x - 0.7, y + 0.95),
        fontsize=10,
        ha="right",
        arrowprops={"arrowstyle": "->", "linestyle": "dashed", "color": "#555555"},
    )


def draw_decoder(axes: "Axes") -> None:
    """Draw the decoder's states, and how the third one becomes an output."""
    label(axes, (11.7, -0.1), "decoder: an RNN over the words so far", DECODER)
    for t, word in enumerate(TARGET):
        x, y = decoder_at(t)
        box(axes, (x, 0.6), word, color=TOKENS)
        box(axes, (x, y), "$s_t$" if t == 2 else f"$s_{{t-{2 - t}}}$", color=DECODER)
        arrow(axes, (x, 0.9), (x, y - 0.3))
        if t:
            arrow(axes, (x - 2.2 + WIDTH / 2, y), (x - WIDTH / 2, y))
    x, y = decoder_at(2)
    box(axes, (x - 0.9, 6.4), r"$\tilde{s}_t=\tanh(W[c_t;\,s_t])$", color=DECODER, width=3.6)
    arrow(axes, (x, y + 0.3), (x, 6.1))
    arrow(axes, (6.9, 5.55), (x - 2.75, 6.3))
    box(axes, (x - 0.9, 7.55), "readout and softmax", color=TOKENS, width=3.6)
    arrow(axes, (x - 0.9, 6.7), (x - 0.9, 7.25))
    arrow(axes, (x - 0.9, 7.85), (x - 0.9, 8.3))
    axes.text(x - 0.9, 8.5, OUTPUT[2], ha="center", va="center", fontsize=12, style="italic")


def box(
    axes: "Axes", center: Point, text: str, *, color: str, width: float = WIDTH, height: float = HEIGHT
) -> None:
    """Draw a box with a text."""
    corner = (center[0] - width / 2, center[1] - height / 2)
    style = "round,pad=0.02,rounding_size=0.1"
    axes.add_patch(
        FancyBboxPatch(corner, width, height, boxstyle=style, facecolor=color, edgecolor="#444444")
    )
    axes.text(*center, text, ha="center", va="center", fontsize=12)


def label(axes: "Axes", center: Point, text: str, color: str) -> None:
    """Write the name of a part."""
    axes.text(
        *center,
        text,
        ha="center",
        va="center",
        fontsize=10.5,
        bbox={"facecolor": color, "edgecolor": "none", "pad": 3},
    )


def arrow(axes: "Axes", start: Point, end: Point, width: float = 1.0, color: str = "#444444") -> None:
    """Draw an arrow."""
    axes.add_patch(
        FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=11, linewidth=width, color=color)
    )


if __name__ == "__main__":
    main()
