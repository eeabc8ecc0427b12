"""The models as tutorials write them, with which `benchmarks.training` compares the package.

A Python loop over the target positions calls embedding, recurrent layer, attention (with the projection of its keys) and
output layer at each step, and feeds back the prediction of the model if the step is not teacher-forced. Time is the first
axis of all tensors, as in torch's recurrent layers. Nothing is slower than necessary: the logits of the steps are stacked
once, query and keys of the additive attention have separate products, and no value is read from the device in a step.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seq2seq_lab.data.tokenizers import PAD
from seq2seq_lab.models.kernels.recurrent import in_float32, lacks_lstm, matrix_dtype

State = Tensor | tuple[Tensor, Tensor]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the vocabularies, of an embedding, and of a state (of each direction in an encoder)."""

    source_vocabulary: int
    target_vocabulary: int
    embedding: int
    hidden: int


class Reference(nn.Module, ABC):
    """An encoder-decoder with a loop over the target.

    Args:
        dropout: probability on the embeddings of both sides, and between stacked layers.
    """

    def __init__(self, sizes: Sizes, dropout: float) -> None:
        super().__init__()
        self.source_embedding = nn.Embedding(sizes.source_vocabulary, sizes.embedding)
        self.target_embedding = nn.Embedding(sizes.target_vocabulary, sizes.embedding)
        self.dropout = nn.Dropout(dropout)

    @abstractmethod
    def encode(self, source_SB: Tensor, lengths: Sequence[int]) -> tuple[State, tuple[Tensor, ...]]:
        """Return the first state of the decoder, and the tensors that each step uses."""

    @abstractmethod
    def step(self, embedded_1BE: Tensor, state: State, lookup: tuple[Tensor, ...]) -> tuple[Tensor, State]:
        """Return logits_BV of the next token, and the next state."""

    def forward(
        self,
        source_SB: Tensor,
        lengths: Sequence[int],
        target_UB: Tensor,
        ratio: float,
        generator: random.Random,
    ) -> Tensor:
        """Return logits_TBV. Each step of the whole batch is teacher-forced with probability `ratio`."""
        state, lookup = self.encode(source_SB, lengths)
        token_B = target_UB[0]
        logits = []
        for reference_B in target_UB[1:]:
            embedded_1BE = self.dropout(self.target_embedding(token_B))[None]
            logits_BV, state = self.step(embedded_1BE, state, lookup)
            logits.append(logits_BV)
            forced = ratio >= 1 or generator.random() < ratio
            token_B = reference_B if forced else logits_BV.argmax(-1)
        return torch.stack(logits)

    def embed_source(self, source_SB: Tensor) -> Tensor:
        """Return embedded_SBE."""
        return self.dropout(self.source_embedding(source_SB))


class LSTM(nn.LSTM):
    """A `torch.nn.LSTM` that computes in float32 where the package's LSTM does, under autocast on some processors."""

    def forward(  # type: ignore[override]
        self, sequence_TBE: Tensor, start: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        if lacks_lstm(sequence_TBE.device.type, matrix_dtype(sequence_TBE)):
            return in_float32(super().forward, sequence_TBE, start)
        return super().forward(sequence_TBE, start)


class Sutskever(Reference):
    """Two LSTM layers on each side; the final encoder states start the decoder (Sutskever 2014, arXiv:1409.3215)."""

    def __init__(self, sizes: Sizes, dropout: float) -> None:
        super().__init__(sizes, dropout)
        self.encoder = LSTM(sizes.embedding, sizes.hidden, num_layers=2, dropout=dropout)
        self.decoder = LSTM(sizes.embedding, sizes.hidden, num_layers=2, dropout=dropout)
        self.output = nn.Linear(sizes.hidden, sizes.target_vocabulary)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.08, 0.08)

    def encode(self, source_SB: Tensor, lengths: Sequence[int]) -> tuple[State, tuple[Tensor, ...]]:
        _, state = self.encoder(self.embed_source(source_SB))
        return state, ()

    def step(self, embedded_1BE: Tensor, state: State, lookup: tuple[Tensor, ...]) -> tuple[Tensor, State]:
        states_1BH, state = self.decoder(embedded_1BE, state)
        return self.output(states_1BH[0]), state


class Cho(Reference):
    """A GRU on each side; the final encoder state is an input of each step and of the output (Cho 2014, arXiv:1406.1078)."""

    def __init__(self, sizes: Sizes, dropout: float) -> None:
        super().__init__(sizes, dropout)
        embedding, hidden = sizes.embedding, sizes.hidden
        self.encoder = nn.GRU(embedding, hidden)
        self.decoder = nn.GRU(embedding + hidden, hidden)
        self.output = nn.Linear(2 * hidden + embedding, sizes.target_vocabulary)
        draw_normal(self)

    def encode(self, source_SB: Tensor, lengths: Sequence[int]) -> tuple[State, tuple[Tensor, ...]]:
        _, context_1BH = self.encoder(self.embed_source(source_SB))
        return context_1BH, (context_1BH,)

    def step(self, embedded_1BE: Tensor, state: State, lookup: tuple[Tensor, ...]) -> tuple[Tensor, State]:
        (context_1BH,) = lookup
        states_1BH, state = self.decoder(torch.cat([embedded_1BE, context_1BH], dim=-1), state)
        return self.output(torch.cat([embedded_1BE, states_1BH, context_1BH], dim=-1)[0]), state


