"""Attention functions, one per file: they score how well a source position matches the query."""

from seq2seq_lab.models.attention.additive import AdditiveAttention
from seq2seq_lab.models.attention.base import Attention, BaseAttention, StatefulAttention, StepAttention
from seq2seq_lab.models.attention.coverage import CoverageAttention
from seq2seq_lab.models.attention.dot import DotAttention
from seq2seq_lab.models.attention.local import LocalAttention
from seq2seq_lab.models.attention.location import LocationAttention
from seq2seq_lab.models.attention.location_sensitive import LocationSensitiveAttention
from seq2seq_lab.models.attention.multiplicative import MultiplicativeAttention
from seq2seq_lab.models.attention.none import NoAttention
from seq2seq_lab.models.attention.scaled_dot import ScaledDotAttention
from seq2seq_lab.models.attention.stateful_additive import StatefulAdditiveAttention
from seq2seq_lab.models.attention.uniform import UniformAttention

__all__ = [
    "AdditiveAttention",
    "Attention",
    "BaseAttention",
    "CoverageAttention",
    "DotAttention",
    "LocalAttention",
    "LocationAttention",
    "LocationSensitiveAttention",
    "MultiplicativeAttention",
    "NoAttention",
    "ScaledDotAttention",
    "StatefulAdditiveAttention",
    "StatefulAttention",
    "StepAttention",
    "UniformAttention",
]
