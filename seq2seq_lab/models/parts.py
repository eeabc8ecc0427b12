"""The slots of a model."""

from seq2seq_lab.config.slots import Kind
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
