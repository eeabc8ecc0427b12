"""The settings that several tasks share: one class for each file of conf/task/settings/, with their types and ranges.

A task takes the settings that it uses as one argument of its constructor, or each setting as an argument.
"""

from dataclasses import dataclass
from typing import Annotated

from seq2seq_lab.config.type_checks import Count, NonNegative, Share, Within
from seq2seq_lab.data.batching import Unit
from seq2seq_lab.errors import require
from seq2seq_lab.metrics.segmentation import BleuTokenizer


@dataclass(frozen=True, kw_only=True)
class BatchSettings:
    """Settings of tasks that read examples in batches.

    Attributes:
        batch_size: size of an optimizer step, over all ranks and micro-batches.
        eval_batch_size: greatest number of examples that are evaluated at once; see `plan_evaluation`.
    """

    batch_size: Count
    eval_batch_size: Count


@dataclass(frozen=True, kw_only=True)
class ExampleSettings(BatchSettings):
    """Settings of every task of this package.

    Attributes:
        label_smoothing: see `torch.nn.CrossEntropyLoss`.
        samples: number of validation examples that are shown at each validation.
    """

    label_smoothing: Share
    samples: Annotated[int, Within(0)]


@dataclass(frozen=True, kw_only=True)
class SequenceSettings(ExampleSettings):
    """Settings of tasks that predict sequences of tokens.

    Attributes:
        batch_unit: the unit of `batch_size`.
        max_length: training examples with more tokens on a side, without `<sos>` and `<eos>`, are left out.
    """

    batch_unit: Unit
    max_length: Count


@dataclass(frozen=True, kw_only=True)
class DecodingSettings(SequenceSettings):
    """Settings of tasks that decode an output and compare it with references.

    Attributes:
        r_drop: weight of R-Drop; 0 computes each example once.
        stop_at_eos: with a forcing ratio below 1, ignore the loss after an `<eos>` that the model predicts.
        bleu_tokenizer: see `choose_segmentation`.
        multi_reference: score each input once, against the references of all its examples.
    """

    r_drop: NonNegative
    stop_at_eos: bool
    bleu_tokenizer: BleuTokenizer
    multi_reference: bool


@dataclass(frozen=True, kw_only=True)
class TextPairSettings(DecodingSettings):
    """Settings of tasks from text to text.

    Attributes:
        pad_to: the lengths of training batches are rounded up to a multiple of this number; None: they are exact.
        max_eval_length: a validation or test pair with more tokens on a side is refused.
    """

    pad_to: Count | None
    max_eval_length: Count


@dataclass(frozen=True, kw_only=True)
class TranslationSettings(TextPairSettings):
    """Settings of translation.

    Attributes:
        length_bounds: upper bounds of the groups of BLEU by source length, in words.
        join_subwords: draw attention over words instead of subwords.
        coverage_loss: weight of the coverage loss in training; see `TrainingLoss`.

    Raises:
        UserError: the bounds do not increase.
    """

    length_bounds: list[Count]
    join_subwords: bool
    coverage_loss: NonNegative

    def __post_init__(self) -> None:
        bounds = self.length_bounds
        require(bounds == sorted(set(bounds)), "task.length_bounds", bounds, "increasing numbers above 0")
