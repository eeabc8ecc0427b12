"""A trained model of translation in Python: translations with their attention, and ensembles."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from seq2seq_lab import plots
from seq2seq_lab.data.batching import BatchMaker, Index, plan_evaluation
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.tokenized import TokenizedText
from seq2seq_lab.data.tokenizers import SOS, Tokenizer, TokenizerPair
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.alignment import attention_map
from seq2seq_lab.models.ensemble import Ensemble
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.runtime.memory import evaluation_context
from seq2seq_lab.search.base import Hypothesis, Search
from seq2seq_lab.tasks.loaded import Loaded, displayed, draw_maps
from seq2seq_lab.tasks.translation.evaluation import replaced

if TYPE_CHECKING:
    from matplotlib.figure import Figure

USUAL_LENGTH = 64  # tokens; batches of longer sentences are smaller


@dataclass(frozen=True)
class Translation:
    """A translation of a sentence by a run.

    Attributes:
        source: the sentence.
        text: its translation.
        log_prob: natural logarithm of its probability, including `<eos>`.
        score: the value that the search ranks by.
        source_tokens: the tokens of the source, including `<sos>` and `<eos>`.
        target_tokens: the tokens of the translation; with attention, including `<eos>` if the model predicted it.
        attention: attention weights, a row per target token and a column per source token; None without attention.
    """

    source: str
    text: str
    log_prob: float
    score: float
    source_tokens: list[str]
    target_tokens: list[str]
    attention: npt.NDArray[np.floating[Any]] | None = field(repr=False)


@dataclass(frozen=True)
class LoadedTranslation(Loaded):
    """A trained model of translation or dialogue."""

    @property
    def tokenizers(self) -> TokenizerPair:
        """The source and the target tokenizer."""
        pair: TokenizerPair = self.task.tokenizers
        return pair

    @cached_property
    def search(self) -> Search:
        """The search that translates."""
        search: Search = self.task.parts.search()
        return search

    def translate(self, sentences: Sequence[str], join_subwords: bool = False) -> list[Translation]:
        """Return the best translation of each sentence; see `nbest`."""
        return [best for best, *_ in self.nbest(sentences, join_subwords)]

    def nbest(
        self,
        sentences: Sequence[str],
        join_subwords: bool = False,
        with_attention: bool = True,
        first: int = 0,
        replace_unknown: bool = False,
    ) -> list[list[Translation]]:
        """Return all translations of each sentence that the search returns, the best first.

        The translation of a sentence without words is empty, with log-probability 0 and no tokens.

        Args:
            sentences: translated in batches of `trainer.eval_batch_size`.
            join_subwords: return tokens and attention over words instead of the tokenizer's subwords.
            with_attention: return the attention, which needs memory if sentences are long.
            first: the number of the first sentence in its text; the draws of `search=sampling` depend on it.
            replace_unknown: replace each unknown word (⁇) of the text by the source token with the highest attention weight.

        Raises:
            UserError: `sentences` is not a list, or unknown words are to be replaced and the model has no attention.
        """
        if isinstance(sentences, str):
            raise UserError(f"translate takes a list of sentences, not a text. Write [{sentences!r}].")
        found = [[Translation(sentence, "", 0.0, 0.0, [], [], None)] for sentence in sentences]
        for i, hypotheses in self._hypotheses(sentences, with_attention or replace_unknown, first):
            found[i] = [
                self._translation(sentences[i], hypothesis, join_subwords) for hypothesis in hypotheses
            ]
            if replace_unknown:
                texts = [replaced(hypothesis, self.tokenizers, sentences[i]) for hypothesis in hypotheses]
                found[i] = [
                    replace(one, text=text, attention=one.attention if with_attention else None)
                    for one, text in zip(found[i], texts, strict=True)
                ]
        return found

    def plot_attention(
        self, translation: str | Translation, join_subwords: bool = False, light: bool = False
    ) -> "Figure":
        """Return the attention of a translation as a figure, which a notebook displays.

        Args:
            translation: a translation, or a sentence to translate.
            join_subwords: draw words instead of the tokenizer's subwords, if `translation` is a sentence.
            light: draw high weights dark on white, for print.

        Raises:
            UserError: the model does not attend, or there is nothing to draw.
        """
        if isinstance(translation, str):
            (translation,) = self.translate([translation], join_subwords)
        if not isinstance(translation, Translation):
            raise UserError("plot_attention takes one translation or one sentence.")
        if not translation.target_tokens:
            raise UserError(f"{translation.source!r} has an empty translation without attention to plot.")
        if translation.attention is None:
            raise UserError(
                f"The model of {self.folder} has no attention to plot. Train one that has, for example model=attn."
            )
        figure = plots.draw_attention(
            translation.attention,
            translation.source_tokens,
            translation.target_tokens,
            f"{translation.source} → {translation.text}",
            light=light,
        )
        return displayed(figure)

    @torch.no_grad()
    def plot_attention_maps(self, sentence: str, first: int = 0) -> dict[str, "Figure"]:
        """Return figures of all attention weights of a Transformer for a sentence and its translation.

        Each figure has a row per layer and a column per head, and the mean over the heads.

        Args:
            first: see `nbest`.

        Returns:
            "encoder": self-attention of the source tokens; "decoder": self-attention of the input tokens `<sos>` y_1 …;
            "cross": attention of the output tokens y_1 … `<eos>` to the source. A recurrent side has no figure.

        Raises:
            UserError: the model has no such attention, or the sentence has no words.
        """
        hypothesis = next((found[0] for _, found in self._hypotheses([sentence], False, first)), None)
        if hypothesis is None:
            raise UserError(f"plot_attention_maps: {sentence!r} has no words. Give a sentence with words.")
        text = _without_targets(self.tokenizers.source, [sentence])
        (batch,) = map(BatchMaker(text, self.device), plan_evaluation(text, 1))
        inputs_1T = torch.tensor([[SOS, *hypothesis.tokens]], device=self.device)
        maps: dict[str, torch.Tensor] = {}
        if isinstance(self.model, Seq2Seq):
            with evaluation_context(batch, self.precision, self.device):
                maps = self.model.attention_maps(batch, inputs_1T)
        named = self._translation(sentence, hypothesis, False)
        source, target = named.source_tokens, named.target_tokens
        inputs, outputs = ["<sos>", *target], [*target, "<eos>"]
        axes = {"encoder": (source, source), "decoder": (inputs, inputs), "cross": (source, outputs)}
        title = f"{sentence} → {named.text}"
        return draw_maps(self.folder, maps, axes, title)

    @torch.no_grad()
    def _hypotheses(
        self, sentences: Sequence[str], with_attention: bool, first: int
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Yield the number of each sentence that has words, with its hypotheses."""
        numbers = [i for i, sentence in enumerate(sentences) if sentence.strip()]
        if not numbers:
            return
        text = _without_targets(self.tokenizers.source, [sentences[i] for i in numbers])
        number_B = torch.tensor(numbers, device=self.device)
        size = self.config.trainer.eval_batch_size
        plan = [part for index in plan_evaluation(text, size) for part in _bounded(index, text, size)]
        for index, batch in zip(plan, map(BatchMaker(text, self.device), plan), strict=True):
            batch = replace(batch, index_B=number_B[batch.index_B] + first)
            with evaluation_context(batch, self.precision, self.device):
                found = self.search(self.model, batch, with_attention)
            yield from zip((numbers[i] for i in index), found, strict=True)

    def _translation(self, sentence: str, hypothesis: Hypothesis, join: bool) -> Translation:
        tokens, weights_TS = hypothesis.tokens, hypothesis.weights_TS
        # The weights do not matter for the names of the tokens.
        width = 2 + len(self.tokenizers.source.encode([sentence])[0])
        rows = np.zeros((len(tokens), width)) if weights_TS is None else weights_TS
        named = attention_map(rows, self.tokenizers, sentence, tokens, join)
        return Translation(
            source=sentence,
            text=named.output,
            log_prob=hypothesis.log_prob,
            score=hypothesis.score,
            source_tokens=named.source_tokens,
            target_tokens=named.target_tokens,
            attention=None if weights_TS is None else named.weights_TS,
        )


