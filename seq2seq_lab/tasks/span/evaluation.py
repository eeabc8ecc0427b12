"""Evaluation of a model of answers in a text on a split."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from seq2seq_lab import plots
from seq2seq_lab.data.batching import Index, plan_evaluation
from seq2seq_lab.data.labelled import LabelledText
from seq2seq_lab.data.questions import answers_of, context_of
from seq2seq_lab.data.tokenizers import Tokenizer
from seq2seq_lab.metrics.answers import ANSWER_METRICS, AnswerF1
from seq2seq_lab.metrics.base import Array, Grouping, Metric
from seq2seq_lab.metrics.loss import MeanLoss
from seq2seq_lab.models.span import Pointed, SpanModel
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.device import to_host
from seq2seq_lab.runtime.memory import evaluation_context
from seq2seq_lab.runtime.shades import shade_words
from seq2seq_lab.tasks.evaluation import SplitEvaluator
from seq2seq_lab.tasks.labelled import LabelledSplit, hash_of
from seq2seq_lab.tasks.loaded import Prediction
from seq2seq_lab.tasks.span.data import QuestionBatch, QuestionBatches, clusters, first_word

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PRIMARY = "answer_f1"
METRICS: tuple[Metric, ...] = (*ANSWER_METRICS, MeanLoss("span", "−log p of the answer"))
ROWS = ("start", "end")  # of pictures
WEIGHT = "probability"
FEW_WORDS = 20  # first words of fewer questions are one group
DISTANCES = {"1–2": 2, "3–5": 5, "6–10": 10}  # the greatest distance of each group


@dataclass(frozen=True, kw_only=True)
class SpanPrediction(Prediction):
    """An answer; `text` is empty if the text has none, and `score` the probability of the answer.

    Attributes:
        tokens: the tokens of the text, after the separator, which stands for "no answer".
        weights_2S: the probabilities that the answer starts, and ends, at each of them.
        found: the positions of the first and the last token of the answer; twice 0 without an answer.
    """

    tokens: list[str] = field(repr=False)
    weights_2S: Array = field(repr=False)
    found: tuple[int, int]

    def columns(self) -> list[str]:
        """Return the answer and the question."""
        return [self.text, self.source.partition("\t")[0]]

    def shades(self) -> list[str]:
        """Return the tokens, and below them the probabilities of start and end."""
        return [line for row in self.weights_2S for line in shade_words(self.tokens, row.tolist())]

    def figure(self, light: bool = False, ax: "Axes | None" = None) -> "Figure":
        """Return the probabilities of start and end as a figure; see `Prediction.figure`."""
        title, links = self.source.partition("\t")[0], [*zip(self.found, (0, 1), strict=True)]
        return plots.draw_attention(
            self.weights_2S, self.tokens, ROWS, title, links, light=light, scale=WEIGHT, axes=ax
        )


class Found(NamedTuple):
    """The answer to a question.

    Attributes:
        weights_2S: the probabilities of start and end at the separator and the tokens of the text.
        first, last: positions of the answer in `weights_2S`; 0 is the separator, "no answer".
        log_prob: of the answer.
        loss: −log p of the first gold answer.
    """

    weights_2S: Array
    first: int
    last: int
    log_prob: float
    loss: float


def best_spans(pointed: Pointed, batch: QuestionBatch, longest: int, threshold: float) -> Tensor:
    """Return the rows (first position, last position, log-probability) of the best answers of a batch, B3.

    The best answer maximizes log p(start) + log p(end) over all spans of the text with at most `longest` tokens. "No answer"
    is chosen if its log-probability exceeds that of the best answer by more than `threshold`.
    """
    start_BS, end_BS = (one.double() for one in pointed)
    row_B, null_B = torch.arange(len(start_BS)), batch.null_B.cpu()
    null_score_B = start_BS[row_B, null_B] + end_BS[row_B, null_B]
    start_BS = start_BS.scatter(1, null_B[:, None], float("-inf"))
    longest = min(longest, start_BS.shape[1])
    padded = functional.pad(end_BS, (0, longest - 1), value=float("-inf"))
    score_BX = (start_BS[..., None] + padded.unfold(1, longest, 1)).flatten(1)
    score_B, place_B = score_BX.max(1)
    first_B, extent_B = place_B // longest, place_B % longest
    none_B = null_score_B - score_B > threshold
    first_B, last_B = (torch.where(none_B, null_B, one) for one in (first_B, first_B + extent_B))
    return torch.stack([first_B, last_B, torch.where(none_B, null_score_B, score_B)], dim=1)


@torch.no_grad()
def answer_questions(
    model: SpanModel, batch: QuestionBatch, compute: Compute, longest: int, threshold: float
) -> list[Found]:
    """Return the answers of a batch; see `best_spans`."""
    with evaluation_context(batch, compute.precision, compute.device):
        pointed = model(batch)
    pointed = Pointed(*(torch.from_numpy(to_host(one.float())) for one in pointed))
    rows = best_spans(pointed, batch, longest, threshold).tolist()
    nulls, lasts, golds = (to_host(one).tolist() for one in (batch.null_B, batch.last_B, batch.answer_B2))
    found = []
    for i, ((first, last, log_prob), null, end, gold) in enumerate(
        zip(rows, nulls, lasts, golds, strict=True)
    ):
        both_2S = np.stack([pointed.start_BS[i].numpy(), pointed.end_BS[i].numpy()]).astype(np.float64)
        loss = -float(both_2S[0, gold[0]] + both_2S[1, gold[1]])
        weights_2S = np.exp(both_2S[:, null : end + 1])
        found.append(Found(weights_2S, int(first) - null, int(last) - null, log_prob, loss))
    return found


def text_of(line: str, spans: Sequence[tuple[int, int]], null: int, found: Found) -> str:
    """Return the text of an answer; empty for "no answer"."""
    return "" if not found.first else line[spans[null + found.first][0] : spans[null + found.last][1]]


@dataclass(frozen=True)
class SpanOutputs:
    """The inputs of the metrics; see `metrics.answers`.

    Attributes:
        words: by question its first word.
        distances: by question the number of words between the answer and the word of the text that tells which fact is
            asked for; 0 without an answer. None if it is not known.
        found: by question what the model found; empty for a baseline.
        losses: see `Losses`.
    """

    answers: list[str]
    gold: list[list[str]]
    words: list[str]
    distances: list[int] | None
    found: list[Found]
    losses: Mapping[str, Array]

    @classmethod
    def of(cls, text: LabelledText, answers: list[str], found: Sequence[Found] = ()) -> "SpanOutputs":
        """Return the outputs for answers as texts; without `found`, `losses` is empty."""
        losses = np.array([[one.loss, 1.0] for one in found])
        return cls(
            answers=answers,
            gold=[[one.text for one in answers_of(label)] for label in text.labels],
            words=[first_word(line) for line in text.texts],
            distances=_distances(text),
            found=[*found],
            losses={"span": losses} if found else {},
        )


def _distances(text: LabelledText) -> list[int] | None:
    if text.deciding is None:
        return None
    distances = []
    for line, label, deciding in zip(text.texts, text.labels, text.deciding, strict=True):
        answers = answers_of(label)
        if answers and deciding:
            first = len(context_of(line)[: answers[0].start].split())
            distances.append(min(abs(first - word) for word in deciding))
        else:
            distances.append(0)
    return distances


def groups_by_answer(outputs: SpanOutputs) -> Mapping[str, Sequence[int]] | None:
    """Return the indices of the questions with and without an answer; None if all have one."""
    groups: dict[str, list[int]] = {"in the text": [], "no answer": []}
    for i, gold in enumerate(outputs.gold):
        groups["in the text" if gold else "no answer"].append(i)
    return groups if all(groups.values()) else None


def groups_by_word(outputs: SpanOutputs) -> Mapping[str, Sequence[int]]:
    """Return the indices of the questions with each first word; words of few questions are one group."""
    groups: dict[str, list[int]] = {}
    for i, word in enumerate(outputs.words):
        groups.setdefault(word, []).append(i)
    few = [i for rows in groups.values() if len(rows) < FEW_WORDS for i in rows]
    return {word: rows for word, rows in groups.items() if len(rows) >= FEW_WORDS} | (
        {"others": sorted(few)} if few else {}
    )


def groups_by_distance(outputs: SpanOutputs) -> Mapping[str, Sequence[int]] | None:
    """Return the indices of the questions whose answer is at each distance; None if it is not known."""
    if outputs.distances is None:
        return None
    groups: dict[str, list[int]] = {name: [] for name in (*DISTANCES, "11 or more")}
    for i, distance in enumerate(outputs.distances):
        if distance:
            name = next((name for name, most in DISTANCES.items() if distance <= most), "11 or more")
            groups[name].append(i)
    return {name: rows for name, rows in groups.items() if rows}


GROUPINGS = (
    Grouping("answer", "answer", AnswerF1(), groups_by_answer),
    Grouping("question", "first word of the question", AnswerF1(), groups_by_word, ordered=False),
    Grouping("distance", "distance of the answer in words", AnswerF1(), groups_by_distance),
)


class SpanEvaluator(SplitEvaluator[Found]):
    """Evaluates a model on a split.

    Args:
        batch_size: questions of a batch.
        longest, threshold: see `best_spans`.
        measured: see `SplitEvaluator`.
    """

    split: LabelledSplit

    def __init__(
        self,
        model: SpanModel,
        split: LabelledSplit,
        tokenizer: Tokenizer,
        compute: Compute,
        *,
        batch_size: int,
        longest: int,
        threshold: float,
        **measured: Any,
    ) -> None:
        super().__init__(
            model,
            split,
            compute,
            plan=plan_evaluation(split.tokens, batch_size),
            examples=hash_of(split.text),
            clusters=np.array(clusters(split.text)),
            groupings=GROUPINGS,
            **measured,
        )
        self.tokenizer, self.longest, self.threshold = tokenizer, longest, threshold
        self._batches = QuestionBatches(split.tokens, compute.device)

    def score(self, index: Index, final: bool) -> list[Found]:
        """See `SplitEvaluator.score`."""
        return answer_questions(self.model, self._batches(index), self.compute, self.longest, self.threshold)

    def outputs(self, results: Sequence[Found]) -> SpanOutputs:
        """See `SplitEvaluator.outputs`."""
        rows = zip(self.split.text.texts, self.split.tokens.null.tolist(), results, strict=True)
        answers = [
            text_of(line, self.tokenizer.spans(line) if one.first else [], null, one)
            for line, null, one in rows
        ]
        return SpanOutputs.of(self.split.text, answers, results)
