"""Readouts, one per file: from decoder features to scores over the vocabulary."""

from seq2seq_lab.models.readouts.base import Readout
from seq2seq_lab.models.readouts.deep import DeepReadout
from seq2seq_lab.models.readouts.linear import LinearReadout
from seq2seq_lab.models.readouts.pointer import PointerReadout

__all__ = ["DeepReadout", "LinearReadout", "PointerReadout", "Readout"]
