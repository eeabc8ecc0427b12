"""Masked language modeling as a task: some tokens of a text from all others, and whether two sentences follow each other."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from seq2seq_lab.config.type_checks import Count, Share
from seq2seq_lab.data.corpus import OneTestCorpus, check_corpus, load_corpus
from seq2seq_lab.data.labelled import AnyLabelledCorpus
from seq2seq_lab.data.ragged import Ragged, fitting
from seq2seq_lab.data.sentences import SentenceCorpus, Sentences
from seq2seq_lab.data.tokenizers.turns import TURN
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.base import Metric
from seq2seq_lab.metrics.masked_language_model import LOSSES, MASKED_METRICS, NEXT_SENTENCE
from seq2seq_lab.metrics.measurement import measure
from seq2seq_lab.models.masked_language_model import MaskedLanguageModel
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.tasks.base import Baseline, Parts, StepInfo, TaskData, refuse_dropout
from seq2seq_lab.tasks.evaluation import Evaluation
from seq2seq_lab.tasks.examples import TrainingExamples
from seq2seq_lab.tasks.losses import cross_entropy
from seq2seq_lab.tasks.masked_language_model.data import (
    MaskedBatch,
    MaskedBatches,
    MaskedTokens,
    Masking,
    NextSentences,
    is_predictable,
    joined,
    mask,
    sentences_of,
    tag_matrix,
)
from seq2seq_lab.tasks.masked_language_model.evaluation import (
    MaskedEvaluator,
    MaskedOutputs,
    MaskedSplit,
    TaggedTypes,
    are_parts_of_speech,
    examples_of,
)
from seq2seq_lab.tasks.masked_language_model.loaded import LoadedMaskedLanguageModel
from seq2seq_lab.tasks.masked_language_model.report import MaskedReport
from seq2seq_lab.tasks.overlap import FILE, write_hashes
from seq2seq_lab.tasks.report import Report
from seq2seq_lab.tasks.sentences import SentenceTask
from seq2seq_lab.tasks.settings import ExampleSettings
from seq2seq_lab.tasks.splits import evaluation_splits
from seq2seq_lab.tasks.tagging.data import TaggedTokens, counts_by_text, first_tokens

FIXED = 0  # the seed of the masks and pairs of validation and test, the same for every run


class MaskedLanguageModelTask(SentenceTask):
    """Prediction of masked tokens (Devlin 2019, arXiv:1810.04805, §3.1).

    The masks of a training text are drawn again in each epoch (Liu 2019, arXiv:1907.11692, §4.1). Validation and test have
    the same masks in every run, and there every predicted token is replaced by the mask.

    Args:
        parts: the parts of the model and the data.
        seed: seed of the masks and the order of the texts.
        settings: see `ExampleSettings`.
        max_length: training texts with more tokens are left out.
        mask_share: see `Masking`; also `masked` and `random`.
        next_sentence: read pairs of sentences, and predict whether the second is the next one; see `NextSentences`.
        candidates: the number of the most probable words that predictions and reports show.
    """

    name = "masked_language_model"
    uses = frozenset(("dataset", "tokenizer", "encoder", "readout", "initialization"))
    files = ("tokenizer", FILE)
    metrics: Sequence[Metric] = (*MASKED_METRICS, *LOSSES)
    primary = "masked_accuracy"
    loaded = LoadedMaskedLanguageModel
    commands = {  # noqa: RUF012  (a constant)
        "predict the words for <mask> in lines of text": ("seq2seq_lab.predict", "RUN"),
    }

    def __init__(
        self,
        *,
        parts: Parts,
        seed: int,
        settings: ExampleSettings,
        max_length: Count,
        mask_share: float,
        masked: Share,
        random: Share,
        next_sentence: bool,
        candidates: Count,
    ) -> None:
        self.parts, self.seed, self.settings = parts, seed, settings
        self.eval_batch_size = settings.eval_batch_size
        self.max_length, self.candidates = max_length, candidates
        self.masking = Masking(share=mask_share, masked=masked, random=random)
        self.next_sentence = next_sentence
        if next_sentence:
            self.metrics = (*self.metrics, *NEXT_SENTENCE)

    @cached_property
    def corpus(self) -> SentenceCorpus:
        """The sentences: a text, or the texts of a labelled data set; see `sentences_of`."""
        corpus: Any = load_corpus(self.parts.dataset(), OneTestCorpus, self.name)
        found: SentenceCorpus = sentences_of(corpus) if isinstance(corpus, AnyLabelledCorpus) else corpus
        return found

    def check(self) -> None:
        """Build the model without memory, so that parts that cannot be combined are refused before data is read."""
        check_corpus(self.parts.dataset(), OneTestCorpus, self.name)
        refuse_dropout(self.parts.tokenizer(), self.name)
        with torch.device("meta"):
            self.parts.masked_language_model(8, self.next_sentence)

    def load(self, cache: Path, saved: Path | None, limit: int | None) -> TaskData:
        key, corpus = self.tokenize_sentences(cache, saved), self.corpus
        tokens = self.tokens["train"]
        index = fitting(tokens.lengths, self.max_length, "sentences")
        index = index[counts_by_text(tokens, is_predictable)[index] > 0]
        if len(index) < len(tokens):
            tokens = tokens.select(index)
        pairs = self._pairs(corpus.train, index)

        def training(epoch: int) -> MaskedTokens:
            return self._masked(tokens, pairs, self.masking, self.seed, epoch)[0]

        train = TrainingExamples(
            training, MaskedBatches, batch_size=self.settings.batch_size, unit="sentences", seed=self.seed
        )
        texts, ids = dict[str, Sentences](), dict[str, MaskedTokens]()
        fixed = replace(self.masking, masked=1.0, random=0.0)
        for name in ("validation", "test"):
            text = corpus.splits[name]
            held_out = self._pairs(text)
            ids[name], second = self._masked(self.tokens[name], held_out, fixed, FIXED, 0)
            if held_out is not None and second is not None:
                rows = zip(held_out.firsts.tolist(), second.tolist(), strict=True)
                text = Sentences([f"{text.lines[i]}{TURN}{text.lines[k]}" for i, k in rows])
            texts[name] = text
        validation, test = evaluation_splits(MaskedSplit, texts, ids, limit)
        return TaskData(
            train=train,
            validation=validation,
            tests=[test],
            record=self.data_record(),
            identity={"the data or the tokenizer": key},
        )

    def _pairs(self, text: Sentences, index: Tensor | None = None) -> NextSentences | None:
        """Return the pairs of a split with `next_sentence`, else None.

        Args:
            index: the sentences that are not left out; None for all.

        Raises:
            UserError: the data set has no documents.
        """
        if not self.next_sentence:
            return None
        if text.documents is None:
            raise UserError(
                "task.next_sentence=true: the sentences of this data set do not follow each other. Use a text, "
                "dataset.path=FILE with empty lines between documents, or pairs: dataset=sentence_pairs, or "
                "dataset=labelled with dataset.columns=[NAME,NAME,NAME]."
            )
        documents = torch.tensor(text.documents)
        return NextSentences(documents if index is None else documents[index], index)

    def _masked(
        self, tokens: Ragged, pairs: NextSentences | None, masking: Masking, seed: int, epoch: int
    ) -> tuple[MaskedTokens, Tensor | None]:
        """Return masked texts or pairs, a function of (seed, epoch), and the second sentences of pairs."""
        size, second, follows = self.vocabulary.tokenizer.size, None, None
        if pairs is not None:
            second, follows = pairs.draw(seed, epoch)
            tokens = joined(tokens, pairs.firsts, second)
        return mask(tokens, masking, size, seed=seed, epoch=epoch, follows=follows), second

    def save(self, folder: Path) -> None:
        super().save(folder)
        write_hashes(folder, self.corpus.train.lines)

    def model(self) -> MaskedLanguageModel:
        return self.parts.masked_language_model(self.vocabulary.tokenizer.size, self.next_sentence)

    def loss(self, model: MaskedLanguageModel, batch: MaskedBatch, step: StepInfo) -> Tensor:
        """See `Task.loss`. In the mean loss of the next sentence, a pair counts as often as its masks."""
        logits_NV, next_B2 = model(batch)
        loss = cross_entropy(logits_NV[None], batch.label_N[None], self.settings.label_smoothing)
        if next_B2 is None:
            return loss
        assert batch.follows_B is not None
        return (
            loss
            + functional.cross_entropy(next_B2.float(), batch.follows_B, reduction="none")
            @ batch.count_B.float()
        )

    def types(self, split: MaskedSplit) -> TaggedTypes | None:
        """Return the tags of the words of a split and of the vocabulary; None if the data set has no parts of speech."""
        if not self._tags:
            return None
        name = "validation" if split.prefix == "val" else "test"
        tags = self._tags[name]
        return TaggedTypes(self._classes, self._has_tag_VC, tags.select(torch.arange(len(split.text))))

    @cached_property
    def _classes(self) -> list[str]:
        """The tags of the words of all splits, in alphabetical order."""
        texts = [text.tags or () for text in self.corpus.splits.values()]
        return sorted({tag for tags in texts for line in tags for tag in line.split()})

    @cached_property
    def _tags(self) -> dict[str, Ragged]:
        """The index of the tag of each token by split; see `TaggedTypes`. Empty without parts of speech."""
        if not self._classes or not are_parts_of_speech(self._classes):
            return {}
        index_of = {name: index for index, name in enumerate(self._classes)}
        found = {}
        for name, text in self.corpus.splits.items():
            where, tokenizer = f"the split {name}", self.vocabulary.tokenizer
            firsts = [first_tokens(line, tokenizer, where) for line in text.lines]
            tags = torch.tensor([index_of[tag] for line in text.tags or () for tag in line.split()])
            found[name] = TaggedTokens.of(self.tokens[name], firsts, tags).labels
        return found

    @cached_property
    def _has_tag_VC(self) -> npt.NDArray[np.bool_]:
        size = self.vocabulary.tokenizer.size
        return tag_matrix(self.tokens["train"], self._tags["train"], size, len(self._classes))

    def evaluator(
        self, split: MaskedSplit, model: MaskedLanguageModel, compute: Compute, also: Collection[str] = ()
    ) -> MaskedEvaluator:
        return MaskedEvaluator(
            model,
            split,
            self.types(split),
            compute,
            candidates=self.candidates,
            batch_size=self.eval_batch_size,
            metrics=self.metrics,
            also=also,
        )

    def baselines(self, split: MaskedSplit) -> Iterator[Baseline]:
        """Yield the result of the relative frequencies of the training tokens, with 1 added to each count."""
        size, ids = self.vocabulary.tokenizer.size, self.tokens["train"].tokens
        counts_V = np.bincount(ids[is_predictable(ids)].numpy(), minlength=size)
        log_probs_V = np.log((counts_V + 1) / (counts_V.sum() + size))
        labels = [split.tokens.of_words(i)[1] for i in range(len(split.text))]
        outputs = MaskedOutputs.of(
            split,
            self.types(split),
            [np.full_like(row, counts_V.argmax()) for row in labels],
            [log_probs_V[row] for row in labels],
        )
        measurement = measure(
            (*MASKED_METRICS, *LOSSES),
            outputs,
            clusters=np.arange(len(labels)),
            examples=examples_of(split),
            final=True,
        )
        yield Baseline("most_frequent", "most frequent word", measurement)

    def report(self, split: MaskedSplit, evaluation: Evaluation, step: int | None) -> Report:
        shown = MaskedReport(split, evaluation, self.vocabulary.tokenizer)
        return shown.end() if step is None else shown.validation(self.settings.samples)
