"""A custom training loss: the predictions of another run, with attention that differs from its attention."""

from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

import seq2seq_lab
from seq2seq_lab import LoadedTranslation
from seq2seq_lab.analysis.interventions import total_variation
from seq2seq_lab.config.type_checks import NonNegative
from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.tokenizers import PAD, TokenizerPair
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.tasks.base import Parts, StepInfo, TaskData
from seq2seq_lab.tasks.settings import TranslationSettings
from seq2seq_lab.tasks.translation.task import TranslationTask

SMALLEST = 1e-6  # weight in the divergence, whose logarithm would otherwise be infinite


class ApartTask(TranslationTask):
    """Translation with the loss TV(p, q) − λ KL(α ‖ β) (Wiegreffe and Pinter 2019, §4.1).

    p are the predictions and α the attention weights of the model, q and β those of the other run. Both read the reference:
    the settings of teacher forcing and of the cross-entropy have no effect.

    Args:
        parts, seed, settings: see `TranslationTask`.
        base: the folder of the other run.
        distance: λ.

    Raises:
        UserError: the other run has another vocabulary or no attention.
    """

    def __init__(
        self, *, parts: Parts, seed: int, settings: TranslationSettings, base: str, distance: NonNegative
    ) -> None:
        super().__init__(parts=parts, seed=seed, settings=settings)
        self.base, self.distance = base, distance

    @cached_property
    def other(self) -> LoadedTranslation:
        """The other run."""
        return seq2seq_lab.load(self.base)

    def load(self, cache: Path, saved: Path | None, limit: int | None) -> TaskData:
        if not self.other.model.attends:
            raise UserError(f"task.base={self.base} has no attention. Give a run of model=attn.")
        data = super().load(cache, saved, limit)
        with torch.device("meta"):
            attends = self.model().attends
        if not attends:
            raise UserError("task=apart needs a model with attention, such as model=attn.")
        if vocabulary(self.tokenizers) != vocabulary(self.other.tokenizers):
            raise UserError(f"task.base={self.base} has another vocabulary. Use its data set and tokenizer.")
        return data

    def loss(self, model: Seq2Seq, batch: Batch, step: StepInfo) -> Tensor:
        other = self.other.model.to(batch.target_BU.device)
        with torch.no_grad():
            q_BTV, beta_BTS = readings(other, batch)
        p_BTV, alpha_BTS = readings(model, batch)
        divergence_BT = (alpha_BTS * (alpha_BTS / beta_BTS).log()).sum(2)
        loss_BT = total_variation(p_BTV, q_BTV) - self.distance * divergence_BT
        return loss_BT.masked_fill(batch.outputs_BT == PAD, 0).sum()


def readings(model: Seq2Seq, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the predictions_BTV and the attention weights_BTS of a model that reads the references."""
    logits_BTV, weights_BTS = model(batch, batch.inputs_BT)
    return logits_BTV.float().softmax(2), weights_BTS.float().clamp(min=SMALLEST)


def vocabulary(pair: TokenizerPair) -> list[list[str]]:
    """Return the tokens of both sides."""
    return [side.tokens(range(side.size)) for side in (pair.source, pair.target)]
