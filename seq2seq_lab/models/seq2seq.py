"""The sequence-to-sequence model."""

from typing import Any

import torch
from torch import Tensor, nn

from seq2seq_lab.config.schema import Config, ModelConfig, TiedEmbeddings
from seq2seq_lab.config.slots import locate, part
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.decoders.base import Decoder
from seq2seq_lab.models.dropout import EmbeddingDropout
from seq2seq_lab.models.embedding import Embedding
from seq2seq_lab.models.encoders.base import Encoder, EncoderOutputs, TokenEncoder
from seq2seq_lab.models.initialization import Initialization
from seq2seq_lab.models.parts import KINDS, build_decoder
from seq2seq_lab.models.readouts import Readout
from seq2seq_lab.models.readouts.base import check_source_types
from seq2seq_lab.models.recurrent import RecurrentLayers
from seq2seq_lab.models.selectable import Selectable
from seq2seq_lab.models.source import Source
from seq2seq_lab.models.tables import build_embedding, check_tables, embedding_dropout, has_source_table
from seq2seq_lab.models.weight_change import WeightChange

NOT_ONE_NETWORK = (
    "model.share_layers=true requires that encoder and decoder have the same cell, size and number of layers, in one "
    "direction. Choose encoder=rnn, lstm or gru with model.encoder_hidden_size equal to model.hidden_size and "
    "decoder=plain or luong (model=shared does), or set model.share_layers=false."
)


