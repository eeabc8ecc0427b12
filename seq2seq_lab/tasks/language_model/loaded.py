"""A trained language model in Python."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.tokenizers import SOS
from seq2seq_lab.runtime.memory import evaluation_context
from seq2seq_lab.tasks.language_model.data import SentenceTokens
from seq2seq_lab.tasks.language_model.evaluation import generate, sentence_nats, text_of
from seq2seq_lab.tasks.loaded import Loaded, draw_maps

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class LoadedLanguageModel(Loaded):
    """A trained language model."""

    def log_probs(self, sentences: Sequence[str]) -> list[float]:
        """Return the log-probability in nats of each sentence with its end."""
        tokens = SentenceTokens(Ragged.of(self.task.vocabulary.tokenizer.encode(sentences)))
        size = self.config.trainer.eval_batch_size
        nats = sentence_nats(self.model, tokens, size, self.compute)
        return [-value for value in nats.tolist()]

    def generate(self, count: int, beginning: str = "", first: int = 0) -> list[tuple[str, float]]:
        """Return generated sentences with their log-probabilities, without that of the beginning.

        Args:
            count: how often the search is run; it returns `search.nbest` sentences each time.
            beginning: the text that each sentence continues.
            first: the number of the first sentence; the draws of `search=sampling` depend on it.
        """
        task, tokenizer = self.task, self.task.vocabulary.tokenizer
        (begun,) = tokenizer.encode([beginning])
        found = generate(
            self.model,
            task.parts.search(),
            begun,
            count,
            task.generated_length,
            self.compute,
            first,
        )
        return [
            (text_of(tokenizer, [*begun, *one.tokens]), one.log_prob)
            for hypotheses in found
            for one in hypotheses
        ]

    @torch.no_grad()
    def plot_attention_maps(self, sentence: str) -> dict[str, "Figure"]:
        """Return a figure of all attention weights of a Transformer for a sentence, as "decoder".

        It has a row per layer and a column per head, and the mean over the heads; `<sos>` is the first token.

        Raises:
            UserError: the model is not a Transformer.
        """
        tokenizer = self.task.vocabulary.tokenizer
        (tokens,) = tokenizer.encode([sentence])
        inputs_1T = torch.tensor([[SOS, *tokens]], device=self.device)
        with evaluation_context(inputs_1T, self.precision, self.device):
            maps = self.model.attention_maps(inputs_1T)
        names = ["<sos>", *tokenizer.tokens(tokens)]
        return draw_maps(self.folder, maps, {"decoder": (names, names)}, sentence)
