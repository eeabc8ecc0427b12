"""The splits of a translation corpus, as the trainer and the evaluator read them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.batching import BatchMaker, Index, StepPlan, Unit, plan_epoch
from seq2seq_lab.data.corpus import Corpus, ParallelText
from seq2seq_lab.data.tokenized import TokenizedText
from seq2seq_lab.tasks.base import EpochPlan
from seq2seq_lab.tasks.translation.evaluation import Split


class PairPlan(EpochPlan):
    """The steps of an epoch over sentence pairs; the units are target tokens."""

    def __init__(self, plan: Sequence[StepPlan], batches: BatchMaker) -> None:
        super().__init__(plan)
        self.batches = batches

    def batch(self, index: Index) -> Batch:
        return self.batches(index)

    def count(self, step: int) -> int:
        return self.batches.target_tokens(self.plan[step])


class TrainingPairs:
    """The training pairs.

    Args:
        text: returns the tokenised pairs of an epoch.
        batch_size: see `plan_epoch`.
        seed: of the order of the pairs.
    """

    def __init__(self, text: Callable[[int], TokenizedText], batch_size: int, unit: Unit, seed: int) -> None:
        self.text = text
        self.batch_size = batch_size
        self.unit = unit
        self.seed = seed
        self._batches: BatchMaker | None = None

    def epoch(self, number: int, device: torch.device) -> PairPlan:
        """Return the plan of an epoch, counted from 0."""
        text = self.text(number)
        if self._batches is None or text is not self._batches.text or device != self._batches.device:
            self._batches = None  # the tokens of one epoch at a time are on the device
            self._batches = BatchMaker(text, device)
        return PairPlan(plan_epoch(text, self.batch_size, self.unit, self.seed, number), self._batches)


def evaluation_splits(
    corpus: Corpus, validation: TokenizedText, tests: Mapping[str, TokenizedText], limit: int | None = None
) -> list[Split]:
    """Return the validation split and the test splits; see `prefixes_of_tests`.

    Args:
        limit: the number of sentences of each split; None for all.
    """
    language = corpus.target_language
    splits = [Split("val", corpus.validation, validation, language)]
    for name, prefix in prefixes_of_tests(corpus).items():
        splits.append(Split(prefix, corpus.tests[name], tests[name], language))
    return splits if limit is None else [_first_sentences(split, limit) for split in splits]


def prefixes_of_tests(corpus: Corpus) -> dict[str, str]:
    """Return the prefix of the metrics of each test set: `test` for the first one, `test/NAME` for the others."""
    prefixes: dict[str, str] = {}
    for name in corpus.tests:
        short = name.removeprefix("test_")
        prefixes[name] = f"test/{name if short in corpus.tests else short}" if prefixes else "test"
    return prefixes


def _first_sentences(split: Split, count: int) -> Split:
    text = split.text
    cut = ParallelText(
        text.source[:count],
        text.target[:count],
        None if text.gold is None else text.gold[:count],
        None if text.phenomena is None else text.phenomena[:count],
    )
    return replace(split, text=cut, tokens=split.tokens.select(torch.arange(min(count, len(text)))))
