"""Words and punctuation marks as tokens."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import tokenizers
from tokenizers.models import WordLevel

from seq2seq_lab.data.tokenizers.base import EOS, PAD, SOS, SPECIALS, UNK, Tokenizer, visible
from seq2seq_lab.errors import UserError

JOINER = "￭"
# No piece of more than one symbol exists, so this can stand for a joiner that is part of the text.
ESCAPED_JOINER = f"<{JOINER}>"

_PIECE = re.compile(r"(?P<elided>\w+['’](?=\w))|(?P<word>\w+)|(?P<symbol>[^\w\s])")


class WordTokenizer(Tokenizer):
    """Words, elided words (`l'`, `qu'`, `don'`) and single symbols, each a token.

    Where two pieces touch, a joiner "￭" marks it on the symbol or on the elided word, never on a plain
    word, which so is one type wherever it stands: `L'homme dort.` is `L'￭ homme dort ￭.`. An elided word
    has a joiner to its right, a symbol one to its left after any piece and one to its right before a word.

    Decoding gives back the text but for unknown words and white space: each run of white space (tabs,
    no-break spaces and line separators too) becomes one space, and none is left at the ends.
    """

    def __init__(self, joint: bool, lowercase: bool, min_frequency: int, max_size: int | None) -> None:
        """Words seen less than `min_frequency` times are unknown.

        `max_size` bounds the number of types, the four specials included; None is no bound. Raises
        `UserError` for values out of range.
        """
        if min_frequency < 1:
            raise UserError(f"tokenizer.min_frequency={min_frequency} must be 1 or more; 1 keeps every word.")
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
        """Number the words by falling frequency, equally frequent ones in alphabetical order."""
        counts = Counter(token for line in lines for token, _, _ in self._pieces(line))
        frequent = [token for token, count in counts.items() if count >= self.min_frequency]
        ordered = [*SPECIALS, *sorted(frequent, key=lambda token: (-counts[token], token))]
        vocabulary = {token: number for number, token in enumerate(ordered[: self.max_size])}
        self._use(tokenizers.Tokenizer(WordLevel(vocabulary, unk_token=SPECIALS[UNK])))

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The ids of each line, without `<sos>` and `<eos>`."""
        return [[self._ids.get(token, UNK) for token, _, _ in self._pieces(line)] for line in lines]

    def spans(self, line: str) -> list[tuple[int, int]]:
        """The characters of `line`, as (start, end), that each id of `encode` stands for."""
        return [(start, end) for _, start, end in self._pieces(line)]

    def decode_spans(self, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        """The text of `decode`, and the (start, end) in it of each id; empty where an id adds no text."""
        text = ""
        spans = []
        joined = True
        for number in ids:
            if number in (PAD, SOS, EOS):
                spans.append((len(text), len(text)))
                continue
            token = self._tokens[number]
            if not joined and not token.startswith(JOINER):
                text += " "
            joined = token.endswith(JOINER)
            start = len(text)
            text += _plain(token)
            spans.append((start, len(text)))
        return text, spans

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """The word or symbol of each id, without its joiners."""
        return [visible(_plain(self._tokens[number])) for number in ids]

    def _use(self, backend: tokenizers.Tokenizer) -> None:
        super()._use(backend)
        self._ids = backend.get_vocab(with_added_tokens=False)
        self._tokens = sorted(self._ids, key=self._ids.__getitem__)

    def _pieces(self, line: str) -> Iterator[tuple[str, int, int]]:
        """Each token with its joiners, and the start and end of its characters in `line`."""
        for match in _PIECE.finditer(line):
            start, end = match.span()
            # Lowercased by the piece, not by the line: "İ" grows, and the spans are those of `line`.
            token = match[0].lower() if self.lowercase else match[0]
            if match.lastgroup == "elided":
                token += JOINER
            elif match.lastgroup == "symbol":
                if token == JOINER:
                    token = ESCAPED_JOINER
                if start > 0 and not line[start - 1].isspace():
                    token = JOINER + token
                if end < len(line) and (line[end].isalnum() or line[end] == "_"):
                    token += JOINER
            yield token, start, end


def _plain(token: str) -> str:
    """What a token stands for in the text."""
    piece = token.removeprefix(JOINER).removesuffix(JOINER)
    return JOINER if piece == ESCAPED_JOINER else piece
