"""Encoders: from the source to encoder outputs and, for some, a final state."""

from seq2seq_lab.models.encoders.base import Encoder, EncoderOutputs, EncoderSizes, TokenEncoder
from seq2seq_lab.models.encoders.convolutional import ConvolutionalEncoder
from seq2seq_lab.models.encoders.features import FeatureEncoder
from seq2seq_lab.models.encoders.hierarchical import HierarchicalEncoder
from seq2seq_lab.models.encoders.layer_norm_gru import LayerNormGruEncoder
from seq2seq_lab.models.encoders.pretrained import PretrainedEncoder
from seq2seq_lab.models.encoders.recurrent import RecurrentEncoder
from seq2seq_lab.models.encoders.transformer import TransformerEncoder

__all__ = ["ConvolutionalEncoder", "Encoder", "EncoderOutputs", "EncoderSizes", "RecurrentEncoder"]
__all__ += [
    "FeatureEncoder",
    "HierarchicalEncoder",
    "LayerNormGruEncoder",
    "PretrainedEncoder",
    "TokenEncoder",
    "TransformerEncoder",
]
