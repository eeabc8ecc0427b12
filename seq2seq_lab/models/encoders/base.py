"""The contract of encoders."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
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
    """

    outputs_BSM: Tensor
    lengths: Sequence[int]
    final: RecurrentState | None


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
    """Reads the embedded source.

    Attributes:
        reads: what the source is: `tokens`, `subwords` (tokens of the encoder's own `tokenizer`), `turns` (tokens, with
            `<eos>` at the end of each turn) or `images`.
    """

    sizes: EncoderSizes
    reads: ClassVar[str] = "tokens"

    @classmethod
    def tokenizer(cls, settings: Mapping[str, Any], framed: bool) -> Tokenizer | None:
        """Return the tokenizer of an encoder that reads `subwords`; None for any other encoder.

        Args:
            settings: the settings of the encoder.
            framed: see `PretrainedTokenizer`.
        """
        return None

    def check_length(self, length: int, name: str) -> None:
        """Check that the encoder can read a source of this many positions; see `Seq2Seq.check_length`."""

    def embed(self, ids_BS: Tensor) -> Tensor:
        """Return embedded_BSE of token ids; only an encoder that reads `subwords` has embeddings."""
        raise NotImplementedError

    def read(self, batch: Any, embed: Callable[[Tensor], Tensor]) -> EncoderOutputs:
        """Encode the source of a batch. An encoder of something other than one sequence of tokens overrides this.

        Args:
            batch: the task's batch; here, its `source_BS` and `source_lengths` are read.
            embed: returns the source embeddings of token ids.
        """
        outputs: EncoderOutputs = self(embed(batch.source_BS), batch.source_lengths)
        return outputs

    def attention_maps(self, batch: Any, embed: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """Return maps_BLASS, the self-attention weights of all layers and heads, as "encoder"; empty without self-attention.

        Args:
            batch, embed: see `read`.
        """
        return {}

    @abstractmethod
    def forward(self, embedded_BSE: Tensor, lengths: Sequence[int]) -> EncoderOutputs:
        """Encode a batch; `lengths` are the B real lengths, on the host."""
