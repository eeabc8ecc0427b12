"""Captioning as a task: images, a convolutional encoder, attention to the positions of its feature map."""

import hashlib
import json
import logging
import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from seq2seq_lab.config.type_checks import NonNegative, fits
from seq2seq_lab.data.batching import plan_evaluation
from seq2seq_lab.data.captions import CaptionCorpus, CaptionedImages, read_features, read_image
from seq2seq_lab.data.corpus import check_corpus, load_corpus
from seq2seq_lab.data.ragged import Ragged, fitting
from seq2seq_lab.data.text import describe_counts
from seq2seq_lab.data.tokenizers import UNK, Tokenizer
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import read_json_object, write_atomically
from seq2seq_lab.metrics.base import Metric, digest
from seq2seq_lab.metrics.registry import POINTING_METRICS
from seq2seq_lab.metrics.segmentation import choose_segmentation
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.runtime import console
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.memory import evaluation_context
from seq2seq_lab.runtime.tables import sectioned_table
from seq2seq_lab.tasks.base import Baseline, Parts, StepInfo, Task, TaskData, refuse_dropout
from seq2seq_lab.tasks.captions.data import (
    CaptionBatch,
    CaptionBatches,
    CaptionExamples,
    CaptionSplit,
)
from seq2seq_lab.tasks.captions.evaluation import METRICS, PRIMARY, Caption, CaptionEvaluator, caption_of
from seq2seq_lab.tasks.captions.loaded import LoadedCaptioner
from seq2seq_lab.tasks.captions.loss import CaptionLoss
from seq2seq_lab.tasks.captions.report import CaptionReport
from seq2seq_lab.tasks.decoded import DecodedEvaluation
from seq2seq_lab.tasks.examples import TrainingExamples
from seq2seq_lab.tasks.losses import check_r_drop
from seq2seq_lab.tasks.report import Report
from seq2seq_lab.tasks.settings import DecodingSettings
from seq2seq_lab.tasks.splits import evaluation_splits
from seq2seq_lab.tasks.text import Vocabulary, corpus_record
from seq2seq_lab.tasks.text_baselines import text_baseline
from seq2seq_lab.tasks.vectors import load_vectors

NAME = "target"  # of the tokenizer's files
ENCODERS = {"images": "convolutional", "features": "features encoder.feature_size=D"}  # by what they encode
INPUTS = "inputs.json"  # needed by a saved run to describe new images

log = logging.getLogger(__name__)


