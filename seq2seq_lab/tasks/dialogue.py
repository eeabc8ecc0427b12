"""Dialogue as a task: translation from the turns of a context to the response."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from seq2seq_lab.config.slots import Part
from seq2seq_lab.data.corpus import ParallelText
from seq2seq_lab.data.dialogue import Dialogue, DialogueCorpus, DialogueText
from seq2seq_lab.data.tokenizers.turns import TURN, TurnTokenizer
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.accuracy import ExactMatch
from seq2seq_lab.metrics.base import Grouping
from seq2seq_lab.metrics.bleu import Bleu
from seq2seq_lab.metrics.diversity import DIVERSITY_METRICS
from seq2seq_lab.metrics.loss import MeanLoss, Perplexity
from seq2seq_lab.metrics.registry import DECODING_METRICS
from seq2seq_lab.tasks.base import Baseline, Parts, TaskData
from seq2seq_lab.tasks.settings import TextPairSettings, TranslationSettings
from seq2seq_lab.tasks.translation.evaluation import BY_PHENOMENON, TranslationOutputs, TranslationSplit
from seq2seq_lab.tasks.translation.task import TranslationTask


def _distances(text: ParallelText) -> Sequence[int] | None:
    return text.distances if isinstance(text, DialogueText) else None


def _by_distance(outputs: TranslationOutputs) -> Mapping[str, Sequence[int]] | None:
    distances = _distances(outputs.text)
    if distances is None:
        return None
    groups: dict[int, list[int]] = {}
    for index, pair in enumerate(outputs.references.pairs):
        groups.setdefault(distances[pair], []).append(index)
    return {str(distance): groups[distance] for distance in sorted(groups)}


class DialogueTask(TranslationTask):
    """The response to a context of several turns.

    The source is the context: the tokens of all turns, with `<eos>` between two turns. Every encoder reads it; those that
    read `turns` split it again. Everything else is the same as in translation.

    `trainer.monitor=null` means exact match if the data have deciding turns (`DialogueText.distances`). Other dialogues have
    many good responses, and exact match can be 0 at every validation: null then means the teacher-forced perplexity.

    Args:
        parts: see `TranslationTask`.
        seed: see `TranslationTask`.
        settings: see `TextPairSettings`.
    """

    name, corpus_type = "dialogue", DialogueCorpus
    sources = ("tokens", "turns")
    metrics = (
        *(ExactMatch(), Bleu(), *DECODING_METRICS, *DIVERSITY_METRICS),
        MeanLoss("teacher_forced", "teacher-forced loss"),
        MeanLoss("free_running", "free-running loss"),
        Perplexity("teacher_forced", "teacher-forced perplexity", shown=True),
    )
    primary = "accuracy"
    commands = {  # noqa: RUF012  (a constant)
        "answer dialogues, one per line with tabs between the turns": ("seq2seq_lab.predict", "RUN"),
        "with a beam": ("seq2seq_lab.evaluate", "RUN", "search=beam"),
    }

    def __init__(self, *, parts: Parts, seed: int, settings: TextPairSettings) -> None:
        tokenizer, dataset = parts.tokenizer, parts.dataset()
        self.window = dataset.turns if isinstance(dataset, Dialogue) else None
        of_turns = Part(
            "tokenizer",
            lambda: TurnTokenizer.of(tokenizer(), window=self.window),
            {**tokenizer.settings, "turns": self.window or "all"},
        )
        super().__init__(
            parts=replace(parts, tokenizer=of_turns),
            seed=seed,
            settings=TranslationSettings(
                **vars(settings), length_bounds=[], join_subwords=True, coverage_loss=0.0
            ),
        )
        self.groupings = (
            Grouping("distance", "distance of the deciding turn", ExactMatch(), _by_distance),
            BY_PHENOMENON,
        )

    def check(self) -> None:
        super().check()
        if self.parts.source_types:
            # The unknown words of each turn are numbered from the same type.
            raise UserError(
                f"readout.copied_words={self.parts.source_types} is not allowed with dialogues, whose turns are tokenized "
                f"one by one. Set readout.copied_words=0."
            )

    def load(self, cache: Path, saved: Path | None, limit: int | None) -> TaskData:
        self.initial_tokenizers = {
            side: TurnTokenizer.of(one, window=self.window) for side, one in self.initial_tokenizers.items()
        }
        data = super().load(cache, saved, limit)
        if _distances(self.corpus.validation) is None:
            self.default_monitor = "perplexity_teacher_forced"
        return data

    def baselines(self, split: TranslationSplit) -> list[Baseline]:
        """Return the result of the last turns of the contexts as responses."""
        text = split.text
        turns = text.last_turns if isinstance(text, DialogueText) else None
        turns = turns or [context.rpartition(TURN)[2] for context in text.source]
        return [self.text_baseline("last_turn", "last turn", turns, split)]

    def choose_samples(self, text: ParallelText, count: int) -> list[int]:
        """Return the indices of evenly spaced examples."""
        return [*range(0, len(text), max(1, len(text) // max(1, count)))][:count]
