"""Characters as tokens."""

from collections.abc import Iterable, Iterator

from seq2seq_lab.data.languages import lowercase
from seq2seq_lab.data.tokenizers.vocabulary import VocabularyTokenizer


class CharTokenizer(VocabularyTokenizer):
    """Each character, including spaces, is a token.

    A character is a Unicode code point: "é" with a combining accent is two tokens, a family emoji seven. The vocabulary is
    therefore as small as the scripts of the text. Decoding returns the exact text, except for unknown characters.
    """

    def _pieces(self, line: str) -> Iterator[tuple[str, int, int]]:
        # Lowercased by character, because the spans are those of `line` and "İ" becomes two characters.
        return (
            (token, place, place + 1)
            for place, letter in enumerate(line)
            for token in (lowercase(letter, self.case) if self.lowercase else letter)
        )

    def _apart(self, left: str, right: str) -> bool:
        return False

    def _cut(self, line: str) -> Iterable[str]:
        return "".join(lowercase(letter, self.case) for letter in line) if self.lowercase else line
