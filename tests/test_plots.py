"""Plots: what stands on the axes, that odd tokens are drawn, that files are whole."""

import sys
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from seq2seq_lab.plots import attention_heatmap, bleu_by_length_plot, save_figure
from seq2seq_lab.scores import LengthBin

PNG = b"\x89PNG\r\n\x1a\n"


def uniform(targets: int, sources: int) -> np.ndarray:
    return np.full((targets, sources), 1 / sources)


def test_axes_carry_the_words_and_the_bar_goes_from_0_to_1() -> None:
    weights = np.array([[0.9, 0.1, 0.0], [0.0, 0.2, 0.8]])
    figure = attention_heatmap(weights, ["der", "rote", "Ball"], ["red", "ball"], "no. 1", [(1, 0), (2, 1)])
    axes, bar = figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["der", "rote", "Ball"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["red", "ball"]
    assert axes.xaxis.get_ticks_position() == "top"
    bottom, top = axes.get_ylim()
    assert bottom > top, "output runs down the side"
    (image,) = axes.get_images()
    np.testing.assert_array_equal(image.get_array(), weights)
    assert image.get_clim() == (0.0, 1.0)
    assert bar.get_ylabel() == "attention weight"
    assert axes.get_title() == "no. 1"
    centres = [patch.get_center() for patch in axes.patches if isinstance(patch, Rectangle)]
    np.testing.assert_allclose(centres, [(1, 0), (2, 1)], atol=1e-9)


def test_size_grows_with_the_sentence_and_stays_bounded() -> None:
    def size(targets: int, sources: int) -> tuple[float, float]:
        width, height = attention_heatmap(
            uniform(targets, sources), ["x"] * sources, ["y"] * targets, None
        ).get_size_inches()
        return float(width), float(height)

    assert size(40, 45) > size(12, 14) > size(4, 5)
    assert max(size(300, 250)) < 30


@pytest.mark.parametrize("targets", [3, 40, 200])
def test_labels_do_not_overlap(targets: int) -> None:
    figure = attention_heatmap(uniform(targets, targets), ["août"] * targets, ["déjà"] * targets, None)
    figure.draw_without_rendering()
    axes = figure.axes[0]
    rows = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert all(above.y0 >= below.y1 - 1 for above, below in pairwise(rows))
    columns = [label.get_window_extent() for label in axes.get_xticklabels()]
    assert all(left.x1 <= right.x0 + 1 for left, right in pairwise(columns))


def test_dollars_are_not_formulas_and_missing_glyphs_do_not_warn(tmp_path: Path) -> None:
    odd = ["$x_1$", "$\\frac{", "😀", "你好", "\x00", "a\nb", "_", "«\u202foui\u202f»"]
    figure = attention_heatmap(uniform(8, 8), odd, odd, "costs $5 \\frac{ $6")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        save_figure(figure, tmp_path / "odd.png")
    assert caught == []
    assert figure.axes[0].get_xticklabels()[0].get_parse_math() is False


def test_french_and_german_need_no_silencing(tmp_path: Path) -> None:
    words = [
        "Fußgängerüberführung",
        "œuvre",
        "l’été",
        "garçon",
        "naïf",
        "„so“",
        "ÀÇÉ",
        "–",
        "…",
        "▁le",
        "l'",
    ]
    figure = attention_heatmap(uniform(11, 11), words, words, None)
    figure.savefig(tmp_path / "plain.png")


def test_a_failed_write_leaves_the_old_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "figures" / "attention.png"
    figure = attention_heatmap(uniform(2, 2), ["a", "b"], ["c", "d"], None)
    save_figure(figure, path)
    before = path.read_bytes()
    assert before.startswith(PNG)

    def full_disk(_self: Figure, name: Path, **_options: object) -> None:
        Path(name).write_bytes(PNG)
        raise OSError("no space left on device")

    monkeypatch.setattr(Figure, "savefig", full_disk)
    with pytest.raises(OSError, match="no space"):
        save_figure(figure, path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_bleu_by_length_has_a_line_a_system_and_gaps(tmp_path: Path) -> None:
    def bins(*values: float | None) -> list[LengthBin]:
        return [LengthBin(0, 6, 1200, values[0]), LengthBin(7, None, 0, values[1])]

    figure = bleu_by_length_plot({"additive": bins(31.5, None), "$\\frac{$": bins(12.0, 8.0)})
    axes = figure.axes[0]
    first, second = axes.get_lines()
    np.testing.assert_array_equal(first.get_ydata(), [31.5, np.nan])
    np.testing.assert_array_equal(second.get_ydata(), [12.0, 8.0])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["≤6\nn=1,200", ">6\nn=0"]
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["additive", "$\\frac{$"]
    save_figure(figure, tmp_path / "bleu.png")
    assert (tmp_path / "bleu.png").read_bytes().startswith(PNG)


def test_pyplot_is_never_imported() -> None:
    bleu_by_length_plot({"x": [LengthBin(0, None, 1, 5.0)]})
    attention_heatmap(uniform(1, 1), ["a"], ["b"], None)
    assert "matplotlib.pyplot" not in sys.modules
