"""Translation as a task: sentence pairs, an encoder-decoder, BLEU."""

import hashlib
import json
import logging
import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.batching import BatchMaker
from seq2seq_lab.data.corpus import Corpus, ParallelText, check_corpus, load_corpus
from seq2seq_lab.data.lines import Lines
from seq2seq_lab.data.near_duplicates import with_near_duplicates
from seq2seq_lab.data.tokenized import (
    TokenizedCorpus,
    short_pairs,
    tokenize_corpus,
    tokenize_text,
    training_text,
)
from seq2seq_lab.data.tokenizers import TokenizerPair, fit_tokenizers
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.alignment import AER_ROWS
from seq2seq_lab.metrics.base import Metric
from seq2seq_lab.metrics.registry import ALIGNMENT_METRICS
from seq2seq_lab.models.ensemble import Ensemble
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.tasks.base import Baseline, EvaluationData, Parts, StepInfo, Task, TaskData
from seq2seq_lab.tasks.decoded import DecodedEvaluation
from seq2seq_lab.tasks.examples import TrainingExamples
from seq2seq_lab.tasks.losses import check_r_drop
from seq2seq_lab.tasks.report import Heatmaps, Report
from seq2seq_lab.tasks.settings import TranslationSettings
from seq2seq_lab.tasks.splits import evaluation_splits, spread
from seq2seq_lab.tasks.text import corpus_record
from seq2seq_lab.tasks.text_baselines import text_baseline
from seq2seq_lab.tasks.translation.data import check_lengths, segmentation_of
from seq2seq_lab.tasks.translation.evaluation import (
    METRICS,
    PRIMARY,
    TranslationEvaluator,
    TranslationSplit,
    choose_samples,
    groupings,
)
from seq2seq_lab.tasks.translation.loaded import LoadedTranslation
from seq2seq_lab.tasks.translation.loss import TrainingLoss
from seq2seq_lab.tasks.translation.report import EXAMPLES, TranslationReport, describe
from seq2seq_lab.tasks.vectors import load_vectors

log = logging.getLogger(__name__)

NO_LANGUAGE = frozenset(("source", "target"))  # the default labels of dataset=parallel
KEPT_ATTENTION = 20  # sentences of each split whose attention the final evaluation keeps
KEPT_OF_TEST = 200  # further ones of the first test set, which pages show
BEAM = "search=beam"
USUAL_LIMITS = {"max_length_factor": 2.0, "max_length_extra": 10}  # of conf/search/beam.yaml
SNAPSHOT_EXAMPLES = 16  # whose metrics a picture of the training shows


def changed_limits(search: object) -> list[str]:
    """Return the settings of the length limits of a search that differ from those of `search=beam`."""
    limits = getattr(search, "limits", None)
    known = {name: getattr(limits, name, usual) for name, usual in USUAL_LIMITS.items()}
    return [f"search.{name}={value:g}" for name, value in known.items() if value != USUAL_LIMITS[name]]


