"""Training with carried state: truncated backpropagation through time (Mikolov 2010; Zaremba 2014, arXiv:1409.2329, §4.1).

The training text is cut into streams. A step reads a chunk of each stream, starting from the state after the
previous chunk; the gradient ends at the start of the chunk. An evaluation with carried state reads one stream in this way.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seq2seq_lab.data.batching import Index
from seq2seq_lab.data.tokenizers import PAD
from seq2seq_lab.models.attention.base import AttentionState
from seq2seq_lab.models.decoders.base import DecoderState
from seq2seq_lab.models.recurrent import RecurrentState
from seq2seq_lab.runtime.device import on_device
from seq2seq_lab.runtime.ranks import Ranks
from seq2seq_lab.tasks.base import EpochPlan
from seq2seq_lab.tasks.examples import PerEpoch
from seq2seq_lab.tasks.language_model.data import SentenceTokens, TokenBatch, streams


class ChunkPlan(EpochPlan):
    """The steps of an epoch: step s reads the tokens s·T to (s + 1)·T − 1 of each of the R streams.

    The example with the index s·R + r is chunk s of stream r. Every step has a chunk of each stream in the same
    order, so a stream always belongs to the same rank and micro-batch.

    Args:
        sentences: see `streams`.
        rows: R.
        chunk: T.
    """

    def __init__(self, sentences: SentenceTokens, rows: int, chunk: int, device: torch.device) -> None:
        inputs_RL, outputs_RL = streams(sentences.tokens, rows)
        steps = -(-inputs_RL.shape[1] // chunk)
        super().__init__([[np.arange(step * rows, (step + 1) * rows)] for step in range(steps)])
        self.rows, self.chunk, self.device = rows, chunk, device
        self.counts = [
            int((outputs_RL[:, step * chunk : (step + 1) * chunk] != PAD).sum()) for step in range(steps)
        ]
        self.inputs_RL, self.outputs_RL = inputs_RL.to(device), outputs_RL.to(device)

    def batch(self, index: Index) -> TokenBatch:
        step = int(index[0]) // self.rows
        part = slice(step * self.chunk, (step + 1) * self.chunk)
        row_B = on_device(index % self.rows, self.device)
        inputs_BT, outputs_BT = self.inputs_RL[row_B, part].long(), self.outputs_RL[row_B, part].long()
        return TokenBatch(inputs_BT, outputs_BT, row_B, step == 0)

    def count(self, step: int) -> int:
        return self.counts[step]


class TrainingStreams:
    """The training sentences as streams, in the order of the text in every epoch.

    Args:
        sentences: see `PerEpoch`.
        rows, chunk: see `ChunkPlan`.
    """

    def __init__(
        self, sentences: SentenceTokens | Callable[[int], SentenceTokens], rows: int, chunk: int
    ) -> None:
        self._plan = PerEpoch(sentences, lambda sentences, device: ChunkPlan(sentences, rows, chunk, device))

    def epoch(self, index: int, device: torch.device) -> ChunkPlan:
        """Return the plan of an epoch, counted from 0."""
        return self._plan(index, device)


class CarriedState:
    """The state of a recurrent decoder in each stream after the chunk that was read last.

    Each rank keeps the states of the streams that it reads; `state_dict` gathers those of all ranks.

    Args:
        rows: the number of streams.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._states: dict[str, Tensor] = {}  # see `put`
        self._read = torch.zeros(rows, dtype=torch.bool)  # the streams that this rank has read

    def get(self, batch: TokenBatch) -> DecoderState | None:
        """Return the state before the chunks of a batch; None for the state 0 of the first chunks."""
        if batch.first:
            return None
        assert batch.row_B is not None
        states = {
            name: state.to(batch.row_B.device).index_select(1, batch.row_B)
            for name, state in self._states.items()
        }
        layers, fed_1BF = RecurrentState(states["hidden_LBH"], states.get("cell_LBH")), states.get("fed_1BF")
        return DecoderState(layers, AttentionState(0, None), None if fed_1BF is None else fed_1BF[0])

    def put(self, batch: TokenBatch, state: DecoderState) -> None:
        """Keep the state after the chunks of a batch, without its gradient."""
        assert batch.row_B is not None
        fed_1BF = None if state.fed_BF is None else state.fed_BF[None]
        for name, value_LBH in (state.layers._asdict() | {"fed_1BF": fed_1BF}).items():
            if value_LBH is not None:
                layers, _, size = value_LBH.shape
                if name not in self._states:
                    self._states[name] = value_LBH.new_zeros(layers, self.rows, size)
                kept = self._states[name] = self._states[name].to(value_LBH)
                kept[:, batch.row_B] = value_LBH.detach()
        self._read = self._read.to(batch.row_B.device).index_fill_(0, batch.row_B, True)

    def state_dict(self, ranks: Ranks) -> dict[str, Any]:
        """Return the states of all streams on all ranks; every rank must call this."""
        own = self._read.nonzero().flatten().tolist()
        shares: Sequence[tuple[list[int], dict[str, Tensor]]] = ranks.gather(
            (own, {name: state[:, own].cpu() for name, state in self._states.items()})
        )
        # Every rank has loaded the states of all streams. The shares replace those that have been read since.
        states = {name: state.to("cpu", copy=True) for name, state in self._states.items()}
        for rows, share in shares:
            for name, part_LBH in share.items():
                layers, _, size = part_LBH.shape
                if name not in states:
                    states[name] = part_LBH.new_zeros(layers, self.rows, size)
                states[name][:, rows] = part_LBH
        return states

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the states of all streams."""
        self._states = dict(state)
