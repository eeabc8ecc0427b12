"""The slots of a model."""

from typing import Any

from seq2seq_lab.config.slots import Kind, part
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.attention import BaseAttention
from seq2seq_lab.models.decoders.base import Decoder, RecurrentDecoder
from seq2seq_lab.models.encoders.base import Encoder, EncoderSizes
from seq2seq_lab.models.initialization import Initialization
from seq2seq_lab.models.pooling import Pooling
from seq2seq_lab.models.readouts import Readout

KINDS = {
    "encoder": Kind(Encoder, frozenset({"input_size"})),
    "decoder": Kind(Decoder, frozenset({"input_size", "encoder", "attention"})),
    "attention": Kind(BaseAttention, frozenset({"query_size", "encoder_output_size"})),
    "pooling": Kind(Pooling, frozenset({"input_size", "encoder", "attention"})),
    "readout": Kind(Readout, frozenset({"feature_size", "vocabulary_size", "table"})),
    "initialization": Kind(Initialization),
}


def build_decoder(
    decoder: dict[str, Any] | None,
    attention: dict[str, Any] | None,
    input_size: int,
    encoder: EncoderSizes,
) -> Decoder:
    """Return the decoder of a model.

    Args:
        decoder, attention: their configurations.
        input_size: E, the size of an embedding.

    Raises:
        UserError: a setting is not allowed, or a custom decoder lacks an attribute.
    """
    built: Decoder = part("decoder", decoder, KINDS)(
        input_size=input_size, encoder=encoder, attention=part("attention", attention, KINDS)
    )
    needed = {
        "attention": isinstance(built, RecurrentDecoder),
        "bridge": type(built).start is RecurrentDecoder.start,
        "feature_size": True,
    }
    for name, is_read in needed.items():
        if is_read and not hasattr(built, name):
            raise UserError(
                f"decoder={type(built).__name__}: its constructor does not set self.{name}. See "
                f'"Decoder" in docs/extending.md.'
            )
    return built
