"""One input that a search decodes, with the names of its tokens and of the columns of its attention weights."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from seq2seq_lab.analysis.traced import Columns, SearchSettings, Token, TokenKind, TracedSource
from seq2seq_lab.data.local_files import composed
from seq2seq_lab.data.tokenizers import EOS, PAD, SOS, SPECIALS, UNK, Tokenizer
from seq2seq_lab.data.words import is_letter, is_unspaced, words
from seq2seq_lab.errors import UserError, is_whole, require
from seq2seq_lab.metrics.alignment import group_tokens
from seq2seq_lab.models.seq2seq import EncodedModel
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.search.base import Search

NO_ATTENTION = "The model has no attention: its decoder reads the source only through its first state."

Prefix = str | Sequence[int | str] | npt.NDArray[np.integer[Any]]

KIND_OF: dict[int, TokenKind] = {UNK: "unknown", SOS: "sos", EOS: "eos"}


class TokenNames:
    """The printable forms and the kinds of the tokens of a vocabulary, which are computed when they are first needed."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: dict[str, int] = {}
        self._known: dict[int, tuple[str, TokenKind]] = {
            token: (SPECIALS[token], kind) for token, kind in KIND_OF.items()
        }

    def __call__(self, token: int) -> tuple[str, TokenKind]:
        """Return the printable form and the kind of a token."""
        if token not in self._known:
            (name,) = self._tokenizer.tokens([token])
            self._known[token] = name, kind_of(token, self._tokenizer.decode([token]))
        return self._known[token]

    def id_of(self, name: str) -> int | None:
        """Return the token with a printable form; None if there is none."""
        if not self._ids:
            names = self._tokenizer.tokens(range(self._tokenizer.size))
            self._ids = {one: token for token, one in enumerate(names) if token >= len(SPECIALS)}
        return self._ids.get(name)


def kind_of(token: int, text: str) -> TokenKind:
    """Return the kind of a token that adds this text; without a text it is a part of a word."""
    if token in KIND_OF:
        return KIND_OF[token]
    return "word" if not text or any(map(is_letter, text)) else "punctuation"


@dataclass(frozen=True, kw_only=True)
class SearchInput:
    """One input that a search decodes.

    Attributes:
        task: the name of the task.
        source: the input.
        groups: the columns of the attention weights of each of `source.word_column_names`.
        batch: returns a batch of this many copies of the input.
        model: see `search.base.StepModel`.
        encoded: the model with the source already encoded, for a batch of one copy.
        search, settings: the search.
        tokenizer: that of the outputs.
        names: the names of the tokens of the outputs.
        compute: the device and the precision of the model.
        source_tokenizer: that of the source; None if it is not text that the model attends to.
        maps: returns the attention weights of all layers and heads for an output; empty without them.
        no_attention: why the model has no attention weights; None if it has.
        before: the tokens of the beginning of a language model, which its outputs continue.
        sentence: the input as the caller of `trace` gave it.
        check: called at each step of the search; it may raise an exception, which ends the search.
    """

    task: str
    source: TracedSource
    groups: Sequence[Sequence[int]]
    batch: Callable[[int], Any]
    model: Any
    encoded: EncodedModel
    search: Search
    settings: SearchSettings
    tokenizer: Tokenizer
    names: TokenNames
    compute: Compute
    source_tokenizer: Tokenizer | None
    maps: Callable[[list[int]], dict[str, torch.Tensor]]
    no_attention: str | None
    before: Sequence[int] = ()
    sentence: str = ""
    check: Callable[[], None] | None = None

    def ids(self, prefix: Prefix) -> list[int]:
        """Return the tokens of a prefix.

        Args:
            prefix: a text, or a list of ids and of words. The words are cut by the tokenizer of the run.

        Raises:
            UserError: an id is not in the vocabulary.
        """
        given = prefix.tolist() if isinstance(prefix, np.ndarray) else prefix
        require(
            isinstance(given, Sequence), "prefix", prefix, "a text, or a list of words and of ids of tokens"
        )
        found: list[int] = []
        for part in [given] if isinstance(given, str) else given:
            if isinstance(part, str):
                found += self._continued(found, composed(part))
                continue
            allowed = f"words, and ids of tokens from 0 to {self.tokenizer.size - 1} without {PAD} and {SOS}"
            known = is_whole(part) and 0 <= part < self.tokenizer.size
            require(known and part not in (PAD, SOS), "prefix", repr(part), allowed)
            found.append(int(part))
        require(
            EOS not in found[:-1],
            "prefix",
            [*prefix],
            f"a list with {EOS} ({SPECIALS[EOS]}) as its last id only",
        )
        return found

    def _continued(self, before: Sequence[int], text: str) -> list[int]:
        """Return the tokens of a text that continues others."""
        context = self.tokenizer.decode([*self.before, *before])
        known = len(context)
        if context and not (context[-1:].isspace() or text[:1].isspace() or is_unspaced([context + text])):
            context += " "
        (ids,) = self.tokenizer.encode([context + text])
        spans = self.tokenizer.spans(context + text)
        found = [token for token, (_, end) in zip(ids, spans, strict=True) if end > known]
        if (
            UNK in found
        ):  # the text may end in the beginning of a word, such as "l'", which alone is cut in another way
            first, _, last = text.rstrip().rpartition(" ")
            if (begun := self.names.id_of(last)) is not None:
                return [*(self._continued(before, first) if first else []), begun]
        return found


def text_source(
    line: str, tokenizer: Tokenizer, columns: Columns | None
) -> tuple[TracedSource, list[list[int]]]:
    """Return a line of text as a source, and the columns of its attention weights by word column.

    Args:
        columns: "tokens" or "turns": what the model attends to; None without attention.
    """
    (ids,) = tokenizer.encode([line])
    spans = tokenizer.spans(line)
    units = words(line, spans)
    word_groups = group_tokens(spans, units)
    word_of = {token: word for word, group in enumerate(word_groups) for token in group}
    texts = tokenizer.marked_texts(line, spans) if UNK in ids else []
    printed = tokenizer.tokens(ids)
    inner = [
        Token(
            id=token,
            text=texts[i] if token == UNK else printed[i],
            kind=kind_of(token, line[start:end]),
            word=word_of.get(i),
        )
        for i, (token, (start, end)) in enumerate(zip(ids, spans, strict=True))
    ]
    tokens = [special(SOS), *inner, special(EOS)]
    names = [line[start:end] for start, end in units]
    column_names, word_column_names, groups = list[str](), list[str](), list[list[int]]()
    if columns == "tokens":
        column_names = [one.text for one in tokens]
        word_column_names = [SPECIALS[SOS], *names, SPECIALS[EOS]]
        groups = [[0], *([token + 1 for token in group] for group in word_groups), [len(tokens) - 1]]
    elif columns == "turns":
        column_names = word_column_names = [line[start:end].strip() for start, end in tokenizer.units(line)]
        groups = [[turn] for turn in range(len(column_names))]
    source = TracedSource(
        text=line,
        tokens=tokens,
        words=names,
        columns=columns,
        column_names=column_names,
        word_column_names=word_column_names,
        unknown_words=[*tokenizer.unknown_words(line)],
    )
    return source, groups


def special(token: int) -> Token:
    """Return a special token."""
    return Token(id=token, text=SPECIALS[token], kind=KIND_OF[token], word=None)


def require_words(line: str) -> None:
    """Refuse a sentence without words.

    Raises:
        UserError: names the argument.
    """
    if not line.strip():
        raise UserError(f"sentence={line!r} has no words. Give a sentence with words.")
