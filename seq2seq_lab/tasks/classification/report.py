"""The report of classification: metrics by class, the confusion matrix, and texts shaded by the weights of their words."""

import html
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from seq2seq_lab import plots
from seq2seq_lab.files import write_atomically, write_json_lines
from seq2seq_lab.metrics.base import Array
from seq2seq_lab.runtime import console, shades
from seq2seq_lab.runtime.direction import direction_of_words
from seq2seq_lab.tasks.base import Report
from seq2seq_lab.tasks.classification.data import ClassificationSplit
from seq2seq_lab.tasks.classification.evaluation import Evaluation, relative
from seq2seq_lab.tasks.text import Vocabulary
from seq2seq_lab.tracking import Tracker

SHADED = 20  # texts in the picture and the page of shaded texts
PAGE = {
    "examples": {
        "file": "predictions.test.jsonl",
        "columns": {
            "input": "text",
            "reference": "label",
            "output": "prediction",
            "score": "probability_of_label",
        },
        "note": "The score is the probability that the model gives to the true class.",
    },
    "heatmaps": {
        "file": "weights.test.jsonl",
        "columns": {"title": "title", "columns": "columns", "rows": "rows", "weights": "weights"},
    },
}
COLUMNS = ("text", "label", "prediction", "probability")
CONFUSION = "confusion matrix: share of each true class (rows) by predicted class (columns)"


class ClassificationReport(Report):
    """Shows the same few validation texts at each validation, and writes the files of the final evaluation.

    Args:
        samples: number of validation texts that are shown.
    """

    page = PAGE

    def __init__(self, folder: Path, vocabulary: Vocabulary, tracker: Tracker, samples: int) -> None:
        self.folder = folder
        self.vocabulary = vocabulary
        self.tracker = tracker
        self.samples = samples

    def validation(self, split: ClassificationSplit, evaluation: Evaluation, step: int) -> None:
        """Show some texts, shaded by the weights of their words, with their predictions."""
        numbers = spread(self.samples, len(split.text))
        if numbers:
            console.print_and_log(shades.shade_texts(self.shaded(split, evaluation, numbers)))
            every = prediction_rows(split, evaluation)
            rows = [every[i] for i in numbers]
            self.tracker.log_table("val/predictions", COLUMNS, rows, step)

    def end(self, evaluations: Sequence[tuple[ClassificationSplit, Evaluation]], step: int) -> None:
        """Write the predictions, the tables and the pictures of the test set."""
        for split, evaluation in evaluations:
            if split.prefix == "val":
                continue
            counts_CC = confusion(evaluation)
            rows = prediction_rows(split, evaluation)
            write_predictions(self.folder / f"predictions.{split.prefix}.jsonl", split, evaluation)
            self.tracker.log_table(f"{split.prefix}/predictions", COLUMNS, rows, step)
            self._report_classes(split.prefix, counts_CC, step)
            self._report_weights(split, evaluation, counts_CC, step)

    def _report_classes(self, prefix: str, counts_CC: Array, step: int) -> None:
        """Print and log precision, recall and F1 by class and the confusion matrix, and draw the matrix."""
        classes = self.vocabulary.classes
        heads, rows = ("class", "texts", "precision", "recall", "F1"), class_rows(counts_CC, classes)
        console.print_and_log(console.sectioned_table(f"{prefix}: metrics by class", heads, [rows]))
        self.tracker.log_table(f"{prefix}/classes", heads, rows, step)
        table = [
            [name, *(f"{int(count):,}" for count in row)]
            for name, row in zip(classes, counts_CC, strict=True)
        ]
        title = f"{prefix}: confusion matrix"
        console.print_and_log(console.sectioned_table(title, ("true \\ predicted", *classes), [table]))
        path = self.folder / f"confusion.{prefix}.png"
        plots.save_for_print(plots.draw_confusion(counts_CC, classes), path)
        self.tracker.log_images(f"{prefix}/confusion", [path], ["confusion matrix"], step)

    def _report_weights(
        self, split: ClassificationSplit, evaluation: Evaluation, counts_CC: Array, step: int
    ) -> None:
        """Write the texts shaded by the weights of their words: as a page, a picture and JSON lines."""
        numbers, classes = spread(SHADED, len(split.text)), self.vocabulary.classes
        shown = self.shaded(split, evaluation, numbers)
        write_atomically(self.folder / f"weights.{split.prefix}.html", shaded_page(shown))
        path = self.folder / f"weights.{split.prefix}.png"
        plots.save_for_print(plots.draw_shaded(shown), path)
        self.tracker.log_images(
            f"{split.prefix}/weights", [path], ["texts shaded by the weights of words"], step
        )
        shares_CC = counts_CC / np.maximum(1, counts_CC.sum(1, keepdims=True))
        maps = [
            {"title": CONFUSION, "columns": classes, "rows": classes, "weights": rounded(shares_CC)},
            *(
                {
                    "title": split.text.texts[i],
                    "columns": [f"{place} {word}" for place, word in enumerate(one.words, start=1)],
                    "rows": ["weight"],
                    "weights": rounded(np.array([one.weights])),
                }
                for i, one in zip(numbers, shown, strict=True)
            ),
        ]
        write_json_lines(self.folder / f"weights.{split.prefix}.jsonl", maps)

    def shaded(
        self, split: ClassificationSplit, evaluation: Evaluation, numbers: Sequence[int]
    ) -> list[shades.ShadedText]:
        """Return texts of a split with the weights of their tokens and their predictions."""
        outputs, tokenizer = evaluation.outputs, self.vocabulary.tokenizer
        shown = []
        for i in numbers:
            line, weights = split.text.texts[i], outputs.weights[i]
            words = [line[start:end] for start, end in tokenizer.spans(line)]
            predicted = self.vocabulary.classes[int(outputs.probabilities[i].argmax())]
            label = split.text.labels[i]
            caption = predicted if predicted == label else f"{predicted} (true: {label})"
            marked = [] if outputs.deciding is None else np.flatnonzero(outputs.deciding[i]).tolist()
            shown.append(shades.ShadedText(words, relative(weights).tolist(), caption, marked))
        return shown


