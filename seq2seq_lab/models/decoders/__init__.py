"""Decoders: from what was said so far to the features of the next word."""

from seq2seq_lab.models.decoders.after import AttendAfterDecoder
from seq2seq_lab.models.decoders.base import Decoder, Source

__all__ = ["AttendAfterDecoder", "Decoder", "Source"]
