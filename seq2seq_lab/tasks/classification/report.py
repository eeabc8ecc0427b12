"""The report of classification: metrics by class, the confusion matrix, and texts shaded by the weights of their words."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seq2seq_lab import plots
from seq2seq_lab.runtime import shades
from seq2seq_lab.runtime.direction import direction_of_words
from seq2seq_lab.tasks.classification.data import ClassificationSplit
from seq2seq_lab.tasks.classification.evaluation import shading
from seq2seq_lab.tasks.confusion import Confusion
from seq2seq_lab.tasks.evaluation import Evaluation
from seq2seq_lab.tasks.report import Examples, Heatmap, Heatmaps, Picture, Report
from seq2seq_lab.tasks.splits import spread
from seq2seq_lab.tasks.text import Vocabulary

SHADED = 20  # texts in the picture and the page of shaded texts
COLUMNS = {"input": "text", "reference": "label", "output": "prediction", "score": "probability_of_label"}
NOTE = "The score is the probability that the model gives to the true class."


@dataclass(frozen=True)
class ClassificationReport:
    """The report of the evaluation of a split."""

    split: ClassificationSplit
    evaluation: Evaluation
    vocabulary: Vocabulary

    def validation(self, samples: int) -> Report:
        """Return some texts, shaded by the weights of their words, with their predictions.

        Args:
            samples: the number of texts.
        """
        indices = spread(samples, len(self.split.text))
        rows, shown = self.rows(), self.shaded(indices)
        return Report(
            examples=Examples(
                name="predictions", rows=[rows[i] for i in indices], columns=COLUMNS, note=NOTE
            ),
            lines=[*shades.shade_texts(shown), shades.legend(self.scale)],
        )

    def end(self) -> Report:
        """Return the predictions, and for a test set the tables and pictures of its classes and of some texts."""
        prefix = self.split.prefix
        examples = Examples(name="predictions", rows=self.rows(), columns=COLUMNS, note=NOTE)
        if prefix == "val":
            return Report(examples=examples)
        outputs = self.evaluation.outputs
        confusion = Confusion.of(outputs.labels, outputs.probabilities.argmax(1), self.vocabulary.classes)
        indices = spread(SHADED, len(self.split.text))
        shown = self.shaded(indices)
        return Report(
            examples=examples,
            tables=confusion.tables("texts"),
            pictures=[
                confusion.picture(prefix),
                Picture(
                    file=f"weights.{prefix}",
                    figure=plots.draw_shaded(shown, self.scale),
                    title="texts shaded by the weights of words",
                    logged="weights",
                ),
            ],
            heatmaps=Heatmaps(maps=[confusion.heatmap(), *self._weight_maps(indices, shown)], name="weights"),
            files={f"weights.{prefix}.html": shaded_page(shown, self.scale)},
        )

    def rows(self) -> list[dict[str, Any]]:
        """Return the prediction of each text; the probabilities are those of the prediction and of the label."""
        outputs, text = self.evaluation.outputs, self.split.text
        of_label = outputs.probabilities[np.arange(len(outputs.labels)), outputs.labels]
        return [
            {
                "text": line,
                "label": label,
                "prediction": outputs.classes[int(row.argmax())],
                "probability": round(float(row.max()), 4),
                "probability_of_label": round(float(probability), 4),
            }
            for line, label, row, probability in zip(
                text.texts, text.labels, outputs.probabilities, of_label, strict=True
            )
        ]

    def _weight_maps(self, indices: Sequence[int], shown: Sequence[shades.ShadedText]) -> list[Heatmap]:
        return [
            Heatmap(
                title=self.split.text.texts[i],
                columns=[f"{position} {word}" for position, word in enumerate(one.words, start=1)],
                rows=["weight"],
                weights=[one.weights],
                scale=self.scale,
            )
            for i, one in zip(indices, shown, strict=True)
        ]

    @property
    def scale(self) -> str:
        """What the shade of a word is; see `shading`."""
        return shading(np.zeros(1), self.evaluation.outputs.gated)[1]

    def shaded(self, indices: Sequence[int]) -> list[shades.ShadedText]:
        """Return texts of the split with the weights of their tokens and their predictions."""
        outputs, tokenizer = self.evaluation.outputs, self.vocabulary.tokenizer
        shown = []
        for i in indices:
            line, weights = self.split.text.texts[i], outputs.weights[i]
            words = tokenizer.marked_texts(line, tokenizer.spans(line))
            predicted = self.vocabulary.classes[int(outputs.probabilities[i].argmax())]
            label = self.split.text.labels[i]
            caption = predicted if predicted == label else f"{predicted} (true: {label})"
            marked = [] if outputs.deciding is None else np.flatnonzero(outputs.deciding[i]).tolist()
            shown.append(
                shades.ShadedText(words, shading(weights, outputs.gated)[0].tolist(), caption, marked)
            )
        return shown


def shaded_page(texts: Sequence[shades.ShadedText], scale: str) -> str:
    """Return a page of texts shaded by the weights of their words; deciding words are underlined.

    Args:
        scale: what the shade of a word is.
    """
    paragraphs = []
    for text in texts:
        words = []
        for position, (word, weight) in enumerate(zip(text.words, text.weights, strict=True)):
            line = "; text-decoration: underline" if position in text.marked else ""
            words.append(
                f'<span style="{_background(weight)}{line}" title="{weight:.3f}">{html.escape(word)}</span>'
            )
        caption = f"<small><bdi>{html.escape(text.caption)}</bdi></small>"
        paragraphs.append(f'<p dir="{direction_of_words(text.words)}">{" ".join(words)} {caption}</p>')
    legend = " ".join(f'<span style="{_background(one)}">&nbsp;{one:g}&nbsp;</span>' for one in shades.LEGEND)
    note = f"Shading: {scale} {legend}. Underlined: a word that decides the class, if the data set provides these words."
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Weights of words</title></head>'
        f'<body style="font: 16px/1.8 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto">'
        f"<p>{note}</p>{''.join(paragraphs)}</body></html>\n"
    )


def _background(weight: float) -> str:
    return f"background: rgba(31, 119, 180, {weight:.2f})"
