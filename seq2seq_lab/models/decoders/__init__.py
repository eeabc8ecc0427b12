"""Decoders: from the target tokens so far to the features of the next one."""

from seq2seq_lab.models.decoders.after import AttendAfterDecoder
from seq2seq_lab.models.decoders.base import Decoder, DecoderState, RecurrentDecoder
from seq2seq_lab.models.decoders.before import AttendBeforeDecoder
from seq2seq_lab.models.decoders.between import AttendBetweenDecoder
from seq2seq_lab.models.decoders.context import FixedContextDecoder
from seq2seq_lab.models.decoders.transformer import TransformerDecoder
from seq2seq_lab.models.source import Source

__all__ = [
    "AttendAfterDecoder",
    "AttendBeforeDecoder",
    "AttendBetweenDecoder",
    "Decoder",
    "DecoderState",
    "FixedContextDecoder",
    "RecurrentDecoder",
    "Source",
    "TransformerDecoder",
]
