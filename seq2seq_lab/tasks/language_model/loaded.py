"""A trained language model in Python."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from seq2seq_lab.analysis.forced import Forced, check_pairs
from seq2seq_lab.analysis.questions import Question, ask_sentence
from seq2seq_lab.analysis.search_input import SearchInput, text_source
from seq2seq_lab.data.batching import plan_evaluation
from seq2seq_lab.data.local_files import composed
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.tokenizers import SOS, Tokenizer
from seq2seq_lab.errors import UserError, require_list
from seq2seq_lab.runtime.memory import evaluation_context
from seq2seq_lab.tasks.language_model.data import SentenceBatches, SentenceTokens
from seq2seq_lab.tasks.language_model.evaluation import generate, generation_batch, sentence_nats, text_of
from seq2seq_lab.tasks.loaded import Loaded, Prediction, check_length, draw_maps

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class LoadedLanguageModel(Loaded):
    """A trained language model."""

    reads_targets_only = True
    options = frozenset({"nbest", "scores", "count", "log_probs", "attention_maps"})

    ask = staticmethod(ask_sentence)

    def log_probs(self, sentences: Sequence[str]) -> list[float]:
        """Return the log-probability in nats of each sentence with its end.

        Raises:
            UserError: `sentences` is not a list.
        """
        require_list("log_probs", "texts", sentences)
        lines = [*map(composed, sentences)]
        tokens = SentenceTokens(Ragged.of(self.task.vocabulary.tokenizer.encode(lines)))
        size = self.task.eval_batch_size
        nats = sentence_nats(self.model, tokens, size, self.compute)
        return [-value for value in nats.tolist()]

    def forced(self, sources: Sequence[str], targets: Sequence[str]) -> Forced:
        """See `Loaded.forced`; the sources are empty texts."""
        check_pairs(sources, targets)
        if any(sources):
            raise UserError(
                "A language model has no source. Give empty sources, and the sentences as targets."
            )
        tokenizer, targets = self.task.vocabulary.tokenizer, [*map(composed, targets)]
        tokens = SentenceTokens(Ragged.of(tokenizer.encode(targets)))
        return Forced(
            sources=sources,
            targets=targets,
            tokenizer=tokenizer,
            source_tokenizer=None,
            plan=plan_evaluation(tokens, self.task.eval_batch_size),
            batch=SentenceBatches(tokens, self.device),
            read=lambda batch: (self.model(batch.inputs_BT)[0], None),
            compute=self.compute,
        )

    @property
    def output_tokenizer(self) -> Tokenizer:
        """See `Loaded.output_tokenizer`."""
        tokenizer: Tokenizer = self.task.vocabulary.tokenizer
        return tokenizer

    @torch.no_grad()
    def search_input(self, sentence: str, changes: Sequence[str] = ()) -> SearchInput:
        """See `Loaded.search_input`; the sentence is a beginning, which the outputs continue."""
        sentence = composed(sentence)
        self.check_input(sentence, "sentence", self.longest_input)
        source, _ = text_source(sentence, self.output_tokenizer, None)
        (begun,) = self.output_tokenizer.encode([sentence])

        def maps(tokens: list[int]) -> dict[str, torch.Tensor]:
            found: dict[str, torch.Tensor] = self.model.attention_maps(
                torch.tensor([[SOS, *begun, *tokens]], device=self.device)
            )
            return found

        return self.decoded_input(
            changes,
            lambda count: generation_batch(
                [begun] * count, [0] * count, self.task.generated_length, self.device
            ),
            lambda encoded: (replace(source, tokens=source.tokens[:-1]), []),
            source_tokenizer=None,
            maps=maps,
            no_attention="A language model has no source to attend to.",
            before=begun,
        )

    def questions(self, split: Any, model: Any = None) -> Callable[[int], Question]:
        """See `Loaded.questions`; the source of a word is the words before it."""
        lines = [*split.text.lines]
        forced = self.forced([""] * len(lines), lines)
        return partial(ask_sentence, self.model if model is None else model, forced)

    def check_input(self, line: str, where: str, longest: int) -> None:
        """Refuse a line with more tokens than `longest`."""
        check_length(self.task.vocabulary.tokenizer, line, where, longest)

    def nbest(self, inputs: Sequence[str], first: int = 0) -> list[list[Prediction]]:
        """Return sentences that continue each beginning, `search.nbest` of each, the best first.

        The score is the log-probability in nats of the continuation with its end.

        Args:
            inputs: beginnings of sentences; an empty one is the beginning of every sentence.
            first: the index of the first sentence; the draws of `search=sampling` depend on it.

        Raises:
            UserError: `inputs` is not a list.
        """
        inputs = self.as_read(inputs)
        task, tokenizer = self.task, self.task.vocabulary.tokenizer
        begun = tokenizer.encode(inputs)
        hypotheses = generate(
            self.model,
            task.parts.search(),
            begun,
            length=task.generated_length,
            batch_size=task.eval_batch_size,
            compute=self.compute,
            first=first,
        )
        return [
            [
                Prediction(
                    source=beginning,
                    text=text_of(tokenizer, [*tokens, *one.tokens]),
                    score=one.log_prob,
                    unknown_words=tokenizer.unknown_words(beginning),
                )
                for one in found
            ]
            for beginning, tokens, found in zip(inputs, begun, hypotheses, strict=True)
        ]

    @torch.no_grad()
    def plot_attention_maps(self, sentence: str, first: int = 0) -> dict[str, "Figure"]:
        """Return a figure of all attention weights of a Transformer for a sentence, as "decoder".

        It has a row per layer and a column per head, and the mean over the heads; `<sos>` is the first token.

        Args:
            first: unused; see `LoadedTranslation.plot_attention_maps`.

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
