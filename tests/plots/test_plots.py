"""Pictures: axes, unusual tokens, sizes, files."""

import sys
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.base import Declaration, GroupingDeclaration
from seq2seq_lab.metrics.measurement import GroupValue
from seq2seq_lab.plots import (
    Series,
    draw_attention,
    draw_attention_maps,
    draw_confusion,
    draw_curves,
    draw_groups,
    draw_overlays,
    draw_series,
    draw_shaded,
    draw_word_pairs,
    draw_words,
    save_figure,
)
from seq2seq_lab.plots.fonts import font_for, missing_glyphs_as_boxes
from seq2seq_lab.runtime.shades import ShadedText

PNG = b"\x89PNG\r\n\x1a\n"


def uniform(targets: int, sources: int) -> np.ndarray:
    return np.full((targets, sources), 1 / sources)


def test_axes_carry_the_words_and_the_bar_goes_from_0_to_1() -> None:
    weights = np.array([[0.9, 0.1, 0.0], [0.0, 0.2, 0.8]])
    figure = draw_attention(weights, ["der", "rote", "Ball"], ["red", "ball"], "no. 1", [(1, 0), (2, 1)])
    axes, bar = figure.axes
    (title,) = figure.texts
    assert [label.get_text() for label in axes.get_xticklabels()] == ["der", "rote", "Ball"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["red", "ball"]
    assert axes.xaxis.get_ticks_position() == "top"
    bottom, top = axes.get_ylim()
    assert bottom > top, "output runs down the side"
    (image,) = axes.get_images()
    np.testing.assert_array_equal(image.get_array(), weights)
    assert image.get_clim() == (0.0, 1.0)
    assert bar.get_ylabel() == "attention weight"
    assert title.get_text() == "no. 1"
    centers = [patch.get_center() for patch in axes.patches if isinstance(patch, Rectangle)]
    np.testing.assert_allclose(centers, [(1, 0), (2, 1)], atol=1e-9)


def test_a_light_picture_has_high_weights_dark_on_white() -> None:
    for light, brighter in ((False, 1), (True, 0)):
        figure = draw_attention(np.eye(2), ["a", "b"], ["x", "y"], None, light=light)
        image = figure.axes[0].images[0]
        brightness = [sum(image.to_rgba(np.array([[weight]]))[0, 0, :3]) for weight in (0.0, 1.0)]
        assert brightness.index(max(brightness)) == brighter
        assert (max(brightness) > 2.9) == light


def test_maps_of_every_head_and_their_mean() -> None:
    weights = np.random.default_rng(1).dirichlet([1.0] * 3, size=(2, 4, 5))
    figure = draw_attention_maps(weights, ["a", "b", "c"], [*"vwxyz"], "costs $5")
    panels = [axes for axes in figure.axes if axes.get_xlabel()]
    assert [axes.get_xlabel() for axes in panels[:5]] == [
        *(f"layer 1, head {head}" for head in (1, 2, 3, 4)),
        "layer 1, mean",
    ]
    assert [label.get_text() for label in panels[0].get_xticklabels()] == ["a", "b", "c"]
    assert [label.get_text() for label in panels[5].get_yticklabels()] == [*"vwxyz"]
    assert len(panels) == 10
    for layer in (0, 1):
        for head in range(4):
            np.testing.assert_array_equal(
                panels[5 * layer + head].get_images()[0].get_array(), weights[layer, head]
            )
        np.testing.assert_allclose(panels[5 * layer + 4].get_images()[0].get_array(), weights[layer].mean(0))


def test_size_grows_with_the_sentence_and_stays_bounded() -> None:
    def size(targets: int, sources: int) -> tuple[float, float]:
        width, height = draw_attention(
            uniform(targets, sources), ["x"] * sources, ["y"] * targets, None
        ).get_size_inches()
        return float(width), float(height)

    assert size(40, 45) > size(12, 14) > size(4, 5)
    assert max(size(5, 300)) < 30


@pytest.mark.parametrize("targets", [3, 80])
def test_labels_do_not_overlap(targets: int) -> None:
    figure = draw_attention(uniform(targets, targets), ["août"] * targets, ["déjà"] * targets, None)
    figure.draw_without_rendering()
    axes = figure.axes[0]
    rows = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert all(above.y0 >= below.y1 - 1 for above, below in pairwise(rows))
    columns = [label.get_window_extent() for label in axes.get_xticklabels()]
    assert all(left.x1 <= right.x0 + 1 for left, right in pairwise(columns))


HEBREW = ["זה", "ספר", "טוב"]


def test_columns_of_a_text_from_right_to_left_begin_at_the_right() -> None:
    source = ["<sos>", *HEBREW, "<eos>"]
    figure = draw_attention(np.eye(3, 5), source, ["a", "b", "c"], "זה ספר", [(1, 1)])
    maps = draw_attention_maps(np.eye(3, 5)[None, None], source, ["a", "b", "c"], "זה ספר")
    assert figure.axes[0].get_xlim() == maps.axes[0].get_xlim() == (4.5, -0.5)
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == source
    centers = [patch.get_center() for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    np.testing.assert_allclose(centers, [(1, 1)], atol=1e-9)
    other = draw_attention(np.eye(3, 5), ["<sos>", "a", "זה", "b", "<eos>"], HEBREW, None)
    assert other.axes[0].get_xlim() == (-0.5, 4.5)


@pytest.mark.parametrize("script", ["Latin", "Hebrew", "Chinese"])
def test_labels_are_inside_the_picture_and_pictures_bounded(script: str) -> None:
    long = {"Latin": "W" * 400, "Hebrew": "ש" * 400, "Chinese": "书" * 400}[script]
    for room in (None, 3):
        figure = draw_attention(uniform(2, 3), ["a", long, "c"], [long, "b"], f"{long} {long}", room=room)
        assert max(figure.get_size_inches()) < 8
        with missing_glyphs_as_boxes():
            figure.draw_without_rendering()
            (left, bottom), (right, top) = figure.axes[0].get_tightbbox().get_points()
            title = figure.texts[0].get_window_extent()
        assert left >= 0 <= bottom
        assert right <= figure.bbox.width
        assert title.x0 >= 0
        assert title.x1 <= figure.bbox.width
        assert top <= title.y0
        assert title.y1 <= figure.bbox.height


def test_every_picture_is_drawn_with_texts_of_every_direction_and_without_fonts(tmp_path: Path) -> None:
    words = [
        "<sos>",
        *HEBREW,
        "كتاب",
        "हिन्दी",
        "👨‍👩‍👧",
        "𒀀",
        "\ud800",
        "\u202e",
        "a\nb",
        "$x_1$",
        "\U0010fffd",
        "<eos>",
    ]
    shaded = ShadedText(words * 4, [0.5] * 4 * len(words), "हिन्दी", [0])
    title, count = " ".join(words[:7]), len(words)
    points = [(1.0, 2.0), (2.0, 1.0)]
    groups = {title: [GroupValue(title, 5, 1.0), GroupValue("b", 5, 2.0)]}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        figures = [
            draw_attention(uniform(count, count), words, words, title),
            draw_attention_maps(uniform(count, count)[None, None], words, words, title),
            draw_overlays(np.zeros((8, 8, 3), np.uint8), [(word, np.ones((2, 2)), None) for word in words]),
            draw_confusion(np.eye(count), words),
            draw_shaded([shaded], title),
            draw_groups(groups, GROUPING),
            draw_curves({title: points}, {title: points}, "token"),
            draw_series(
                [Series(title, [0, 1], [1.0, 2.0], [0.0, 0.0])], title, title, title, ticks=[title, "b"]
            ),
            draw_words(np.random.default_rng(1).random((count, 4)), words),
            draw_word_pairs(
                {title: [*pairwise(words)], "b": [("a\nb", "$x_1$")], "c": [("a\nb", "\ud800")]},
                dict(zip(words, np.random.default_rng(1).random((count, 4)), strict=True)),
            ),
        ]
        for number, figure in enumerate(figures):
            save_figure(figure, tmp_path / f"{number}.png")
    assert caught == []
    escaped = [label.get_text() for label in figures[0].axes[0].get_xticklabels()][8:11]
    assert escaped == ["\\ud800", "\\u202e", "a\\nb"]


def test_names_of_groups_and_counts_have_room() -> None:
    names = ["a long name of a group", "书" * 12, "ש" * 20]
    series = draw_series([Series("a", [0, 1, 2], [1.0, 2.0, 3.0], [0.0] * 3)], "x", "y", "t", ticks=names)
    grouped = draw_groups({"test": [GroupValue(name, 5, 1.0) for name in names]}, GROUPING)
    confusion = draw_confusion(np.full((3, 3), 1_000_000.0), names)
    for figure in (series, grouped, confusion):
        axes = figure.axes[0]
        texts = axes.get_xticklabels() if figure is not confusion else axes.texts[:3]
        with missing_glyphs_as_boxes():
            figure.draw_without_rendering()
            boxes = [text.get_window_extent() for text in texts]
        assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_shaded_words_have_measured_widths_and_the_direction_of_their_text() -> None:
    figure = draw_shaded(
        [
            ShadedText(["iiii", "WWWW", "书书"], [0.1, 0.2, 0.3], "class", [1]),
            ShadedText([*HEBREW, "GPU"], [0.5] * 4, "a", []),
        ],
        "gate",
    )
    (axes,) = figure.axes
    with missing_glyphs_as_boxes():
        figure.draw_without_rendering()
        texts = {text.get_text(): text.get_window_extent() for text in axes.texts}
    patches = [patch.get_window_extent() for patch in axes.patches]
    assert texts["iiii"].width < texts["WWWW"].width
    left = [texts[word].x0 for word in ("iiii", "WWWW", "书书")]
    assert left == sorted(left)
    right = [texts[word].x0 for word in (*HEBREW, "GPU")]
    assert right == sorted(right, reverse=True)
    for word, text in texts.items():
        if word not in ("→ class", "a ←", "gate"):
            (patch,) = [one for one in patches if one.contains(*((text.p0 + text.p1) / 2))]
            assert patch.x0 < text.x0 < text.x1 < patch.x1
    shades = {round(patch.get_alpha(), 2) for patch in axes.patches}
    assert {text for text in texts if text.replace(".", "").isdigit()} == {"0", "0.25", "0.5", "0.75", "1"}
    assert shades == {0, 0.25, 0.5, 0.75, 1, 0.1, 0.2, 0.3}
    assert texts["a ←"].x1 > figure.bbox.width - 100


def test_words_of_a_caption_from_right_to_left_begin_at_the_right() -> None:
    words = [(word, np.ones((2, 2)), None) for word in HEBREW]
    figure = draw_overlays(np.zeros((8, 8, 3), np.uint8), words)
    places = {axes.get_title(): axes.get_position().x0 for axes in figure.axes}
    assert [*places.values()] == [places[word] for word in (*reversed(HEBREW), "")]
    assert places[""] > places["זה"] > places["טוב"]


def test_the_fonts_of_outputs_do_not_change_the_size_of_a_picture() -> None:
    sizes = [
        draw_attention(uniform(2, 3), ["<sos>", "كتاب", "<eos>"], output, "كتاب", room=3)
        .get_size_inches()
        .tolist()
        for output in (["a", "b"], ["ݨ", "書"], ["हिन्दी", "😀"])
    ]
    assert sizes[0] == sizes[1] == sizes[2]
    assert font_for(["a"], 10).families == ("sans-serif",)


def test_dollars_are_not_formulas_and_missing_glyphs_do_not_warn(tmp_path: Path) -> None:
    odd = ["$x_1$", "$\\frac{", "😀", "你好", "\x00", "a\nb", "_", "«\u202foui\u202f»"]
    figure = draw_attention(uniform(8, 8), odd, odd, "costs $5 \\frac{ $6")
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
    figure = draw_attention(uniform(11, 11), words, words, None)
    figure.savefig(tmp_path / "plain.png")


def test_a_failed_write_leaves_the_old_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "figures" / "attention.png"
    figure = draw_attention(uniform(2, 2), ["a", "b"], ["c", "d"], None)
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


def test_heatmaps_of_one_sentence_have_one_size_and_place(tmp_path: Path) -> None:
    source = ["<sos>", "un", "mot", "<eos>"]
    outputs = (["<eos>"], ["a", "w" * 60, "<eos>"], ["again"] * 50)
    figures = [
        draw_attention(uniform(len(output), 4), source, output, "un mot", room=6, note=f"step {10**n}")
        for n, output in enumerate(outputs)
    ]
    for figure in figures:
        assert tuple(figure.get_size_inches()) == tuple(figures[0].get_size_inches())
        assert figure.axes[0].get_position().bounds == figures[0].axes[0].get_position().bounds
        assert figure.axes[0].get_ylim() == (5.5, -0.5)
        figure.draw_without_rendering()
        (left, bottom), (right, top) = figure.axes[0].get_tightbbox().get_points()
        assert left >= 0
        assert bottom >= 0
        assert right <= figure.bbox.width
        assert top <= figure.bbox.height
    rows = [label.get_text() for label in figures[2].axes[0].get_yticklabels()]
    assert rows == [*["again"] * 5, "… 45 more"]
    (image,) = figures[2].axes[0].get_images()
    assert image.get_array().shape == (5, 4)


GROUPING = GroupingDeclaration(
    "source length in words",
    True,
    Declaration(
        label="BLEU",
        higher_is_better=True,
        format=".2f",
        shown=True,
        compared=True,
        per_example=True,
        limits=(0.0, 100.0),
        bounds=(),
        built_in=True,
    ),
)


def test_groups_have_the_scale_of_the_metric_and_room_for_every_marker(tmp_path: Path) -> None:
    def rows(low: float, high: float | None, confidence: float) -> list[GroupValue]:
        return [
            GroupValue("≤6", 1200, low, confidence),
            GroupValue(">6", 0, high, None if high is None else confidence),
        ]

    figure = draw_groups({"test": rows(100.0, None, 2.5), "$\\frac{$": rows(0.0, 8.0, 1.5)}, GROUPING)
    axes = figure.axes[0]
    assert axes.get_ylim() == draw_groups({"x": rows(3.0, 4.0, 1.0)}, GROUPING).axes[0].get_ylim()
    assert axes.get_ylim()[0] < 0
    assert axes.get_ylim()[1] > 100
    assert axes.get_title() == "BLEU by source length in words, with 95% intervals"
    first, second = axes.containers
    np.testing.assert_array_equal(np.array(first.lines[0].get_ydata(), float), [100.0, np.nan])
    np.testing.assert_array_equal(second.lines[0].get_ydata(), [0.0, 8.0])
    (bars,) = second.lines[2]
    np.testing.assert_allclose([segment[:, 1] for segment in bars.get_segments()], [(-1.5, 1.5), (6.5, 9.5)])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["≤6", ">6"]
    assert [text.get_text() for text in axes.texts] == ["n = 1,200", "n = 0"] * 2
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["test", "$\\frac{$"]
    save_figure(figure, tmp_path / "bleu.png")
    assert (tmp_path / "bleu.png").read_bytes().startswith(PNG)


def test_curves_of_a_short_run_are_points_and_of_a_long_one_lines() -> None:
    long: list[tuple[float, float]] = [(float(step), 1.0) for step in range(200)]
    figure = draw_curves({"training": long, "validation": [(3, 2.0)]}, {"BLEU": []}, "token")
    losses, scores = figure.axes
    training, validation = losses.get_lines()
    assert (training.get_marker(), validation.get_marker()) == ("None", "s")
    assert [line.get_label() for line in (training, validation, *scores.get_lines())] == [
        *("training", "validation", "BLEU")
    ]
    assert losses.get_ylim()[0] == 0
    assert (losses.get_ylabel(), losses.get_xlabel()) == ("nats per token", "step")


def test_format_is_that_of_the_ending(tmp_path: Path) -> None:
    figure = draw_attention(uniform(2, 2), ["a", "b"], ["c", "d"], None)
    for name, start in (("a.png", PNG), ("a.PDF", b"%PDF"), ("a.svg", b"<?xml")):
        save_figure(figure, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start)
    assert b"/Type3" not in (tmp_path / "a.PDF").read_bytes()
    with pytest.raises(UserError, match=r"a\.jpg"):
        save_figure(figure, tmp_path / "a.jpg")


def test_pyplot_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # importing it raises ImportError
    draw_groups({"x": [GroupValue("all", 1, 5.0)]}, GROUPING)
    draw_attention(uniform(1, 1), ["a"], ["b"], None)


def test_errors_of_a_series_stay_within_the_limits() -> None:
    perfect = 100.00000000000004  # sacreBLEU's value for perfect translations
    series = [Series("a $x", [0, 1], [99.0, 1.0], [3.0, 3.0])]
    series.append(Series("b", [0, 1], [perfect, 50.0], [0.0, 2.0]))
    figure = draw_series(series, "words", "BLEU", "title", ticks=["≤6", ">6"], limits=(0, 100))
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["≤6", ">6"]
    first, second = axes.containers
    (bars,) = first[2]
    assert [tuple(line[:, 1]) for line in bars.get_segments()] == [(96.0, 100.0), (0.0, 4.0)]
    assert first[0].get_xdata()[1] < 1 < second[0].get_xdata()[1]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a $x", "b"]


def test_curves_of_one_line_share_a_color_and_have_bands() -> None:
    series = [Series("a", [1, 2], [3.0, 4.0], [0.5, 1.0]), Series("a", [3], [3.0], [0.0])]
    series += [Series("b" * 100 + " c", [1, 2], [3.0, 4.0], [0.5, 1.0])]
    figure = draw_series(series, "step", "loss", "title")
    (axes,) = figure.axes
    colors = [line.get_color() for line in axes.get_lines()]
    assert colors[0] == colors[1] != colors[2]
    assert [text.get_text().count("b") for text in figure.legends[0].get_texts()] == [0, 100]
    (lowest, highest) = axes.collections[0].get_paths()[0].get_extents().intervaly
    assert (lowest, highest) == (2.5, 5.0)


def test_the_shares_of_the_frame_and_of_punctuation_are_below_the_picture() -> None:
    weights = np.array([[0.1, 0.6, 0.1, 0.2], [0.3, 0.0, 0.5, 0.2]])
    source = ["<sos>", "king", ".", "<eos>"]
    shown = [
        text.get_text() for text in draw_attention(weights, source, ["le", "roi"], None, note="step 3").texts
    ]
    assert " ".join(shown[-1].split()) == "step 3; attention on <sos> 20%, <eos> 20%, punctuation 30%"
    words = draw_attention(weights, ["a", "▁", "⁇", "d"], ["le", "roi"], None)  # a space, an unknown word
    other = draw_attention(weights, source, ["le", "roi"], None, scale="probability")
    assert not words.texts
    assert not other.texts
