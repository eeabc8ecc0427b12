"""The report of captioning: captions, and the attention of each word drawn over the image."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seq2seq_lab.data.tokenizers import Tokenizer
from seq2seq_lab.metrics.bleu import SENTENCE_BLEU_NOTE, sentence_bleu
from seq2seq_lab.tasks.captions.data import CaptionSplit
from seq2seq_lab.tasks.captions.evaluation import caption_of
from seq2seq_lab.tasks.decoded import DecodedEvaluation
from seq2seq_lab.tasks.report import Examples, Picture, Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = {"input": "image", "reference": "reference", "output": "caption", "score": "sentence_bleu"}


@dataclass(frozen=True)
class CaptionReport:
    """The report of the evaluation of a split.

    Args:
        grid: the number of rows and columns of the feature map.
    """

    split: CaptionSplit
    evaluation: DecodedEvaluation
    tokenizer: Tokenizer
    grid: tuple[int, int]

    def validation(self) -> Report:
        """Return the samples of a validation and their attention."""
        samples = self.evaluation.samples
        return Report(
            examples=self._examples(samples), pictures=self._pictures("sample", samples, logged=True)
        )

    def end(self) -> Report:
        """Return all captions, and the attention of the samples and of the worst outputs."""
        evaluation, prefix = self.evaluation, self.split.prefix
        pictures = self._pictures("sample", evaluation.samples)
        if prefix == "test":
            pictures += self._pictures("worst", [one.pair for one in evaluation.worst])
        return Report(
            examples=self._examples(range(len(evaluation.texts))),
            pictures=pictures,
            worst=[] if prefix == "val" else self._worst({picture.file for picture in pictures}),
        )

    def _examples(self, indices: Sequence[int]) -> Examples:
        rows = [self._row(i) for i in indices]
        return Examples(name="captions", rows=rows, columns=COLUMNS, note=SENTENCE_BLEU_NOTE)

    def _row(self, i: int) -> dict[str, Any]:
        caption, text = self.evaluation.texts[i], self.split.text
        score = sentence_bleu(caption, text.captions[i], tokenizer=self.split.segmentation.bleu)
        row = {"image": text.names[i], "reference": text.captions[i], "caption": caption}
        return {**row, "sentence_bleu": round(score, 2)}

    def _worst(self, drawn: Collection[str]) -> list[dict[str, Any]]:
        """Return the entries of the worst outputs; `attention` is the picture of their attention.

        Args:
            drawn: the pictures of the report, without suffix.
        """
        rows = []
        for n, one in enumerate(self.evaluation.worst, start=1):
            texts = {key: value for key, value in self._row(one.pair).items() if key != "sentence_bleu"}
            file = f"attention/worst_{n}"
            rows.append({**texts, **one.record(f"{file}.png" if file in drawn else None)})
        return rows

    def _pictures(self, kind: str, indices: Sequence[int], logged: bool = False) -> list[Picture]:
        """Return the attention of some captions as figures, without those that have none."""
        text = self.split.text
        return [
            Picture(
                file=f"attention/{kind}_{n}",
                figure=figure,
                title=f"{text.names[i]}: {text.captions[i]}",
                logged=f"attention/{n}" if logged else None,
            )
            for n, i in enumerate(indices, start=1)
            if (figure := self._figure(i)) is not None
        ]

    def _figure(self, i: int) -> "Figure | None":
        """Return the attention of a caption as a figure; None without attention or words.

        The regions of words are outlined if the caption equals the reference.
        """
        hypothesis, text = self.evaluation.hypotheses.get(i), self.split.text
        if hypothesis is None:
            return None
        caption = caption_of(hypothesis, self.tokenizer, text.images[text.image_N[i]], self.grid)
        boxes = text.regions[i] if text.regions is not None and caption.text == text.captions[i] else {}
        return caption.overlays(boxes) if caption.words and caption.attention_WYX is not None else None