class AdditiveAttention(nn.Module):
    """v tanh(W s + U h_j + b), with the keys U h_j + b projected at each step (Bahdanau 2014, A.1.2)."""

    def __init__(self, query_size: int, output_size: int, size: int) -> None:
        super().__init__()
        self.key = nn.Linear(output_size, size)
        self.query = nn.Linear(query_size, size, bias=False)
        self.energy = nn.Linear(size, 1, bias=False)

    def forward(self, query_BQ: Tensor, outputs_SBM: Tensor) -> Tensor:
        """Return scores_BS."""
        return self.energy((self.query(query_BQ) + self.key(outputs_SBM)).tanh())[..., 0].t()


class MultiplicativeAttention(nn.Module):
    """h_j W s, with the keys projected at each step (Luong 2015, "general"); W is V / √Q as in the package."""

    def __init__(self, query_size: int, output_size: int) -> None:
        super().__init__()
        self.key = nn.Linear(output_size, query_size, bias=False)

    def forward(self, query_BQ: Tensor, outputs_SBM: Tensor) -> Tensor:
        """Return scores_BS."""
        scores_BS = torch.bmm(self.key(outputs_SBM).transpose(0, 1), query_BQ[..., None])[..., 0]
        return scores_BS / query_BQ.shape[1] ** 0.5


class Bahdanau(Reference):
    """Attention before the step of a GRU, over a packed bidirectional GRU (Bahdanau 2014, arXiv:1409.0473)."""

    def __init__(self, sizes: Sizes, dropout: float) -> None:
        super().__init__(sizes, dropout)
        embedding, hidden = sizes.embedding, sizes.hidden
        self.encoder = nn.GRU(embedding, hidden, bidirectional=True)
        self.bridge = nn.Linear(2 * hidden, hidden)
        self.attention = AdditiveAttention(hidden, 2 * hidden, hidden)
        self.decoder = nn.GRU(embedding + 2 * hidden, hidden)
        self.output = nn.Linear(3 * hidden + embedding, sizes.target_vocabulary)
        draw_normal(self)

    def encode(self, source_SB: Tensor, lengths: Sequence[int]) -> tuple[State, tuple[Tensor, ...]]:
        packed = pack_padded_sequence(
            self.embed_source(source_SB), torch.tensor(lengths), enforce_sorted=False
        )
        outputs, last_2BH = self.encoder(packed)
        outputs_SBM, _ = pad_packed_sequence(outputs)
        return first_state(self.bridge, last_2BH), (outputs_SBM, (source_SB != PAD).t())

    def step(self, embedded_1BE: Tensor, state: State, lookup: tuple[Tensor, ...]) -> tuple[Tensor, State]:
        assert isinstance(state, Tensor)
        outputs_SBM, mask_BS = lookup
        context_1BM = weighted_sum(self.attention(state[0], outputs_SBM), outputs_SBM, mask_BS)
        states_1BH, state = self.decoder(torch.cat([embedded_1BE, context_1BM], dim=-1), state)
        return self.output(torch.cat([states_1BH, context_1BM, embedded_1BE], dim=-1)[0]), state


class Luong(Reference):
    """Bilinear attention after the step of a GRU, without input feeding (Luong 2015, arXiv:1508.04025)."""

    def __init__(self, sizes: Sizes, dropout: float) -> None:
        super().__init__(sizes, dropout)
        embedding, hidden = sizes.embedding, sizes.hidden
        self.encoder = nn.GRU(embedding, hidden, bidirectional=True)
        self.bridge = nn.Linear(2 * hidden, hidden)
        self.decoder = nn.GRU(embedding, hidden)
        self.attention = MultiplicativeAttention(hidden, 2 * hidden)
        self.combine = nn.Linear(3 * hidden, hidden, bias=False)
        self.output = nn.Linear(hidden, sizes.target_vocabulary)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)

    def encode(self, source_SB: Tensor, lengths: Sequence[int]) -> tuple[State, tuple[Tensor, ...]]:
        outputs_SBM, last_2BH = self.encoder(self.embed_source(source_SB))
        return first_state(self.bridge, last_2BH), (outputs_SBM, (source_SB != PAD).t())

    def step(self, embedded_1BE: Tensor, state: State, lookup: tuple[Tensor, ...]) -> tuple[Tensor, State]:
        outputs_SBM, mask_BS = lookup
        states_1BH, state = self.decoder(embedded_1BE, state)
        context_1BM = weighted_sum(self.attention(states_1BH[0], outputs_SBM), outputs_SBM, mask_BS)
        combined_1BH = self.combine(torch.cat([context_1BM, states_1BH], dim=-1)).tanh()
        return self.output(combined_1BH[0]), state


def first_state(bridge: nn.Linear, last_2BH: Tensor) -> Tensor:
    """Return tanh(W [h_forward; h_backward] + b) as state_1BH."""
    return bridge(torch.cat([last_2BH[0], last_2BH[1]], dim=-1)).tanh()[None]


def weighted_sum(scores_BS: Tensor, outputs_SBM: Tensor, mask_BS: Tensor) -> Tensor:
    """Return context_1BM: the encoder outputs weighted by the masked softmax of the scores."""
    weights_BS = scores_BS.masked_fill(~mask_BS, float("-inf")).softmax(-1)
    return torch.bmm(weights_BS[:, None].to(outputs_SBM.dtype), outputs_SBM.transpose(0, 1)).transpose(0, 1)


def draw_normal(model: nn.Module) -> None:
    """Draw weights from a normal of standard deviation 0.01 and set biases to 0 (Bahdanau 2014, B.1)."""
    for name, parameter in model.named_parameters():
        if "bias" in name:
            nn.init.zeros_(parameter)
        else:
            nn.init.normal_(parameter, std=0.01)
