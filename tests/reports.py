"""Replaces the slowest parts of a run, which few tests check: drawing its figures and resampling for its intervals."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from matplotlib.figure import Figure
from PIL import Image

from seq2seq_lab import plots
from seq2seq_lab.metrics import measurement
from seq2seq_lab.plots import output
from seq2seq_lab.reporting import figures, run_page, run_report, shown
from seq2seq_lab.tasks import confusion, report
from seq2seq_lab.tasks.captions import evaluation as captions
from seq2seq_lab.tasks.classification import evaluation as classification
from seq2seq_lab.tasks.classification import report as classes
from seq2seq_lab.tasks.masked_language_model import evaluation as masked
from seq2seq_lab.tasks.span import evaluation as span
from seq2seq_lab.tasks.tagging import evaluation as tagging
from seq2seq_lab.tasks.translation import report as translation

SAMPLES = 40
DRAWING = ("draw_attention", "draw_confusion", "draw_curves", "draw_groups", "draw_overlays", "draw_shaded")
USERS = (
    captions,
    classes,
    classification,
    confusion,
    masked,
    report,
    tagging,
    run_page,
    run_report,
    shown,
    span,
    translation,
)
SAVE_FIGURE, CONFIDENCE_INTERVAL = plots.save_figure, measurement.confidence_interval


def save_pixel(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (1, 1)).save(path)


def short_interval(value: Any, rows: Any, clusters: Any, samples: int) -> float | None:
    return CONFIDENCE_INTERVAL(value, rows, clusters, min(samples, SAMPLES))


def drawn_once(draw: Callable[..., Figure]) -> Callable[..., Figure]:
    """Draw the first picture of each kind, which is given by the arguments that are not empty; the others stay empty.

    Forked ranks draw none: each would draw the first one again.
    """
    kinds, process = set(), os.getpid()

    def drawn(*positional: Any, **named: Any) -> Figure:
        values = {**dict(enumerate(positional)), **named}
        kind = frozenset(name for name, value in values.items() if hasattr(value, "shape") or value)
        if kind in kinds or os.getpid() != process:
            return Figure()
        kinds.add(kind)
        return draw(*positional, **named)

    return drawn


def svg_if_drawn(figure: Figure) -> str:
    return plots.render_svg(figure) if figure.axes else "<svg></svg>"


@contextmanager
def fast_reports() -> Iterator[None]:
    """Draw each kind of figure once, save one pixel for each, and draw 40 bootstrap samples for each interval."""
    drawing = {name: drawn_once(getattr(plots, name)) for name in DRAWING}
    pictures = SimpleNamespace(**vars(plots) | drawing | {"render_svg": svg_if_drawn})
    with pytest.MonkeyPatch.context() as patch:
        for module in USERS:
            patch.setattr(module, "plots", pictures)
        patch.setattr(figures, "draw_curves", drawing["draw_curves"])
        for module in (plots, output):
            patch.setattr(module, "save_figure", save_pixel)
        patch.setattr(measurement, "confidence_interval", short_interval)
        yield


@contextmanager
def full_reports() -> Iterator[None]:
    """Undo `fast_reports`, which applies to all tests."""
    with pytest.MonkeyPatch.context() as patch:
        for module in USERS:
            patch.setattr(module, "plots", plots)
        patch.setattr(figures, "draw_curves", plots.draw_curves)
        for module in (plots, output):
            patch.setattr(module, "save_figure", SAVE_FIGURE)
        patch.setattr(measurement, "confidence_interval", CONFIDENCE_INTERVAL)
        yield
