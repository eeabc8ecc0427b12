"""The states that the picture of counting models shows."""

from pathlib import Path

import numpy as np
import pytest
import torch

import seq2seq_lab
from benchmarks import state_traces

SETTINGS = (
    "experiment=formal logger=none trainer.fast_dev_run=true model.encoder_hidden_size=8 model.hidden_size=8"
)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_the_states_are_those_of_the_whole_source_and_target(cell: str, tmp_path: Path) -> None:
    seq2seq_lab.train([*SETTINGS.split(), f"encoder={cell}"], tmp_path / "run")
    loaded = seq2seq_lab.load(tmp_path / "run", device="cpu")
    values_PH = state_traces.states(loaded, 5)
    assert values_PH.shape == (
        7 + 6,
        8,
    )  # with <sos> and <eos>, and without the <eos> that the decoder does not read
    batch = loaded.forced(["a a a a a"], ["b b b b b"]).batch(np.array([0]))
    with torch.no_grad():
        final = loaded.model.encode(batch).final
        _, state, _ = loaded.model.read(batch.inputs_BT, *loaded.model.start(batch), False)
    for row, expected in ((6, final), (-1, state.layers)):
        of_layers = expected.cell_LBH if cell == "lstm" else expected.hidden_LBH
        np.testing.assert_allclose(values_PH[row], of_layers[-1, 0], rtol=1e-5, atol=1e-6)
    state_traces.main([str(tmp_path / "states.png"), str(tmp_path / "run")])
    assert (tmp_path / "states.png").stat().st_size > 10_000
