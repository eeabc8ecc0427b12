"""The training loss of captioning."""

from typing import Any

import torch
from torch import Tensor

from seq2seq_lab.data.tokenizers import PAD
from seq2seq_lab.tasks.translation.loss import TrainingLoss


class CaptionLoss(TrainingLoss):
    """The loss of translation with doubly stochastic attention (Xu 2015, arXiv:1502.03044, eq. 14).

    Args:
        doubly_stochastic: λ, the weight of λ Σ_j (1 − Σ_t α_tj)² of each caption, which makes the attention to each
            position add up to about 1 over the words; 0 for none.
        settings: arguments of `TrainingLoss`.
    """

    def __init__(self, *args: Any, doubly_stochastic: float, **settings: Any) -> None:
        super().__init__(*args, coverage_loss=0.0, **settings)
        self.doubly_stochastic = doubly_stochastic
        self.reads_weights = doubly_stochastic > 0

    def penalty(self, weights_BTS: Tensor | None, outputs_BT: Tensor) -> Tensor | None:
        """Return the penalty, summed over the captions of the batch."""
        if not self.reads_weights:
            return None
        assert weights_BTS is not None  # `CaptionTask.check` refuses a model without attention
        real_BT1 = (outputs_BT != PAD)[..., None]
        covered_BS = torch.where(real_BT1, weights_BTS, 0).sum(1, dtype=torch.float32)
        return self.doubly_stochastic * (1 - covered_BS).square().sum()
