"""Attention functions, one a file: how well does a memory position fit the query?"""

from seq2seq_lab.models.attention.additive import AdditiveAttention
from seq2seq_lab.models.attention.base import Attention
from seq2seq_lab.models.attention.dot import DotAttention
from seq2seq_lab.models.attention.location import LocationAttention
from seq2seq_lab.models.attention.multiplicative import MultiplicativeAttention
from seq2seq_lab.models.attention.none import NoAttention
from seq2seq_lab.models.attention.scaled_dot import ScaledDotAttention

__all__ = [
    "AdditiveAttention",
    "Attention",
    "DotAttention",
    "LocationAttention",
    "MultiplicativeAttention",
    "NoAttention",
    "ScaledDotAttention",
]
