"""Decoders: from what was said so far to the features of the next word."""

from seq2seq_lab.models.decoders.after import AttendAfterDecoder
from seq2seq_lab.models.decoders.base import Decoder, DecoderState
from seq2seq_lab.models.decoders.before import AttendBeforeDecoder
from seq2seq_lab.models.decoders.between import AttendBetweenDecoder
from seq2seq_lab.models.decoders.context import FixedContextDecoder
from seq2seq_lab.models.source import Source

__all__ = [
    "AttendAfterDecoder",
    "AttendBeforeDecoder",
    "AttendBetweenDecoder",
    "Decoder",
    "DecoderState",
    "FixedContextDecoder",
    "Source",
]
