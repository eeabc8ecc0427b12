"""The training loss of translation."""

import torch
from torch import Tensor
from torch.profiler import record_function

from seq2seq_lab.data.batch import BatchOfTargets
from seq2seq_lab.data.tokenizers import PAD
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.tasks.base import StepInfo
from seq2seq_lab.tasks.losses import cross_entropy, symmetric_kl
from seq2seq_lab.tasks.translation.teacher_forcing import TeacherForcing, choose_inputs, until_eos


class TrainingLoss:
    """Cross-entropy with the reference as target; teacher forcing chooses the decoder's inputs.

    With R-Drop (Liang 2021, arXiv:2106.14448, eq. 4) each sentence is read twice in a batch with different dropout masks.
    The loss is half of the paper's: ½ (NLL₁ + NLL₂) + α/4 (KL(p₁‖p₂) + KL(p₂‖p₁)).
    A penalty is the mean over both readings.

    Args:
        r_drop: α; 0 reads each sentence once.
        coverage_loss: λ, the weight of Σ_t Σ_j min(α_tj, Σ_{t' < t} α_t'j) (See 2017, arXiv:1704.04368, eq. 12–13).
        stop_at_eos: count no loss after the model has read an `<eos>` that it predicted. The number of target tokens stays
            that of the reference (as in the PyTorch translation tutorial).
        seed: random seed of the teacher-forcing mask.
    """

    def __init__(
        self,
        teacher_forcing: TeacherForcing,
        *,
        label_smoothing: float,
        r_drop: float,
        stop_at_eos: bool,
        coverage_loss: float,
        seed: int,
    ) -> None:
        self.teacher_forcing = teacher_forcing
        self.label_smoothing = label_smoothing
        self.r_drop = r_drop
        self.stop_at_eos = stop_at_eos
        self.seed = seed
        self.coverage_loss = coverage_loss
        self.reads_weights = coverage_loss > 0

    def __call__(self, model: Seq2Seq, batch: BatchOfTargets, step: StepInfo) -> Tensor:
        """Return the loss in nats, summed over the target tokens of the batch."""
        mask_BT = self.teacher_forcing.mask(batch, self.seed, step.epoch, step.step)
        if self.r_drop:
            inputs_BT = _choose_separately(model, batch, mask_BT).repeat(2, 1)
            batch = batch.twice()
            state, source = model.start(batch)
        else:
            state, source = model.start(batch)
            inputs_BT = choose_inputs(model, state, source, batch, mask_BT)
        logits_BTV, weights_BTS = model.unroll(inputs_BT, state, source, self.reads_weights)
        with record_function("loss"):
            outputs_BT = until_eos(inputs_BT, batch.outputs_BT) if self.stop_at_eos else batch.outputs_BT
            loss_sum = cross_entropy(logits_BTV, outputs_BT, self.label_smoothing)
            penalty = self.penalty(weights_BTS, outputs_BT)
            if penalty is not None:
                loss_sum = loss_sum + penalty
            if self.r_drop:
                one_BTV, other_BTV = logits_BTV.chunk(2)
                divergence = symmetric_kl(one_BTV, other_BTV, outputs_BT.chunk(2)[0])
                loss_sum = loss_sum / 2 + divergence * (self.r_drop / 4)
        return loss_sum

    def penalty(self, weights_BTS: Tensor | None, outputs_BT: Tensor) -> Tensor | None:
        """Return a penalty on the attention weights, summed over the batch, or None: the coverage loss if it has a weight.

        A subclass may override it, and `reads_weights`. Without `reads_weights` the weights may be None.
        """
        if not self.coverage_loss or weights_BTS is None:
            return None
        before_BTS = weights_BTS.cumsum(1) - weights_BTS
        repeated_BT = torch.minimum(weights_BTS, before_BTS).sum(-1)
        return self.coverage_loss * repeated_BT.masked_fill(outputs_BT == PAD, 0).sum()


@torch.no_grad()
def _choose_separately(model: Seq2Seq, batch: BatchOfTargets, mask_BT: Tensor | None) -> Tensor:
    """Return the decoder inputs of both readings of a sentence, chosen in a separate pass."""
    if mask_BT is None:
        return batch.inputs_BT
    return choose_inputs(model, *model.start(batch), batch, mask_BT)
