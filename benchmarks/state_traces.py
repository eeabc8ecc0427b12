"""Draw the states of models that count: python -m benchmarks.state_traces FILE.png RUN…

RUN is a run of `experiment=formal` with an encoder that reads in one direction (docs/formal.md). A panel for each run
shows units of its last layer after each token of a source and of its target: of an LSTM the cells, of other networks the
outputs (after Weiss 2018, arXiv:1805.04908, figure 1). The units are those that change most in the source and back in the
target.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

import seq2seq_lab
from seq2seq_lab.models.recurrent import RecurrentState

DOTS_PER_INCH = 100
LETTERS = 50
UNITS = 6


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the states of runs."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.state_traces", description=__doc__.split("\n")[0]
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    options = parser.parse_args(arguments)
    loaded = [seq2seq_lab.load(run, device="cpu") for run in options.runs]
    draw(loaded).savefig(options.file, dpi=DOTS_PER_INCH)


def draw(loaded: Sequence[Any]) -> Figure:
    """Return a figure with a panel for each run."""
    figure = Figure(figsize=(4.2 * len(loaded), 3.4), layout="constrained")
    for axes, one in zip(figure.subplots(1, len(loaded), squeeze=False)[0], loaded, strict=True):
        longest = one.task.parts.dataset().longest
        values_PH = states(one, LETTERS)
        source_H, target_H = values_PH[LETTERS] - values_PH[0], values_PH[-1] - values_PH[LETTERS + 1]
        for unit in np.argsort(source_H * target_H)[:UNITS]:
            axes.plot(values_PH[:, unit])
        axes.axvline(LETTERS + 1, color="0.5", linestyle="--")  # <eos> of the source
        axes.axvspan(longest, LETTERS, color="0.93")
        axes.set_xlabel("tokens read: the source, then the target")
        axes.set_title(one.config.encoder["cell"], fontsize=10)
    figure.axes[0].set_ylabel("value")
    return figure


def states(loaded: Any, letters: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return values_PH of the last layer after each of the P tokens of a source of this many letters and its target."""
    forced = loaded.forced([" ".join("a" * letters)], [" ".join("b" * letters)])
    batch = forced.batch(np.array([0]))
    with torch.no_grad():
        return np.stack([_values(state).numpy() for state in _states(loaded.model, batch)])


def _states(model: Any, batch: Any) -> Iterator[RecurrentState]:
    """Yield the state of the recurrent layers after each token of the source, then of the inputs of the decoder."""
    for length in range(1, batch.source_BS.shape[1] + 1):
        yield model.encoder(model.embed_source(batch.source_BS[:, :length]), (length,)).final
    state, source = model.start(batch)
    for token_1 in batch.inputs_BT.T:
        _, state, _ = model.step(token_1, state, source, False)
        yield state.layers


def _values(state: RecurrentState) -> Tensor:
    """Return the cells of the last layer if it is an LSTM, otherwise its outputs."""
    found_LBH = state.hidden_LBH if state.cell_LBH is None else state.cell_LBH
    return found_LBH[-1, 0].float()


if __name__ == "__main__":
    main()
