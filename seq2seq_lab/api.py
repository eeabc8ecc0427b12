"""The Python interface: train a run, open it, translate with it, and plot its attention."""

import functools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from seq2seq_lab import build, plots
from seq2seq_lab.config import compose, extensions, foreign
from seq2seq_lab.config.schema import TASK_GROUPS, Config, Device, Precision, check, typed
from seq2seq_lab.config.type_checks import wrong_type
from seq2seq_lab.data.batching import BatchMaker, Index, plan_evaluation
from seq2seq_lab.data.captions import read_image
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.tokenized import TokenizedText
from seq2seq_lab.data.tokenizers import SOS, Tokenizer, TokenizerPair
from seq2seq_lab.errors import UserError, did_you_mean
from seq2seq_lab.files import read_result
from seq2seq_lab.launching.launch import follow
from seq2seq_lab.launching.start import check_run, start_run
from seq2seq_lab.metrics.alignment import attention_map
from seq2seq_lab.models.ensemble import Ensemble
from seq2seq_lab.models.recurrent import report_float32_lstm
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.device import choose_device, gpu_of_rank, limit_primitive_cache, to_host
from seq2seq_lab.runtime.memory import evaluation_context
from seq2seq_lab.runtime.torchrun import is_secondary_rank
from seq2seq_lab.search.base import Hypothesis, Search
from seq2seq_lab.tasks.base import Task
from seq2seq_lab.tasks.captions.evaluation import Caption
from seq2seq_lab.tasks.captions.report import draw_caption
from seq2seq_lab.tasks.captions.task import CaptionTask
from seq2seq_lab.tasks.classification.evaluation import Prediction
from seq2seq_lab.tasks.classification.task import ClassificationTask
from seq2seq_lab.tasks.language_model import evaluation as language_model
from seq2seq_lab.tasks.language_model.data import SentenceTokens
from seq2seq_lab.tasks.language_model.task import LanguageModelTask
from seq2seq_lab.tasks.translation import evaluation
from seq2seq_lab.tasks.translation.task import TranslationTask
from seq2seq_lab.tracking.files import METRICS_FILE, read_metrics
from seq2seq_lab.tracking.wandb import fetch_run_folder
from seq2seq_lab.training import checkpoint as checkpoints
from seq2seq_lab.training.threads import undo_recorded_threads, use_recorded_threads

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Choice = TypeVar("Choice", bound=Enum)
AnyTask = TypeVar("AnyTask", bound=Task)

MAX_LAYERS = 1000  # of a run of someone else
USUAL_LENGTH = 64  # tokens; batches of longer sentences are smaller


@dataclass(frozen=True)
class Translation:
    """A translation of a sentence by a run.

    Attributes:
        source: the sentence.
        text: its translation.
        log_prob: natural logarithm of its probability, including `<eos>`.
        score: the value that the search ranks by.
        source_tokens: the tokens of the source, including `<sos>` and `<eos>`.
        target_tokens: the tokens of the translation; with attention, including `<eos>` if the model predicted it.
        attention: attention weights, a row per target token and a column per source token; None without attention.
    """

    source: str
    text: str
    log_prob: float
    score: float
    source_tokens: list[str]
    target_tokens: list[str]
    attention: npt.NDArray[np.floating[Any]] | None = field(repr=False)


