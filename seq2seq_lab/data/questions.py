"""Questions whose answers are spans of a text: generated facts about people, or files in the format of SQuAD."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, ClassVar, NamedTuple

from seq2seq_lab.config.type_checks import Count, Share
from seq2seq_lab.data.grammar.facts import draw_question
from seq2seq_lab.data.labelled import (
    AnyLabelledCorpus,
    Example,
    LabelledFiles,
    LabelledText,
    collect_labelled,
    refuse_without_train,
)
from seq2seq_lab.data.licences import GENERATED
from seq2seq_lab.data.local_files import compose, composed
from seq2seq_lab.data.tables import Reader
from seq2seq_lab.data.text import SplitName, find_problem, split_by_hash
from seq2seq_lab.data.tokenizers.turns import TURN
from seq2seq_lab.errors import UserError

FORM = (
    'Write {"question": …, "context": …, "answers": {"text": [ANSWER, …], "answer_start": [CHARACTER, …]}}, or articles '
    'with "paragraphs" as in SQuAD.'
)
BREAKS = str.maketrans("\n\r\t", "   ")


class Answer(NamedTuple):
    """An answer and the index of its first character in the text."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class QuestionCorpus(AnyLabelledCorpus):
    """Questions about texts. A text is the question and the text, separated by a tab; a label is that of `label_of`.

    `deciding` are the indices of the words of the text, without the question, that tell which fact is asked for.
    """

    @property
    def classes(self) -> list[str]:
        """Questions have no classes."""
        return []

    def problem_of(self, split: LabelledText, index: int) -> str | None:
        """See `OneTestCorpus.problem_of`."""
        line, label = split.texts[index], split.labels[index]
        if line.count(TURN) != 1:
            return f"{line!r:.80} is not a question and a text with one tab between them."
        try:
            answers = answers_of(label)
        except (ValueError, TypeError):
            return (
                f"the label {label!r:.80} is not that of `label_of`: its answers with their first characters."
            )
        context = context_of(line)
        for answer in answers:
            if not (isinstance(answer.start, int) and answer.start >= 0 and answer.text):
                return f"the answer {answer.text!r:.80} has no first character: {answer.start!r}."
            if context[answer.start : answer.start + len(answer.text)] != answer.text:
                return f"the answer {answer.text!r:.80} is not in the text at character {answer.start}."
        return AnyLabelledCorpus.problem_of(self, split, index)


def label_of(answers: Iterable[Answer]) -> str:
    """Return the label of a question with these answers; without answers the text does not contain any."""
    return json.dumps([*answers], ensure_ascii=False)


def answers_of(label: str) -> list[Answer]:
    """Return the answers of a label."""
    return [Answer(*one) for one in json.loads(label)]


