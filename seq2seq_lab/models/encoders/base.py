"""The contract of encoders."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn

from seq2seq_lab.data.tokenizers import Tokenizer
from seq2seq_lab.models.recurrent import RecurrentState


class EncoderOutputs(NamedTuple):
    """An encoded batch.

    Attributes:
        outputs_BSM: h_1 … h_S, zero at padding.
        lengths: the number of outputs of each example that are not padding, on the host.
        final: the state after the last real token; None if the encoder has no such state.
        grid: the number of rows and of columns of the outputs of an image, which are in the order of rows; None for any
            other source.
    """

    outputs_BSM: Tensor
    lengths: Sequence[int]
    final: RecurrentState | None
    grid: tuple[int, int] | None = None


class EncoderSizes(NamedTuple):
    """Sizes that a decoder needs to know.

    Attributes:
        encoder_output_size: M.
        final_size: size of the final state of a layer; None for an encoder without a final state.
        num_layers: number of layers that have a final state.
    """

    encoder_output_size: int
    final_size: int | None
    num_layers: int


NO_SOURCE = EncoderSizes(0, final_size=None, num_layers=0)  # of the decoder of a language model


class Encoder(nn.Module, ABC):
    """Encodes the source of a batch. An encoder of one sequence of tokens is a `TokenEncoder`.

    Attributes:
        source: what is encoded: `tokens`, `subwords` (tokens of the encoder's own `tokenizer`), `turns` (tokens, with
            `<eos>` at the end of each turn), `images`, `features` of images, or a name that a custom task defines; see
            `Task.sources`.
        sizes: the sizes that a decoder needs to know.
        embedding_size: size of the encoder's own embeddings; None for an encoder without any.
        output_per_token: whether the encoder outputs of a text are one per token; false for those of turns.
        needs_final: why a decoder must use the final state, with the remedy, for an error message; None if it need not. See
            `Decoder.check`.
    """

    source: ClassVar[str]
    sizes: EncoderSizes
    embedding_size: int | None = None
    output_per_token: bool = True
    needs_final: str | None = None

    @classmethod
    def tokenizer(cls, settings: Mapping[str, Any], framed: bool) -> Tokenizer | None:
        """Return the tokenizer of an encoder of `subwords`; None for any other encoder.

        Args:
            settings: the settings of the encoder.
            framed: see `PretrainedTokenizer`.
        """
        return None

    @abstractmethod
    def encode(self, batch: Any, embed: Callable[[Tensor], Tensor]) -> EncoderOutputs:
        """Encode the source of a batch.

        Args:
            batch: the task's batch, for example with `source_BS` and `source_lengths`, or with `image_BCHW`.
            embed: returns the embeddings of token ids, from the source table or, for `subwords`, the encoder's own.
        """

    def arrange(self, batch: Any, embedded_BSE: Tensor) -> Tensor:
        """Return embeddings, one per token of the `source_BS` of a batch, in the shape of the tokens that `encode` embeds.

        An encoder overrides it if it embeds tokens of another shape than `source_BS`. Other embeddings are returned
        unchanged.
        """
        return embedded_BSE

    def check_length(self, length: int, name: str) -> None:
        """Check that the encoder can encode a source of this many positions; see `Seq2Seq.check_length`."""

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return the parameters with settings of their own, as groups of `torch.optim.Optimizer`.

        Parameters in no group have the settings of the config group `optimizer`.
        """
        return []

    def pretrained_parameters(self) -> Iterable[nn.Parameter]:
        """Return the parameters that are loaded from files, which an initialization does not draw."""
        return ()

    def attention_maps(self, batch: Any, embed: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """Return maps_BLASS, the self-attention weights of all layers and heads, as "encoder"; empty without self-attention.

        Args:
            batch, embed: see `encode`.
        """
        return {}


class TokenEncoder(Encoder):
    """An encoder of one sequence of embedded tokens."""

    source = "tokens"

    @abstractmethod
    def forward(self, embedded_BSE: Tensor, lengths: Sequence[int]) -> EncoderOutputs:
        """Encode embedded tokens; `lengths` are the B real lengths, on the host."""

    def embed(self, ids_BS: Tensor) -> Tensor:
        """Return embedded_BSE of token ids; only an encoder of `subwords` has embeddings."""
        raise NotImplementedError

    def encode(self, batch: Any, embed: Callable[[Tensor], Tensor]) -> EncoderOutputs:
        """See `Encoder.encode`; the `source_BS` and `source_lengths` of the batch are encoded."""
        outputs: EncoderOutputs = self(embed(batch.source_BS), batch.source_lengths)
        return outputs
