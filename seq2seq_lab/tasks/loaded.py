"""A trained run in Python: the result of `seq2seq_lab.load` and `seq2seq_lab.train` for every task."""

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch

from seq2seq_lab import plots
from seq2seq_lab.analysis.forced import Forced
from seq2seq_lab.analysis.questions import Question
from seq2seq_lab.analysis.score import ScoredText, score
from seq2seq_lab.config.schema import Config, Precision
from seq2seq_lab.data.local_files import composed
from seq2seq_lab.data.tokenizers import Tokenizer
from seq2seq_lab.errors import UserError, did_you_mean, require, require_list
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.device import to_host
from seq2seq_lab.runtime.notebook import html_table, preformatted
from seq2seq_lab.search.base import Search
from seq2seq_lab.tasks.one_input import OneInput
from seq2seq_lab.tracking.files import METRICS_FILE, read_metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LONGEST_INPUT = 1000  # tokens


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The output of a trained run for one input.

    A task whose output is more than a text overrides the methods.

    Attributes:
        source: the line of text, or the path of the file.
        text: the output.
        score: the value that outputs are ranked by; None if they have none.
        unknown_words: what the vocabulary lacks of the source; the model reads it as `<unk>`, whatever it means.
    """

    source: str
    text: str
    score: float | None = None
    unknown_words: Sequence[str] = ()

    def columns(self) -> list[str]:
        """Return what `python -m seq2seq_lab.predict` prints, by default the text."""
        return [self.text]

    def shades(self) -> list[str]:
        """Return the attention as lines of shaded text, in which words are `visible`; empty if there is none."""
        return []

    def figure(self, light: bool = False, ax: "Axes | None" = None) -> "Figure | None":
        """Return the attention as a figure, None for an empty output.

        Args:
            light: draw high weights dark on white, for print.
            ax: draw on these axes and return their figure.

        Raises:
            UserError: the model has no attention.
        """
        raise UserError("The predictions of this task have no attention to draw.")

    def _repr_html_(self) -> str:
        return preformatted("\n".join([self.source, f"→ {self.text}", *self.shades()]))


@dataclass(frozen=True)
class Opening:
    """How a run was opened; see `seq2seq_lab.load`.

    Attributes:
        folder: that of the run as it was given, for output and records; `Loaded.folder` is absolute.
        code: the SHA-256 of the files of custom components that were imported, by path; empty without them.
        evaluate: scores the run, see `Loaded.evaluate`.
        checksums: the SHA-256 of the weights of each checkpoint.
        search: returns the search of the run with changed settings, and all its settings, as in `conf/search/`.
        show: returns the page of the run, see `Loaded.show`.
        members: how the runs of an ensemble were opened; empty for one run.
    """

    folder: str
    config_dir: Path | str | None
    precision: str
    changes: tuple[str, ...]
    checkpoint: str | None
    evaluate: Callable[..., dict[str, Any]]
    search: Callable[[tuple[str, ...]], tuple[Search, dict[str, Any]]]
    checksums: tuple[str, ...]
    code: Mapping[str, str]
    show: Callable[..., Any]
    members: tuple["Opening", ...] = ()

    @property
    def each(self) -> tuple["Opening", ...]:
        """How each run was opened: those of an ensemble, or the one."""
        return self.members or (self,)


@dataclass(frozen=True, repr=False)
class Loaded(OneInput):
    """A trained run with the weights of one of its checkpoints.

    A task that does more after training, such as drawing attention, names a subclass as `Task.loaded`.

    Attributes:
        reads: whether inputs are lines of text or files.
        reads_targets_only: whether the model has outputs and no inputs, as a language model has.
        options: the options of `python -m seq2seq_lab.predict` that the task has, as the parser names them.
        folder: the run folder.
        config: its configuration.
        result: the content of `result.json`; None if the run has not ended, only "status" and "error" if it is damaged.
        task: the task of the run.
        model: the model, in evaluation mode.
        compute: the device and the precision of the model.
        checkpoint: the names of the checkpoints.
        opening: how the run was opened.
    """

    reads: ClassVar[Literal["lines", "files"]] = "lines"
    reads_targets_only: ClassVar[bool] = False
    options: ClassVar[frozenset[str]] = frozenset()

    folder: Path
    config: Config
    result: dict[str, Any] | None
    task: Any
    model: Any
    compute: Compute
    checkpoint: str
    opening: Opening

    def __repr__(self) -> str:
        return ", ".join(f"{name}: {text}" for name, text in self._facts())

    def _repr_html_(self) -> str:
        return html_table(("run", self.opening.folder), self._facts()[1:])

    def _facts(self) -> list[tuple[str, str]]:
        """Return what identifies the run, and its primary metric on the validation and test set."""
        result = self.result or {}
        status = result.get("status", "not ended")
        facts = [("run", self.opening.folder), ("task", self.task_name), ("status", str(status))]
        metric = next(one for one in self.task.metrics if one.name == self.task.primary)
        for split in ("val", "test"):
            value = result.get(f"{split}/{metric.name}")
            if value is not None:
                facts.append((f"{split} {metric.label}", f"{value:{metric.format}}"))
        return [*facts, ("checkpoint", self.checkpoint), ("computes on", str(self.compute.device))]

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return self.compute.device

    @property
    def precision(self) -> Precision:
        """The precision of the matrix products."""
        return self.compute.precision

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

    @property
    def longest_input(self) -> int:
        """The number of tokens above which `python -m seq2seq_lab.predict` refuses a line, unless an option allows it."""
        return LONGEST_INPUT

    @property
    def attends(self) -> bool:
        """Whether the predictions have weights to show."""
        return True

    def check_input(self, line: str, where: str, longest: int) -> None:
        """Refuse a line that the model cannot read, or that has more tokens than `longest`.

        Args:
            where: the file and the line number.

        Raises:
            UserError: names the line and the remedy.
        """

    def read_file(self, file: str) -> Any:
        """Return a file as an input of `nbest`: its content, if reading it can fail, or the file itself.

        Raises:
            UserError: it cannot be read.
        """
        return file

    def predict(self, inputs: Sequence[str], **options: Any) -> list[Any]:
        """Return the best output for each input, a `Prediction`; see `nbest`."""
        with self.named_errors():
            return [best for best, *_ in self.nbest(inputs, **options)]

    def nbest(self, inputs: Sequence[str], first: int = 0) -> list[list[Any]]:
        """Return all outputs for each input, the best first.

        Args:
            inputs: lines of text, or paths of files (`reads`), processed in batches of `task.eval_batch_size`.
            first: the index of the first input in its file.

        Raises:
            UserError: `inputs` is not a list, or the task has no `predict`.
        """
        return [[one] for one in self.task.predict(self.model, self.as_read(inputs), self.compute)]

    def forced(self, sources: Sequence[str], targets: Sequence[str]) -> Forced:
        """Return given outputs in batches, for the functions of `seq2seq_lab.analysis`.

        Args:
            sources: the inputs, as for `predict`.
            targets: an output for each input.

        Raises:
            UserError: the lists differ in length, or the task has no outputs to read.
        """
        raise UserError(
            f"Runs of {type(self.task).__name__} read no given outputs. Use a run of translation, dialogue, captions or a "
            f"language model."
        )

    def questions(self, split: Any, model: Any = None) -> Callable[[int], Question]:
        """Return the examples of a split by index, for attributions; see `analysis.questions`.

        Args:
            split: as the task's evaluator takes it.
            model: another model of the run; None for its own.

        Raises:
            UserError: the task has no attributions.
        """
        raise UserError(
            f"Runs of {type(self.task).__name__} have no attributions. Use a run of another task."
        )

    def clusters(self, split: Any) -> Any:
        """Return the id of the cluster of each example of a split, see `Measurement`; None: those of one source are one."""
        return getattr(split.text, "clusters", None)

    def show(self, sentences: str | Path | Sequence[str], search: str = "beam", size: int = 5) -> Any:
        """Return the page of the studio for some sentences, without a server; a notebook shows it.

        Its method `save(FILE)` writes the page to a file.

        Args:
            sentences: one sentence or several ones; of a captioner, files.
            search: own for that of the run, greedy, beam or sampling.
            size: the number of hypotheses of beam search, or of samples.

        Raises:
            UserError: a sentence or the search cannot be used.
        """
        return self.opening.show(self, sentences, search, size)

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[ScoredText]:
        """Return the log-probability of given outputs by token, word and sentence; see `ScoredText`.

        Raises:
            UserError: see `forced`.
        """
        return score(self.forced(sources, targets))

    def evaluate(
        self, validation: bool = False, output: str | Path | None = None, **options: Any
    ) -> dict[str, Any]:
        """Score the run on its test sets or its validation split; write scores, outputs and statistics as `evaluate` does.

        To score it on other test sets or with another search, open it with changes:
        `load(FOLDER, changes=["dataset.test=FILE", "search=beam"]).evaluate()`.

        Args:
            validation: score the validation split instead of the test sets, for example to choose a search.
            output: the folder to write; None for evaluations/NUMBER in the run folder.
            options: passed to the evaluator of the task, such as `replace_unknown=True` for translation.

        Returns:
            The scores, by the names of `result.json`.

        Raises:
            UserError: the data cannot be used, or `output` exists.
        """
        with self.named_errors():
            return self.opening.evaluate(self, validation=validation, output=output, **options)

    def plot_attention(
        self, prediction: "str | Prediction", light: bool = False, ax: "Axes | None" = None
    ) -> "Figure":
        """Return the attention of a prediction as a figure, which a notebook displays.

        Args:
            prediction: a result of `predict`, or an input to predict.
            light: draw high weights dark on white, for print.
            ax: draw on these axes and return their figure.

        Raises:
            UserError: the model has no attention, or the output is empty.
        """
        if isinstance(prediction, str):
            (prediction,) = self.predict([prediction])
        if not isinstance(prediction, Prediction):
            raise UserError(
                f"plot_attention takes one input or one result of predict, not a {type(prediction).__name__}."
            )
        figure = prediction.figure(light, ax)
        if figure is None:
            raise UserError(f"The output for {prediction.source!r} is empty, so it has no attention.")
        return displayed(figure)

    def as_read(self, inputs: Sequence[Any]) -> list[Any]:
        """Return inputs as they would be read from a file, in Unicode NFC; paths are returned as they are.

        Raises:
            UserError: there is a single input where a list of inputs is expected, or an input that is not a text.
        """
        require_list("predict", "texts" if self.reads == "lines" else "files", inputs)
        found = [*inputs]
        if self.reads == "lines":
            for index, one in enumerate(found):
                require(isinstance(one, str), f"inputs[{index}]", repr(one), "a text")
                found[index] = composed(one)
        return found

    def nbest_arguments(self, given: Collection[str]) -> dict[str, Any]:
        """Return the arguments of `nbest` that follow from the options of `python -m seq2seq_lab.predict`.

        Args:
            given: the names of the options that are set; see `options`.
        """
        return {}


def check_length(tokenizer: Tokenizer, line: str, where: str, longest: int, empty: bool = True) -> int:
    """Refuse a line with too many tokens or, unless `empty`, with none. Return the number of tokens.

    Raises:
        UserError: names the line and the remedy.
    """
    length = len(tokenizer.encode([line])[0])
    if length > longest:
        raise UserError(
            f"{where} has {length:,} tokens; the limit is {longest:,}. Split the line. The program predict reads "
            f"it with --max-tokens={length}; time and memory grow with the length."
        )
    if not (length or empty):
        raise UserError(f"{where}: {line!r} has no token. Remove the line.")
    return length


def draw_maps(
    folder: Path,
    maps: Mapping[str, torch.Tensor],
    axes: Mapping[str, tuple[Sequence[str], Sequence[str]]],
    title: str,
) -> dict[str, "Figure"]:
    """Return figures of the attention weights of all layers and heads for one example.

    Args:
        folder: the run, for the error message.
        maps: maps_1LATS by name.
        axes: the tokens along S and T by name.

    Raises:
        UserError: `maps` is empty.
    """
    if not maps:
        raise UserError(
            f"The model of {folder} has no attention maps of layers and heads. Use one run with a Transformer, for example "
            f"model=transformer, or decoder=transformer for a language model."
        )
    return {
        name: plots.draw_attention_maps(to_host(maps_1LATS[0].float()), *axes[name], title)
        for name, maps_1LATS in maps.items()
    }


def displayed(figure: "Figure") -> "Figure":
    """Return a figure with the method by which Jupyter displays it; a figure without pyplot does not have it."""
    figure._repr_png_ = functools.partial(plots.render_png, figure, 100)  # type: ignore[attr-defined]
    return figure
