"""The report of a language model: generated sentences, and the probabilities of the test sentences."""

from typing import Any

import numpy as np

from seq2seq_lab.tasks.language_model.evaluation import LanguageModelEvaluation, LanguageModelSplit
from seq2seq_lab.tasks.report import Examples, Report

COLUMNS = {
    "input": "ungrammatical",
    "reference": "sentence",
    "output": "more_probable",
    "score": "log_probability",
}
NOTE = "The score is the log-probability of the sentence in nats."


def validation_report(evaluation: LanguageModelEvaluation) -> Report:
    """Return the generated sentences."""
    rows = [{"sentence": text, "log-probability": f"{value:.2f}"} for text, value in evaluation.generated]
    return Report(examples=Examples(name="generated", rows=rows, columns={}))


def end_report(split: LanguageModelSplit, evaluation: LanguageModelEvaluation) -> Report:
    """Return the log-probability of each sentence and of its ungrammatical form, and the generated sentences."""
    generated = "".join(f"{text}\n" for text, _ in evaluation.generated)
    return Report(
        examples=Examples(
            name="sentences", rows=sentence_rows(split, evaluation), columns=COLUMNS, note=NOTE
        ),
        files={"generated.txt": generated} if split.prefix == "val" else {},
    )


def sentence_rows(split: LanguageModelSplit, evaluation: LanguageModelEvaluation) -> list[dict[str, Any]]:
    """Return a row for each sentence of a split."""
    outputs, contrasts = evaluation.outputs, split.text.contrasts or [None] * len(split.text)
    rows = []
    for line, nats, wrong_nats, contrast in zip(
        outputs.lines, outputs.nats, outputs.wrong_nats, contrasts, strict=True
    ):
        row: dict[str, Any] = {"sentence": line, "log_probability": round(-float(nats), 3)}
        wrong = "" if contrast is None else contrast.ungrammatical
        row["phenomenon"] = "" if contrast is None else contrast.phenomenon
        row["ungrammatical"] = wrong
        row["ungrammatical_log_probability"] = None if np.isnan(wrong_nats) else round(-float(wrong_nats), 3)
        row["more_probable"] = wrong if wrong_nats < nats else line
        rows.append(row)
    return rows