def ensemble(runs: Sequence[LoadedTranslation]) -> LoadedTranslation:
    """Return an ensemble of runs with the same vocabulary; it uses the search of the first run.

    The next-token probabilities and the attention are the means over the runs (Sutskever 2014, §3.6).

    Raises:
        UserError: the list is empty, contains something else than runs of translation, or the vocabularies differ.
    """
    if isinstance(runs, str | Path | Loaded) or not all(isinstance(run, LoadedTranslation) for run in runs):
        raise UserError(
            "ensemble takes a list of runs of translation that are open. Write "
            "ensemble([seq2seq_lab.load(FOLDER), seq2seq_lab.load(OTHER_FOLDER)])."
        )
    if not runs:
        raise UserError("ensemble: no runs. Give one or more, as returned by `load`.")
    first, *others = runs
    for other in others:
        if _vocabulary(other.tokenizers) != _vocabulary(first.tokenizers):
            raise UserError(
                f"{other.folder} and {first.folder} have different vocabularies, and an ensemble needs the same. Train "
                f"its runs on the same data with the same tokenizer, for example seed=1,2,3."
            )
    members: list[Seq2Seq] = []
    for run in runs:
        members += run.model.members if isinstance(run.model, Ensemble) else [run.model]
    model = Ensemble(members).to(first.device).eval()
    names = " + ".join(f"{run.folder}: {run.checkpoint}" for run in runs)
    return replace(first, model=model, checkpoint=names)


def _vocabulary(pair: TokenizerPair) -> list[object]:
    return [
        (type(side), side.options(), side.tokens(range(side.size))) for side in (pair.source, pair.target)
    ]


def _bounded(index: Index, text: TokenizedText, size: int) -> list[Index]:
    """Return a batch of sentences in parts; long sentences make the parts smaller, to bound the memory."""
    longest = int(text.lengths[torch.from_numpy(index)].max())
    most = max(1, size * USUAL_LENGTH // longest)
    return [index[i : i + most] for i in range(0, len(index), most)]


def _without_targets(tokenizer: Tokenizer, sentences: Sequence[str]) -> TokenizedText:
    """Return sentences without targets: each target is `<sos>` and `<eos>`."""
    rows = tokenizer.encode(sentences)
    return TokenizedText(Ragged.of(rows), Ragged.of([[]] * len(rows)))
