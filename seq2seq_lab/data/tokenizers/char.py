"""Characters as tokens."""

from collections.abc import Iterable, Iterator

from seq2seq_lab.data.tokenizers.vocabulary import VocabularyTokenizer


class CharTokenizer(VocabularyTokenizer):
    """Each character, spaces included, is a token.

    A character is a Unicode code point, not what a reader sees as one: "é" written with a combining accent is
    two tokens, a family emoji seven. So the vocabulary stays as small as the scripts in the text, and a
    cluster never seen is known by its parts.

    Decoding gives back the text exactly, every kind of white space too, but for unknown characters.
    """

    def _pieces(self, line: str) -> Iterator[tuple[str, int, int]]:
        # Lowercased by the character, not by the line: "İ" becomes two, and the spans are those of `line`.
        return (
            (token, place, place + 1)
            for place, letter in enumerate(line)
            for token in (letter.lower() if self.lowercase else letter)
        )

    def _apart(self, left: str, right: str) -> bool:
        return False

    def _cut(self, line: str) -> Iterable[str]:
        return "".join(map(str.lower, line)) if self.lowercase else line
