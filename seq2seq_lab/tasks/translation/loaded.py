"""A trained model of translation in Python: translations with their attention, and ensembles."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from seq2seq_lab import plots
from seq2seq_lab.analysis.extraction import argmax_links
from seq2seq_lab.analysis.forced import Forced, check_pairs
from seq2seq_lab.analysis.neighbors import KINDS, LIMIT, Neighbors, StateKind, neighbors, states, token_pairs
from seq2seq_lab.analysis.questions import Question, ask
from seq2seq_lab.analysis.search_input import NO_ATTENTION, Prefix, SearchInput, require_words, text_source
from seq2seq_lab.analysis.traced import Columns, Traced, TracedSource
from seq2seq_lab.data.alignment_files import alignment_words, pharaoh
from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.batching import BatchMaker, plan_evaluation
from seq2seq_lab.data.corpus import UNKNOWN, word_spans
from seq2seq_lab.data.local_files import composed
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.tokenized import TokenizedText
from seq2seq_lab.data.tokenizers import SOS, SPECIALS, Tokenizer, TokenizerPair
from seq2seq_lab.errors import UserError, is_whole, require, require_index
from seq2seq_lab.metrics.alignment import Link, WordLinks, attention_map
from seq2seq_lab.models.ensemble import Ensemble
from seq2seq_lab.models.seq2seq import EncodedModel, Seq2Seq
from seq2seq_lab.runtime.direction import arrow
from seq2seq_lab.runtime.memory import evaluation_context
from seq2seq_lab.runtime.shades import shade_matrix
from seq2seq_lab.search.base import Hypothesis, Search
from seq2seq_lab.tasks.loaded import Loaded, Prediction, check_length, draw_maps
from seq2seq_lab.tasks.translation.evaluation import replaced
from seq2seq_lab.tasks.translation.export import COVERED, export
from seq2seq_lab.tasks.translation.masks import draw_masks
from seq2seq_lab.tasks.translation.states import training_states

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

UNKNOWN_NOTE = f"{UNKNOWN}: not in the vocabulary"


@dataclass(frozen=True, kw_only=True)
class Translation(Prediction):
    """A translation of a sentence by a run; `score` is the value that the search ranks by.

    Attributes:
        log_prob: natural logarithm of its probability, including `<eos>` if the model predicted it.
        source_tokens: the tokens of the source, including `<sos>` and `<eos>`. Text that the vocabulary lacks is followed by
            ⁇.
        target_tokens: the words or tokens of the translation; tokens (`join_subwords=False`) with attention include `<eos>`
            if the model predicted it.
        attention: attention weights, a row per target token and a column per source token; None without attention.
        links: for each target word the source word of highest attention, as (source word, target word). Words are the text
            between spaces, as in files of alignments. A model that attends to turns has turns instead of source words.
        ended: whether the model predicted `<eos>`; false if the length limit ended the translation.
    """

    log_prob: float
    source_tokens: list[str] = field(repr=False)
    target_tokens: list[str] = field(repr=False)
    attention: npt.NDArray[np.floating[Any]] | None = field(repr=False)
    links: Collection[Link] = field(default=(), repr=False)
    ended: bool = field(default=True, repr=False)

    def shades(self) -> list[str]:
        """Return the attention as a matrix: source words in columns, target words in rows."""
        if self.attention is None:
            return []
        return shade_matrix(self.source_tokens, self.target_tokens, self.attention)

    def alignment(self) -> str:
        """Return `links` as `0-0 1-2` (Pharaoh format).

        Raises:
            UserError: the model has no attention.
        """
        if not self.target_tokens:
            return ""
        self._attention()
        return pharaoh(self.links)

    def figure(self, light: bool = False, ax: "Axes | None" = None) -> "Figure | None":
        """Return the attention as a figure; see `Prediction.figure`."""
        if not self.target_tokens:
            return None
        return plots.draw_attention(
            self._attention(),
            self.source_tokens,
            self.target_tokens,
            arrow(self.source, self.text),
            note=UNKNOWN_NOTE if self.unknown_words else None,
            light=light,
            axes=ax,
        )

    def _attention(self) -> npt.NDArray[np.floating[Any]]:
        if self.attention is None:
            raise UserError("The model has no attention. Train one that has, for example model=attn.")
        return self.attention


@dataclass(frozen=True, repr=False)
class LoadedTranslation(Loaded):
    """A trained model of translation or dialogue; its predictions are `Translation`s."""

    options = frozenset(
        {
            *("nbest", "scores", "alignments", "replace_unknown", "weights"),
            *("attention", "light", "attention_maps", "export"),
        }
    )

    ask = staticmethod(ask)

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

    @property
    def longest_input(self) -> int:
        """As `Loaded.longest_input`: `task.max_eval_length`."""
        return self.task.settings.max_eval_length

    def check_input(self, line: str, where: str, longest: int) -> None:
        """Refuse a line with more tokens than `longest` or the model allow."""
        length = check_length(self.tokenizers.source, line, where, longest)
        self.model.check_length(2 + length, where)

    def nbest_arguments(self, given: Collection[str]) -> dict[str, Any]:
        """See `Loaded.nbest_arguments`: the attention is returned if an option needs it."""
        attends = not {"alignments", "weights", "attention"}.isdisjoint(given)
        return {"with_attention": attends, "replace_unknown": "replace_unknown" in given}

    @property
    def attends(self) -> bool:
        """See `Loaded.attends`."""
        attends: bool = self.model.attends
        return attends

    def nbest(
        self,
        inputs: Sequence[str],
        first: int = 0,
        join_subwords: bool = True,
        with_attention: bool = True,
        replace_unknown: bool = False,
    ) -> list[list[Translation]]:
        """Return all translations of each sentence that the search returns, the best first.

        The translation of a sentence without words is empty, with log-probability 0 and no tokens.

        Args:
            inputs, first: see `Loaded.nbest`; the draws of `search=sampling` depend on `first`.
            join_subwords: return tokens and attention over words instead of the tokenizer's subwords.
            with_attention: return the attention, which needs memory if sentences are long.
            replace_unknown: replace each unknown word (⁇) of the text by the source token with the highest attention weight.

        Raises:
            UserError: `inputs` is not a list, or unknown words are to be replaced and the model has no attention.
        """
        inputs = self.as_read(inputs)
        found = [[_empty(sentence)] for sentence in inputs]
        for i, hypotheses in self._hypotheses(inputs, with_attention or replace_unknown, first):
            found[i] = [self._translation(inputs[i], hypothesis, join_subwords) for hypothesis in hypotheses]
            if replace_unknown:
                texts = [replaced(hypothesis, self.tokenizers, inputs[i]) for hypothesis in hypotheses]
                found[i] = [
                    replace(one, text=text)
                    if with_attention
                    else replace(one, text=text, attention=None, links=())
                    for one, text in zip(found[i], texts, strict=True)
                ]
        return found

    def forced(self, sources: Sequence[str], targets: Sequence[str]) -> Forced:
        """See `Loaded.forced`."""
        check_pairs(sources, targets)
        sources, targets = [*map(composed, sources)], [*map(composed, targets)]
        source, target = self.tokenizers.source, self.tokenizers.target
        outputs = target.encode_outputs(targets, sources)
        text = TokenizedText(Ragged.of(source.encode(sources)), Ragged.of(outputs))

        def without(rows: Sequence[Sequence[int]], index: int) -> Batch:
            versions = TokenizedText(Ragged.of(rows), Ragged.of([outputs[index]] * len(rows)))
            return BatchMaker(versions, self.device)(np.arange(len(rows)))

        if len(text):
            longest = int(text.lengths.argmax())
            self.model.check_length(int(text.lengths[longest]), f"Source {longest + 1}")
        return Forced(
            sources=sources,
            targets=targets,
            tokenizer=target,
            source_tokenizer=source,
            plan=plan_evaluation(text, self.task.eval_batch_size),
            batch=BatchMaker(text, self.device),
            read=lambda batch: EncodedModel(self.model, batch)(batch, batch.inputs_BT),
            compute=self.compute,
            without=without,
        )

    @property
    def output_tokenizer(self) -> Tokenizer:
        """See `Loaded.output_tokenizer`."""
        return self.tokenizers.target

    @torch.no_grad()
    def search_input(self, sentence: str, changes: Sequence[str] = ()) -> SearchInput:
        """See `Loaded.search_input`."""
        sentence = composed(sentence)
        require_words(sentence)
        self.check_input(sentence, "sentence", self.longest_input)
        text = _without_targets(self.tokenizers.source, [sentence])
        batches, attends = BatchMaker(text, self.device), self.model.attends

        def describe(encoded: EncodedModel) -> tuple[TracedSource, list[list[int]]]:
            tokens = int(text.lengths[0])
            columns: Columns = "tokens" if self.positions(encoded) == tokens else "turns"
            pair = self.tokenizers.for_source(sentence)
            return text_source(sentence, pair.source, columns if attends else None)

        def maps(tokens: list[int]) -> dict[str, torch.Tensor]:
            if not isinstance(self.model, Seq2Seq):
                return {}
            return self.model.attention_maps(
                batches(np.array([0])), torch.tensor([[SOS, *tokens]], device=self.device)
            )

        return self.decoded_input(
            changes,
            lambda count: batches(np.zeros(count, np.int64)),
            describe,
            tokenizer=self.tokenizers.for_source(sentence).target,
            source_tokenizer=self.tokenizers.source,
            maps=maps,
            no_attention=None if attends else NO_ATTENTION,
        )

    @torch.no_grad()
    def neighbors(
        self,
        sentence: str,
        step: int,
        state: StateKind = "decoder",
        count: int = 10,
        *,
        prefix: Prefix = (),
        limit: int = LIMIT,
        traced: Traced | None = None,
    ) -> Neighbors:
        """See `Loaded.neighbors`."""
        require(state in KINDS, "state", state, ", ".join(KINDS))
        for key, value in (("limit", limit), ("count", count)):
            require(is_whole(value) and value >= 1, key, value, "a whole number, 1 or more")
        if not isinstance(self.model, Seq2Seq):
            raise UserError("neighbors: an ensemble has several states. Give one run.")
        if traced is None:
            traced = self.trace(sentence, prefix)
        elif traced.changed is not None:
            raise UserError(
                "traced: this trace has changed attention weights. Give the trace without the change."
            )
        elif traced.given is not None:
            self._require_those_of("traced", traced, sentence, prefix)
        source, target = ([token.id for token in one.tokens] for one in (traced.source, traced.best))
        pairs = token_pairs(state, source, [SOS, *target])
        require_index(
            "step",
            step,
            len(pairs),
            "a position of the source" if state == "encoder" else "a step of the output",
        )
        text = TokenizedText(Ragged.of([source[1:-1]]), Ragged.of([target]))
        batch = BatchMaker(text, self.device)(np.array([0]))
        with evaluation_context(batch, self.precision, self.device):
            state_D = states(self.model, batch, state)[0, step].cpu()

        def name(line: str, token: int) -> str:
            if 0 <= token < len(SPECIALS):
                return SPECIALS[token]
            both = self.tokenizers.for_source(line)
            tokenizer = both.source if state == "encoder" else both.target
            return "".join(tokenizer.tokens([token] * (token >= 0)))

        store = training_states(self, state, limit)
        word, following = (name(sentence, token) for token in pairs[step])
        return neighbors(store, state, step, state_D, pair=(word, following), count=count, names=name)

    def questions(self, split: Any, model: Any = None) -> Callable[[int], Question]:
        """See `Loaded.questions`."""
        forced = self.forced([*split.text.source], [*split.text.target])
        return partial(ask, self.model if model is None else model, forced)

    def export(self, folder: str | Path) -> None:
        """Write the model to a new folder, with a program of plain PyTorch that translates without this package.

        The README.md in it describes the files.

        Raises:
            UserError: the folder exists or cannot be written, or the model is not covered. Then nothing is written.
        """
        if self.task.name != "translation":
            raise UserError(f"--export: task={self.task.name} cannot be exported. {COVERED}")
        languages = " → ".join(self.tokenizers.languages or ("unknown",))
        about = {"run": self.folder.name, "checkpoint": self.checkpoint, "languages": languages}
        export(self.model, self.tokenizers, self.search, Path(folder), about)

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
        return draw_maps(self.folder, maps, axes, arrow(sentence, named.text))

    @torch.no_grad()
    def plot_masks(self, sources: Sequence[str], targets: Sequence[str]) -> "Figure":
        """Return a figure of what each position of a padded batch may attend to.

        Raises:
            UserError: the model is not one Transformer.
        """
        batch = self.forced(sources, targets).batch(np.arange(len(sources)))
        tokenizers = [self.tokenizers.for_source(source) for source in sources]
        with evaluation_context(batch, self.precision, self.device):
            figure = draw_masks(self.model, batch, tokenizers) if isinstance(self.model, Seq2Seq) else None
        if figure is None:
            raise UserError(
                f"{self.folder}: plot_masks needs one run with a Transformer, such as model=transformer."
            )
        return figure

    @torch.no_grad()
    def _hypotheses(
        self, sentences: Sequence[str], with_attention: bool, first: int
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Yield the index of each sentence that has words, with its hypotheses."""
        indices = [i for i, sentence in enumerate(sentences) if sentence.strip()]
        if not indices:
            return
        text = _without_targets(self.tokenizers.source, [sentences[i] for i in indices])
        index_B = torch.tensor(indices, device=self.device)
        plan = plan_evaluation(text, self.task.eval_batch_size)
        for index, batch in zip(plan, map(BatchMaker(text, self.device), plan), strict=True):
            batch = replace(batch, index_B=index_B[batch.index_B] + first)
            with evaluation_context(batch, self.precision, self.device):
                found = self.search(self.model, batch, with_attention)
            yield from zip((indices[i] for i in index), found, strict=True)

    def _translation(self, sentence: str, hypothesis: Hypothesis, join: bool) -> Translation:
        tokens, weights_TS = hypothesis.tokens, hypothesis.weights_TS
        # The weights do not matter for the names of the tokens.
        width = 2 + len(self.tokenizers.source.encode([sentence])[0])
        rows = np.zeros((len(tokens), width)) if weights_TS is None else weights_TS
        named = attention_map(rows, self.tokenizers.for_source(sentence), sentence, tokens, join)
        return Translation(
            source=sentence,
            text=named.output,
            log_prob=hypothesis.log_prob,
            score=hypothesis.score,
            unknown_words=self.tokenizers.source.unknown_words(sentence),
            source_tokens=named.source_tokens,
            target_tokens=named.target_tokens,
            attention=None if weights_TS is None else named.weights_TS,
            links=() if weights_TS is None else self._links(sentence, named.output, tokens, weights_TS),
            ended=hypothesis.ended,
        )

    def _links(
        self, sentence: str, output: str, tokens: Sequence[int], weights_TS: npt.NDArray[np.floating[Any]]
    ) -> set[Link]:
        """Return the links of `Translation`, as `analysis.align.alignments` returns them for given outputs."""
        pair = self.tokenizers.for_source(sentence)
        source_spans, (_, target_spans) = pair.source.spans(sentence), pair.target.decode_spans(tokens)
        source_words, target_words = (word_spans(text, alignment_words(text)) for text in (sentence, output))
        if weights_TS.shape[1] != len(source_spans) + 2:
            source_spans = source_words = pair.source.units(sentence)
            weights_TS = np.pad(weights_TS, ((0, 0), (1, 1)))
        without_eos = len(tokens) + 1 - len(weights_TS)
        words = WordLinks(source_spans, target_spans, source_words, target_words)
        return argmax_links(words.join(np.pad(weights_TS, ((0, without_eos), (0, 0)))))


