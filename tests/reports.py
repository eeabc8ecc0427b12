"""Replaces the slowest parts of a run, which few tests check: drawing its figures and resampling for its intervals."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from seq2seq_lab import plots
from seq2seq_lab.metrics import base
from seq2seq_lab.plots import output

SAMPLES = 40
SAVE_FIGURE, CONFIDENCE_INTERVAL = plots.save_figure, base.confidence_interval


def save_pixel(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (1, 1)).save(path)


def short_interval(value: Any, rows: Any, clusters: Any, samples: int) -> float:
    return CONFIDENCE_INTERVAL(value, rows, clusters, min(samples, SAMPLES))


@contextmanager
def fast_reports() -> Iterator[None]:
    """Save one pixel for each figure, and draw 40 bootstrap samples for each interval."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (plots, output):
            patch.setattr(module, "save_figure", save_pixel)
        patch.setattr(base, "confidence_interval", short_interval)
        yield


@contextmanager
def full_reports() -> Iterator[None]:
    """Undo `fast_reports`, which applies to all tests."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (plots, output):
            patch.setattr(module, "save_figure", SAVE_FIGURE)
        patch.setattr(base, "confidence_interval", CONFIDENCE_INTERVAL)
        yield
