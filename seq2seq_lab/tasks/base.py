"""The interface of a task: the part of a run that depends on the kind of problem.

The trainer, checkpoints, studies and the comparison use only what this module declares.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from seq2seq_lab.config.schema import Slot
from seq2seq_lab.config.slots import Part
from seq2seq_lab.data.batching import Index, StepPlan, deal
from seq2seq_lab.data.corpus import Dataset
from seq2seq_lab.data.tokenizers import Tokenizer
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.base import Grouping, Metric
from seq2seq_lab.metrics.measurement import Measurement
from seq2seq_lab.models.classifier import Classifier, Tagger
from seq2seq_lab.models.encoders.base import Encoder
from seq2seq_lab.models.initialization import Initialization
from seq2seq_lab.models.language_model import LanguageModel
from seq2seq_lab.models.masked_language_model import MaskedLanguageModel
from seq2seq_lab.models.readouts import Readout
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.models.span import SpanModel
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.ranks import Ranks
from seq2seq_lab.search.base import Search
from seq2seq_lab.tasks.evaluation import SplitEvaluator
from seq2seq_lab.tasks.loaded import Loaded, Prediction
from seq2seq_lab.tasks.report import Heatmaps, Report


@dataclass(frozen=True, slots=True)
class StepInfo:
    """The optimizer step that a loss is computed for.

    Attributes:
        epoch: counted from 0.
        step: optimizer step of the run, counted from 0.
    """

    epoch: int
    step: int


class EpochPlan(ABC):
    """The optimizer steps of an epoch.

    Args:
        plan: the batches of each step, as indices of examples.
    """

    def __init__(self, plan: Sequence[StepPlan]) -> None:
        self.plan = plan

    @property
    def steps(self) -> int:
        """The number of optimizer steps."""
        return len(self.plan)

    def share(self, step: int, rank: int, ranks: int, micro_batches: int) -> dict[int, StepPlan]:
        """Return the micro-batches of a step that one rank computes; see `deal`."""
        return deal(self.plan[step], rank, ranks, micro_batches)

    @abstractmethod
    def batch(self, index: Index) -> Any:
        """Return a batch, of a type that the task defines, of the examples with these indices."""

    @abstractmethod
    def count(self, step: int) -> int:
        """Return the number of units of a step on all ranks. By default, the loss is the mean over this number."""

    def examples(self, step: int) -> int:
        """Return the number of examples of a step on all ranks."""
        return sum(map(len, self.plan[step]))


class TrainingSplit(Protocol):
    """The training examples."""

    def epoch(self, index: int, device: torch.device) -> EpochPlan:
        """Return the plan of an epoch, counted from 0; the batches are on `device`."""
        ...


@dataclass(frozen=True, kw_only=True)
class EvaluationData:
    """The splits that a trained model is evaluated on.

    Attributes:
        validation: a `Split`; None if the data set has none.
        tests: at least one test set; the prefix of the first one is `test`.
        record: what `run.json` records of the data; see `Task.data_record`.
    """

    validation: Any
    tests: Sequence[Any]
    record: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class TaskData(EvaluationData):
    """The splits of a run.

    Attributes:
        identity: values that must be equal in a run and in the checkpoint that it resumes from, by name.
    """

    train: TrainingSplit
    identity: Mapping[str, str]


@dataclass(frozen=True)
class Baseline:
    """The result of a trivial baseline on a test split, for comparison with a model's result.

    Attributes:
        name: its name in `result.json`: the key of a metric is `baseline/NAME/test/METRIC`.
        label: its name in tables.
        measurement: metrics of the task, computed as those of the model, on the same examples.
    """

    name: str
    label: str
    measurement: Measurement


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Constructors of the parts that a configuration names, by config group.

    A task calls those of the groups that it uses with the arguments that are only known at run time.

    Attributes:
        language_model: returns the language model that all groups of the model describe, from the vocabulary's size.
        seq2seq: returns the encoder-decoder that all groups of the model describe, from the source vocabulary's size (None
            for a source without tokens), the target vocabulary's size, and whether the two are one vocabulary.
        classifier: returns the classifier that all groups of the model describe, from the vocabulary's size, the number of
            classes, and whether it reads the two texts of a pair one by one.
        tagger: returns the tagger that all groups of the model describe, from the vocabulary's size and the number of tags.
        masked_language_model: returns the masked language model that all groups of the model describe, from the vocabulary's
            size, and whether it predicts the next sentence.
        span_model: returns the model of answers in a text that all groups of the model describe, from the vocabulary's size
            and whether it has the feature of matched tokens.
        source_tokenizer: returns the tokenizer of the source if it is not that of the target, else None; see
            `seq2seq_lab.tasks.parts.source_tokenizer`.
        source_types: see `Readout`.
        vectors: file of pretrained vectors of the `source` and the `target` embedding, if any.
    """

    dataset: Callable[[], Dataset]
    tokenizer: Part
    encoder: Callable[..., Encoder]
    decoder: Part
    attention: Part
    pooling: Part
    readout: Callable[..., Readout]
    initialization: Callable[[], Initialization]
    teacher_forcing: Part
    search: Callable[[], Search]
    language_model: Callable[[int], LanguageModel]
    seq2seq: Callable[[int | None, int, bool], Seq2Seq]
    classifier: Callable[[int, int, bool], Classifier]
    tagger: Callable[[int, int], Tagger]
    masked_language_model: Callable[[int, bool], MaskedLanguageModel]
    span_model: Callable[[int, bool], SpanModel]
    source_tokenizer: Callable[[bool], Tokenizer | None]
    source_types: int
    vectors: Mapping[str, Path | None]


