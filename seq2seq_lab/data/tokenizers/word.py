"""Words and punctuation marks as tokens."""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from seq2seq_lab.data.tokenizers.vocabulary import ESCAPED_JOINER, JOINER, JoinedTokenizer, is_word_letter

_PIECE = re.compile(r"(?P<elided>\w+['’](?=\w))|(?P<word>\w+)|(?P<symbol>[^\w\s])")


class WordTokenizer(JoinedTokenizer):
    """Words, elided words (`l'`, `qu'`, `don'`) and single symbols, each a token.

    Where no space separates two tokens, the symbol or the elided word has a joiner "￭": `L'homme dort.` is
    `L'￭ homme dort ￭.`. A plain word has no joiner and is therefore the same type everywhere. An elided word has a joiner
    on its right; a symbol has one on its left after any token, and one on its right before a word.

    Decoding returns the text except for unknown words and white space: each run of white space (also tabs, no-break spaces
    and line separators) becomes one space, and none remains at the ends.
    """

    def _pieces(self, line: str) -> Iterator[tuple[str, int, int]]:
        return _pieces(line, self.lowercase)

    def _cut(self, line: str) -> Iterable[str]:
        # White space separates tokens: each part can be cut alone.
        return [token for chunk in line.split() for token in _tokens(chunk, self.lowercase)]


def _pieces(text: str, lowercase: bool) -> Iterator[tuple[str, int, int]]:
    """Yield each token with its joiners, and the start and end of its characters in `text`."""
    for match in _PIECE.finditer(text):
        start, end = match.span()
        # Lowercased by token, because the spans are those of `text` and "İ" becomes two characters.
        token = match[0].lower() if lowercase else match[0]
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
def _tokens(chunk: str, lowercase: bool) -> tuple[str, ...]:
    """Return the tokens of text without white space."""
    return tuple(token for token, _, _ in _pieces(chunk, lowercase))
