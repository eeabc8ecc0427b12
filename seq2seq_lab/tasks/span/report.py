"""The report of answers in a text: the answers, and the probabilities of the positions of some of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seq2seq_lab.data.questions import context_of
from seq2seq_lab.data.tokenizers import Tokenizer
from seq2seq_lab.metrics.answers import AnswerF1
from seq2seq_lab.tasks.evaluation import Evaluation
from seq2seq_lab.tasks.labelled import LabelledSplit
from seq2seq_lab.tasks.report import Examples, Heatmap, Heatmaps, Report
from seq2seq_lab.tasks.span.evaluation import ROWS, WEIGHT, SpanOutputs
from seq2seq_lab.tasks.splits import spread

QUESTIONS = 12  # in the pages
NO_ANSWER = "(no answer)"
COLUMNS = {"input": "question", "reference": "answers", "output": "prediction", "score": "f1"}
NOTE = f"The score is the F1 of the words of the answer. {NO_ANSWER}: the text does not contain the answer."


@dataclass(frozen=True)
class SpanReport:
    """The report of the evaluation of a split."""

    split: LabelledSplit
    evaluation: Evaluation
    tokenizer: Tokenizer

    @property
    def outputs(self) -> SpanOutputs:
        """The outputs of the evaluation."""
        found: SpanOutputs = self.evaluation.outputs
        return found

    def validation(self, samples: int) -> Report:
        """Return some questions with their answers.

        Args:
            samples: the number of questions.
        """
        rows = self._rows(spread(samples, len(self.split.text)))
        return Report(examples=self._examples(rows), lines=[_line(row) for row in rows])

    def end(self) -> Report:
        """Return the answers, and for a test set the pictures of some of them."""
        prefix = self.split.prefix
        examples = self._examples(self._rows(range(len(self.split.text))))
        if prefix == "val":
            return Report(examples=examples)
        maps = [self._heatmap(i) for i in spread(QUESTIONS, len(self.split.text))]
        first = next((one for one in maps if all(column for column, _ in one.links)), maps[0])
        return Report(
            examples=examples,
            pictures=[
                first.picture(
                    f"pointers.{prefix}", "where the answer of a question starts and ends", "pointers"
                )
            ],
            heatmaps=Heatmaps(maps=maps, name="pointers"),
        )

    def _examples(self, rows: Sequence[dict[str, Any]]) -> Examples:
        return Examples(name="answers", rows=rows, columns=COLUMNS, note=NOTE)

    def _rows(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        outputs, texts = self.outputs, self.split.text.texts
        scores = AnswerF1().rows(outputs)[:, 0]
        return [
            {
                "question": texts[i].partition("\t")[0],
                "text": context_of(texts[i]),
                "answers": " | ".join(dict.fromkeys(outputs.gold[i])) or NO_ANSWER,
                "prediction": outputs.answers[i] or NO_ANSWER,
                "probability": round(float(np.exp(outputs.found[i].log_prob)), 4),
                "f1": round(float(scores[i]), 4),
            }
            for i in indices
        ]

    def _heatmap(self, i: int) -> Heatmap:
        """Return the probabilities of the positions; the true start and end are outlined."""
        tokens, line = self.split.tokens, self.split.text.texts[i]
        null, last = int(tokens.null[i]), int(tokens.last[i])
        words = shown_tokens(self.tokenizer, line, null, last)
        return Heatmap(
            title=line.partition("\t")[0],
            columns=[f"{position} {word}" for position, word in enumerate(words)],
            rows=ROWS,
            weights=self.outputs.found[i].weights_2S.tolist(),
            links=[(int(one) - null, row) for row, one in enumerate(tokens.answer[i])],
            scale=WEIGHT,
        )


def shown_tokens(tokenizer: Tokenizer, line: str, null: int, last: int) -> list[str]:
    """Return the label of "no answer", and the tokens of the text of a question.

    Args:
        null, last: see `QuestionTokens`.
    """
    return [NO_ANSWER, *tokenizer.marked_texts(line, tokenizer.spans(line))[null + 1 : last + 1]]


def _line(row: dict[str, Any]) -> str:
    right = "" if row["f1"] == 1 else f" [true: {row['answers']}]"
    return f"{row['question']} {row['prediction']}{right}"
