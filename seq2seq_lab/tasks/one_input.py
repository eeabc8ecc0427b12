"""Questions to a trained run about one input, whose answers are plain data; the base class of `Loaded`."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

from torch import Tensor

from seq2seq_lab.analysis.attributions import Attributed, attribute_pair
from seq2seq_lab.analysis.forced import Forced
from seq2seq_lab.analysis.intervened import Intervened, intervene_pair
from seq2seq_lab.analysis.interventions import Scope
from seq2seq_lab.analysis.neighbors import LIMIT, Neighbors, StateKind
from seq2seq_lab.analysis.questions import Question
from seq2seq_lab.analysis.search_input import Prefix, SearchInput, TokenNames
from seq2seq_lab.analysis.traced import Alternative, Change, SearchSettings, Traced, TracedSource
from seq2seq_lab.analysis.traced_change import read_change, trace_changed
from seq2seq_lab.analysis.tracing import TOP, alternatives, trace
from seq2seq_lab.config.schema import Config
from seq2seq_lab.config.slots import named_components
from seq2seq_lab.data.tokenizers import Tokenizer
from seq2seq_lab.errors import UserError, require, require_list
from seq2seq_lab.models.seq2seq import EncodedModel
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.memory import evaluation_context
from seq2seq_lab.runtime.ranks import has_lost_rank

NO_SEARCH = "Use a run of translation, dialogue, captions or a language model."


class OneInput:
    """The methods of a `Loaded` that answer a question about one input.

    A task whose outputs a search finds implements `search_input`, with `decoded_input`, and `output_tokenizer`. `ask`
    returns a `Question` from (model, `Forced`, index of the pair); it is None for a task without attributions.
    """

    ask: ClassVar[Any] = None
    reads: ClassVar[Literal["lines", "files"]]
    config: Config
    task: Any
    model: Any
    compute: Compute
    opening: Any
    forced: Callable[..., Forced]

    def named_errors(self) -> AbstractContextManager[None]:
        """Return a context in which an exception names the custom component that failed; see `named_components`."""
        return named_components(self.config, of_others=has_lost_rank, opened_with=self.opening.config_dir)

    @property
    def has_trace(self) -> bool:
        """Whether runs of the task have a `trace`: those that produce texts or one class of a text."""
        own = type(self)
        return own.trace is not OneInput.trace or own.search_input is not OneInput.search_input

    def search_input(self, sentence: str, changes: Sequence[str] = ()) -> SearchInput:
        """Return an input for the search of the run.

        Args:
            sentence: a line of text, or the path of a file (`Loaded.reads`).
            changes: settings of the search, see `trace`.

        Raises:
            UserError: the task has no search, or the input cannot be read.
        """
        raise UserError(f"Runs of {type(self.task).__name__} have no search. {NO_SEARCH}")

    @property
    def output_tokenizer(self) -> Tokenizer:
        """The tokenizer of the outputs.

        Raises:
            UserError: the outputs are not text.
        """
        raise UserError(f"The outputs of {type(self.task).__name__} are not text. {NO_SEARCH}")

    @cached_property
    def token_names(self) -> TokenNames:
        """The names of the tokens of the outputs."""
        return TokenNames(self.output_tokenizer)

    @property
    def task_name(self) -> str:
        """The name of the class of the task without "Task", such as `language_model`."""
        name = type(self.task).__name__.removesuffix("Task")
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()

    def decoded_input(
        self,
        changes: Sequence[str],
        batch: Callable[[int], Any],
        describe: Callable[[EncodedModel], tuple[TracedSource, Sequence[Sequence[int]]]],
        tokenizer: Tokenizer | None = None,
        **fields: Any,
    ) -> SearchInput:
        """Return an input for the search of the run, which is encoded here; see `SearchInput`.

        Args:
            changes: see `search_input`.
            batch: returns a batch of this many copies of the input.
            describe: returns the source and the groups of its columns.
            tokenizer: that of the outputs of this input; None: `output_tokenizer`.
        """
        require_list("trace", "settings", changes, "search", split=True)
        search, settings = self.opening.search(tuple(changes))
        batch = cache(batch)
        one = batch(1)
        with evaluation_context(one, self.compute.precision, self.compute.device):
            encoded = EncodedModel(self.model, one)
        source, groups = describe(encoded)
        name = type(search).__name__.removesuffix("Search").lower()
        return SearchInput(
            task=self.task_name,
            source=source,
            groups=groups,
            batch=batch,
            model=self.model,
            encoded=encoded,
            search=search,
            settings=SearchSettings(name=name, width=getattr(search, "width", 1), settings=settings),
            tokenizer=tokenizer or self.output_tokenizer,
            names=self.token_names if tokenizer in (None, self.output_tokenizer) else TokenNames(tokenizer),
            compute=self.compute,
            **fields,
        )

    def positions(self, encoded: EncodedModel) -> int:
        """Return the number of source positions that a model can attend to, for a batch of one input."""
        lengths_B: Tensor = encoded.started[1].lengths_B
        return int(lengths_B[0])

    def trace(
        self,
        sentence: str | Path,
        prefix: Prefix = (),
        change: Change | Mapping[str, Any] | None = None,
        *,
        search: Sequence[str] = (),
        maps: bool = False,
        top: int = TOP,
        before: Traced | None = None,
        check: Callable[[], None] | None = None,
    ) -> Traced:
        """Return the outputs for an input, and how the search found them.

        Args:
            sentence: a line of text, or the path of a file (`Loaded.reads`).
            prefix: what every output begins with: a text, or a list of ids of tokens and of words, which the tokenizer of
                the run cuts.
            change: changes the attention weights, see `Change`; the words of the best output before the changed step are
                kept. A dictionary has the fields of `Change`.
            search: settings that replace those of the run: `["search=beam", "search.size=5"]`.
            maps: return the attention weights of all layers and heads of a Transformer too.
            top: the number of next tokens of each step.
            before: the trace of the same sentence without the change, which is then not computed again. The prefix and the
                search are those of this trace, and may be left out.
            check: called at each step of the search; it may raise an exception, which ends the search.

        Raises:
            UserError: the task has no search, or an argument is not allowed.
        """
        files = self.reads == "files"
        text = isinstance(sentence, str) or (files and isinstance(sentence, Path))
        require(text, "sentence", repr(sentence), "the path of a file" if files else "a text")
        with self.named_errors() if check is None else nullcontext():  # `check` may raise any exception
            if before is None:
                given = replace(self.search_input(str(sentence), search), sentence=str(sentence), check=check)
                before = trace(given, given.ids(prefix), maps, top)
            elif before.given is not None:
                self._require_those_of("before", before, sentence, prefix, search)
                before = replace(before, given=replace(before.given, check=check))
            return before if change is None else trace_changed(before, read_change(change), maps, top)

    def _require_those_of(
        self,
        name: str,
        traced: Traced,
        sentence: str | Path,
        prefix: Prefix,
        search: Sequence[str] = (),
    ) -> None:
        """Refuse arguments that are not those of the trace that another argument, with this name, already has."""
        given = traced.given
        assert given is not None
        same = given.sentence == str(sentence)
        require(same, "sentence", repr(sentence), f"that of {name}, {given.sentence!r}")
        if ids := given.ids(prefix):
            same = ids == [token.id for token in traced.prefix]
            require(same, "prefix", repr(prefix), f"left out, or that of {name}")
        require_list("trace", "settings", search, "search", split=True)
        if search:
            same = self.opening.search(tuple(search))[1] == given.settings.settings
            require(same, "search", search, f"left out, or that of {name}")

    def alternatives(self, traced: Traced, step: int) -> list[Alternative]:
        """Return the most probable next tokens of a step of the best output of `trace` as whole words with their pieces.

        Greedy search completes a word that a token begins.

        Raises:
            UserError: the output has no such step.
        """
        return alternatives(traced, step)

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
        """Return the states of the training data that are nearest to a state of a sentence with its best output.

        The first call computes the states of the training data, and stores them: see `states.training_states`.

        Args:
            step: a step of the best output; for `state="encoder"` a position of the source, 0 for `<sos>`.
            state: see `Neighbors`.
            count: the number of neighbors.
            prefix: see `trace`.
            limit: the largest number of states of the training data, those of evenly spaced sentences.
            traced: the trace of the sentence without a change, if it was computed before.

        Raises:
            UserError: no such step, a task or a model without such states, or training data that are not those of the run.
        """
        raise UserError(
            f"Runs of {type(self.task).__name__} store no training states. Use a run of translation or dialogue."
        )

    def question(self, source: str, target: str = "") -> Question:
        """Return one pair for attributions.

        Args:
            target: the output; unused by a classifier, whose most probable class is explained.

        Raises:
            UserError: the task has no attributions.
        """
        if self.ask is None:
            raise UserError(
                f"Runs of {type(self.task).__name__} have no attributions. Use a run of another task."
            )
        found: Question = self.ask(self.model, self.forced([source], [target]), 0)
        return found

    def attribute(
        self,
        source: str,
        target: str = "",
        methods: Sequence[str] = (),
        against: str | int | None = None,
        seed: int = 1,
    ) -> Attributed:
        """Return which source words each token of an output depends on, by several methods.

        Args:
            source, target: see `question`.
            methods: names of `analysis.attributions.METHODS`; empty for all that the model has.
            against: explain log p(token) − log p(AGAINST) instead of log p(token): a word, the id of a token, or
                "runner-up".
            seed: of the noise of `smooth_grad`.

        Raises:
            UserError: the task has no attributions, or a method or a word that the model does not have.
        """
        return attribute_pair(self.question(source, target), methods, against, seed)

    def intervene(
        self,
        source: str,
        target: str,
        kinds: Sequence[str] = (),
        scopes: Sequence[Scope] = ("step",),
        weights: Sequence[Sequence[float]] | None = None,
        **options: Any,
    ) -> Intervened:
        """Return what changed attention weights change in the prediction of each token of an output.

        Args:
            kinds: such as `uniform` or `word=0`; empty for those that `analyze intervene` compares by default.
            scopes: `step`: one step is changed and the original continues; `all`: every step is changed.
            weights: for the kind `weights`: a list for each token, or one for all.
            options: `layer`, `head`, `seen` and `seed`; see `Change`. `permutations`: the number of permutations in
                `median_variation`.

        Raises:
            UserError: an unknown kind or scope, or a model without attention.
        """
        require_list("intervene", "scopes", scopes, "scopes", split=True)
        scopes = [*scopes]
        for scope in scopes:
            require(scope in ("step", "all"), "scopes", scope, "step, all")
        return intervene_pair(self.model, self.forced([source], [target]), kinds, scopes, weights, **options)
