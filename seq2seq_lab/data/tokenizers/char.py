"""Characters as tokens."""

from collections.abc import Iterable, Iterator, Sequence

from seq2seq_lab.data.languages import lowercase, lowercase_letters
from seq2seq_lab.data.tokenizers.vocabulary import VocabularyTokenizer


class CharTokenizer(VocabularyTokenizer):
    """Each character, including spaces, is a token.

    A character is a Unicode code point: "é" with a combining accent is two tokens, a family emoji seven. The vocabulary is
    therefore as small as the scripts of the text. Decoding returns the exact text, except for unknown characters.
    """

    def pieces(self, line: str) -> Iterator[tuple[str, int, int]]:
        return (
            (token, position, position + 1)
            for position, letter in enumerate(self._letters(line))
            for token in letter
        )

    def has_space(self, left: str, right: str) -> bool:
        return False

    def _cut(self, line: str) -> Iterable[str]:
        return "".join(self._letters(line))

    def _letters(self, line: str) -> Sequence[str]:
        """Return the text of each character of `line`: one character, and two for a lowercased "İ"."""
        if not self.lowercase:
            return line
        if self.rules < 3:
            return [lowercase(letter, self.case) for letter in line]
        return lowercase_letters(line, self.case)
