"""The report of tagging: metrics by tag, the confusion matrix, the words with most errors, and tagged sentences."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seq2seq_lab.tasks.confusion import Confusion
from seq2seq_lab.tasks.evaluation import Evaluation
from seq2seq_lab.tasks.labelled import LabelledSplit
from seq2seq_lab.tasks.report import Examples, Heatmap, Heatmaps, Report, ReportTable
from seq2seq_lab.tasks.splits import spread
from seq2seq_lab.tasks.tagging.evaluation import PROBABILITY, TaggingOutputs, shown_tags

SENTENCES = 8  # in the pages
ERRORS = 20  # rows of the table of errors
COLUMNS = {"input": "text", "reference": "tags", "output": "prediction", "score": "accuracy"}
NOTE = "The score is the share of words with the right tag."


@dataclass(frozen=True)
class TaggingReport:
    """The report of the evaluation of a split."""

    split: LabelledSplit
    evaluation: Evaluation

    @property
    def outputs(self) -> TaggingOutputs:
        """The outputs of the evaluation."""
        found: TaggingOutputs = self.evaluation.outputs
        return found

    def validation(self, samples: int) -> Report:
        """Return some sentences with their tags.

        Args:
            samples: the number of sentences.
        """
        indices = spread(samples, len(self.split.text))
        return Report(examples=self._examples(indices), lines=[self._line(i) for i in indices])

    def end(self) -> Report:
        """Return the predictions, and for a test set the tables and pictures of its tags."""
        prefix, outputs = self.split.prefix, self.outputs
        examples = self._examples(range(len(self.split.text)))
        if prefix == "val":
            return Report(examples=examples)
        labels, predicted = np.concatenate(outputs.labels), np.concatenate(outputs.predicted)
        confusion = Confusion.of(labels, predicted, outputs.classes)
        maps = [self._heatmap(i) for i in spread(SENTENCES, len(self.split.text))]
        errors = ReportTable(
            name="errors",
            title="most frequent errors",
            heads=("word", "tag", "prediction", "words"),
            rows=self._errors(),
        )
        return Report(
            examples=examples,
            tables=[*confusion.tables("words"), errors],
            pictures=[
                confusion.picture(prefix),
                maps[0].picture(f"tags.{prefix}", "tags of a sentence", "tags"),
            ],
            heatmaps=Heatmaps(maps=[confusion.heatmap(), *maps], name="tags"),
        )

    def _examples(self, indices: Sequence[int]) -> Examples:
        return Examples(name="predictions", rows=[self._row(i) for i in indices], columns=COLUMNS, note=NOTE)

    def _row(self, i: int) -> dict[str, Any]:
        outputs, text = self.outputs, self.split.text
        return {
            "text": text.texts[i],
            "tags": text.labels[i],
            "prediction": " ".join(outputs.classes[k] for k in outputs.predicted[i]),
            "accuracy": round(float((outputs.labels[i] == outputs.predicted[i]).mean()), 4),
        }

    def _line(self, i: int) -> str:
        row = self._row(i)
        columns = zip(row["text"].split(), row["prediction"].split(), row["tags"].split(), strict=True)
        words = [
            f"{word}/{found}" + ("" if found == tag else f" [true: {tag}]") for word, found, tag in columns
        ]
        return " ".join(words)

    def _heatmap(self, i: int) -> Heatmap:
        """Return the probabilities of the tags of each word; the true tags are outlined."""
        outputs, words = self.outputs, self.split.text.texts[i].split()
        tags, weights = shown_tags(outputs.probabilities[i], outputs.classes)
        true = [outputs.classes[k] for k in outputs.labels[i]]
        return Heatmap(
            title=self.split.text.texts[i],
            columns=[f"{position} {word}" for position, word in enumerate(words, start=1)],
            rows=tags,
            weights=weights.tolist(),
            links=[(word, tags.index(tag)) for word, tag in enumerate(true) if tag in tags],
            scale=PROBABILITY,
        )

    def _errors(self) -> list[list[str]]:
        outputs, counts = self.outputs, Counter[tuple[str, str, str]]()
        rows = zip(self.split.text.texts, outputs.labels, outputs.predicted, strict=True)
        for line, labels, predicted in rows:
            for word, true, found in zip(line.split(), labels, predicted, strict=True):
                if true != found:
                    counts[word, outputs.classes[true], outputs.classes[found]] += 1
        return [[*names, f"{count:,}"] for names, count in counts.most_common(ERRORS)]
