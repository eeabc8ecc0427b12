"""Where and in what precision a process computes."""

from dataclasses import dataclass, field

import torch

from seq2seq_lab.config.schema import Precision
from seq2seq_lab.runtime.ranks import Ranks


@dataclass(frozen=True)
class Compute:
    """The device of this process, the precision of its matrix products, and the ranks it works with."""

    device: torch.device
    precision: Precision
    ranks: Ranks = field(default_factory=Ranks)
