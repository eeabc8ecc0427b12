"""A trained masked language model in Python."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from seq2seq_lab.data.batching import plan_evaluation
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.tokenizers.turns import TURN
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.masked_language_model import MASK
from seq2seq_lab.runtime.memory import evaluation_context
from seq2seq_lab.tasks.loaded import Loaded, check_length, draw_maps
from seq2seq_lab.tasks.masked_language_model.data import (
    MASKED,
    PLACEHOLDER,
    MaskedBatches,
    MaskedTokens,
    encode_masked,
    fill,
    shown_tokens,
)
from seq2seq_lab.tasks.masked_language_model.evaluation import (
    MaskedPrediction,
    MaskedText,
    likely_words,
    predict_masked,
)
from seq2seq_lab.tasks.tagging.data import IGNORED

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class LoadedMaskedLanguageModel(Loaded):
    """A trained masked language model; its predictions are `MaskedPrediction`s."""

    options = frozenset({"nbest", "scores", "attention", "light", "attention_maps"})

    def check_input(self, line: str, where: str, longest: int) -> None:
        """Refuse a line without a mask, or with more tokens than `longest`."""
        if MASKED not in line:
            raise UserError(f"{where}: {line!r:.200} has no {MASKED}. Write it in the place of a word.")
        if TURN in line and not self.task.next_sentence:
            raise UserError(f"{where}: {line!r:.200} has a tab, and the model reads no pairs. Remove it.")
        text = line.replace(MASKED, PLACEHOLDER).replace(TURN, " ")
        check_length(self.task.vocabulary.tokenizer, text, where, longest)

    def nbest(self, inputs: Sequence[str], first: int = 0) -> list[list[MaskedPrediction]]:
        """Return the `task.candidates` most probable fillings of each text, the most probable first.

        Args:
            inputs: texts with `<mask>` in the place of words; of a model that predicts the next sentence, also two sentences
                with a tab between them.
            first: unused; see `Loaded.nbest`.

        Raises:
            UserError: `inputs` is not a list, or a text has no mask.
        """
        inputs = self.as_read(inputs)
        for number, line in enumerate(inputs, start=1):
            self.check_input(line, f"line {number}", self.longest_input)
        texts = self._texts(inputs)
        batches, found = MaskedBatches(texts, self.device), dict[int, list[MaskedPrediction]]()
        for index in plan_evaluation(texts, self.task.eval_batch_size):
            results = predict_masked(self.model, batches(index), self.task.candidates, self.compute)
            found |= {
                i: self._fillings(inputs[i], one) for i, one in zip(index.tolist(), results, strict=True)
            }
        return [found[i] for i in range(len(inputs))]

    def _texts(self, inputs: Sequence[str]) -> MaskedTokens:
        tokens = Ragged.unframed(
            lambda lines: [encode_masked(self.task.vocabulary.tokenizer, line) for line in lines], inputs, ""
        )
        masked = tokens.tokens == MASK
        labels = Ragged(torch.zeros_like(tokens.tokens).masked_fill(~masked, IGNORED), tokens.offsets)
        return MaskedTokens(tokens, labels)

    def _fillings(self, line: str, found: MaskedText) -> list[MaskedPrediction]:
        tokenizer = self.task.vocabulary.tokenizer
        candidates = [
            likely_words([tokenizer.decode([token]) for token in tokens], values)
            for tokens, values in zip(found.tokens_KC.tolist(), found.probabilities_KC.tolist(), strict=True)
        ]
        fillings = [(0.0, list[str]())]
        for one in candidates:  # the best of all products are products of the best
            extended = [
                (score + math.log(max(value, np.finfo(np.float64).tiny)), [*words, word])
                for score, words in fillings
                for word, value in one.items()
            ]
            fillings = sorted(extended, key=lambda pair: -pair[0])[: self.task.candidates]
        follows = float(np.exp(found.next_2[1])) if TURN in line and len(found.next_2) else None
        return [
            MaskedPrediction(
                source=line,
                text=fill(line, words),
                score=score,
                words=words,
                candidates=candidates,
                follows=follows,
                unknown_words=tokenizer.unknown_words(line.replace(MASKED, " ").replace(TURN, " ")),
            )
            for score, words in fillings
        ]

    @torch.no_grad()
    def plot_attention_maps(self, sentence: str, first: int = 0) -> dict[str, "Figure"]:
        """Return a figure of all attention weights of a Transformer for a text, as "encoder".

        It has a row per layer and a column per head, and the mean over the heads.

        Args:
            first: unused; see `LoadedTranslation.plot_attention_maps`.

        Raises:
            UserError: the model is not a Transformer.
        """
        batch = MaskedBatches(self._texts([sentence]), self.device)(np.array([0]))
        with evaluation_context(batch, self.precision, self.device):
            maps = self.model.attention_maps(batch)
        names = shown_tokens(self.task.vocabulary.tokenizer, batch.source_BS[0].tolist())
        return draw_maps(self.folder, maps, {"encoder": (names, names)}, sentence)
