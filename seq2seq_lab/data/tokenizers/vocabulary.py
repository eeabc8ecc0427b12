"""What tokenizers with a counted vocabulary share: one type for each token that is frequent enough."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import tokenizers
from tokenizers.models import WordLevel

from seq2seq_lab.data.corpus import UNKNOWN
from seq2seq_lab.data.tokenizers.base import (
    EOS,
    PAD,
    SOS,
    SPECIALS,
    UNK,
    Tokenizer,
    check_min_frequency,
    visible,
)
from seq2seq_lab.errors import UserError

JOINER = "￭"
# Every joiner of the text is written so in a token; no token of the text begins or ends with a bare one.
ESCAPED_JOINER = f"<{JOINER}>"


class VocabularyTokenizer(Tokenizer):
    """Tokens that are types as they are; a token that is too rare, or was never seen, is unknown.

    A subclass writes how a line is cut (`_pieces`) and between which tokens a space stands (`_apart`).
    """

    def __init__(self, joint: bool, lowercase: bool, min_frequency: int, max_size: int | None) -> None:
        """Tokens seen less than `min_frequency` times are unknown.

        `max_size` bounds the number of types, the four specials included; None is no bound. Raises
        `UserError` for values out of range.
        """
        check_min_frequency(min_frequency, "1 keeps every token")
        if max_size is not None and max_size <= len(SPECIALS):
            raise UserError(
                f"tokenizer.max_size={max_size} leaves no room beside the {len(SPECIALS)} specials; "
                "give a greater number, or null for no bound."
            )
        self.joint = joint
        self.lowercase = lowercase
        self.min_frequency = min_frequency
        self.max_size = max_size

    def options(self) -> dict[str, object]:
        """The constructor's arguments, as plain values."""
        return {
            "joint": self.joint,
            "lowercase": self.lowercase,
            "min_frequency": self.min_frequency,
            "max_size": self.max_size,
        }

    def train(self, lines: Iterable[str]) -> None:
        """Number the tokens by falling frequency, equally frequent ones in alphabetical order."""
        counts: Counter[str] = Counter()
        for line in lines:
            counts.update(self._cut(line))
        frequent = [token for token, count in counts.items() if count >= self.min_frequency]
        frequent.sort(key=lambda token: (-counts[token], token))
        ordered = [*SPECIALS, *map(_stored, frequent)]
        vocabulary = {token: number for number, token in enumerate(ordered[: self.max_size])}
        self._use(tokenizers.Tokenizer(WordLevel(vocabulary, unk_token=SPECIALS[UNK])))

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The ids of each line, without `<sos>` and `<eos>`."""
        number_of = self._ids.get
        return [[number_of(token, UNK) for token in self._cut(line)] for line in lines]

    def spans(self, line: str) -> list[tuple[int, int]]:
        """The characters of `line`, as (start, end), that each id of `encode` stands for."""
        return [(start, end) for _, start, end in self._pieces(line)]

    def decode_spans(self, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        """The text of `decode`, and the (start, end) in it of each id; empty where an id adds no text."""
        text = ""
        spans = []
        previous = None
        for number in ids:
            if number in (PAD, SOS, EOS):
                spans.append((len(text), len(text)))
                continue
            token = self._tokens[number]
            if previous is not None and self._apart(previous, token):
                text += " "
            previous = token
            start = len(text)
            text += UNKNOWN if number == UNK else self._plain(token)
            spans.append((start, len(text)))
        return text, spans

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """The text of each id, a space as "▁"."""
        return [visible(self._plain(self._tokens[number]).replace(" ", "▁")) for number in ids]

    @abstractmethod
    def _pieces(self, line: str) -> Iterator[tuple[str, int, int]]:
        """Each token, and the start and end of its characters in `line`."""

    @abstractmethod
    def _apart(self, left: str, right: str) -> bool:
        """Whether a space stands between two neighbouring tokens."""

    def _cut(self, line: str) -> Iterable[str]:
        """The tokens of `_pieces`; overridden where they can be had faster."""
        return [token for token, _, _ in self._pieces(line)]

    def _plain(self, token: str) -> str:
        """What a token stands for in the text."""
        return token

    def _use(self, backend: tokenizers.Tokenizer) -> None:
        super()._use(backend)
        vocabulary = backend.get_vocab(with_added_tokens=False)
        names = sorted(vocabulary, key=vocabulary.__getitem__)[len(SPECIALS) :]
        self._tokens = [*SPECIALS, *map(_read, names)]
        # Without the specials: "<eos>" in the text is a token of the text.
        self._ids = {token: number for number, token in enumerate(self._tokens) if number >= len(SPECIALS)}


class JoinedTokenizer(VocabularyTokenizer):
    """Tokens of which some carry a joiner "￭" where they touch a neighbour.

    Decoding puts a space between two tokens unless there is a joiner between them.
    """

    def _apart(self, left: str, right: str) -> bool:
        return not (left.endswith(JOINER) or right.startswith(JOINER))

    def _plain(self, token: str) -> str:
        piece = token.removeprefix(JOINER).removesuffix(JOINER)
        return piece.replace(ESCAPED_JOINER, JOINER)


def is_word_letter(letter: str) -> bool:
    """Whether a character belongs to words: letters, digits, and the underscore."""
    return letter.isalnum() or letter == "_"


def _stored(token: str) -> str:
    """A token's name in the library's vocabulary: one that reads as a special's name begins with a space."""
    return f" {token}" if token in SPECIALS else token


def _read(name: str) -> str:
    """The token that `_stored` gave this name."""
    return name[1:] if name[1:] in SPECIALS and name[0] == " " else name