class CaptionTask(Task):
    """Captioning of images (Xu 2015, arXiv:1502.03044).

    Args:
        parts: the parts of the model, the data and the search.
        seed: random seed of the order of the pairs and of the teacher-forcing mask.
        settings: see `DecodingSettings`.
        doubly_stochastic: see `CaptionLoss`.
    """

    uses = frozenset(
        (
            *("dataset", "tokenizer", "encoder", "decoder", "attention", "readout", "initialization"),
            *("teacher_forcing", "search"),
        )
    )
    sources = ("images", "features")
    metrics: Sequence[Metric] = METRICS
    primary = PRIMARY
    unit = "target_tokens"
    files = ("tokenizer", INPUTS)
    loaded = LoadedCaptioner
    commands = {  # noqa: RUF012  (a constant)
        "describe images": ("seq2seq_lab.predict", "RUN", "IMAGE.png"),
    }

    vocabulary: Vocabulary
    corpus: CaptionCorpus
    tokens: dict[str, Ragged]  # of the captions of each split
    source: str  # what the files contain: images or features
    shape: tuple[int, int, int]  # of an image: channels, height, width; of features: D, rows, columns
    grid: tuple[int, int]  # rows and columns of the encoder outputs, known when the model is built
    longest: int  # the number of tokens of the longest training caption

    def __init__(
        self,
        *,
        parts: Parts,
        seed: int,
        settings: DecodingSettings,
        doubly_stochastic: NonNegative,
    ) -> None:
        self.parts, self.seed, self.settings = parts, seed, settings
        self.eval_batch_size = settings.eval_batch_size
        self.doubly_stochastic = doubly_stochastic

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the captions."""
        return self.vocabulary.tokenizer

    @cached_property
    def training_loss(self) -> CaptionLoss:
        """The loss of training."""
        settings = self.settings
        return CaptionLoss(
            self.parts.teacher_forcing(),
            label_smoothing=settings.label_smoothing,
            r_drop=settings.r_drop,
            stop_at_eos=settings.stop_at_eos,
            doubly_stochastic=self.doubly_stochastic,
            seed=self.seed,
        )

    def check(self) -> None:
        check_corpus(self.parts.dataset(), CaptionCorpus, "captions")
        refuse_dropout(self.parts.tokenizer(), "captions")
        with torch.device("meta"):
            model = self.parts.seq2seq(None, 8, False)
        source = source_of(self.parts.dataset())
        if model.encoder.source != source:
            raise UserError(
                f"encoder: {type(model.encoder).__name__} encodes {model.encoder.source}, and the data set has {source}. "
                f"Choose encoder={ENCODERS.get(source, '…')}, or another data set."
            )
        check_r_drop(self.settings.r_drop, model)
        pointing = self.monitor in [f"val/{metric.name}" for metric in POINTING_METRICS]
        penalty = self.doubly_stochastic
        for setting, needs_attention in (
            (f"trainer.monitor={self.monitor}", pointing),
            (f"task.doubly_stochastic={penalty}", penalty > 0),
            ("search.coverage_penalty", getattr(self.parts.search(), "needs_attention", False)),
        ):
            if needs_attention and not model.attends:
                raise UserError(
                    f"{setting} needs a model with attention. Choose another value, or decoder=luong."
                )

    def data_record(self) -> dict[str, Any]:
        return images_record(load_corpus(self.parts.dataset(), CaptionCorpus, "captions"))

    def load(self, cache: Path, saved: Path | None, limit: int | None) -> TaskData:
        corpus = self.corpus = load_corpus(self.parts.dataset(), CaptionCorpus, "captions")
        held_out = [pairs.captions for pairs in (corpus.validation, *corpus.tests.values())]
        segmentation = choose_segmentation(self.settings.bleu_tokenizer, corpus.language, held_out)
        if (initial := self.initial_tokenizers.get("target")) is not None:
            self.vocabulary = Vocabulary(initial, NAME)
        elif saved is None:
            lines = corpus.train.captions
            self.vocabulary = Vocabulary.fitted(self.parts.tokenizer(), NAME, corpus.language, lines)
        else:
            self.open(saved)
        self.tokens = {name: self._tokenize(pairs, name) for name, pairs in corpus.splits.items()}
        train = self._training_examples(corpus.train)
        if saved is None:  # a saved run keeps its own: the longest caption limits the search
            self.source, self.shape = source_of(self.parts.dataset()), corpus.train.images.shape[1:]
            if self.source == "features":
                self.commands = {"describe images": ("seq2seq_lab.predict", "RUN", "FEATURES.npy")}
            self.longest = train.longest
        texts = {name: pairs for name, pairs in corpus.splits.items() if name != "train"}
        examples = {name: self._examples(pairs, self.tokens[name]) for name, pairs in texts.items()}
        validation, *tests = evaluation_splits(
            CaptionSplit, texts, examples, limit, language=corpus.language, segmentation=segmentation
        )
        record = images_record(corpus)
        return TaskData(
            train=TrainingExamples(
                train,
                CaptionBatches,
                batch_size=self.settings.batch_size,
                unit=self.settings.batch_unit,
                seed=self.seed,
            ),
            validation=validation,
            tests=tests,
            record=record,
            identity={
                "the data": record["fingerprint"],
                "the vocabulary": digest(self.tokenizer.tokens(range(self.tokenizer.size))),
            },
        )

    def _examples(self, pairs: CaptionedImages, captions: Ragged) -> CaptionExamples:
        images, image_N = torch.from_numpy(pairs.images), torch.from_numpy(pairs.image_N)
        return CaptionExamples(images, image_N, captions, self.longest)

    def _tokenize(self, pairs: CaptionedImages, name: str) -> Ragged:
        return Ragged.encoded(self.tokenizer.encode, pairs.captions, f"Tokenizing {name}")

    def _training_examples(self, pairs: CaptionedImages) -> CaptionExamples:
        """Return the training pairs whose caption has at most `max_length` tokens.

        Raises:
            UserError: no pair is short enough.
        """
        captions = self.tokens["train"]
        index = fitting(captions.lengths - 2, self.settings.max_length, "captions")
        captions = captions.select(index)
        return CaptionExamples(
            torch.from_numpy(pairs.images),
            torch.from_numpy(pairs.image_N)[index],
            captions,
            int(captions.lengths.max()),
        )

    def open(self, folder: Path) -> None:
        self.vocabulary = Vocabulary.load(folder / "tokenizer", NAME)
        self.parts.tokenizer().check_saved(self.tokenizer, folder / "tokenizer")
        path = folder / INPUTS
        # Earlier versions read images only, and did not write the first two.
        inputs: dict[str, Any] = {"source": "images", "channels": 3} | read_json_object(path)
        numbers: list[Any] = [inputs.get(name) for name in ("channels", "height", "width", "longest_caption")]
        if not fits(numbers, list[int]) or inputs["source"] not in self.sources:
            raise UserError(f"{path} is damaged: it does not describe the inputs. Restore it from a copy.")
        self.source, (channels, height, width, self.longest) = inputs["source"], numbers
        self.shape = (channels, height, width)

    def save(self, folder: Path) -> None:
        self.vocabulary.save(folder / "tokenizer")
        channels, height, width = self.shape
        inputs = {"source": self.source, "channels": channels, "height": height, "width": width}
        write_atomically(folder / INPUTS, json.dumps(inputs | {"longest_caption": self.longest}) + "\n")

    def read(self, file: Path) -> npt.NDArray[Any]:
        """Return the image of a file in the shape of the training images, or its features.

        Raises:
            UserError: the file cannot be read, or does not have their shape.
        """
        if self.source == "features":
            return read_features(file, self.shape[1:], self.shape)
        return read_image(file, *self.shape[1:])

    def model(self) -> Seq2Seq:
        model = self.parts.seq2seq(None, self.tokenizer.size, False)
        if torch.get_default_device().type != "meta":  # without memory there is nothing to encode
            self.grid = grid_of(model, self.source, self.shape)
        return model

    def load_pretrained(self, model: Seq2Seq) -> None:
        load_vectors(
            self.parts,
            "target",
            model.target_embedding,
            scale=model.target_dropout.scale,
            tokenizer=self.tokenizer,
            tokens=self.tokens["train"].tokens,
        )

    def loss(self, model: Seq2Seq, batch: CaptionBatch, step: StepInfo) -> Tensor:
        return self.training_loss(model, batch, step)

    def describe(self) -> None:
        """Print the images, captions and unknown tokens of each split, and the size of the vocabulary."""
        counts, rows = self.corpus.counts, []
        for name, pairs in self.corpus.splits.items():
            tokens = self.tokens[name].tokens
            unknown = int((tokens == UNK).sum()) / (len(tokens) - 2 * len(pairs))  # without <sos> and <eos>
            rows.append([name, f"{len(pairs.images):,}", f"{len(pairs):,}", f"{unknown:.2%}"])
        vocabulary = ["vocabulary", "", f"{self.tokenizer.size:,} types", ""]
        heads = ["split", "images", "captions", "unknown tokens"]
        console.print_and_log(sectioned_table("corpus", heads, [rows, [vocabulary]]))
        if described := describe_counts(counts):
            log.info("Counted in the corpus: %s.", described)
        if leaks := counts.get("leaked_images", 0):
            log.warning(
                "%s images of validation and test are equal to training images as the model reads them, which makes their "
                "scores too high. Remove them from one of the splits.",
                f"{leaks:,}",
            )

    def uniform_loss(self) -> float:
        return math.log(self.tokenizer.size)

    def values(self, step: int) -> dict[str, float]:
        return {"teacher_forcing_ratio": self.training_loss.teacher_forcing.ratio_at(step)}

    def evaluator(
        self, split: CaptionSplit, model: Any, compute: Compute, also: Collection[str] = ()
    ) -> CaptionEvaluator:
        """Return the evaluator of a model on a split; see `CaptionEvaluator`."""
        # An image that is scored once is shown once.
        samples = split.references(self.settings.multi_reference).pairs[: self.settings.samples]
        return CaptionEvaluator(
            model,
            split,
            self.tokenizer,
            compute,
            search=self.parts.search(),
            grid=self.grid,
            batch_size=self.eval_batch_size,
            samples=samples if split.prefix == "val" else (),
            multi_reference=self.settings.multi_reference,
            metrics=self.metrics,
            also=also,
        )

    @torch.no_grad()
    def caption(
        self, model: Seq2Seq, image_NCHW: npt.NDArray[Any], compute: Compute, first: int = 0
    ) -> list[list[Caption]]:
        """Return the captions of each image, the best first.

        Args:
            image_NCHW: images or features of the shape `shape`.
            first: the index of the first image; the draws of `search=sampling` depend on it.
        """
        examples = CaptionExamples(
            torch.from_numpy(image_NCHW),
            torch.arange(len(image_NCHW)),
            Ragged.of([[]] * len(image_NCHW)),
            self.longest,
        )
        batches, search, grid = CaptionBatches(examples, compute.device), self.parts.search(), self.grid
        captions: dict[int, list[Caption]] = {}
        for index in plan_evaluation(examples, self.eval_batch_size):
            batch = batches(index)
            batch = replace(batch, index_B=batch.index_B + first)
            with evaluation_context(batch, compute.precision, compute.device):
                hypotheses = search(model, batch, True)
            for i, found in zip(index.tolist(), hypotheses, strict=True):
                captions[i] = [caption_of(one, self.tokenizer, image_NCHW[i], grid) for one in found]
        return [captions[i] for i in range(len(image_NCHW))]

    def baselines(self, split: CaptionSplit) -> list[Baseline]:
        """Return the result of the most frequent training caption (of equally frequent ones the first) for every image."""
        ((caption, _),) = Counter(self.corpus.train.captions).most_common(1)
        references, lines = split.references(self.settings.multi_reference), [caption] * len(split.text)
        return [text_baseline("most_frequent", "most frequent caption", lines, references, self.metrics)]

    def report(self, split: CaptionSplit, evaluation: DecodedEvaluation, step: int | None) -> Report:
        shown = CaptionReport(split, evaluation, self.tokenizer, self.grid)
        return shown.end() if step is None else shown.validation()


def source_of(dataset: Any) -> str:
    """Return what a data set has: images, or features if it declares them."""
    return str(getattr(dataset, "source", "images"))


def grid_of(model: Seq2Seq, source: str, shape: tuple[int, int, int]) -> tuple[int, int]:
    """Return the number of rows and columns of the encoder outputs of an image, or of features, of this shape.

    Raises:
        UserError: the encoder does not return them.
    """
    image_ICHW = torch.zeros(1, *shape, dtype=torch.uint8 if source == "images" else torch.float32)
    example = CaptionExamples(image_ICHW, torch.zeros(1, dtype=torch.int64), Ragged.of([[]]), longest=0)
    batch = CaptionBatches(example, image_ICHW.device)(np.array([0]))
    training = model.encoder.training
    model.encoder.eval()
    with torch.no_grad():
        outputs_BSM, _, _, grid = model.encode(batch)
    model.encoder.train(training)
    outputs = outputs_BSM.shape[1]
    if grid is None or math.prod(grid) != outputs:
        name = type(model.encoder).__name__
        raise UserError(
            f"encoder: {name}.encode returns {outputs} outputs for an image and grid={grid}. Return their rows and columns: "
            f"EncoderOutputs(outputs_BSM, lengths, final, grid=(rows, columns))."
        )
    return grid


def images_record(corpus: CaptionCorpus) -> dict[str, Any]:
    """Return the entries of `run.json` for a corpus; see `Task.data_record`."""
    hashes = {name: digest([_hash(pairs), *pairs.captions]) for name, pairs in corpus.splits.items()}
    return corpus_record(corpus, hashes, {name: hashes[name] for name in corpus.tests})


def _hash(pairs: CaptionedImages) -> str:
    """Return the SHA-256 of the image of each pair."""
    hashed = hashlib.sha256()
    for index in pairs.image_N:
        hashed.update(pairs.images[index].tobytes())
    return hashed.hexdigest()
