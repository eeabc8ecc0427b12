"""Tokenized questions with their texts, the positions of the answers, and their batches."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seq2seq_lab.data.batching import Index
from seq2seq_lab.data.labelled import LabelledText
from seq2seq_lab.data.questions import Answer, answers_of, context_of
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.tokenizers import Tokenizer
from seq2seq_lab.data.tokenizers.turns import TURN
from seq2seq_lab.data.words import letter_words, words
from seq2seq_lab.errors import UserError
from seq2seq_lab.runtime.device import on_device

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class QuestionTokens:
    """The token ids of N questions, each with its text, and positions in them.

    Attributes:
        null: the position of the separator before the text, which stands for "no answer": int64, N.
        last: the position of the last token of the text: int64, N.
        answer: the positions of the first and the last token of the answer, or twice `null`: int64, N2.
    """

    tokens: Ragged
    null: Tensor
    last: Tensor
    answer: Tensor

    @property
    def lengths(self) -> Tensor:
        """The number of tokens of each question with its text: int64, N."""
        return self.tokens.lengths

    @property
    def units(self) -> Tensor:
        """The number of units of the loss of each question, always 1: int64, N."""
        return torch.ones_like(self.null)

    def select(self, index: Tensor) -> "QuestionTokens":
        """Return some questions, in the order of the index."""
        return QuestionTokens(
            self.tokens.select(index), self.null[index], self.last[index], self.answer[index]
        )


@dataclass(frozen=True, slots=True)
class QuestionBatch:
    """B questions with their texts.

    Attributes:
        source_BS: token ids, padded if the lengths differ.
        source_lengths: the real lengths, on the host.
        null_B, last_B, answer_B2: see `QuestionTokens`.
        longest_question: the greatest of `null_B`, on the host.
    """

    source_BS: Tensor
    source_lengths: tuple[int, ...]
    null_B: Tensor
    last_B: Tensor
    answer_B2: Tensor
    longest_question: int


class QuestionBatches:
    """Creates the batches of questions, whose tokens are in the memory of the device."""

    def __init__(self, questions: QuestionTokens, device: torch.device) -> None:
        self.device = device
        self._lengths, self._nulls = questions.lengths.numpy(), questions.null.numpy()
        self._tokens = questions.tokens.to(device)
        self._null, self._last, self._answer = (
            one.to(device) for one in (questions.null, questions.last, questions.answer)
        )

    def __call__(self, index: Index) -> QuestionBatch:
        """Return the batch of the given questions, in their order."""
        index_B, lengths = on_device(index, self.device), self._lengths[index]
        return QuestionBatch(
            self._tokens.padded(index_B, int(lengths.max())),
            tuple(lengths.tolist()),
            self._null[index_B],
            self._last[index_B],
            self._answer[index_B],
            int(self._nulls[index].max()),
        )


def context_tokens(line: str, spans: Sequence[Span], where: str) -> Span:
    """Return the positions of the first and the last token of the text of a question.

    Args:
        spans: see `Tokenizer.spans`.
        where: the place of the line, for the error message.

    Raises:
        UserError: the line is not a question and a text with a tab between them, or one of them has no token.
    """
    if line.count(TURN) != 1:
        raise UserError(
            f"{where}: {line!r:.200} is not a question and a text with one tab between them. Correct or remove it."
        )
    begin = line.index(TURN) + len(TURN)
    real = [i for i, (start, end) in enumerate(spans) if end > start]
    inside = [i for i in real if spans[i][0] >= begin]
    if not inside or spans[real[0]][1] >= begin:
        raise UserError(
            f"{where}: the question or the text of {line!r:.200} has no token. Correct or remove it."
        )
    return inside[0], inside[-1]


def answer_tokens(answer: Answer, line: str, spans: Sequence[Span], context: Span) -> Span:
    """Return the positions of the first and the last token that share characters with an answer."""
    begin = line.index(TURN) + len(TURN) + answer.start
    end = begin + len(answer.text)
    inside = [i for i in range(context[0], context[1] + 1) if spans[i][0] < end and spans[i][1] > begin]
    return (inside[0], inside[-1]) if inside else (context[0] - 1, context[0] - 1)


def question_tokens(
    lines: Sequence[str], labels: Sequence[str], tokens: Ragged, tokenizer: Tokenizer, where: str
) -> QuestionTokens:
    """Return tokenized questions with the positions of their first answers.

    Raises:
        UserError: see `context_tokens`.
    """
    null, last, answer = list[int](), list[int](), list[Span]()
    for number, (line, label) in enumerate(zip(lines, labels, strict=True), start=1):
        spans = tokenizer.spans(line)
        context = context_tokens(line, spans, f"{where}, number {number}")
        answers = answers_of(label)
        null.append(context[0] - 1)
        last.append(context[1])
        answer.append(answer_tokens(answers[0], line, spans, context) if answers else (null[-1], null[-1]))
    null_N, last_N = (torch.tensor(one, dtype=torch.int64) for one in (null, last))
    return QuestionTokens(tokens, null_N, last_N, torch.tensor(answer, dtype=torch.int64).view(-1, 2))


def clusters(text: LabelledText) -> list[int]:
    """Return for each question the number of its text: questions about one text are not independent."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(context_of(line), len(numbers)) for line in text.texts]


class TrainingAnswers:
    """Where the answers of the training split are, and how frequent they are.

    Args:
        text: the training split.
    """

    def __init__(self, text: LabelledText) -> None:
        places, self.of_word = Counter[Span](), dict[str, Counter[str]]()
        for line, label in zip(text.texts, text.labels, strict=True):
            context = context_of(line)
            for answer in answers_of(label)[:1]:
                before = sum(start < answer.start for start, _ in words(context))
                places[before, before + len(words(answer.text))] += 1
                self.of_word.setdefault(first_word(line), Counter())[answer.text] += 1
        self.place: Span = places.most_common(1)[0][0] if places else (0, 0)

    def at_most_frequent_place(self, line: str) -> str:
        """Return the words of a text at the place that most training answers have."""
        context = context_of(line)
        spans = words(context)[slice(*self.place)]
        return context[spans[0][0] : spans[-1][1]] if spans else ""

    def most_frequent(self, line: str) -> str:
        """Return the answer in a text that most training questions with the same first word have; empty without one."""
        context = _spaced(context_of(line))
        counts = self.of_word.get(first_word(line), Counter[str]())
        return next((answer for answer, _ in counts.most_common() if _spaced(answer) in context), "")


def _spaced(text: str) -> str:
    """Return the words of a text, without punctuation, with a space around each."""
    return f" {' '.join(letter_words(text))} "


def first_word(line: str) -> str:
    """Return the first word of a question in lower case."""
    start, end = words(line)[0]
    return line[start:end].lower()
