"""The report of a language model: generated sentences, and the probabilities of the test sentences."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from seq2seq_lab.files import write_atomically, write_json_lines
from seq2seq_lab.runtime import console
from seq2seq_lab.tasks.base import Report
from seq2seq_lab.tasks.language_model.evaluation import Evaluation, LanguageModelSplit
from seq2seq_lab.tracking import Tracker

PAGE = {
    "examples": {
        "file": "sentences.test.jsonl",
        "columns": {
            "input": "sentence",
            "reference": "ungrammatical",
            "output": "more_probable",
            "score": "log_probability",
        },
        "note": "The score is the log-probability of the sentence in nats.",
    },
}


class LanguageModelReport(Report):
    """Shows generated sentences at each validation, and writes the files of the final evaluation."""

    page = PAGE

    def __init__(self, folder: Path, tracker: Tracker) -> None:
        self.folder, self.tracker = folder, tracker

    def validation(self, split: LanguageModelSplit, evaluation: Evaluation, step: int) -> None:
        """Show the generated sentences."""
        if evaluation.generated:
            records = [
                {"sentence": text, "log-probability": f"{value:.2f}"} for text, value in evaluation.generated
            ]
            console.print_and_log(console.records_table("generated sentences", records))
            rows = [[text, round(value, 2)] for text, value in evaluation.generated]
            self.tracker.log_table("val/generated", ("sentence", "log-probability"), rows, step)

    def end(self, evaluations: Sequence[tuple[LanguageModelSplit, Evaluation]], step: int) -> None:
        """Write the log-probability of each sentence and of its ungrammatical form, and the generated sentences."""
        for split, evaluation in evaluations:
            rows = sentence_rows(split, evaluation)
            write_json_lines(self.folder / f"sentences.{split.prefix}.jsonl", rows)
            if split.prefix == "val":
                generated = "".join(f"{text}\n" for text, _ in evaluation.generated)
                write_atomically(self.folder / "generated.txt", generated)


def sentence_rows(split: LanguageModelSplit, evaluation: Evaluation) -> list[dict[str, object]]:
    """Return a row for each sentence of a split."""
    outputs, contrasts = evaluation.outputs, split.text.contrasts or [None] * len(split.text)
    rows = []
    for line, nats, wrong_nats, contrast in zip(
        outputs.lines, outputs.nats, outputs.wrong_nats, contrasts, strict=True
    ):
        row: dict[str, object] = {"sentence": line, "log_probability": round(-float(nats), 3)}
        wrong = "" if contrast is None else contrast.ungrammatical
        row["phenomenon"] = "" if contrast is None else contrast.phenomenon
        row["ungrammatical"] = wrong
        row["ungrammatical_log_probability"] = None if np.isnan(wrong_nats) else round(-float(wrong_nats), 3)
        row["more_probable"] = wrong if wrong_nats < nats else line
        rows.append(row)
    return rows
