"""The slots of a model."""

from seq2seq_lab.config.schema import Config
from seq2seq_lab.config.slots import Kind, locate
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.attention import BaseAttention
from seq2seq_lab.models.decoders.base import Decoder
from seq2seq_lab.models.encoders.base import Encoder
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


def check_reverse_source(config: Config) -> None:
    """Refuse `model.reverse_source=true` with an encoder that has no setting `reverse`.

    Raises:
        UserError: names the encoder and the remedy.
    """
    slot = config.encoder or {}
    if config.model.reverse_source and "reverse" not in slot:
        raise UserError(
            f"model.reverse_source=true has no effect on encoder={locate('encoder', slot, KINDS).__name__}. Choose "
            f"encoder=rnn, lstm or gru, or set model.reverse_source=false."
        )
