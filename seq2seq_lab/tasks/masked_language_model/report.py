"""The report of a masked language model: masked words with their predictions."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seq2seq_lab.data.tokenizers import Tokenizer
from seq2seq_lab.tasks.evaluation import Evaluation
from seq2seq_lab.tasks.masked_language_model.data import shown_tokens
from seq2seq_lab.tasks.masked_language_model.evaluation import (
    PROBABILITY,
    MaskedOutputs,
    MaskedSplit,
    likely_words,
    probable_words,
)
from seq2seq_lab.tasks.report import Examples, Heatmap, Heatmaps, Report, ReportTable
from seq2seq_lab.tasks.splits import spread

SENTENCES = 8  # in the pages
ERRORS = 20  # rows of the table of errors
COLUMNS = {"input": "text", "reference": "words", "output": "prediction", "score": "log_probability"}
NOTE = "The score is the mean log-probability of the masked words in nats."


@dataclass(frozen=True)
class MaskedReport:
    """The report of the evaluation of a split."""

    split: MaskedSplit
    evaluation: Evaluation
    tokenizer: Tokenizer

    @property
    def outputs(self) -> MaskedOutputs:
        """The outputs of the evaluation."""
        found: MaskedOutputs = self.evaluation.outputs
        return found

    def validation(self, samples: int) -> Report:
        """Return some texts with their masked words.

        Args:
            samples: the number of texts.
        """
        indices = spread(samples, len(self.split.text))
        return Report(examples=self._examples(indices), lines=[self._line(i) for i in indices])

    def end(self) -> Report:
        """Return the predictions, and for a test set the most frequent errors and pictures of some texts."""
        prefix = self.split.prefix
        examples = self._examples(range(len(self.split.text)))
        if prefix == "val":
            return Report(examples=examples)
        # The texts with the most masks are shown: most have one.
        order = sorted(range(len(self.split.text)), key=lambda i: -len(self.outputs.labels[i]))[:SENTENCES]
        maps = [self._heatmap(i) for i in order]
        errors = ReportTable(
            name="errors",
            title="most frequent errors",
            heads=("word", "prediction", "masks"),
            rows=self._errors(),
        )
        return Report(
            examples=examples,
            tables=[errors],
            pictures=[maps[0].picture(f"masks.{prefix}", "words for each mask", "masks")],
            heatmaps=Heatmaps(maps=maps, name="masks"),
        )

    def _tokens(self, ids: Sequence[int]) -> list[str]:
        return shown_tokens(self.tokenizer, ids)

    def _text(self, i: int) -> str:
        tokens = self.split.tokens.tokens
        start, end = tokens.offsets[i : i + 2].tolist()
        return " ".join(self._tokens(tokens.tokens[start:end].tolist()))

    def _examples(self, indices: Sequence[int]) -> Examples:
        return Examples(name="predictions", rows=[self._row(i) for i in indices], columns=COLUMNS, note=NOTE)

    def _row(self, i: int) -> dict[str, Any]:
        outputs = self.outputs
        log_probs = outputs.texts[i].log_probs_K
        row = {
            "text": self._text(i),
            "words": " ".join(self._tokens(outputs.labels[i].tolist())),
            "prediction": " ".join(self._tokens(outputs.predicted[i].tolist())),
            "log_probability": round(float(log_probs.mean()), 4) if len(log_probs) else None,
        }
        if outputs.follows is not None and outputs.predicted_follows is not None:
            row["follows"] = bool(outputs.follows[i])
            row["predicted_follows"] = bool(outputs.predicted_follows[i])
        return row

    def _line(self, i: int) -> str:
        words = self._text(i).split(" ")
        positions, _ = self.split.tokens.of_words(i)
        found, true = (self._tokens(one[i].tolist()) for one in (self.outputs.predicted, self.outputs.labels))
        for position, word, label in zip(positions.tolist(), found, true, strict=True):
            words[position] = f"[{word}]" if word == label else f"[{word}, true: {label}]"
        return " ".join(words)

    def _heatmap(self, i: int) -> Heatmap:
        """Return the probabilities of the words for each mask; the masked words are outlined."""
        found, true = self.outputs.texts[i], self._tokens(self.outputs.labels[i].tolist())
        rows = zip(found.tokens_KC.tolist(), found.probabilities_KC.tolist(), strict=True)
        words, weights = probable_words([likely_words(self._tokens(ids), values) for ids, values in rows])
        return Heatmap(
            title=self._text(i),
            columns=[f"{number} {word}" for number, word in enumerate(true, start=1)],
            rows=words,
            weights=weights.tolist(),
            links=[(k, words.index(word)) for k, word in enumerate(true) if word in words],
            scale=PROBABILITY,
        )

    def _errors(self) -> list[list[str]]:
        counts = Counter[tuple[int, int]]()
        for labels, predicted in zip(self.outputs.labels, self.outputs.predicted, strict=True):
            wrong = labels != predicted
            counts.update(zip(labels[wrong].tolist(), predicted[wrong].tolist(), strict=True))
        return [[*self._tokens(names), f"{count:,}"] for names, count in counts.most_common(ERRORS)]
