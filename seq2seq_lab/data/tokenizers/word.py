"""Words and punctuation marks as tokens."""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import regex

from seq2seq_lab.data.languages import lowercase
from seq2seq_lab.data.tokenizers.base import Tokenizer
from seq2seq_lab.data.tokenizers.vocabulary import ESCAPED_JOINER, JOINER, JoinedTokenizer, is_word_letter
from seq2seq_lab.data.words import ATTACHED, ATTACHED_2, LETTER


def _parts(attached: str, one: str = "") -> tuple[str, str]:
    """Return the expressions of a word and of a symbol.

    Args:
        attached: the characters that belong to the one before them, in brackets an expression.
        one: an alternative, several characters that are one symbol.
    """
    symbol = rf"(?:{one}[^\p{{L}}\p{{N}}_\s\x1c-\x1f])[{attached}\p{{Emoji_Modifier}}]*+"
    # Emoji after a zero-width joiner are one symbol with those before it.
    return rf"(?:{LETTER}[{attached}]*+)++", rf"{symbol}(?:(?<=\u200d){symbol})*+"


def _piece(letters: str, symbol: str) -> Any:
    """Return the expression of a token; see `_parts`."""
    return regex.compile(rf"(?P<elided>{letters}['’](?={LETTER}))|(?P<word>{letters})|(?P<symbol>{symbol})")


_PARTS = _parts(ATTACHED, r"\p{Regional_Indicator}{2}|")  # two letters of a flag
# By `Tokenizer.rules`.
_PIECE: dict[int, Any] = {
    1: re.compile(r"(?P<elided>\w+['’](?=\w))|(?P<word>\w+)|(?P<symbol>[^\w\s])"),
    2: _piece(*_parts(ATTACHED_2)),
    3: _piece(*_PARTS),
}


class WordTokenizer(JoinedTokenizer):
    """Words, elided words (`l'`, `qu'`, `don'`) and single symbols, each a token.

    Where no space separates two tokens, the symbol or the elided word has a joiner "￭": `L'homme dort.` is
    `L'￭ homme dort ￭.`. A plain word has no joiner and is therefore the same type everywhere. An elided word has a joiner
    on its right; a symbol has one on its left after any token, and one on its right before a word.

    Decoding returns the text except for unknown words and white space: each run of white space (also tabs, no-break spaces
    and line separators) becomes one space, and none remains at the ends.
    """

    @property
    def pattern(self) -> str:
        """The expression of a token for the library `regex`, for programs without this package.

        The groups `left` and `right` match the neighbors that a joiner separates the token from. For tokenizers that do not
        lowercase, with the current `rules`.
        """
        assert self.rules == Tokenizer.rules
        assert not self.lowercase
        letters, symbol = _PARTS
        before, after = r"(?<=(?P<left>[^\s\x1c-\x1f]))", rf"(?=(?P<right>{LETTER}))"
        return rf"{letters}['’]{after}|{letters}|(?:{before})?+{symbol}(?:{after})?+"

    def pieces(self, line: str) -> Iterator[tuple[str, int, int]]:
        return _pieces(line, self.case if self.lowercase else None, self.rules)

    def _cut(self, line: str) -> Iterable[str]:
        # White space separates tokens: each part can be cut alone.
        case = self.case if self.lowercase else None
        return [token for chunk in line.split() for token in _tokens(chunk, case, self.rules)]


def _pieces(text: str, case: str | None, rules: int) -> Iterator[tuple[str, int, int]]:
    """Yield each token with its joiners, and the start and end of its characters in `text`."""
    for match in _PIECE[rules].finditer(text):
        start, end = match.span()
        # Lowercased by token, because the spans are those of `text` and "İ" becomes two characters.
        token = match[0] if case is None else lowercase(match[0], case)
        if match.lastgroup == "elided":
            token += JOINER
        elif match.lastgroup == "symbol":
            if token == JOINER:
                token = ESCAPED_JOINER
            if start > 0 and not text[start - 1].isspace():
                token = JOINER + token
            if end < len(text) and is_word_letter(text[end]):
                token += JOINER
        yield token, start, end


@lru_cache(maxsize=1 << 17)
def _tokens(chunk: str, case: str | None, rules: int) -> tuple[str, ...]:
    """Return the tokens of text without white space."""
    return tuple(token for token, _, _ in _pieces(chunk, case, rules))
