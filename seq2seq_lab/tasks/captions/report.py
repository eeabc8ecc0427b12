"""The report of captioning: sample captions, and the attention of each word drawn over the image."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2seq_lab import plots
from seq2seq_lab.data.tokenizers import Tokenizer
from seq2seq_lab.files import write_json_lines
from seq2seq_lab.metrics.bleu import SENTENCE_BLEU_NOTE, sentence_bleu
from seq2seq_lab.runtime import console
from seq2seq_lab.tasks.base import Report
from seq2seq_lab.tasks.captions.data import CaptionSplit
from seq2seq_lab.tasks.captions.evaluation import caption_of
from seq2seq_lab.tasks.decoded import DecodedEvaluation
from seq2seq_lab.tracking import Tracker

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE_DOTS_PER_INCH = 100
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
            "note": SENTENCE_BLEU_NOTE,
        },
        "pictures": {
            "file": "attention.val.jsonl",
            "columns": {"title": "title", "picture": "picture"},
        },
    }

    def __init__(self, folder: Path, tokenizer: Tokenizer, tracker: Tracker, grid: tuple[int, int]) -> None:
        self.grid = grid
        self.folder = folder
        self.tokenizer = tokenizer
        self.tracker = tracker

    def validation(self, split: CaptionSplit, evaluation: DecodedEvaluation, step: int) -> None:
        """Show sample captions and draw their attention."""
        if not evaluation.samples:
            return
        rows = [self._row(split, evaluation, i) for i in evaluation.samples]
        records = [dict(zip(COLUMNS[:3], map(str, row), strict=False)) for row in rows]
        console.print_and_log(console.records_table("captions", records))
        self.tracker.log_table("val/captions", COLUMNS, rows, step)
        for number, i in enumerate(evaluation.samples, start=1):
            path = self.folder / f"attention/sample_{number}_step_{step:08d}.png"
            if (figure := self._draw(split, evaluation, i)) is not None:
                plots.save_figure(figure, path)
                self.tracker.log_images(f"val/attention/{number}", [path], [split.text.captions[i]], step)

    def end(self, evaluations: Sequence[tuple[CaptionSplit, DecodedEvaluation]], step: int) -> None:
        """Write the captions, and draw the attention of the samples."""
        for split, evaluation in evaluations:
            rows = [self._row(split, evaluation, i) for i in range(len(split.text))]
            keys = ("image", "reference", "caption", "sentence_bleu")
            name = split.prefix.replace("/", ".")
            records = (dict(zip(keys, row, strict=True)) for row in rows)
            write_json_lines(self.folder / f"captions.{name}.jsonl", records)
            if split.prefix != "val":
                self.tracker.log_table(f"{split.prefix}/captions", COLUMNS, rows, step)
            if evaluation.samples:
                self._draw_samples(split, evaluation)
            if split.prefix == "test":
                for number, one in enumerate(evaluation.worst, start=1):
                    if (figure := self._draw(split, evaluation, one.pair)) is not None:
                        plots.save_figure(figure, self.folder / f"attention/worst_{number}.png")

    def worst_outputs(self, split: CaptionSplit, evaluation: DecodedEvaluation) -> list[dict[str, Any]]:
        """See `Report.worst_outputs`; `attention` is the picture of the attention of an output of the first test set."""
        rows = []
        for number, one in enumerate(evaluation.worst, start=1):
            image, reference, caption, _ = self._row(split, evaluation, one.pair)
            picture = f"attention/worst_{number}.png"
            drawn = split.prefix == "test" and (self.folder / picture).is_file()
            texts = {"image": image, "reference": reference, "caption": caption}
            rows.append({**texts, **one.record(picture if drawn else None)})
        return rows

    def _row(self, split: CaptionSplit, evaluation: DecodedEvaluation, i: int) -> list[str | float]:
        caption, reference = evaluation.texts[i], split.text.captions[i]
        score = sentence_bleu(caption, reference, tokenizer=split.segmentation.bleu)
        return [split.text.names[i], reference, caption, round(score, 2)]

    def _draw_samples(self, split: CaptionSplit, evaluation: DecodedEvaluation) -> None:
        """Draw the attention of the samples, and write the pictures for the page of the comparison."""
        pictures = []
        for number, i in enumerate(evaluation.samples, start=1):
            if (figure := self._draw(split, evaluation, i)) is not None:
                plots.save_figure(figure, self.folder / f"attention/sample_{number}.png")
                picture = base64.b64encode(plots.render_png(figure, PAGE_DOTS_PER_INCH)).decode()
                title = f"{split.text.names[i]}: {split.text.captions[i]}"
                pictures.append({"title": title, "picture": picture})
        write_json_lines(self.folder / f"attention.{split.prefix}.jsonl", pictures)

    def _draw(self, split: CaptionSplit, evaluation: DecodedEvaluation, i: int) -> "Figure | None":
        """Return the attention of a caption as a figure; None without attention or words.

        The regions of words are outlined if the caption equals the reference.
        """
        hypothesis, regions = evaluation.hypotheses.get(i), split.text.regions
        if hypothesis is None:
            return None
        caption = caption_of(hypothesis, self.tokenizer, split.text.images[split.text.image_N[i]], self.grid)
        boxes = regions[i] if regions is not None and caption.text == split.text.captions[i] else {}
        return caption.overlays(boxes) if caption.words and caption.attention_WYX is not None else None