def context_of(line: str) -> str:
    """Return the text of a question and its text."""
    return line.partition(TURN)[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions(LabelledFiles):
    """Questions about texts, whose answers are spans of the texts.

    Without `train`, questions about generated facts; see `draw_question`.

    Args:
        train, validation, test: see `read_questions` and `LabelledFiles`; None for `train` to generate questions. A text
            with all its questions is in one split.
        questions: the number of questions to generate.
        no_answer_share: the share of the generated questions without an answer.
        seed: random seed of the generated questions.

    Raises:
        UserError: a value is out of range.
    """

    licence: ClassVar[str] = GENERATED
    of_generated: ClassVar[tuple[str, ...]] = ("questions", "no_answer_share", "seed")
    of_files: ClassVar[tuple[str, ...]] = ("encoding", "language")
    questions: Count
    no_answer_share: Share
    seed: int

    def __post_init__(self) -> None:
        LabelledFiles.__post_init__(self)  # super() fails in a dataclass with slots
        refuse_without_train(self)

    def load(self) -> QuestionCorpus:
        """Read or generate the questions. Raises `UserError` for files that cannot be used."""
        if self.train is None:
            return collect_labelled("en", self._generated(), self.shares, kind=QuestionCorpus)
        return self.read(QuestionCorpus)

    def _generated(self) -> Iterator[tuple[SplitName, Example]]:
        random, shares = Random(self.seed), (self.validation_share, self.test_share)
        for _ in range(self.questions):
            drawn = draw_question(random, self.no_answer_share)
            words = drawn.text.split()
            answers, deciding = list[Answer](), frozenset[int]()
            if drawn.answer is not None and drawn.given is not None:
                first, last = drawn.answer
                start = len(" ".join([*words[:first], ""]))
                answers = [Answer(" ".join(words[first : last + 1]), start)]
                deciding = frozenset([drawn.given])
            line = f"{drawn.question}{TURN}{drawn.text}"
            yield split_by_hash(drawn.text, *shares), (line, label_of(answers), deciding)

    def examples(self, source: Path, counts: Counter[str]) -> Iterator[tuple[str, Example]]:
        """See `LabelledFiles.examples`."""
        for line, answers in read_questions(source, self.encoding, counts):
            yield context_of(line), (line, label_of(answers), None)


def read_questions(
    path: Path, encoding: str | None, counts: Counter[str]
) -> Iterator[tuple[str, list[Answer]]]:
    """Yield the question and its text, separated by a tab, and the answers of each question of a file.

    The file has the format of SQuAD 1.1 or 2.0 (Rajpurkar 2016, arXiv:1606.05250; 2018, arXiv:1806.03822), or a question in
    each row of JSON lines or Parquet, as in the copies of SQuAD of `datasets`. Questions without visible text are left out.
    An answer that is not at its `answer_start` is moved to the nearest place where the text contains it.

    Args:
        counts: counts what `read_lines` counts, `questions_without_text`, `answers_moved` and `questions_without_answer`.

    Raises:
        UserError: names the question and what is wrong with it.
    """
    # As written: `answer_start` counts the characters of the file.
    for location, row, problem in Reader(encoding=encoding, as_written=True).rows(path, counts):
        if problem:
            raise UserError(f"{location}: {problem}. {FORM}")
        rows = _rows_of_article(location, row) if "paragraphs" in row else [(location, row)]
        for where, one in rows:
            question, context = (_text(where, one, name) for name in ("question", "context"))
            if find_problem(context):
                raise UserError(f"{where}: context={context!r:.80} is not usable: {find_problem(context)}.")
            if find_problem(question):
                counts["questions_without_text"] += 1
                continue
            answers = _answers(where, one, context, counts)
            counts["questions_without_answer"] += not answers
            yield f"{compose(question, counts)}{TURN}{compose(context, counts)}", answers


def _rows_of_article(location: str, article: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the questions of an article of SQuAD with their contexts."""
    for paragraph in _list(location, article, "paragraphs"):
        for qa in _list(location, paragraph, "qas"):
            if not isinstance(qa, dict):
                raise UserError(f"{location}: {qa!r:.80} in qas is not an object. {FORM}")
            where = f"{location} question {qa.get('id')}"
            context = _text(where, paragraph, "context")
            answers = [] if qa.get("is_impossible") is True else _list(where, qa, "answers")
            if not all(isinstance(one, dict) for one in answers):
                raise UserError(f"{where}: answers={answers!r:.80} is not a list of objects. {FORM}")
            columns = {name: [one.get(name) for one in answers] for name in ("text", "answer_start")}
            yield where, {"question": qa.get("question"), "context": context, "answers": columns}


def _list(where: str, row: Any, name: str) -> list[Any]:
    found = row.get(name) if isinstance(row, dict) else None
    if not isinstance(found, list):
        raise UserError(f"{where}: {name}={found!r:.80} is not a list. {FORM}")
    return found


def _text(where: str, row: Any, name: str) -> str:
    """Return a text of a row with spaces for tabs and line breaks."""
    found = row.get(name) if isinstance(row, Mapping) else None
    if not isinstance(found, str):
        raise UserError(f"{where}: {name}={found!r:.80} is not a text. {FORM}")
    return found.translate(BREAKS)


def _answers(where: str, row: Any, written: str, counts: Counter[str]) -> list[Answer]:
    """Return the answers of a row, at their places in its context in Unicode NFC."""
    columns = row.get("answers")
    texts, starts = (
        [*columns[name]]
        if isinstance(columns, Mapping) and isinstance(columns.get(name), list | tuple)
        else None
        for name in ("text", "answer_start")
    )
    if texts is None or starts is None or len(texts) != len(starts):
        raise UserError(f"{where}: answers={columns!r:.80} has no lists of equal length. {FORM}")
    found, context = [], composed(written)
    for text, start in zip(texts, starts, strict=True):
        if not isinstance(text, str) or not isinstance(start, int) or isinstance(start, bool):
            raise UserError(f"{where}: the answer {text!r:.80} at {start!r:.20} is not usable. {FORM}")
        text = composed(text.translate(BREAKS)).strip()
        if not text or text not in context:
            raise UserError(
                f"{where}: the text does not contain the answer {text!r:.80}. Correct or remove it."
            )
        place = len(composed(written[: max(start, 0)]))
        nearest = _nearest(context, text, place)
        counts["answers_moved"] += nearest != place
        found.append(Answer(text, nearest))
    return found


def _nearest(context: str, text: str, start: int) -> int:
    """Return the index of the occurrence of a text in the context that is nearest to `start`."""
    before, after = context.rfind(text, 0, max(start, 0) + len(text)), context.find(text, max(start, 0))
    return min((place for place in (before, after) if place >= 0), key=lambda place: abs(place - start))