def refuse_dropout(tokenizer: Tokenizer, task: str) -> None:
    """Refuse a tokenizer with dropout in a task that segments each text once.

    Raises:
        UserError: names the setting.
    """
    if tokenizer.stochastic:
        raise UserError(
            f"tokenizer.dropout is above 0: task={task} segments each text once. Set tokenizer.dropout=0."
        )


class Task(ABC):
    """A kind of problem: its data, model, loss, metrics and report. A run has one instance.

    The constructor takes `parts` (`Parts`), `seed`, and the settings of the config group `task`.

    Attributes:
        uses: the config groups that describe the task's parts; the others are null.
        sources: the sources that an encoder of the task may have; see `Encoder.source`.
        metrics: the metrics of an evaluation.
        groupings: the metrics by group of examples.
        primary: the name of the metric that the comparison sorts and tests by.
        default_monitor: the metric of `trainer.monitor=null`; None for the primary one. `load` can set
            it, if it depends on the data.
        monitor: the value of `trainer.monitor`, which the program sets after the constructor.
        initial_tokenizers: tokenizers of the run whose embeddings are copied, by side (`source`, `target`). The program sets
            them before `load`, which uses them instead of new ones.
        saves_vocabulary: whether a resumed run reads its vocabulary from its folder, although it is not of another run.
        pretraining_texts: hashes of the texts that the run whose encoder is copied has read, if it has recorded them; see
            `overlap`. The program sets them before `load`.
        eval_batch_size: the number of inputs that `python -m seq2seq_lab.predict` processes at once is a multiple of it.
        unit: the name of what `EpochPlan.count` counts, as in `train/UNIT_per_second`.
        files: names of the files and folders of a run folder that `save` writes.
        loaded: what `seq2seq_lab.load` returns for a run of the task.
        commands: commands suggested after a run, as pairs of their purpose and the program with its arguments, in which
            RUN stands for the run folder.
        kept_entries: the entries of `result.json`, chosen on the validation split, that evaluations of the run record too.
        snapshot_metrics: the names of the metrics, besides the primary one, of `snapshot`.
    """

    uses: ClassVar[frozenset[str]]
    sources: ClassVar[tuple[str, ...]] = ("tokens",)
    metrics: Sequence[Metric]
    groupings: Sequence[Grouping] = ()
    primary: str
    default_monitor: str | None = None
    monitor: str | None = None
    initial_tokenizers: Mapping[str, Tokenizer] = {}
    saves_vocabulary: bool = False
    pretraining_texts: frozenset[str] | None = None
    eval_batch_size: int = 1
    unit: str = "examples"
    files: tuple[str, ...] = ()
    loaded: ClassVar[type[Loaded]] = Loaded
    commands: Mapping[str, tuple[str, ...]] = {}
    kept_entries: Sequence[str] = ()
    snapshot_metrics: Sequence[str] = ()

    @classmethod
    def replacement(cls, group: str, slot: Slot) -> str:
        """Return the remedy for a setting of a config group that is not in `uses`, for the error message."""
        return f"Leave {group} out."

    def check(self) -> None:
        """Refuse settings that cannot be combined. It is called before data is read.

        Raises:
            UserError: names the setting and the remedy.
        """

    @abstractmethod
    def data_record(self) -> dict[str, Any]:
        """Read the data, which depends only on the config groups `task` and `dataset`; return what `run.json` records of it.

        Returns:
            `fingerprint`: a hash of all examples; `sizes`: the number of examples by split; `tests`: a hash by test set;
            `counts`: counts of special examples, by name.
        """

    @abstractmethod
    def load(self, cache: Path, saved: Path | None, limit: int | None) -> TaskData:
        """Read and prepare the data.

        Args:
            cache: the folder to keep prepared data in.
            saved: the folder of the run whose vocabulary this run uses, see `save`; None builds a new one.
            limit: the number of examples of validation and test splits; None for all.

        Raises:
            UserError: the data cannot be read or used.
        """

    def evaluation_data(self, cache: Path, saved: Path) -> EvaluationData:
        """Read the splits of the data set that a trained model is evaluated on. It is called after `open`.

        Args:
            cache, saved: see `load`.

        Raises:
            UserError: the data cannot be read or used.
        """
        return self.load(cache, saved, None)

    @abstractmethod
    def model(self) -> nn.Module:
        """Return the model, with weights drawn from torch's global generator. It is called after `load` or `open`.

        Raises:
            UserError: the model cannot process the data.
        """

    def open(self, folder: Path) -> None:
        """Read what `save` wrote, so that `model` returns the model of a saved run without `load`.

        Raises:
            UserError: it cannot be read, or does not match the configuration.
        """

    def load_pretrained(self, model: Any) -> None:
        """Load weights from files into the model of a new run. Only rank 0 calls it."""

    def save(self, folder: Path) -> None:
        """Write what is needed to open the run again, except its configuration and weights, to the run folder."""

    def describe(self) -> None:
        """Print what the task adds to the table of parameters before the training."""

    @abstractmethod
    def loss(self, model: Any, batch: Any, step: StepInfo) -> Tensor:
        """Return the loss of a batch, summed over its units (see `EpochPlan.count`).

        An auxiliary term is its mean over the units times their number.
        """

    def uniform_loss(self) -> float | None:
        """Return the loss per unit of a model to which all predictions are equally likely; None if it is not known.

        A run whose training loss ends far above it has diverged. It is called after `load`.
        """
        return None

    def values(self, step: int) -> dict[str, float]:
        """Return values of the task that are logged at a step, for example a rate that changes during training."""
        return {}

    @abstractmethod
    def evaluator(
        self, split: Any, model: Any, compute: Compute, also: Collection[str] = ()
    ) -> SplitEvaluator[Any]:
        """Return the evaluator of a model on a split.

        Args:
            also: names of metrics of the final evaluation to compute at each validation; see `measure`.
        """

    def predict(self, model: Any, inputs: Sequence[str], compute: Compute) -> Sequence[Prediction]:
        """Return a prediction for each input of an opened run; see `Loaded.predict`. It is called after `open`.

        A task with several outputs per input, or with options, overrides `Loaded.nbest` instead.

        Args:
            inputs: lines of text, or paths of files if `Loaded.reads` is "files".

        Raises:
            UserError: an input cannot be used.
        """
        raise UserError(
            f"{type(self).__name__} predicts nothing. Add a method predict to the class; see docs/extending.md."
        )

    def snapshot(self, split: Any, model: Any) -> Any | None:
        """Return the part of the validation split whose attention is written over the training; None without attention."""
        return None

    def snapshot_heatmaps(self, split: Any, evaluation: Any) -> Heatmaps:
        """Return the attention of the result of `snapshot`, for example of its first examples."""
        return Heatmaps(maps=())

    def baselines(self, split: Any) -> Iterable[Baseline]:
        """Return the results of trivial baselines on a test split. Only rank 0 calls it, once per split after the training.

        A baseline is fitted on the training split; its settings are chosen on the validation split.
        """
        return ()

    def report(self, split: Any, evaluation: Any, step: int | None) -> Report:
        """Return the report of an evaluation. Only rank 0 calls it.

        Args:
            step: the optimizer step of a validation; None for the final evaluation.
        """
        return Report()

    def state_dict(self, ranks: Ranks) -> dict[str, Any]:
        """Return the tensors and JSON values of the task that a checkpoint keeps.

        Every rank calls this, so that a task can gather the states of all ranks; the result of rank 0 is kept.
        """
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