@dataclass(frozen=True)
class LoadedRun:
    """A trained run with the weights of one of its checkpoints, as `load` and `train` return it.

    Attributes:
        folder: the run folder.
        config: its configuration.
        result: the content of `result.json`; None if the run has not ended, only "status" and "error" if it is damaged.
        model: the model, in evaluation mode.
        tokenizers: the source and the target tokenizer.
        search: the search that translates.
        device: the device of the model.
        precision: the precision of the matrix products.
        checkpoint: the name of the checkpoint.
        task: the task of the run.
    """

    folder: Path
    config: Config = field(repr=False)
    result: dict[str, Any] | None = field(repr=False)
    model: Seq2Seq | Ensemble = field(repr=False)
    tokenizers: TokenizerPair = field(repr=False)
    search: Search = field(repr=False)
    device: torch.device
    precision: Precision
    checkpoint: str
    task: TranslationTask = field(repr=False)

    def translate(self, sentences: Sequence[str], join_subwords: bool = False) -> list[Translation]:
        """Return the best translation of each sentence; see `nbest`."""
        return [best for best, *_ in self.nbest(sentences, join_subwords)]

    def nbest(
        self,
        sentences: Sequence[str],
        join_subwords: bool = False,
        with_attention: bool = True,
        first: int = 0,
        replace_unknown: bool = False,
    ) -> list[list[Translation]]:
        """Return all translations of each sentence that the search returns, the best first.

        The translation of a sentence without words is empty, with log-probability 0 and no tokens.

        Args:
            sentences: translated in batches of `trainer.eval_batch_size`.
            join_subwords: return tokens and attention over words instead of the tokenizer's subwords.
            with_attention: return the attention, which needs memory if sentences are long.
            first: the number of the first sentence in its text; the draws of `search=sampling` depend on it.
            replace_unknown: replace each unknown word (⁇) of the text by the source token with the highest attention weight.

        Raises:
            UserError: `sentences` is not a list, or unknown words are to be replaced and the model has no attention.
        """
        if isinstance(sentences, str):
            raise UserError(f"translate takes a list of sentences, not a text. Write [{sentences!r}].")
        found = [[Translation(sentence, "", 0.0, 0.0, [], [], None)] for sentence in sentences]
        for i, hypotheses in self._hypotheses(sentences, with_attention or replace_unknown, first):
            found[i] = [
                self._translation(sentences[i], hypothesis, join_subwords) for hypothesis in hypotheses
            ]
            if replace_unknown:
                texts = [
                    evaluation.replaced(hypothesis, self.tokenizers, sentences[i])
                    for hypothesis in hypotheses
                ]
                found[i] = [
                    replace(one, text=text, attention=one.attention if with_attention else None)
                    for one, text in zip(found[i], texts, strict=True)
                ]
        return found

    def plot_attention(
        self, translation: str | Translation, join_subwords: bool = False, light: bool = False
    ) -> "Figure":
        """Return the attention of a translation as a figure, which a notebook displays.

        Args:
            translation: a translation, or a sentence to translate.
            join_subwords: draw words instead of the tokenizer's subwords, if `translation` is a sentence.
            light: draw high weights dark on white, for print.

        Raises:
            UserError: the model does not attend, or there is nothing to draw.
        """
        if isinstance(translation, str):
            (translation,) = self.translate([translation], join_subwords)
        if not isinstance(translation, Translation):
            raise UserError("plot_attention takes one translation or one sentence.")
        if not translation.target_tokens:
            raise UserError(f"{translation.source!r} has an empty translation without attention to plot.")
        if translation.attention is None:
            raise UserError(
                f"The model of {self.folder} has no attention to plot. Train one that has, for example model=attn."
            )
        figure = plots.draw_attention(
            translation.attention,
            translation.source_tokens,
            translation.target_tokens,
            f"{translation.source} → {translation.text}",
            light=light,
        )
        return _displayed(figure)

    @torch.no_grad()
    def plot_attention_maps(self, sentence: str, first: int = 0) -> dict[str, "Figure"]:
        """Return figures of all attention weights of a Transformer for a sentence and its translation.

        Each figure has a row per layer and a column per head, and the mean over the heads.

        Args:
            first: see `nbest`.

        Returns:
            "encoder": self-attention of the source tokens; "decoder": self-attention of the input tokens `<sos>` y_1 …;
            "cross": attention of the output tokens y_1 … `<eos>` to the source. A recurrent side has no figure.

        Raises:
            UserError: the model has no such attention, or the sentence has no words.
        """
        hypothesis = next((found[0] for _, found in self._hypotheses([sentence], False, first)), None)
        if hypothesis is None:
            raise UserError(f"plot_attention_maps: {sentence!r} has no words. Give a sentence with words.")
        text = _without_targets(self.tokenizers.source, [sentence])
        (batch,) = map(BatchMaker(text, self.device), plan_evaluation(text, 1))
        inputs_1T = torch.tensor([[SOS, *hypothesis.tokens]], device=self.device)
        maps: dict[str, torch.Tensor] = {}
        if isinstance(self.model, Seq2Seq):
            with evaluation_context(batch, self.precision, self.device):
                maps = self.model.attention_maps(batch, inputs_1T)
        if not maps:
            raise UserError(
                f"The model of {self.folder} has no attention maps of layers and heads. Use one run with a Transformer "
                f"encoder or decoder, for example model=transformer."
            )
        named = self._translation(sentence, hypothesis, False)
        source, target = named.source_tokens, named.target_tokens
        inputs, outputs = ["<sos>", *target], [*target, "<eos>"]
        axes = {"encoder": (source, source), "decoder": (inputs, inputs), "cross": (source, outputs)}
        title = f"{sentence} → {named.text}"
        return {
            name: plots.draw_attention_maps(to_host(maps_1LATS[0].float()), *axes[name], title)
            for name, maps_1LATS in maps.items()
        }

    def metrics(self) -> list[dict[str, float]]:
        """Return the rows of the run's `metrics.jsonl`: "step", "time" and the metrics recorded at that step.

        Raises:
            UserError: the file is missing or damaged.
        """
        return read_metrics(self.folder / METRICS_FILE)

    def curve(self, metric: str) -> tuple[list[float], list[float]]:
        """Return (optimizer steps, values) of a metric, as in `axes.plot(*run.curve("val/bleu"))`.

        Raises:
            UserError: the run has no such metric.
        """
        rows = self.metrics()
        known = sorted({name for row in rows for name in row} - {"step", "time"})
        if metric not in known:
            raise UserError(
                f"{self.folder} has no metric {metric!r}.{did_you_mean(metric, known)} Metrics: {', '.join(known)}."
            )
        chosen = [row for row in rows if metric in row]
        return [row["step"] for row in chosen], [row[metric] for row in chosen]

    @torch.no_grad()
    def _hypotheses(
        self, sentences: Sequence[str], with_attention: bool, first: int
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Yield the number of each sentence that has words, with its hypotheses."""
        numbers = [i for i, sentence in enumerate(sentences) if sentence.strip()]
        if not numbers:
            return
        text = _without_targets(self.tokenizers.source, [sentences[i] for i in numbers])
        number_B = torch.tensor(numbers, device=self.device)
        size = self.config.trainer.eval_batch_size
        plan = [part for index in plan_evaluation(text, size) for part in _bounded(index, text, size)]
        for index, batch in zip(plan, map(BatchMaker(text, self.device), plan), strict=True):
            batch = replace(batch, index_B=number_B[batch.index_B] + first)
            with evaluation_context(batch, self.precision, self.device):
                found = self.search(self.model, batch, with_attention)
            yield from zip((numbers[i] for i in index), found, strict=True)

    def _translation(self, sentence: str, hypothesis: Hypothesis, join: bool) -> Translation:
        tokens, weights_TS = hypothesis.tokens, hypothesis.weights_TS
        # The weights do not matter for the names of the tokens.
        width = 2 + len(self.tokenizers.source.encode([sentence])[0])
        rows = np.zeros((len(tokens), width)) if weights_TS is None else weights_TS
        named = attention_map(rows, self.tokenizers, sentence, tokens, join)
        return Translation(
            source=sentence,
            text=named.output,
            log_prob=hypothesis.log_prob,
            score=hypothesis.score,
            source_tokens=named.source_tokens,
            target_tokens=named.target_tokens,
            attention=None if weights_TS is None else named.weights_TS,
        )


def train(
    overrides: Sequence[str] = (), folder: str | Path | None = None, config_dir: str | Path | None = None
) -> Any:
    """Train a run as the command line with the same settings does, and open it.

    Returns:
        The `LoadedRun`, `LoadedLanguageModel`, `LoadedClassifier` or `LoadedCaptioner` of the run; for other tasks its
        `OpenedRun`.

    Args:
        overrides: settings as on the command line: `["model=vanilla", "trainer.max_epochs=3"]`.
        folder: the run folder; None for outputs/DATE/TIME below the working directory.
        config_dir: a folder of custom components, as `--config-dir`; its Python files are trusted.

    Raises:
        UserError: the settings or the data cannot be used.
    """
    if isinstance(overrides, str):
        raise UserError(f"train takes a list of settings, not a text. Write {overrides.split()!r}.")
    undo_recorded_threads()
    with extensions.using(config_dir):
        composed = compose.compose_run(overrides)
        target = composed.run_folder if folder is None else Path(folder).absolute()
        if is_secondary_rank():
            target = follow()
        else:
            check_run(composed.config)
            start_run(composed, target)
    device = composed.config.trainer.device.value
    with extensions.using(config_dir):
        task: type[Task] = build.locate("task", composed.config.task)
    for kind, opener in (
        (TranslationTask, load),
        (LanguageModelTask, load_language_model),
        (ClassificationTask, load_classifier),
        (CaptionTask, load_captioner),
    ):
        if issubclass(task, kind):
            return opener(target, config_dir, device=device)
    return open_run(target, Task, config_dir=config_dir, device=device)


def load(
    folder: str | Path,
    config_dir: str | Path | None = None,
    device: str = "auto",
    precision: str = "fp32",
    changes: Sequence[str] = (),
    checkpoint: str | None = None,
) -> LoadedRun:
    """Open a run, by default with the weights of its best checkpoint.

    On a CPU, this process then computes with at most the number of threads that the run was trained with: it was measured
    (`trainer.threads=auto`), and more threads may wait for each other at every small operation.

    Args:
        folder: the run folder, or a checkpoint at W&B: `ENTITY/PROJECT/checkpoint-RUN_ID:latest`.
        config_dir: the folder of custom components that the run was trained with; its Python files are trusted.
        device: auto (CUDA, then MPS, then CPU), cuda, mps or cpu.
        precision: fp32, tf32, bf16 or fp16; auto for the precision of the run's test scores (`trainer.test_precision`).
        changes: settings of `search` and `dataset` that replace those of the run: `["search=beam", "search.size=10"]`.
        checkpoint: the name of a checkpoint in `checkpoints/`. Several names, separated by commas, or `last:N` mean the
            average of their weights.

    Raises:
        UserError: the folder contains no run of translation with a checkpoint, or the run names a class that is not trusted.
    """
    run = open_run(
        folder,
        TranslationTask,
        config_dir=config_dir,
        device=device,
        precision=precision,
        changes=changes,
        checkpoint=checkpoint,
    )
    return LoadedRun(
        folder=run.folder,
        config=run.config,
        result=read_result(run.folder) or None,
        model=run.model,
        tokenizers=run.task.tokenizers,
        search=build.search(run.config),
        task=run.task,
        device=run.compute.device,
        precision=run.compute.precision,
        checkpoint=run.checkpoint,
    )


@dataclass(frozen=True)
class OpenedRun(Generic[AnyTask]):
    """A trained run of any task, with the weights of its checkpoints.

    Attributes:
        folder: the run folder.
        config: its configuration.
        task: its task.
        model: its model, in evaluation mode.
        compute: where and in what precision the model computes.
        checkpoint: the names of the checkpoints.
    """

    folder: Path
    config: Config
    task: AnyTask
    model: Any
    compute: Compute
    checkpoint: str


def open_run(
    folder: str | Path,
    kind: type[AnyTask],
    *,
    config_dir: str | Path | None = None,
    device: str = "auto",
    precision: str = "fp32",
    changes: Sequence[str] = (),
    checkpoint: str | None = None,
) -> OpenedRun[AnyTask]:
    """Open a run of one kind of task; see `load`.

    Raises:
        UserError: as `load`.
    """
    folder = fetch_run_folder(folder)
    wanted = _choice(Precision, "precision", precision)
    # The processes of `evaluate --devices` are distributed over the GPUs.
    gpu = gpu_of_rank(int(os.environ.get("LOCAL_RANK", "0")))
    place = choose_device(_choice(Device, "device", device), gpu)
    with extensions.using(config_dir):
        limit_primitive_cache()
        config = typed(compose.compose_opened(folder, changes))
        check(config)
        task = open_task(config, folder, kind)
        record = foreign.read_opened_record(folder)
        if wanted is Precision.auto:
            wanted = Precision(record["test_precision"])
        weights = checkpoints.named(folder / "checkpoints", checkpoint)
        task.open(folder)
        if not foreign.is_own(folder):  # before memory is taken for a model of any size
            check_size(folder, config, task, weights[0])
        with torch.random.fork_rng(devices=[]):  # the initial weights are replaced
            model = task.model()
        checkpoints.load_average(weights, model)
    if place.type == "cpu":
        use_recorded_threads(record)
    compute = Compute(place, wanted)
    report_float32_lstm(model, compute)
    names = ",".join(map(checkpoints.name_of, weights))
    return OpenedRun(folder, config, task, model.to(place).eval(), compute, names)


def check_size(folder: Path, config: Config, task: Task, weights: Path) -> None:
    """Refuse a run of someone else whose configuration describes another model than its weights are of.

    Raises:
        UserError: names the difference.
    """
    if config.model.num_layers > MAX_LAYERS:
        raise UserError(
            f"{folder}: model.num_layers={config.model.num_layers} is above {MAX_LAYERS}. Use another run."
        )
    with torch.device("meta"), torch.random.fork_rng(devices=[]):
        model = task.model()
    if (difference := checkpoints.mismatch(weights, model)) is not None:
        raise UserError(
            f"{folder}: the weights are not of the model in its config.yaml: {difference}. Use another run."
        )


def open_task(config: Config, folder: Path, kind: type[AnyTask]) -> AnyTask:
    """Return the task of a run.

    Raises:
        UserError: the run has another kind of task, or names a class that is not trusted.
    """
    for slot in ("task", *TASK_GROUPS):
        if slot not in ("dataset", "teacher_forcing") and getattr(config, slot) is not None:
            build.check_slot(slot, getattr(config, slot))
    task = build.task(replace(config, metric={}))  # metrics need --config-dir, and only `evaluate` uses them
    if not isinstance(task, kind):
        programs = sorted({command[0] for command in task.commands.values()})
        own = f"Open it with python -m {' or python -m '.join(programs)}. " if programs else ""
        raise UserError(
            f"{folder} is a run of {type(task).__name__}, and this program opens runs of {kind.__name__} only. {own}"
            f"The scores of the run are in result.json."
        )
    return task


@dataclass(frozen=True)
class LoadedLanguageModel:
    """A trained language model, as `load_language_model` returns it."""

    run: OpenedRun[LanguageModelTask]

    def log_probs(self, sentences: Sequence[str]) -> list[float]:
        """Return the log-probability in nats of each sentence with its end."""
        tokens = SentenceTokens(Ragged.of(self.run.task.vocabulary.tokenizer.encode(sentences)))
        size = self.run.config.trainer.eval_batch_size
        nats = language_model.sentence_nats(self.run.model, tokens, size, self.run.compute)
        return [-value for value in nats.tolist()]

    def generate(self, count: int, beginning: str = "", first: int = 0) -> list[tuple[str, float]]:
        """Return generated sentences with their log-probabilities, without that of the beginning.

        Args:
            count: how often the search is run; it returns `search.nbest` sentences each time.
            beginning: the text that each sentence continues.
            first: the number of the first sentence; the draws of `search=sampling` depend on it.
        """
        run, tokenizer = self.run, self.run.task.vocabulary.tokenizer
        (begun,) = tokenizer.encode([beginning])
        found = language_model.generate(
            run.model,
            run.task.parts.search(),
            begun,
            count,
            run.task.generated_length,
            run.compute,
            first,
        )
        return [
            (language_model.text_of(tokenizer, [*begun, *one.tokens]), one.log_prob)
            for hypotheses in found
            for one in hypotheses
        ]


@dataclass(frozen=True)
class LoadedClassifier:
    """A trained classifier, as `load_classifier` returns it."""

    run: OpenedRun[ClassificationTask]

    def predict(self, lines: Sequence[str]) -> list[Prediction]:
        """Return the class of each text.

        Args:
            lines: classified in batches of `trainer.eval_batch_size`.

        Raises:
            UserError: `lines` is not a list, or a text has no tokens.
        """
        if isinstance(lines, str):
            raise UserError(f"predict takes a list of texts, not a text. Write [{lines!r}].")
        return self.run.task.predict(self.run.model, lines, self.run.compute)


def load_classifier(
    folder: str | Path,
    config_dir: str | Path | None = None,
    device: str = "auto",
    precision: str = "fp32",
    checkpoint: str | None = None,
) -> LoadedClassifier:
    """Open a run of task=classification; see `load`."""
    return LoadedClassifier(
        open_run(
            folder,
            ClassificationTask,
            config_dir=config_dir,
            device=device,
            precision=precision,
            changes=(),
            checkpoint=checkpoint,
        )
    )


@dataclass(frozen=True)
class LoadedCaptioner:
    """A trained model that describes images, as `load_captioner` returns it."""

    run: OpenedRun[CaptionTask]

    def caption(self, paths: Sequence[str | Path]) -> list[Caption]:
        """Return a caption of each image.

        Args:
            paths: files of images, which are cropped at their center and resized to the size of the training images.

        Raises:
            UserError: `paths` is not a list, or a file cannot be read.
        """
        if isinstance(paths, str | Path):
            raise UserError(f"caption takes a list of files, not one file. Write [{str(paths)!r}].")
        if not paths:
            return []
        images = [read_image(Path(path), *self.run.task.size) for path in paths]
        return self.run.task.caption(self.run.model, np.stack(images), self.run.compute)

    def plot_attention(self, caption: Caption) -> "Figure":
        """Return the attention of each word over the image as a figure, which a notebook displays.

        Raises:
            UserError: the model does not attend, or the caption is empty.
        """
        if caption.attention_WYX is None:
            raise UserError(
                f"The model of {self.run.folder} has no attention to plot. Train one that has, for example "
                f"attention=additive."
            )
        if not caption.words:
            raise UserError("An empty caption has no attention to plot.")
        return _displayed(draw_caption(caption, {}))


def load_captioner(
    folder: str | Path,
    config_dir: str | Path | None = None,
    device: str = "auto",
    precision: str = "fp32",
    changes: Sequence[str] = (),
    checkpoint: str | None = None,
) -> LoadedCaptioner:
    """Open a run of task=captions; see `load`."""
    return LoadedCaptioner(
        open_run(
            folder,
            CaptionTask,
            config_dir=config_dir,
            device=device,
            precision=precision,
            changes=changes,
            checkpoint=checkpoint,
        )
    )


def load_language_model(
    folder: str | Path,
    config_dir: str | Path | None = None,
    device: str = "auto",
    precision: str = "fp32",
    changes: Sequence[str] = (),
    checkpoint: str | None = None,
) -> LoadedLanguageModel:
    """Open a run of task=language_model; see `load`."""
    return LoadedLanguageModel(
        open_run(
            folder,
            LanguageModelTask,
            config_dir=config_dir,
            device=device,
            precision=precision,
            changes=changes,
            checkpoint=checkpoint,
        )
    )


def ensemble(runs: Sequence[LoadedRun]) -> LoadedRun:
    """Return an ensemble of runs with the same vocabulary; it uses the search of the first run.

    The next-token probabilities and the attention are the means over the runs (Sutskever 2014, §3.6).

    Raises:
        UserError: there are no runs, or the vocabularies differ.
    """
    if not runs:
        raise UserError("ensemble: no runs. Give one or more, as returned by `load`.")
    first, *others = runs
    for other in others:
        if _vocabulary(other.tokenizers) != _vocabulary(first.tokenizers):
            raise UserError(
                f"{other.folder} and {first.folder} have different vocabularies, and an ensemble needs the same. Train "
                f"its runs on the same data with the same tokenizer, for example seed=1,2,3."
            )
    members: list[Seq2Seq] = []
    for run in runs:
        members += run.model.members if isinstance(run.model, Ensemble) else [run.model]
    model = Ensemble(members).to(first.device).eval()
    names = " + ".join(f"{run.folder}: {run.checkpoint}" for run in runs)
    return replace(first, model=model, checkpoint=names)


def _displayed(figure: "Figure") -> "Figure":
    """Return a figure with the method by which Jupyter displays it, which a figure without pyplot lacks."""
    figure._repr_png_ = functools.partial(plots.render_png, figure, 100)  # type: ignore[attr-defined]
    return figure


def _vocabulary(pair: TokenizerPair) -> list[object]:
    return [
        (type(side), side.options(), side.tokens(range(side.size))) for side in (pair.source, pair.target)
    ]


def _bounded(index: Index, text: TokenizedText, size: int) -> list[Index]:
    """Return a batch of sentences in parts; long sentences make the parts smaller, to bound the memory."""
    longest = int(text.lengths[torch.from_numpy(index)].max())
    most = max(1, size * USUAL_LENGTH // longest)
    return [index[i : i + most] for i in range(0, len(index), most)]


def _without_targets(tokenizer: Tokenizer, sentences: Sequence[str]) -> TokenizedText:
    """Return sentences without targets: each target is `<sos>` and `<eos>`."""
    rows = tokenizer.encode(sentences)
    return TokenizedText(Ragged.of(rows), Ragged.of([[]] * len(rows)))


def _choice(kind: type[Choice], argument: str, value: str) -> Choice:
    try:
        return kind(value)
    except ValueError:
        raise UserError(wrong_type(f"{argument}={value!r}", value, kind)) from None
