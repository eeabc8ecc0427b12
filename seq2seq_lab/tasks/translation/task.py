"""Translation as a task: what the trainer minimises."""

import torch
from torch import Tensor
from torch.profiler import record_function

from seq2seq_lab.data.batch import Batch
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.tasks.translation import loss
from seq2seq_lab.tasks.translation.teacher_forcing import TeacherForcing, choose_inputs, until_eos


class TranslationTask:
    """The training loss: cross-entropy on the reference, its inputs chosen by teacher forcing.

    With R-Drop (Wu 2021, arXiv:2106.14448, eq. 4) each sentence is read twice in a batch, with dropout masks of its
    own each time: the loss is half of the paper's, ½ (NLL₁ + NLL₂) + α/4 (KL(p₁‖p₂) + KL(p₂‖p₁)).

    Args:
        r_drop: α; 0 reads each sentence once.
        stop_at_eos: where the model has read an `<eos>` of its own, what follows of the sentence adds no loss; the
            number of target tokens stays that of the reference (the PyTorch translation tutorial's training loss).
    """

    def __init__(
        self,
        model: Seq2Seq,
        teacher_forcing: TeacherForcing,
        label_smoothing: float,
        r_drop: float,
        stop_at_eos: bool,
        seed: int,
    ) -> None:
        self.model = model
        self.teacher_forcing = teacher_forcing
        self.label_smoothing = label_smoothing
        self.r_drop = r_drop
        self.stop_at_eos = stop_at_eos
        self.seed = seed

    def loss(self, batch: Batch, epoch: int, update: int) -> Tensor:
        """Return the loss in nats, summed over the batch's target tokens."""
        coins_BT = self.teacher_forcing.coins(batch, self.seed, epoch, update)
        if self.r_drop:
            inputs_BT = self._choose_alone(batch, coins_BT).repeat(2, 1)
            batch = batch.twice()
            state, source = self.model.start(batch.source_BS, batch.source_lengths)
        else:
            state, source = self.model.start(batch.source_BS, batch.source_lengths)
            inputs_BT = choose_inputs(self.model, state, source, batch, coins_BT)
        logits_BTV, _ = self.model.unroll(inputs_BT, state, source)
        with record_function("loss"):
            outputs_BT = batch.outputs_BT
            if self.stop_at_eos:
                outputs_BT = until_eos(inputs_BT, outputs_BT)
            loss_sum = loss.cross_entropy(logits_BTV, outputs_BT, self.label_smoothing)
            if self.r_drop:
                one_BTV, other_BTV = logits_BTV.chunk(2)
                apart = loss.disagreement(one_BTV, other_BTV, outputs_BT.chunk(2)[0])
                loss_sum = loss_sum / 2 + apart * (self.r_drop / 4)
        return loss_sum

    @torch.no_grad()
    def _choose_alone(self, batch: Batch, coins_BT: Tensor | None) -> Tensor:
        """Choose the inputs that both readings of a sentence follow."""
        if coins_BT is None:
            return batch.inputs_BT
        return choose_inputs(
            self.model, *self.model.start(batch.source_BS, batch.source_lengths), batch, coins_BT
        )

    def figures(self, update: int) -> dict[str, float]:
        """Return the forcing ratio at an update."""
        return {"teacher_forcing_ratio": self.teacher_forcing.ratio_at(update)}
