"""The language model."""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from seq2seq_lab.config.schema import Config, TiedEmbeddings
from seq2seq_lab.config.slots import locate, part
from seq2seq_lab.data.tokenizers import SOS
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.attention import NoAttention
from seq2seq_lab.models.decoders.base import Decoder
from seq2seq_lab.models.dropout import EmbeddingDropout
from seq2seq_lab.models.embedding import Embedding
from seq2seq_lab.models.encoders.base import NO_SOURCE
from seq2seq_lab.models.parts import KINDS, build_decoder
from seq2seq_lab.models.readouts import Readout
from seq2seq_lab.models.selectable import Selectable
from seq2seq_lab.models.seq2seq import log_softmax
from seq2seq_lab.models.source import Source
from seq2seq_lab.models.tables import build_embedding, check_tables, embedding_dropout


class Beginnings(Protocol):
    """The inputs of the model before a search continues them.

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

    decoder: Selectable
    last_N: Tensor

    def select(self, index_N: Tensor) -> "LanguageState":
        """Return the states of the given rows of the batch."""
        return LanguageState(self.decoder.select(index_N), self.last_N.index_select(0, index_N))


class LanguageModel(nn.Module):
    """p(y_t | y_<t): a decoder without a source and a readout.

    With a recurrent decoder the model of Mikolov 2010 ("Recurrent neural network based language model"), with a Transformer
    decoder that of Radford 2018 ("Improving language understanding by generative pre-training").
    """

    # Prefixes of the names of weights in checkpoints: the earlier one, and the current one.
    renamed_weights: ClassVar[Mapping[str, str]] = {"encoder.": "decoder.", "embedding.": "target_embedding."}

    def __init__(
        self,
        *,
        target_embedding: Embedding,
        decoder: Decoder,
        readout: Readout,
        dropout: EmbeddingDropout,
    ) -> None:
        super().__init__()
        self.target_embedding = target_embedding
        self.decoder = decoder
        self.readout = readout
        self.dropout = dropout

    def start(self, batch: Beginnings) -> tuple[LanguageState, Source]:
        """Read the beginnings of sentences except their last token; see `search.base.StepModel`."""
        beginning_BP = batch.beginning_BP
        source = Source.empty(len(beginning_BP), self.target_embedding.weight)
        state = self.decoder.start(source)
        if beginning_BP.shape[1] > 1:
            _, state, _ = self.decoder.unroll(self._embed(beginning_BP[:, :-1]), state, source, False)
        return LanguageState(state, beginning_BP[:, -1]), source

    def step(
        self, token_N: Tensor, state: LanguageState, source: Source, with_weights: bool = True
    ) -> tuple[Tensor, LanguageState, None]:
        """Read one token: return (log_probs_NV of the next, the next state, None); see `search.base.StepModel`."""
        token_N = torch.where(token_N == SOS, state.last_N, token_N)
        features_NF, after, _ = self.decoder.step(self._embed(token_N), state.decoder, source, False)
        return log_softmax(self.readout(features_NF)), LanguageState(after, state.last_N), None

    @property
    def vocabulary_size(self) -> int:
        """The number of types."""
        return len(self.target_embedding.weight)

    def read(
        self, inputs_NT: Tensor, state: LanguageState, source: Source, with_weights: bool = True
    ) -> tuple[Tensor, LanguageState, None]:
        """Read known tokens: return (log_probs_NTV after each of them, the state after the last one, None)."""
        inputs_NT = torch.where(inputs_NT == SOS, state.last_N[:, None], inputs_NT)
        logits_NTV, after = self(inputs_NT, state.decoder)
        return log_softmax(logits_NTV), LanguageState(after, state.last_N), None

    def forward(
        self, inputs_BT: Tensor, state: Any = None, embedded_BTE: Tensor | None = None
    ) -> tuple[Tensor, Selectable]:
        """Read tokens that are all known: return (logits_BTV, the decoder's state after the last token).

        Args:
            state: the decoder's state before the first token; None for its first state.
            embedded_BTE: replaces the embeddings of the tokens; it may require gradients.
        """
        source = Source.empty(len(inputs_BT), self.target_embedding.weight)
        if state is None:
            state = self.decoder.start(source)
        if embedded_BTE is None:
            embedded_BTE = self._embed(inputs_BT)
        features_BTF, state, _ = self.decoder.unroll(embedded_BTE, state, source, False)
        return self.readout(features_BTF), state

    def attention_maps(self, inputs_BT: Tensor) -> dict[str, Tensor]:
        """Return maps_BLATT, the self-attention weights of a Transformer, as "decoder"; without one, nothing."""
        source = Source.empty(len(inputs_BT), self.target_embedding.weight)
        return self.decoder.attention_maps(self._embed(inputs_BT), source)

    def _embed(self, tokens: Tensor) -> Tensor:
        return self.dropout(self.target_embedding(tokens))


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
    check_no_source(config)
    table = build_embedding(target, vocabulary, sizes.embedding_size)
    decoder = build_decoder(config.decoder, config.attention, sizes.embedding_size, NO_SOURCE)
    readout: Readout = part("readout", config.readout, KINDS)(
        feature_size=decoder.feature_size,
        vocabulary_size=vocabulary,
        table=None if sizes.tied_embeddings is TiedEmbeddings.none else table.weight,
    )
    readout.check(weights=False, tokens=False)
    network = LanguageModel(
        target_embedding=table,
        decoder=decoder,
        readout=readout,
        dropout=embedding_dropout(target, sizes),
    )
    part("initialization", config.initialization, KINDS)()(network)
    return network


def check_no_source(config: Config) -> None:
    """Refuse parts and settings of a decoder that read a source.

    Raises:
        UserError: names the key and the remedy.
    """
    slot, sizes = config.decoder or {}, config.model
    kind: type[Decoder] = locate("decoder", slot, KINDS)
    attention, bridge = config.attention or {}, slot.get("bridge", "zero")
    attends = locate("attention", attention, KINDS) is not NoAttention
    for wrong, setting, remedy in (
        (
            kind.needs_source,
            f"decoder._target_={slot.get('_target_')}",
            "decoder=plain, luong or transformer",
        ),
        (attends, f"attention._target_={attention.get('_target_')}", "attention=none"),
        (bridge != "zero", f"decoder.bridge={bridge}", "model.bridge=zero"),
        (
            sizes.encoder_hidden_size not in (sizes.hidden_size, slot.get("hidden_size")),
            f"model.encoder_hidden_size={sizes.encoder_hidden_size}",
            f"model.hidden_size={sizes.encoder_hidden_size}",
        ),
        (sizes.reverse_source, "model.reverse_source=true", "model.reverse_source=false"),
        (sizes.share_layers, "model.share_layers=true", "model.share_layers=false"),
    ):
        if wrong:
            raise UserError(f"{setting} is not allowed: a language model has no source. Set {remedy}.")