class TranslationTask(Task):
    """Translation of sentences.

    Args:
        parts: the parts of the model, the data and the search.
        seed: seed of the order of the pairs, the segmentation of a stochastic tokenizer, and the teacher-forcing mask.
        settings: see `TranslationSettings`.

    Attributes:
        name: the value of the group `task`.
        corpus_type: the type of corpus that the data set returns.
        corpus: the corpus that was read last. After `load`, its training split has the first pairs only.
    """

    name: ClassVar[str] = "translation"
    corpus_type: ClassVar[type[Corpus]] = Corpus

    uses = frozenset(
        (
            *("dataset", "tokenizer", "encoder", "decoder", "attention", "readout", "initialization"),
            *("teacher_forcing", "search"),
        )
    )
    sources = ("tokens", "subwords")
    metrics: Sequence[Metric] = METRICS
    primary = PRIMARY
    kept_entries = (AER_ROWS,)
    snapshot_metrics = ("aer",)
    unit = "target_tokens"
    files = ("tokenizer",)
    loaded = LoadedTranslation
    commands = {  # noqa: RUF012  (a constant)
        "translate your sentences": ("seq2seq_lab.predict", "RUN"),
        "with a beam": ("seq2seq_lab.evaluate", "RUN", BEAM),
    }

    corpus: Corpus
    tokenized: TokenizedCorpus
    tokenizers: TokenizerPair

    def __init__(self, *, parts: Parts, seed: int, settings: TranslationSettings) -> None:
        self.parts, self.seed, self.settings = parts, seed, settings
        self.eval_batch_size = settings.eval_batch_size
        self.groupings = groupings(settings.length_bounds)

    @property
    def monitors_alignment(self) -> bool:
        """Whether `trainer.monitor` is a metric of the alignment."""
        return self.monitor in [f"val/{metric.name}" for metric in ALIGNMENT_METRICS]

    @cached_property
    def training_loss(self) -> TrainingLoss:
        """The training loss, created on first use: a run that is loaded to translate does not need it."""
        settings = self.settings
        return TrainingLoss(
            self.parts.teacher_forcing(),
            label_smoothing=settings.label_smoothing,
            r_drop=settings.r_drop,
            stop_at_eos=settings.stop_at_eos,
            coverage_loss=settings.coverage_loss,
            seed=self.seed,
        )

    def check(self) -> None:
        """Build the model without memory, so that parts that cannot be combined are refused before data is read."""
        check_corpus(self.parts.dataset(), self.corpus_type, self.name)
        tokenizer = self.parts.tokenizer()
        with torch.device("meta"):
            types = 8 + self.parts.source_types
            model = self.parts.seq2seq(types, types, bool(self.parts.tokenizer.settings.get("joint")))
        if tokenizer.joint and (own := self.parts.source_tokenizer(False)) is not None:
            raise UserError(
                f"tokenizer.joint=true is not allowed: the source has its own tokenizer ({type(own).__name__}). Set "
                f"tokenizer.joint=false."
            )
        attention = self.parts.attention.settings["_target_"]
        if model.longest_source is not None and tokenizer.stochastic:
            raise UserError(
                f"attention._target_={attention} has scores for a limited number of tokens, but this tokenizer segments a "
                f"sentence into a different number of tokens in each epoch. Set tokenizer.dropout=0, or choose another "
                f"attention function, such as attention=additive."
            )
        if self.monitors_alignment and not model.attends:
            raise UserError(
                f"trainer.monitor={self.monitor} needs a model with attention. Choose another metric, or model=attn."
            )
        check_r_drop(self.settings.r_drop, model)
        if self.settings.coverage_loss and not model.attends:
            raise UserError(
                f"task.coverage_loss={self.settings.coverage_loss} needs a model with attention. Set it to 0, or choose "
                f"model=attn."
            )
        if self.settings.label_smoothing and self.parts.source_types:
            raise UserError(
                f"task.label_smoothing={self.settings.label_smoothing} is not allowed with "
                f"readout.copied_words={self.parts.source_types}: it would give a probability to words that the source does "
                f"not have. Set task.label_smoothing=0 or readout.copied_words=0."
            )
        search = self.parts.search()
        if getattr(search, "needs_attention", False) and not model.attends:
            raise UserError(
                "search.coverage_penalty needs a model with attention. Set it to 0, or choose model=attn."
            )

    def data_record(self) -> dict[str, Any]:
        return pairs_record(load_corpus(self.parts.dataset(), self.corpus_type, self.name))

    def load(self, cache: Path, saved: Path | None, limit: int | None) -> TaskData:
        limits = changed_limits(self.parts.search())
        self.commands = {
            purpose: (*words, *limits) if BEAM in words else words
            for purpose, words in type(self).commands.items()
        }
        fitted = None if saved is None else TokenizerPair.load(saved / "tokenizer")
        settings = self.settings
        dataset = self.parts.dataset()
        corpus = load_corpus(dataset, self.corpus_type, self.name)
        sizes = {name: len(text) for name, text in corpus.splits.items()}
        if 0 in sizes.values() or not corpus.tests:
            raise UserError(
                f"The data set has empty splits: {sizes}. The training split, the validation split and at least one test "
                f"set need examples. Add data, or change how it is split."
            )
        if self.monitors_alignment and corpus.validation.gold is None:
            raise UserError(
                f"trainer.monitor={self.monitor} needs gold alignments, which this data set does not have. Choose another "
                f"metric, or dataset=grammar."
            )
        segmentation = segmentation_of(corpus, settings.bleu_tokenizer)
        tokenizer = self.parts.tokenizer
        own = self.parts.source_tokenizer(False)
        if self.initial_tokenizers:
            languages = (corpus.source_language, corpus.target_language)
            fitted = fit_tokenizers(tokenizer, corpus.train, languages, own, self.initial_tokenizers)
        self.tokenized = tokenize_corpus(corpus, tokenizer, tokenizer.settings, cache, fitted, source=own)
        held_out = {"validation": self.tokenized.validation, **self.tokenized.tests}
        for name, tokens in held_out.items():
            check_lengths(name, corpus.splits[name], tokens, settings.max_eval_length, dataset)
        self.corpus = with_near_duplicates(corpus, cache)
        self.tokenizers = self.tokenized.tokenizers
        short = short_pairs(self.tokenized.train, settings.max_length)
        train = training_text(corpus.train, short, self.tokenizers, self.seed)
        texts = {name: text for name, text in self.corpus.splits.items() if name != "train"}
        validation, *tests = evaluation_splits(
            TranslationSplit,
            texts,
            held_out,
            limit,
            language=corpus.target_language,
            segmentation=segmentation,
        )
        record = pairs_record(self.corpus)
        # The text of millions of pairs takes gigabytes.
        self.corpus = replace(self.corpus, train=self.corpus.train.first(EXAMPLES))
        lengths = {"train": short, **{split.prefix: split.tokens for split in (validation, *tests)}}
        self.longest = {name: int(tokens.lengths.max()) for name, tokens in lengths.items()}
        pad_to = settings.pad_to or 1
        return TaskData(
            train=TrainingExamples(
                train,
                partial(BatchMaker, pad_to=pad_to),
                batch_size=settings.batch_size,
                unit=settings.batch_unit,
                seed=self.seed,
                pad_to=pad_to,
            ),
            validation=validation,
            tests=tests,
            record=record,
            identity={"the data or the tokenizer": self.tokenized.key},
        )

    def training_pairs(self) -> tuple[ParallelText, str]:
        """Return the training pairs as they are read now, and the checksum of all data that `run.json` records."""
        corpus = load_corpus(self.parts.dataset(), self.corpus_type, self.name)
        return corpus.train, pairs_record(corpus)["fingerprint"]

    def evaluation_data(self, cache: Path, saved: Path) -> EvaluationData:
        """See `Task.evaluation_data`. The training split is not tokenized, and may be empty."""
        dataset = self.parts.dataset()
        corpus = self._with_languages(load_corpus(dataset, self.corpus_type, self.name), saved)
        texts = {name: text for name, text in corpus.splits.items() if name != "train" and len(text)}
        tokens = {name: tokenize_text(text, self.tokenizers, name) for name, text in texts.items()}
        for name, text in texts.items():
            check_lengths(name, text, tokens[name], self.settings.max_eval_length, dataset)
        segmentation = segmentation_of(corpus, self.settings.bleu_tokenizer)
        self.corpus = with_near_duplicates(corpus, cache)
        splits = evaluation_splits(
            TranslationSplit,
            {name: self.corpus.splits[name] for name in texts},
            tokens,
            language=corpus.target_language,
            segmentation=segmentation,
        )
        validation = splits.pop(0) if "validation" in texts else None
        return EvaluationData(validation=validation, tests=splits, record=pairs_record(self.corpus))

    def _with_languages(self, corpus: Corpus, saved: Path) -> Corpus:
        """Replace the default labels by the languages of the run's vocabulary; warn if the languages differ."""
        fitted = self.tokenizers.languages
        if fitted is None:
            return corpus
        labels = (corpus.source_language, corpus.target_language)
        source, target = (
            known if label in NO_LANGUAGE else label for label, known in zip(labels, fitted, strict=True)
        )
        if (source, target) != fitted and NO_LANGUAGE.isdisjoint(fitted):
            log.warning(
                "The vocabulary of %s is for %s, this data set is %s→%s.",
                saved,
                "→".join(fitted),
                source,
                target,
            )
        return replace(corpus, source_language=source, target_language=target)

    def open(self, folder: Path) -> None:
        self.tokenizers = TokenizerPair.load(folder / "tokenizer")
        self.parts.tokenizer().check_saved(self.tokenizers.target, folder / "tokenizer")
        if (own := self.parts.source_tokenizer(False)) is not None:
            own.check_saved(self.tokenizers.source, folder / "tokenizer")
        self.longest = {}

    def save(self, folder: Path) -> None:
        self.tokenizers.save(folder / "tokenizer")

    def model(self) -> Seq2Seq:
        pair = self.tokenizers
        model = self.parts.seq2seq(pair.source.size, pair.target.size, pair.joint)
        for name, length in self.longest.items():
            model.check_length(length, f"A source sentence of {name}")
        return model

    def load_pretrained(self, model: Seq2Seq) -> None:
        text, pair = self.tokenized.train, self.tokenizers
        for side, embedding, tokenizer, ids in (
            ("source", model.source_embedding, pair.source, text.source),
            ("target", model.target_embedding, pair.target, text.target),
        ):
            load_vectors(
                self.parts,
                side,
                embedding,
                scale=model.target_dropout.scale,
                tokenizer=tokenizer,
                tokens=ids.tokens,
            )

    def describe(self) -> None:
        describe(self.corpus, self.tokenized)

    def loss(self, model: Seq2Seq, batch: Batch, step: StepInfo) -> Tensor:
        return self.training_loss(model, batch, step)

    def uniform_loss(self) -> float:
        return math.log(self.tokenizers.target.size)

    def values(self, step: int) -> dict[str, float]:
        return {"teacher_forcing_ratio": self.training_loss.teacher_forcing.ratio_at(step)}

    def evaluator(
        self,
        split: TranslationSplit,
        model: Seq2Seq | Ensemble,
        compute: Compute,
        also: Collection[str] = (),
        replace_unknown: bool = False,
    ) -> TranslationEvaluator:
        """Return the evaluator of a model on a split; see `TranslationEvaluator`.

        Raises:
            UserError: a sentence is too long for the model.
        """
        model.check_length(int(split.tokens.lengths.max()), f"A source sentence of {split.prefix}")
        samples = split.samples
        if samples is None:
            samples = self.choose_samples(split.text, self.settings.samples) if split.prefix == "val" else []
        return TranslationEvaluator(
            model,
            split,
            self.tokenizers,
            compute,
            search=self.parts.search(),
            batch_size=self.eval_batch_size,
            groupings=self.groupings,
            replace_unknown=replace_unknown,
            multi_reference=self.settings.multi_reference,
            metrics=self.metrics,
            also=also,
            samples=samples,
            kept_at_end=self.kept_at_end(split),
        )

    def kept_at_end(self, split: TranslationSplit) -> set[int]:
        """Return the examples whose attention the final evaluation keeps; of `test` also evenly spaced ones."""
        more = spread(KEPT_OF_TEST, len(split.text)) if split.prefix == "test" else ()
        return {*self.choose_samples(split.text, KEPT_ATTENTION), *more}

    def choose_samples(self, text: ParallelText, count: int) -> list[int]:
        """Return the indices of the examples of a split whose attention is kept; see `evaluation.choose_samples`."""
        return choose_samples(text, count)

    def snapshot(self, split: TranslationSplit, model: Seq2Seq) -> TranslationSplit | None:
        """See `Task.snapshot`: the samples of a validation, and more examples for the metrics."""
        if not self.settings.samples or not model.attends:
            return None
        samples = self.choose_samples(split.text, self.settings.samples)
        others = self.choose_samples(split.text, SNAPSHOT_EXAMPLES)
        indices = [*dict.fromkeys([*samples, *others])][: max(SNAPSHOT_EXAMPLES, len(samples))]
        return replace(
            split,
            text=split.text.select(indices),
            tokens=split.tokens.select(torch.tensor(indices)),
            samples=range(len(samples)),
        )

    def snapshot_heatmaps(self, split: TranslationSplit, evaluation: DecodedEvaluation) -> Heatmaps:
        """See `Task.snapshot_heatmaps`."""
        shown = TranslationReport(split, evaluation, self.tokenizers, self.settings.join_subwords)
        return shown.heatmaps(range(self.settings.samples))

    def baselines(self, split: TranslationSplit) -> list[Baseline]:
        """Return the result of the source sentences as translations."""
        return [self.text_baseline("copy", "copy of the source", split.text.source, split)]

    def text_baseline(self, name: str, label: str, lines: Sequence[str], split: TranslationSplit) -> Baseline:
        """Return the result of lines, one for each pair of a split; see `tasks.text_baselines`."""
        return text_baseline(
            name, label, lines, split.references(self.settings.multi_reference), self.metrics
        )

    def report(self, split: TranslationSplit, evaluation: DecodedEvaluation, step: int | None) -> Report:
        shown = TranslationReport(split, evaluation, self.tokenizers, self.settings.join_subwords)
        return shown.end() if step is None else shown.validation(step)


def pairs_record(corpus: Corpus) -> dict[str, Any]:
    """Return the entries of `run.json` for a corpus; see `Task.data_record`."""
    hashes = {
        name: hashlib.sha256(Lines.of(text.source).digest() + Lines.of(text.target).digest()).hexdigest()
        for name, text in corpus.splits.items()
    }
    digest = hashlib.sha256()
    for name, pairs_hash in hashes.items():
        digest.update(json.dumps([name, pairs_hash]).encode())
    return corpus_record(corpus, hashes, {name: hashes[name] for name in corpus.tests}, digest.hexdigest())