class Seq2Seq(nn.Module):
    """p(y_t | y_<t, x): an encoder, a decoder and a readout with the embedding tables of both sides.

    Args:
        source_embedding: None for a source without tokens, and for an encoder with its own embeddings.
    """

    def __init__(
        self,
        *,
        source_embedding: Embedding | None,
        target_embedding: Embedding,
        encoder: Encoder,
        decoder: Decoder,
        readout: Readout,
        source_dropout: EmbeddingDropout,
        target_dropout: EmbeddingDropout,
    ) -> None:
        super().__init__()
        self.source_embedding = source_embedding
        self.target_embedding = target_embedding
        self.encoder = encoder
        self.decoder = decoder
        self.readout = readout
        self.source_dropout = source_dropout
        self.target_dropout = target_dropout

    @property
    def attends(self) -> bool:
        """Whether the model returns attention weights."""
        return self.decoder.attends

    @property
    def vocabulary_size(self) -> int:
        """The number of target types."""
        return len(self.target_embedding.weight) + self.readout.source_types

    @property
    def longest_source(self) -> int | None:
        """The largest number of source positions that the model can attend to; None for any number."""
        return self.decoder.longest_source

    @property
    def _reads_images(self) -> bool:
        """Whether a source is an image, or features of one."""
        return self.encoder.source in ("images", "features")

    def check_length(self, length: int, name: str) -> None:
        """Check that the model can attend to a source of this many positions.

        Args:
            name: what the message calls the source.

        Raises:
            UserError: it has too many.
        """
        self.encoder.check_length(length, name)
        longest = self.longest_source
        if longest is not None and length > longest:
            # `<sos>` and `<eos>` are not counted.
            unit, framing = ("positions", 0) if self._reads_images else ("tokens", 2)
            raise UserError(
                f"{name} has {length - framing} {unit}, and this attention function has scores for {longest - framing} at "
                f"most. Set attention.max_length={length - 2} or more, or choose a function without a limit, such as "
                f"attention=additive."
            )

    def encode(self, batch: Any, embedded_BSE: Tensor | None = None) -> EncoderOutputs:
        """Encode the source of a batch; see `start`."""
        if embedded_BSE is None:
            return self.encoder.encode(batch, self.embed_source)
        read: list[Tensor] = []
        arranged = self.encoder.arrange(batch, embedded_BSE)

        def embed(tokens: Tensor) -> Tensor:
            read.append(tokens)
            if tokens.shape != arranged.shape[:2]:
                raise self._wrong_embeddings(embedded_BSE, f"tokens of shape {[*tokens.shape]}")
            return arranged

        encoded = self.encoder.encode(batch, embed)
        if not read:
            raise self._wrong_embeddings(embedded_BSE, "no tokens")
        return encoded

    def _wrong_embeddings(self, embedded_BSE: Tensor, expected: str) -> UserError:
        return UserError(
            f"embedded_BSE of shape {[*embedded_BSE.shape]} is not allowed: encoder={type(self.encoder).__name__} embeds "
            f"{expected}. Give what embed_source returns for the tokens that it embeds, or leave it out."
        )

    def start(self, batch: Any, embedded_BSE: Tensor | None = None) -> tuple[Selectable, Source]:
        """Encode a batch: return the decoder's state before the first target token, and the encoded source.

        Args:
            batch: what the encoder encodes; see `Encoder.encode`.
            embedded_BSE: replaces the embeddings that the encoder reads, as `embed_source` returns them for the `source_BS`
                of the batch; it may require gradients.

        Raises:
            UserError: a source has more positions than the model can attend to, or others than the readout can copy.
        """
        encoded = self.encode(batch, embedded_BSE)
        name = "An image" if self._reads_images else "A source sentence"
        self.check_length(max(encoded.lengths), name)
        source = Source.encoded(encoded, self.decoder.project)
        if self.readout.needs_tokens:
            if batch.source_BS.shape != encoded.outputs_BSM.shape[:2]:
                raise UserError(
                    f"readout={type(self.readout).__name__} reads a token at each output of the encoder, but "
                    f"encoder={type(self.encoder).__name__} has other outputs. Choose another encoder or readout."
                )
            source = source._replace(tokens_BS=batch.source_BS)
        return self.decoder.start(source), source

    def step_features(
        self, token_N: Tensor, state: Any, source: Source, with_weights: bool = True
    ) -> tuple[Tensor, Selectable, Tensor | None]:
        """Read one target token: return (features_NF, the next state, weights_NS or None); see `read_out`.

        Args:
            with_weights: see `Decoder.step`; true if the readout needs the weights.
        """
        with_weights = with_weights or self.readout.needs_weights
        return self.decoder.step(self.embed_target(token_N), state, source, with_weights)

    def read_out(self, features_NF: Tensor, weights_NS: Tensor | None, source: Source) -> Tensor:
        """Return logits_NV or log-probabilities of one step."""
        if not self.readout.needs_weights:
            return self.readout(features_NF, weights_NS, source)
        assert weights_NS is not None
        scores_N1V: Tensor = self.readout(features_NF[:, None], weights_NS[:, None], source)
        return scores_N1V[:, 0]

    def step(
        self,
        token_N: Tensor,
        state: Any,
        source: Source,
        with_weights: bool = True,
        *,
        change: WeightChange | None = None,
    ) -> tuple[Tensor, Selectable, Tensor | None]:
        """Read one target token: return (log_probs_NV of the next, the next state, weights_NS or None).

        Args:
            with_weights: see `step_features`.
            change: changes the attention weights that the context is computed with.
        """
        source = self._changed(source, change)
        features_NF, state, weights_NS = self.step_features(token_N, state, source, with_weights)
        return log_softmax(self.read_out(features_NF, weights_NS, source)), state, weights_NS

    def read(
        self,
        inputs_NT: Tensor,
        state: Any,
        source: Source,
        with_weights: bool = True,
        *,
        change: WeightChange | None = None,
    ) -> tuple[Tensor, Selectable, Tensor | None]:
        """Read known tokens: return (log_probs_NTV after each of them, the state after the last one, weights_NTS or None).

        Equal to repeated `step`.
        """
        source, with_weights = self._changed(source, change), with_weights or self.readout.needs_weights
        embedded_NTE = self.embed_target(inputs_NT)
        features_NTF, state, weights_NTS = self.decoder.unroll(embedded_NTE, state, source, with_weights)
        return log_softmax(self.readout(features_NTF, weights_NTS, source)), state, weights_NTS

    def unroll(
        self,
        inputs_BT: Tensor,
        state: Any,
        source: Source,
        with_weights: bool = True,
        *,
        embedded_inputs_BTE: Tensor | None = None,
        change: WeightChange | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Read a whole target: return (logits_BTV or log-probabilities, weights_BTS or None).

        Row t of both belongs to output t.

        Args:
            with_weights: see `step_features`.
            embedded_inputs_BTE: replaces the embeddings of the inputs, as `embed_target` returns them; it may require
                gradients.
            change: see `step`.
        """
        source, with_weights = self._changed(source, change), with_weights or self.readout.needs_weights
        if embedded_inputs_BTE is None:
            embedded_inputs_BTE = self.embed_target(inputs_BT)
        features_BTF, _, weights_BTS = self.decoder.unroll(embedded_inputs_BTE, state, source, with_weights)
        return self.readout(features_BTF, weights_BTS, source), weights_BTS

    def forward(
        self, batch: Any, inputs_BT: Tensor, with_weights: bool = True
    ) -> tuple[Tensor, Tensor | None]:
        """Encode the source and read a whole target; see `start` and `unroll`."""
        return self.unroll(inputs_BT, *self.start(batch), with_weights)

    def attention_maps(self, batch: Any, inputs_BT: Tensor) -> dict[str, Tensor]:
        """Return the attention weights of all layers and heads of a Transformer; without one, nothing.

        Returns:
            "encoder": maps_BLASS of the self-attention of a Transformer encoder; "decoder": maps_BLATT of the self-attention
            of a Transformer decoder; "cross": maps_BLATS of its attention to the source.
        """
        _, source = self.start(batch)
        return {
            **self.encoder.attention_maps(batch, self.embed_source),
            **self.decoder.attention_maps(self.embed_target(inputs_BT), source),
        }

    def embed_source(self, tokens: Tensor) -> Tensor:
        """Return the embeddings of source tokens that the encoder reads, scaled and with dropout."""
        if self.source_embedding is None:
            assert isinstance(self.encoder, TokenEncoder)
            return self.encoder.embed(tokens)
        return self.source_dropout(self.source_embedding(tokens))

    def embed_target(self, tokens: Tensor) -> Tensor:
        """Return the embeddings of target tokens that the decoder reads, scaled and with dropout."""
        return self.target_dropout(self.target_embedding(tokens))

    def _changed(self, source: Source, change: WeightChange | None) -> Source:
        if change is None:
            return source
        if not self.attends:
            raise UserError(
                "change: this model has no attention weights to change. Use a model with attention."
            )
        change.check(*self.decoder.heads)
        return source._replace(change=change)


def log_softmax(logits: Tensor) -> Tensor:
    """Return log-probabilities, in float32 or wider."""
    return logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))


class EncodedModel:
    """A model, `Seq2Seq` or `Ensemble`, with the source of one batch already encoded.

    An evaluation passes it to the losses and the search instead of the model, so that the source is encoded once.

    Args:
        started: what `model.start(batch)` returns, if it was computed before.
    """

    def __init__(self, model: Any, batch: Any, started: tuple[Any, Any] | None = None) -> None:
        self.model = model
        self.started: tuple[Any, Any] = model.start(batch) if started is None else started

    @property
    def vocabulary_size(self) -> int:
        """See `Seq2Seq.vocabulary_size`."""
        size: int = self.model.vocabulary_size
        return size

    def start(self, batch: Any) -> Any:
        """See `Seq2Seq.start`."""
        return self.started

    def step(
        self, token_N: Tensor, state: Any, source: Any, with_weights: bool = True
    ) -> tuple[Tensor, Any, Tensor | None]:
        """See `Seq2Seq.step`."""
        stepped: tuple[Tensor, Any, Tensor | None] = self.model.step(token_N, state, source, with_weights)
        return stepped

    def read(
        self, inputs_NT: Tensor, state: Any, source: Any, with_weights: bool = True
    ) -> tuple[Tensor, Any, Tensor | None]:
        """See `Seq2Seq.read`."""
        found: tuple[Tensor, Any, Tensor | None] = self.model.read(inputs_NT, state, source, with_weights)
        return found

    def __call__(
        self, batch: Any, inputs_BT: Tensor, with_weights: bool = True
    ) -> tuple[Tensor, Tensor | None]:
        """See `Seq2Seq.forward`."""
        result: tuple[Tensor, Tensor | None] = self.model.unroll(inputs_BT, *self.started, with_weights)
        return result


def build_seq2seq(
    config: Config, source_vocabulary: int | None, target_vocabulary: int, joint: bool
) -> Seq2Seq:
    """Return the model, with weights drawn from torch's global generator.

    Args:
        source_vocabulary: None if the source has no tokens.

    Raises:
        UserError: components that cannot be combined, by name.
    """
    sizes: ModelConfig = config.model
    tied = sizes.tied_embeddings
    check_tables(config, joint)
    of_source = source_types(config)
    check_source_types(target_vocabulary, of_source)
    target_embedding = build_embedding(
        config.embedding.target, target_vocabulary, sizes.embedding_size, of_source
    )
    source_embedding = target_embedding if tied is TiedEmbeddings.all else None
    has_table = source_vocabulary is not None and has_source_table(config)
    if source_vocabulary is not None and has_table and source_embedding is None:
        source_embedding = build_embedding(
            config.embedding.source, source_vocabulary, sizes.embedding_size, of_source
        )
    encoder_slot, decoder_slot = config.encoder or {}, config.decoder or {}
    if sizes.share_layers and encoder_slot.get("hidden_size") != decoder_slot.get("hidden_size"):
        raise UserError(NOT_ONE_NETWORK)  # before the bridge reports another error
    encoder: Encoder = part("encoder", config.encoder, KINDS)(input_size=sizes.embedding_size)
    decoder = build_decoder(config.decoder, config.attention, sizes.embedding_size, encoder.sizes)
    decoder.check(encoder)
    if sizes.share_layers:
        decoder.layers = shared_layers(encoder, decoder)
    readout: Readout = part("readout", config.readout, KINDS)(
        feature_size=decoder.feature_size,
        vocabulary_size=target_vocabulary,
        table=None if tied is TiedEmbeddings.none else target_embedding.weight,
    )
    readout.check(weights=decoder.attends, tokens=joint and source_vocabulary is not None)
    if readout.needs_tokens and not encoder.output_per_token:
        raise UserError(
            f"readout={type(readout).__name__} reads a token at each output of the encoder, and "
            f"encoder={type(encoder).__name__} has an output per turn. Set encoder.outputs=words or both, or choose another "
            f"readout, such as readout=linear."
        )
    network = Seq2Seq(
        source_embedding=source_embedding,
        target_embedding=target_embedding,
        encoder=encoder,
        decoder=decoder,
        readout=readout,
        source_dropout=embedding_dropout(config.embedding.source, sizes),
        target_dropout=embedding_dropout(config.embedding.target, sizes),
    )
    initialize: Initialization = part("initialization", config.initialization, KINDS)()
    initialize(network)
    return network


def source_types(config: Config) -> int:
    """Return the number of types of the vocabulary that stand for words of the source; see `Readout`."""
    assert config.readout is not None
    kind: type[Readout] = locate("readout", config.readout, KINDS)
    return kind.source_types_of(config.readout)


def shared_layers(encoder: Encoder, decoder: Decoder) -> RecurrentLayers:
    """Return the encoder's recurrent layers for use by the decoder.

    Raises:
        UserError: the layers differ in cell, size, count, direction or dropout.
    """
    ours, theirs = getattr(encoder, "layers", None), getattr(decoder, "layers", None)
    if not isinstance(ours, RecurrentLayers) or not isinstance(theirs, RecurrentLayers):
        raise UserError(NOT_ONE_NETWORK)
    shapes = [{name: weight.shape for name, weight in one.named_parameters()} for one in (ours, theirs)]
    if shapes[0] != shapes[1]:
        raise UserError(NOT_ONE_NETWORK)
    if str(ours.dropout) != str(theirs.dropout):
        raise UserError(
            f"model.share_layers=true: encoder.dropout={ours.dropout} and decoder.dropout={theirs.dropout} differ. Set "
            f"model.dropout for both."
        )
    return ours
