"""The language model."""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from seq2seq_lab.config.schema import Config, TiedEmbeddings
from seq2seq_lab.config.slots import part
from seq2seq_lab.data.tokenizers import SOS
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.dropout import Dropout
from seq2seq_lab.models.embedding import Embedding
from seq2seq_lab.models.encoders.base import Encoder
from seq2seq_lab.models.encoders.recurrent import RecurrentEncoder
from seq2seq_lab.models.parts import KINDS
from seq2seq_lab.models.readouts import Readout
from seq2seq_lab.models.recurrent import RecurrentLayers, RecurrentState
from seq2seq_lab.models.seq2seq import log_softmax
from seq2seq_lab.models.tables import build_embedding, check_tables, embedding_scale


class Beginnings(Protocol):
    """What the model reads of a batch before a search continues it.

    Attributes:
        beginning_BP: `<sos>` and the first P - 1 tokens of each sentence.
    """

    @property
    def beginning_BP(self) -> Tensor: ...


class LanguageState(NamedTuple):
    """The state before a step.

    Attributes:
        last_N: the last token of the beginning, which replaces the `<sos>` that a search passes in its first step.
    """

    layers: RecurrentState
    last_N: Tensor

    def select(self, index_N: Tensor) -> "LanguageState":
        """Return the states of the given rows of the batch."""
        return LanguageState(self.layers.select(index_N), self.last_N.index_select(0, index_N))


class NoSource(NamedTuple):
    """The source of a model without a source: no position can be attended to."""

    lengths_B: Tensor

    def select(self, index_N: Tensor) -> "NoSource":
        """Return the entries of the given rows."""
        return NoSource(self.lengths_B.index_select(0, index_N))


class LanguageModel(nn.Module):
    """p(y_t | y_<t): recurrent layers and a readout (Mikolov 2010, "Recurrent neural network based language model").

    Args:
        encoder: its recurrent layers and the dropout of its outputs are used; see `check_direction`.
        scale: factor on the embeddings.
        embedding_dropout: probability on the embeddings.
        locked_dropout: one dropout mask per sentence instead of one per token.
    """

    def __init__(
        self,
        *,
        embedding: Embedding,
        encoder: RecurrentEncoder,
        readout: Readout,
        scale: float,
        embedding_dropout: float,
        locked_dropout: bool,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.encoder = encoder
        self.readout = readout
        self.scale = scale
        self.embedding_dropout = Dropout(embedding_dropout, locked_dropout)

    def initial_state(self, batch_size: int) -> RecurrentState:
        """Return the state 0, in which the model reads the first token of a sentence."""
        layers, weight = self.encoder.layers, self.embedding.weight
        zeros_LBH = weight.new_zeros(len(layers.layers), batch_size, layers.output_size)
        return RecurrentState(zeros_LBH, zeros_LBH if layers.cell == "lstm" else None)

    def start(self, batch: Beginnings) -> tuple[LanguageState, NoSource]:
        """Read the beginnings of sentences except their last token; see `search.base.StepModel`."""
        beginning_BP = batch.beginning_BP
        layers = self.initial_state(len(beginning_BP))
        if beginning_BP.shape[1] > 1:
            _, layers = self._read(beginning_BP[:, :-1], layers)
        last_B = beginning_BP[:, -1]
        return LanguageState(layers, last_B), NoSource(torch.zeros_like(last_B))

    def step(
        self, token_N: Tensor, state: LanguageState, source: NoSource, with_weights: bool = True
    ) -> tuple[Tensor, LanguageState, None]:
        """Read one token: return (log_probs_NV of the next, the next state, None); see `search.base.StepModel`."""
        token_N = torch.where(token_N == SOS, state.last_N, token_N)
        states_N1H, layers = self._read(token_N[:, None], state.layers)
        return log_softmax(self.readout(states_N1H)[:, 0]), LanguageState(layers, state.last_N), None

    def forward(self, inputs_BT: Tensor, state: RecurrentState | None) -> tuple[Tensor, RecurrentState]:
        """Read tokens that are all known: return (logits_BTV, the state after the last token).

        Args:
            state: before the first token; None for the state 0.
        """
        states_BTH, state = self._read(inputs_BT, state)
        return self.readout(states_BTH), state

    def _read(self, tokens_BT: Tensor, state: RecurrentState | None) -> tuple[Tensor, RecurrentState]:
        embedded_BTE = self.embedding(tokens_BT)
        if self.scale != 1:
            embedded_BTE = embedded_BTE * self.scale
        states_BTH, state = self.encoder.layers(self.embedding_dropout(embedded_BTE), state)
        # The layers compute time first; in that layout the readout would be one product per sentence.
        states_BTH = states_BTH.flatten(0, 1).unflatten(0, tokens_BT.shape)
        return self.encoder.encoder_output_dropout(states_BTH), state


def check_direction(encoder: Encoder) -> RecurrentEncoder:
    """Return the encoder; refuse one whose outputs depend on later tokens.

    Raises:
        UserError: names the group and the remedy.
    """
    if (
        not isinstance(encoder, RecurrentEncoder)
        or not isinstance(encoder.layers, RecurrentLayers)  # which can continue from a state
        or encoder.layers.directions != 1
        or encoder.reverse
    ):
        raise UserError(
            "encoder: a language model reads from left to right, so that it predicts each token from earlier ones only. "
            "Choose encoder=rnn, lstm or gru, and model.reverse_source=false."
        )
    return encoder


def build_language_model(config: Config, vocabulary: int) -> LanguageModel:
    """Return the language model, with weights drawn from torch's global generator. Its embeddings are those of the target.

    Raises:
        UserError: components that cannot be combined, by name.
    """
    sizes, target, source = config.model, config.embedding.target, config.embedding.source
    if source.path or source.frozen:
        raise UserError(
            f"embedding.source={vars(source)} is not allowed: a language model has no source. Set embedding.target instead."
        )
    check_tables(config, joint=True)
    table = build_embedding(target, vocabulary, sizes.embedding_size)
    encoder = check_direction(part("encoder", config.encoder, KINDS)(input_size=sizes.embedding_size))
    readout: Readout = part("readout", config.readout, KINDS)(
        feature_size=encoder.sizes.encoder_output_size,
        vocabulary_size=vocabulary,
        table=None if sizes.tied_embeddings is TiedEmbeddings.none else table.weight,
    )
    network = LanguageModel(
        embedding=table,
        encoder=encoder,
        readout=readout,
        scale=embedding_scale(sizes),
        embedding_dropout=target.dropout,
        locked_dropout=sizes.locked_dropout,
    )
    part("initialization", config.initialization, KINDS)()(network)
    return network