def spread(count: int, total: int) -> list[int]:
    """Return `count` numbers below `total`, or all of them, at equal distances: a data set may be sorted by class."""
    return [number * total // count for number in range(count)] if count < total else [*range(total)]


def confusion(evaluation: Evaluation) -> Array:
    """Return the number of texts by true class (rows) and predicted class (columns)."""
    outputs = evaluation.outputs
    counts_CC = np.zeros((len(outputs.classes), len(outputs.classes)))
    np.add.at(counts_CC, (outputs.labels, outputs.probabilities.argmax(1)), 1)
    return counts_CC


def class_rows(counts_CC: Array, classes: Sequence[str]) -> list[list[str]]:
    """Return class, number of texts, precision, recall and F1 as texts, a row per class; "–" if one is not defined."""

    def ratio(part: float, whole: float) -> str:
        return f"{part / whole:.3f}" if whole else "–"

    rows = []
    for number, name in enumerate(classes):
        correct, predicted, true = (
            counts_CC[number, number],
            counts_CC[:, number].sum(),
            counts_CC[number].sum(),
        )
        scores = (ratio(correct, predicted), ratio(correct, true), ratio(2 * correct, predicted + true))
        rows.append([name, f"{int(true):,}", *scores])
    return rows


def prediction_rows(split: ClassificationSplit, evaluation: Evaluation) -> list[list[object]]:
    """Return the rows of `COLUMNS`; the probability is that of the prediction."""
    outputs = evaluation.outputs
    best = outputs.probabilities.argmax(1)
    return [
        [text, label, outputs.classes[k], round(float(row[k]), 4)]
        for text, label, k, row in zip(
            split.text.texts, split.text.labels, best, outputs.probabilities, strict=True
        )
    ]


def write_predictions(path: Path, split: ClassificationSplit, evaluation: Evaluation) -> None:
    """Write the prediction for each text of a split as JSON lines."""
    outputs = evaluation.outputs
    of_label = outputs.probabilities[np.arange(len(outputs.labels)), outputs.labels]
    records = [
        {**dict(zip(COLUMNS, row, strict=True)), "probability_of_label": round(float(probability), 4)}
        for row, probability in zip(prediction_rows(split, evaluation), of_label, strict=True)
    ]
    write_json_lines(path, records)


def rounded(weights: Array) -> list[list[float]]:
    """Return rows of weights for JSON."""
    return [[round(float(weight), 3) for weight in row] for row in weights]


def shaded_page(texts: Sequence[shades.ShadedText]) -> str:
    """Return a page of texts shaded by the weights of their words; deciding words are underlined."""
    paragraphs = []
    for text in texts:
        words = []
        for place, (word, weight) in enumerate(zip(text.words, text.weights, strict=True)):
            line = "; text-decoration: underline" if place in text.marked else ""
            style = f"background: rgba(31, 119, 180, {weight:.2f}){line}"
            words.append(f'<span style="{style}" title="{weight:.3f}">{html.escape(word)}</span>')
        caption = f"<small><bdi>{html.escape(text.caption)}</bdi></small>"
        paragraphs.append(f'<p dir="{direction_of_words(text.words)}">{" ".join(words)} {caption}</p>')
    note = (
        "Shading: weight of the word, relative to the greatest weight of the text. Underlined: a word that decides the "
        "class, if the data set provides these words."
    )
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Weights of words</title></head>'
        f'<body style="font: 16px/1.8 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto">'
        f"<p>{note}</p>{''.join(paragraphs)}</body></html>\n"
    )
