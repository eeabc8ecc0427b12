"""A trained run in Python: what `seq2seq_lab.load` and `seq2seq_lab.train` return for every task."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from seq2seq_lab import plots
from seq2seq_lab.config.schema import Config, Precision
from seq2seq_lab.errors import UserError, did_you_mean
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.device import to_host
from seq2seq_lab.tracking.files import METRICS_FILE, read_metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Loaded:
    """A trained run with the weights of one of its checkpoints.

    A task that does more after training, such as translating, names a subclass as `Task.loaded`.

    Attributes:
        folder: the run folder.
        config: its configuration.
        result: the content of `result.json`; None if the run has not ended, only "status" and "error" if it is damaged.
        task: the task of the run.
        model: the model, in evaluation mode.
        compute: where and in what precision the model computes.
        checkpoint: the names of the checkpoints.
    """

    folder: Path
    config: Config = field(repr=False)
    result: dict[str, Any] | None = field(repr=False)
    task: Any = field(repr=False)
    model: Any = field(repr=False)
    compute: Compute
    checkpoint: str

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return self.compute.device

    @property
    def precision(self) -> Precision:
        """The precision of the matrix products."""
        return self.compute.precision

    def metrics(self) -> list[dict[str, float]]:
        """Return the rows of the run's `metrics.jsonl`: "step", "time" and the metrics recorded at that step.

        Raises:
            UserError: the file is missing or damaged.
        """
        return read_metrics(self.folder / METRICS_FILE)

    def curve(self, metric: str) -> tuple[list[float], list[float]]:
        """Return (optimizer steps, values) of a metric, as in `axes.plot(*run.curve("val/bleu"))`.

        Raises:
            UserError: the run has no such metric.
        """
        rows = self.metrics()
        known = sorted({name for row in rows for name in row} - {"step", "time"})
        if metric not in known:
            raise UserError(
                f"{self.folder} has no metric {metric!r}.{did_you_mean(metric, known)} Metrics: {', '.join(known)}."
            )
        chosen = [row for row in rows if metric in row]
        return [row["step"] for row in chosen], [row[metric] for row in chosen]


def draw_maps(
    folder: Path,
    maps: Mapping[str, torch.Tensor],
    axes: Mapping[str, tuple[Sequence[str], Sequence[str]]],
    title: str,
) -> dict[str, "Figure"]:
    """Return figures of the attention weights of all layers and heads for one example.

    Args:
        folder: the run, for the error message.
        maps: maps_1LATS by name.
        axes: the tokens along S and T by name.

    Raises:
        UserError: there are no maps.
    """
    if not maps:
        raise UserError(
            f"The model of {folder} has no attention maps of layers and heads. Use one run with a Transformer "
            f"encoder or decoder, for example model=transformer."
        )
    return {
        name: plots.draw_attention_maps(to_host(maps_1LATS[0].float()), *axes[name], title)
        for name, maps_1LATS in maps.items()
    }


def displayed(figure: "Figure") -> "Figure":
    """Return a figure with the method by which Jupyter displays it, which a figure without pyplot lacks."""
    figure._repr_png_ = functools.partial(plots.render_png, figure, 100)  # type: ignore[attr-defined]
    return figure
