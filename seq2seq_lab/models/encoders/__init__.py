"""Encoders: from the embedded source to a memory and a final state."""

from seq2seq_lab.models.encoders.base import Encoded, Encoder, EncoderSizes
from seq2seq_lab.models.encoders.recurrent import RecurrentEncoder

__all__ = ["Encoded", "Encoder", "EncoderSizes", "RecurrentEncoder"]