def ensemble(runs: Iterable[LoadedTranslation]) -> LoadedTranslation:
    """Return an ensemble of runs with the same vocabulary; it uses the search of the first run.

    The next-token probabilities and the attention are the means over the runs (Sutskever 2014, §3.6).

    Raises:
        UserError: the list is empty, contains anything but runs of translation, or the vocabularies differ.
    """
    opened = [*runs] if isinstance(runs, Iterable) else [None]
    if not all(isinstance(run, Loaded) for run in opened):
        raise UserError(
            "ensemble takes a list of runs of translation that are open. Write "
            "ensemble([seq2seq_lab.load(FOLDER), seq2seq_lab.load(OTHER_FOLDER)])."
        )
    if wrong := [run for run in opened if not isinstance(run, LoadedTranslation)]:
        raise UserError(
            f"{wrong[0].folder} is a run of {type(wrong[0].task).__name__}, which cannot be part of an ensemble. Give runs "
            f"of translation or dialogue only."
        )
    if not opened:
        raise UserError("ensemble: no runs. Give one or more, as returned by `load`.")
    first, *others = opened
    for other in others:
        if _vocabulary(other) != _vocabulary(first):
            raise UserError(
                f"{other.folder} and {first.folder} have different vocabularies, and an ensemble needs the same. Train "
                f"its runs on the same data with the same tokenizer, for example seed=1,2,3."
            )
    members: list[Seq2Seq] = []
    for run in opened:
        members += run.model.members if isinstance(run.model, Ensemble) else [run.model]
    model = Ensemble(members).to(first.device).eval()
    names = " + ".join(f"{run.opening.folder}: {run.checkpoint}" for run in opened)
    checksums = tuple(checksum for run in opened for checksum in run.opening.checksums)
    openings = tuple(one for run in opened for one in run.opening.each)
    opening = replace(first.opening, checksums=checksums, members=openings if len(openings) > 1 else ())
    return replace(first, model=model, checkpoint=names, opening=opening)


def _vocabulary(run: LoadedTranslation) -> list[object]:
    """Return what two runs with the same vocabularies have in common."""
    found: list[object] = []
    for side in (run.tokenizers.source, run.tokenizers.target):
        # Each `load` imports custom files again, so their classes are compared by name and file.
        module, name = type(side).__module__, type(side).__qualname__
        code = run.opening.each[0].code.get(f"{module.replace('.', '/')}.py")
        found.append((module, name, code, side.options(), side.tokens(range(side.size))))
    return found


def _empty(sentence: str) -> Translation:
    """Return the translation of a sentence without words."""
    return Translation(
        source=sentence,
        text="",
        score=0.0,
        log_prob=0.0,
        source_tokens=[],
        target_tokens=[],
        attention=None,
    )


def _without_targets(tokenizer: Tokenizer, sentences: Sequence[str]) -> TokenizedText:
    """Return sentences without targets: each target is `<sos>` and `<eos>`."""
    rows = tokenizer.encode(sentences)
    return TokenizedText(Ragged.of(rows), Ragged.of([[]] * len(rows)))
