"""Replaces the slowest parts of a run, which few tests check: drawing its figures and resampling for its intervals."""

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
from seq2seq_lab.reporting import run_report
from seq2seq_lab.tasks.translation import report

SAMPLES = 40
SAVE_FIGURE, CONFIDENCE_INTERVAL = plots.save_figure, measurement.confidence_interval


def save_pixel(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (1, 1)).save(path)


def short_interval(value: Any, rows: Any, clusters: Any, samples: int) -> float:
    return CONFIDENCE_INTERVAL(value, rows, clusters, min(samples, SAMPLES))


def drawn_once(draw: Callable[..., Figure]) -> Callable[..., Figure]:
    """Draw the first picture of each kind, which is given by the arguments that are not empty; the others stay empty."""
    kinds = set()

    def drawn(*positional: Any, **named: Any) -> Figure:
        values = {**dict(enumerate(positional)), **named}
        kind = frozenset(name for name, value in values.items() if hasattr(value, "shape") or value)
        if kind in kinds:
            return Figure()
        kinds.add(kind)
        return draw(*positional, **named)

    return drawn


@contextmanager
def fast_reports() -> Iterator[None]:
    """Draw each kind of figure once, save one pixel for each, and draw 40 bootstrap samples for each interval."""
    names = ("draw_attention", "draw_curves", "draw_groups")
    pictures = SimpleNamespace(**vars(plots) | {name: drawn_once(getattr(plots, name)) for name in names})
    with pytest.MonkeyPatch.context() as patch:
        for module in (report, run_report):
            patch.setattr(module, "plots", pictures)
        for module in (plots, output):
            patch.setattr(module, "save_figure", save_pixel)
        patch.setattr(measurement, "confidence_interval", short_interval)
        yield


@contextmanager
def full_reports() -> Iterator[None]:
    """Undo `fast_reports`, which applies to all tests."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (report, run_report):
            patch.setattr(module, "plots", plots)
        for module in (plots, output):
            patch.setattr(module, "save_figure", SAVE_FIGURE)
        patch.setattr(measurement, "confidence_interval", CONFIDENCE_INTERVAL)
        yield
