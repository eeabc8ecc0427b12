"""What a search is."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from seq2seq_lab.data.batch import Batch
from seq2seq_lab.models.seq2seq import Seq2Seq


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A produced sentence.

    Attributes:
        tokens: target ids without `<sos>` and `<eos>`.
        log_prob: log-probability of the tokens, and of `<eos>` if the sentence was ended by it.
        weights_TS: the attention row of each token, and last of `<eos>` if there is one; None without attention
            or where they were not asked for.
    """

    tokens: list[int]
    log_prob: float
    weights_TS: npt.NDArray[np.float32] | None


class Search(Protocol):
    """A way to produce sentences; `conf/search/*.yaml` each name one."""

    def __call__(self, model: Seq2Seq, batch: Batch, with_weights: bool) -> list[Hypothesis]:
        """Return a hypothesis a sentence, in the order of the batch."""
        ...
