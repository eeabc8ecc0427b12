"""The report of captioning: sample captions, and the attention of each word drawn over the image."""

import json
from collections.abc import Sequence
from pathlib import Path

from seq2seq_lab import plots
from seq2seq_lab.data.text import whitespace_words
from seq2seq_lab.data.tokenizers import Tokenizer
from seq2seq_lab.files import write_atomically
from seq2seq_lab.metrics.bleu import sentence_bleu
from seq2seq_lab.runtime import console
from seq2seq_lab.search.base import Hypothesis
from seq2seq_lab.tasks.base import Report
from seq2seq_lab.tasks.captions.data import CaptionSplit
from seq2seq_lab.tasks.captions.evaluation import Evaluation, word_attention
from seq2seq_lab.tracking import Tracker

COLUMNS = ("image", "reference", "caption", "sentence BLEU")


class CaptionReport(Report):
    """Shows the same few validation images at each validation, and writes the captions of the final evaluation."""

    page = {  # noqa: RUF012  (a constant)
        "examples": {
            "file": "captions.test.jsonl",
            "columns": {
                "input": "image",
                "reference": "reference",
                "output": "caption",
                "score": "sentence_bleu",
            },
        },
    }

    def __init__(self, folder: Path, tokenizer: Tokenizer, tracker: Tracker) -> None:
        self.folder = folder
        self.tokenizer = tokenizer
        self.tracker = tracker

    def validation(self, split: CaptionSplit, evaluation: Evaluation, step: int) -> None:
        """Show sample captions and draw their attention."""
        if not evaluation.samples:
            return
        rows = [self._row(split, evaluation, i) for i in evaluation.samples]
        records = [dict(zip(COLUMNS[:3], map(str, row), strict=False)) for row in rows]
        console.print_and_log(console.records_table("captions", records))
        self.tracker.log_table("val/captions", COLUMNS, rows, step)
        for number, i in enumerate(evaluation.samples, start=1):
            path = self.folder / f"attention/sample_{number}_step_{step:08d}.png"
            if self._draw(split, evaluation.hypotheses[i], i, path):
                self.tracker.log_images(f"val/attention/{number}", [path], [split.pairs.captions[i]], step)

    def end(self, evaluations: Sequence[tuple[CaptionSplit, Evaluation]], step: int) -> None:
        """Write the captions, and draw the attention of the samples."""
        for split, evaluation in evaluations:
            rows = [self._row(split, evaluation, i) for i in range(len(split.pairs))]
            keys = ("image", "reference", "caption", "sentence_bleu")
            lines = [json.dumps(dict(zip(keys, row, strict=True)), ensure_ascii=False) for row in rows]
            name = split.prefix.replace("/", ".")
            write_atomically(self.folder / f"captions.{name}.jsonl", "\n".join([*lines, ""]))
            if split.prefix != "val":
                self.tracker.log_table(f"{split.prefix}/captions", COLUMNS, rows, step)
            for number, i in enumerate(evaluation.samples, start=1):
                path = self.folder / f"attention/sample_{number}.png"
                self._draw(split, evaluation.hypotheses[i], i, path)

    def _row(self, split: CaptionSplit, evaluation: Evaluation, i: int) -> list[str | float]:
        caption, reference = evaluation.captions[i], split.pairs.captions[i]
        return [split.pairs.names[i], reference, caption, sentence_bleu(caption, reference)]

    def _draw(self, split: CaptionSplit, hypothesis: Hypothesis, i: int, path: Path) -> bool:
        """Draw the attention of each word of a caption over its image; return False without attention or words.

        The regions of words are outlined if the caption equals the reference.
        """
        caption = self.tokenizer.decode(hypothesis.tokens)
        if hypothesis.weights_TS is None or not caption:
            return False
        attention = word_attention(hypothesis.weights_TS, self.tokenizer, caption)
        regions = split.pairs.regions
        boxes = regions[i] if regions is not None and caption == split.pairs.captions[i] else {}
        words = [caption[start:end] for start, end in whitespace_words(caption)]
        figure = plots.draw_overlays(
            split.pairs.images[i].transpose(1, 2, 0),
            [
                (words[number], weights_S.reshape(split.grid), boxes.get(number))
                for number, weights_S in attention.items()
            ],
        )
        plots.save_figure(figure, path)
        return True
