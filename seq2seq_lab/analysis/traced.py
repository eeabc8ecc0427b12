"""One input with everything that a page or a notebook shows of its search; see `seq2seq_lab.analysis.tracing`.

`as_json` returns plain data with the names of the fields. Logarithms are natural. T are the tokens of an output, with
`<eos>` if the output ended; S are the columns of the attention weights.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from seq2seq_lab.analysis.plain import HIDDEN, Plain

if TYPE_CHECKING:
    from seq2seq_lab.analysis.search_input import SearchInput
    from seq2seq_lab.search.trace import SearchTrace

Floats = npt.NDArray[np.floating[Any]]
TokenKind = Literal["word", "punctuation", "unknown", "sos", "eos"]
Columns = Literal["tokens", "turns", "regions"]
Scope = Literal["step", "from", "all"]
State = Literal["kept", "finished", "pruned"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Token:
    """A token of an input or an output.

    Attributes:
        id: its id in the vocabulary.
        text: its printable form. If the vocabulary lacks a text of the source, that text with ⁇.
        kind: `punctuation` has neither letters nor digits.
        word: the index of its word; None for `<sos>`, `<eos>` and tokens outside words.
    """

    id: int
    text: str
    kind: TokenKind
    word: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedSource:
    """The input.

    Attributes:
        text: the line of text, or the path of the file.
        tokens: its tokens, `<sos>` and `<eos>` included; of a language model, the beginning. Empty for an image.
        words: the words of the text.
        columns: what the columns of the attention weights are; None without attention.
        column_names: the names of the S columns: tokens, turns or regions.
        word_column_names: the names of the columns of `Output.word_attention`: with tokens, `<sos>`, the words and `<eos>`.
        unknown_words: what the vocabulary lacks of the text; the model reads `<unk>` there.
        grid: the rows and columns of the regions of an image; else None.
        image: the image as the model reads it, as an address `data:image/png;base64,…`; else None.
    """

    text: str
    tokens: list[Token] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    columns: Columns | None = None
    column_names: list[str] = field(default_factory=list)
    word_column_names: list[str] = field(default_factory=list)
    unknown_words: list[str] = field(default_factory=list)
    grid: tuple[int, int] | None = None
    image: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """An attention weight between words that is among the largest of its target word.

    Attributes:
        word: the index of the target word.
        column: the index in `Source.word_column_names`.
    """

    word: int
    column: int
    weight: float


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedOutput:
    """An output of the search.

    Attributes:
        text: as plain text.
        tokens: its T tokens.
        words: its words.
        word_log_probs: the log-probability of each word, the sum over its tokens.
        log_probs: log p(y_t | y_<t, x) of each token.
        ranks: 1 for the most probable token of the step, 2 for the second one, and so on.
        entropies: the entropy in nats of the prediction of each token.
        log_prob: the log-probability of the output, as the search computed it.
        score: what the search ranks outputs by: with a length penalty the normalized log-probability.
        ended: whether it ended with `<eos>`, and not at the length limit.
        leaf: the id of its node in the tree; None without a tree.
        attention: the weights [T, S] of each token; None without attention. Of a Transformer, the mean over the heads of the
            last layer.
        word_attention: the weights between words and the columns `Source.word_column_names`: the columns of the tokens of a
            word are summed, their rows averaged; None without attention.
        margins: the sums of the weights of each token on `sos`, `eos` and `punctuation` of the source; empty without
            attention to tokens.
        links: for each word the largest weights that together are at least 75% of its weights.
    """

    text: str
    tokens: list[Token]
    words: list[str]
    word_log_probs: list[float]
    log_probs: list[float]
    ranks: list[int]
    entropies: list[float]
    log_prob: float
    score: float
    ended: bool
    leaf: int | None
    attention: Floats | None = field(default=None, repr=False)
    word_attention: Floats | None = field(default=None, repr=False)
    margins: dict[str, list[float]] = field(default_factory=dict, repr=False)
    links: list[Link] = field(default_factory=list, repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Alternative:
    """One of the most probable next tokens of a step.

    Attributes:
        id, text, kind: see `Token`.
        log_prob: its log-probability.
        word: the whole word that it begins or continues; None if it is not known, see `Loaded.alternatives`.
        pieces: the tokens of the word as text; empty if it is not known.
        ids: those of the pieces from this token on; empty if the word is not known.
    """

    id: int
    text: str
    kind: TokenKind
    log_prob: float
    word: str | None = None
    pieces: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedStep:
    """The prediction of one token of the best output.

    Attributes:
        step: from 0.
        token: the id of the token of the output.
        forced: whether the token is one of the prefix.
        entropy: of the prediction, in nats.
        top: the most probable tokens, the best first.
    """

    step: int
    token: int
    forced: bool
    entropy: float
    top: list[Alternative]


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeNode:
    """A prefix of an output in the tree of the search.

    Attributes:
        id: its index in the tree.
        parent: the id of the prefix without the last token; None for the root.
        step: the number of tokens; 0 for the root, which has the token `<sos>`.
        token: the id of the last token.
        text, kind: see `Token`.
        log_prob: log p of the last token after the others; 0 for the root.
        total: the log-probability of the prefix.
        rank: 1 for the most probable prefix of this length in the beam.
        state: `kept`: a token extended it; `finished`: it is one of the outputs; `pruned`: neither.
        reason: why it was pruned, as a sentence; empty if it was not.
        output: the index of its output if it is finished; else None.
        forced: whether the last token is one of the prefix.
    """

    id: int
    parent: int | None
    step: int
    token: int
    text: str
    kind: TokenKind
    log_prob: float
    total: float
    rank: int
    state: State
    reason: str
    output: int | None
    forced: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A change of the attention weights, as a caller gives it.

    Attributes:
        kind: one of `analysis.changes.KINDS`, such as `uniform`, `word=J` or `mask=J` (J: the index of a source word);
            `weights` for given weights.
        step: the step that is changed, from 0; None with the scope `all`.
        scope: `step`: this step only; `from`: this step and all later ones; `all`: every step.
        weights: for `weights`: a list of S numbers, used at each changed step.
        layer, head: the only layer and head of a Transformer that are changed, from 0; None for all.
        seen: see `models.weight_change.WeightChange`.
        seed: of the permutations.
    """

    kind: str
    step: int | None = None
    scope: Scope = "step"
    weights: list[float] | None = None
    layer: int | None = None
    head: int | None = None
    seen: bool = True
    seed: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class WordPair:
    """Words of two outputs at one place of their alignment.

    Attributes:
        before, after: the indices of the words; None if one output has no word there.
        same: whether both have the same word.
    """

    before: int | None
    after: int | None
    same: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangedOutput:
    """What a change of the attention weights changed.

    Attributes:
        change: the change.
        scope: what was changed, as a sentence, in which steps are counted from 1.
        before: the best output without the change, after the same words: those before the changed step are kept.
        before_steps: its steps.
        words: the words of both outputs, aligned.
        old_log_probs: the log-probability of the output before, without and with the change.
        new_log_probs: the log-probability of the output after, without and with the change.
    """

    change: Change
    scope: str
    before: TracedOutput
    before_steps: list[TracedStep]
    words: list[WordPair]
    old_log_probs: tuple[float, float]
    new_log_probs: tuple[float, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchSettings:
    """The search.

    Attributes:
        name: `greedy`, `beam`, `sampling`, or the name of the class of another one.
        width: the number of hypotheses that are extended together.
        settings: its settings, as in `conf/search/`.
    """

    name: str
    width: int
    settings: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Traced(Plain):
    """An input, its outputs and how the search found them.

    Attributes:
        task: the name of the task, such as `translation`.
        source: the input.
        search: the search; None for a task that does not decode.
        prefix: the tokens that every output was forced to begin with.
        outputs: the n best outputs, the best first. Of a classifier, the classes by probability, each with one token.
        steps: the steps of the best output.
        tree: the hypotheses of the search by length, the root first; empty for a task that does not decode. Its finished
            nodes are the outputs.
        no_attention: why there are no attention weights, as a sentence; None if there are. A classifier
            without them has a row too; the sentence says what it contains.
        changed: what the change changed; None without one.
        maps: on request, the weights of all layers and heads for the best output, without a change: `cross` [L, A, T, S],
            and the self-attention `encoder` [L, A, S, S] and `decoder` [L, A, T, T].
        limit: whether the search ended at its length limit, as a sentence; empty if it did not.
        given: the input as it was searched, with the encoded source; not part of the plain data.
        record: the record of the search, from which a change of one step continues; not part of the plain data.
    """

    task: str
    source: TracedSource
    search: SearchSettings | None
    prefix: list[Token]
    outputs: list[TracedOutput]
    steps: list[TracedStep]
    tree: list[TreeNode]
    no_attention: str | None
    changed: ChangedOutput | None = None
    maps: dict[str, Floats] | None = field(default=None, repr=False)
    limit: str = ""
    given: "SearchInput | None" = field(default=None, repr=False, compare=False, metadata=HIDDEN)
    record: "SearchTrace | None" = field(default=None, repr=False, compare=False, metadata=HIDDEN)

    @property
    def best(self) -> TracedOutput:
        """The best output."""
        return self.outputs[0]
