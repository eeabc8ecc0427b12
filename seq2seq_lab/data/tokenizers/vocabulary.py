"""Base of tokenizers with a counted vocabulary: one type for each token that is frequent enough."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

import tokenizers
from tokenizers.models import WordLevel

from seq2seq_lab.config.type_checks import Above, Count
from seq2seq_lab.data.corpus import UNKNOWN
from seq2seq_lab.data.tokenizers.base import (
    EOS,
    PAD,
    SOS,
    SPECIALS,
    UNK,
    Tokenizer,
    visible,
)

MaxSize = Annotated[int, Above(len(SPECIALS))]

JOINER = "￭"
# A joiner in the text is replaced with this, because a token may begin or end with a joiner.
ESCAPED_JOINER = f"<{JOINER}>"


class VocabularyTokenizer(Tokenizer):
    """Each token is a type; a token that is rare or new is unknown, and so is `<unk>` in the text.

    A subclass implements how a line is cut (`pieces`) and which tokens have a space between them (`has_space`).
    """

    def __init__(self, joint: bool, lowercase: bool, min_frequency: Count, max_size: MaxSize | None) -> None:
        """Set the bounds of the vocabulary.

        Args:
            min_frequency: tokens with fewer occurrences are unknown.
            max_size: the greatest number of types, including the four special tokens; None means unbounded.
        """
        self.joint = joint
        self.lowercase = lowercase
        self.min_frequency = min_frequency
        self.max_size = max_size

    @property
    def size(self) -> int:
        """The number of types; also of a vocabulary that is extended by the words of a source."""
        return len(self._tokens)

    @property
    def types(self) -> Sequence[str]:
        """The token of each id."""
        return tuple(self._tokens)

    def train(self, lines: Iterable[str]) -> None:
        """Number the tokens by decreasing frequency, tokens of equal frequency alphabetically."""
        counts: Counter[str] = Counter()
        for line in lines:
            counts.update(self._cut(line))
        counts.pop(SPECIALS[UNK], None)
        frequent = [token for token, count in counts.items() if count >= self.min_frequency]
        frequent.sort(key=lambda token: (-counts[token], token))
        self._number([*SPECIALS, *map(_stored, frequent)][: self.max_size])

    def add_words(self, words: Iterable[str]) -> None:
        """Add the words that are one token each; `max_size` does not bound their number."""
        if not (words := [*words]):
            return
        cuts = ([*self._cut(word)] for word in words)
        known = {*self._ids, SPECIALS[UNK]}
        added = dict.fromkeys(cut[0] for cut in cuts if len(cut) == 1 and cut[0] not in known)
        self._number([*SPECIALS, *self._names, *map(_stored, added)])

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the ids of each line, without `<sos>` and `<eos>`."""
        number_of = self._ids.get
        return [[number_of(token, UNK) for token in self._cut(line)] for line in lines]

    def spans(self, line: str) -> list[tuple[int, int]]:
        """Return the characters of `line`, as (start, end), of each id of `encode`."""
        return [(start, end) for _, start, end in self.pieces(line)]

    def decode_spans(self, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        """Return the text of `decode`, and the (start, end) in it of each id; empty if an id adds no text."""
        text = ""
        spans = []
        previous = None
        for token_id in ids:
            if token_id in (PAD, SOS, EOS):
                spans.append((len(text), len(text)))
                continue
            token = self._tokens[token_id]
            if previous is not None and self.has_space(previous, token):
                text += " "
            previous = token
            start = len(text)
            text += UNKNOWN if token_id == UNK else self._plain(token)
            spans.append((start, len(text)))
        return text, spans

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each id, with "▁" for a space."""
        return [visible(self._plain(self._tokens[i]).replace(" ", "▁")) for i in ids]

    @abstractmethod
    def pieces(self, line: str) -> Iterator[tuple[str, int, int]]:
        """Return each token with the start and end of its characters in `line`."""

    @abstractmethod
    def has_space(self, left: str, right: str) -> bool:
        """Return whether there is a space between two neighboring tokens."""

    def _cut(self, line: str) -> Iterable[str]:
        """Return the tokens of `pieces`; a subclass may override it with a faster method."""
        return [token for token, _, _ in self.pieces(line)]

    def _plain(self, token: str) -> str:
        """Return the text of a token."""
        return token

    def _number(self, names: Sequence[str]) -> None:
        """Set the names of all types, in the order of their ids. Raises `UserError` if they are too many to be saved."""
        vocabulary = {name: index for index, name in enumerate(names)}
        self.use_backend(tokenizers.Tokenizer(WordLevel(vocabulary, unk_token=SPECIALS[UNK])))
        self.serialized()  # refuses a vocabulary that is too large, before the text is tokenized

    def use_backend(self, backend: tokenizers.Tokenizer) -> None:
        super().use_backend(backend)
        self._tokens = [*SPECIALS, *map(_read, self._names)]
        # Without the special tokens: "<eos>" in the text is an ordinary token, and so is "<unk>" to earlier versions.
        self._ids = {token: index for index, token in enumerate(self._tokens) if index >= len(SPECIALS)}


class JoinedTokenizer(VocabularyTokenizer):
    """Tokens with a joiner "￭" where no space separates them from a neighbor.

    Decoding puts a space between two tokens unless there is a joiner between them.
    """

    def has_space(self, left: str, right: str) -> bool:
        return not (left.endswith(JOINER) or right.startswith(JOINER))

    def _plain(self, token: str) -> str:
        piece = token.removeprefix(JOINER).removesuffix(JOINER)
        return piece.replace(ESCAPED_JOINER, JOINER)


def is_word_letter(letter: str) -> bool:
    """Return whether a character is a letter, a digit or the underscore."""
    return letter.isalnum() or letter == "_"


def _stored(token: str) -> str:
    """Return the name of a token in the vocabulary. The name of a token equal to a special token begins with a space."""
    return f" {token}" if token in SPECIALS else token


def _read(name: str) -> str:
    """Return the token with this name: the inverse of `_stored`."""
    return name[1:] if name[1:] in SPECIALS and name[0] == " " else name
