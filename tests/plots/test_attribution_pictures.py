"""Pictures of attributions: no label covers another, and what is drawn is what was given."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from seq2seq_lab.plots.attributions import Panel, draw_agreement, draw_attributions

WORDS = [
    "the",
    "old",
    "king",
    "of",
    "a",
    "small",
    "country",
    "gives",
    "many",
    "red",
    "apples",
    "to",
    "his",
    "friends",
]


def boxes(labels: list[Any]) -> list[Any]:
    return [label.get_window_extent() for label in labels if label.get_text()]


def overlapping(labels: list[Any]) -> int:
    found = boxes(labels)
    return sum(one.padded(-0.5).overlaps(other.padded(-0.5)) for one, other in combinations(found, 2))


@pytest.mark.parametrize("count", [5, 20, 60])
@pytest.mark.parametrize("methods", [1, 4, 11])
def test_labels_of_panels_do_not_overlap(count: int, methods: int) -> None:
    words = ["<sos>", *(WORDS * 4)[:count], "<eos>"]
    tokens = [*(WORDS * 4)[:count], "<eos>"]
    generator = np.random.default_rng(0)
    panels = [
        Panel(
            f"method_{i}",
            generator.normal(size=(len(tokens), len(words))),
            "<sos> 1%, <eos> 2%, punctuation 3%",
        )
        for i in range(methods)
    ]
    figure = draw_attributions(panels, words, tokens, " ".join(words), [(1, 0)])
    figure.draw_without_rendering()
    assert len(figure.axes) == methods
    whole = figure.bbox
    everything = []
    for axes in figure.axes:
        for labels in (axes.get_xticklabels(), axes.get_yticklabels()):
            assert overlapping(labels) == 0
            everything += boxes(labels)
        everything.append(axes.get_window_extent())
    texts = boxes(figure.texts)
    assert len(texts) == methods + 1
    assert all(
        box.x0 >= -1 and box.y0 >= -1 and box.x1 <= whole.x1 + 1 and box.y1 <= whole.y1 + 1
        for box in [*texts, *everything]
    )
    for text in texts:  # captions and the title cover no panel and no label
        assert not any(text.padded(-1).overlaps(other.padded(-1)) for other in everything)
    assert not any(one.padded(-1).overlaps(other.padded(-1)) for one, other in combinations(texts, 2))


def test_rows_are_divided_by_their_largest_magnitude() -> None:
    scores = np.array([[2.0, -4.0], [0.0, 0.0], [1.0, 0.5]])
    figure = draw_attributions([Panel("x", scores)], ["a", "b"], ["c", "d", "e"], "title")
    np.testing.assert_array_equal(figure.axes[0].images[0].get_array(), [[0.5, -1], [0, 0], [1, 0.5]])


def test_agreement_has_its_numbers() -> None:
    figure = draw_agreement(["one", "two"], np.array([[1.0, np.nan], [np.nan, 1.0]]), "title")
    assert [text.get_text() for text in figure.axes[0].texts] == ["1.00", "–", "–", "1.00"]
    figure.draw_without_rendering()
    assert overlapping(figure.axes[0].get_xticklabels()) == 0
