"""Letters and words in any script: the one definition for tokens, lengths, pictures, alignments and near-duplicates.

A letter is a letter or digit of Unicode, or the underscore, with the characters that belong to it: combining marks
(category M), zero-width joiners and non-joiners, soft hyphens, word joiners, Mongolian vowel separators, and
the tags of flags. Some scripts have no space between words. There, each
letter with its marks is a word (an extended grapheme cluster of Unicode Standard Annex 29): where a word ends can only be
found with a dictionary.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import regex

Span: TypeAlias = tuple[int, int]

ATTACHED_2 = r"\p{M}\u200c\u200d\u00ad"
"""`ATTACHED` of recorded tokenizers with `Tokenizer.rules` = 2."""
ATTACHED = ATTACHED_2 + r"\u180e\u2060\ufeff\U000e0020-\U000e007f"
"""In brackets an expression of `regex`: a character that belongs to the letter before it."""
LETTER = r"[\p{L}\p{N}_]"
"""Expression of `regex`: a letter, a digit or the underscore, without the characters that belong to it."""

# Scripts without a space between words: those in which a line may break between any two letters or by a dictionary (classes
# ID and SA of Unicode Standard Annex 14), and Tibetan, Javanese and Balinese.
_SCRIPTS = (
    *("Han", "Hiragana", "Katakana", "Bopomofo", "Yi", "Tangut", "Nushu"),
    *("Thai", "Lao", "Khmer", "Myanmar", "Tai_Le", "New_Tai_Lue", "Tai_Tham", "Tai_Viet", "Ahom"),
    *("Tibetan", "Javanese", "Balinese"),
)
_SHARED = r"\u3006\u3031-\u3035\u303c\u30fc\uff70"  # letters of several of these scripts, such as the long vowel mark
_UNSPACED_LETTER = r"(?=[\p{L}\p{Nl}])[" + _SHARED + "".join(map(r"\p{{sc={}}}".format, _SCRIPTS)) + "]"
_CLUSTER = rf"(?={_UNSPACED_LETTER})\X[{ATTACHED}]*+"

# Signs that separate words in texts without spaces; the first is the Ethiopic wordspace. Each is part of the word before it.
_DIVIDERS = "\u1361\u16eb-\u16ed\U00010100\U00010101\U0001039f\U000103d0\U0001091f\U00012470"
_DIVIDED = re.compile(rf"[{_DIVIDERS}]+(?=[^\s{_DIVIDERS}])")
# U+200B, a space without width, separates words.
_SEGMENT = re.compile(rf"[^\s\u200b{_DIVIDERS}]*[{_DIVIDERS}]+|[^\s\u200b{_DIVIDERS}]+")
_LATE = re.compile("[\u0e00-\U0010ffff]")  # where the scripts without spaces are; fast to search for
_UNSPACED = regex.compile(_UNSPACED_LETTER)
_SYMBOL = rf"[^\p{{L}}\p{{N}}{ATTACHED}_!-~]"
_UNIT = regex.compile(rf"{_CLUSTER}|{_SYMBOL}++|(?:(?!{_UNSPACED_LETTER}|{_SYMBOL}).)++", regex.DOTALL)
_LETTERS = regex.compile(rf"{_CLUSTER}|(?:(?!{_UNSPACED_LETTER}){LETTER}[{ATTACHED}]*+)++")
# The same for texts of Latin letters, in a quarter of the time; a combining mark is not one of them.
_LATIN = "".join(map(chr, range(0x300)))
_LATIN_LETTERS = re.compile(
    f"(?:[{re.escape(''.join(regex.findall(LETTER, _LATIN)))}]"
    f"[{re.escape(''.join(regex.findall(f'[{ATTACHED}]', _LATIN)))}]*)+"
)
_ATTACHED = regex.compile(rf"[{ATTACHED}]")
_CHANGED = regex.compile(rf"[{ATTACHED}\p{{Emoji_Modifier}}\p{{Regional_Indicator}}]")
_LONG = 5  # letters without a space between them, on average: more than the words of these scripts have


def words(text: str, tokens: Sequence[Span] = ()) -> list[Span]:
    """Return the (start, end) characters of the words of a text, in its order; they do not overlap.

    A word is the text between white space, with its punctuation. In scripts without a space between words, each letter is a
    word, and so is each run of other letters and digits, or of punctuation, between such letters.

    Args:
        tokens: the spans of tokens in the order of the text. Words that have characters of one token are joined, so that
            each token is inside one word: these are the units that weights of tokens can be joined to, as in pictures.
    """
    found: list[Span] = []
    plain = _LATE.search(text) is None or _UNSPACED.search(text) is None
    for segment in _SEGMENT.finditer(text):
        if plain or _UNSPACED.search(segment[0]) is None:
            found.append(segment.span())
        else:
            found += [unit.span() for unit in _UNIT.finditer(text, *segment.span())]
    return _join(found, tokens) if tokens else found


def _join(found: Sequence[Span], tokens: Sequence[Span]) -> list[Span]:
    """Return the words with those joined that have characters of one token."""
    starts, ends = [start for start, _ in found], [end for _, end in found]
    joined: set[int] = set()  # words that are not the first one of a token
    for start, end in tokens:
        first, last = bisect_right(ends, start), bisect_left(starts, end)
        joined.update(range(first + 1, last))
    units: list[Span] = []
    for index, (start, end) in enumerate(found):
        units[-1:] = [(units[-1][0], end)] if index in joined else [*units[-1:], (start, end)]
    return units


def graphemes(text: str) -> list[str]:
    """Return the extended grapheme clusters of a text: characters, each with its marks."""
    return regex.findall(r"\X", text)


def letter_words(text: str) -> list[str]:
    """Return the words of a text without punctuation and symbols."""
    pattern = _LATIN_LETTERS if max(text, default="") <= _LATIN[-1] else _LETTERS
    return pattern.findall(text)


def is_unspaced(lines: Iterable[str]) -> bool:
    """Return whether most letters are of scripts without spaces, and the text has no spaces between words either.

    Text in such a script that another program has cut into words has spaces between words.
    """
    letters = unspaced = segments = count = 0
    for line in lines:
        count += 1
        letters += sum(map(str.isalpha, line))
        if here := len(_UNSPACED.findall(line)):
            unspaced += here
            segments += sum(1 for segment in _SEGMENT.findall(line) if _UNSPACED.search(segment))
    long = unspaced > _LONG * segments or 2 * segments < 3 * count
    return long and unspaced > letters / 2


def is_divided(lines: Iterable[str]) -> bool:
    """Return whether most words of a text are separated by signs such as the Ethiopic wordspace, not by spaces."""
    signs = spaces = 0
    for line in lines:
        signs += len(_DIVIDED.findall(line))
        spaces += len(line.split()) - 1
    return signs > spaces


def has_attached(lines: Iterable[str]) -> bool:
    """Return whether a text has characters that belong to those before them: marks, joiners, parts of emoji."""
    return any(not line.isascii() and _CHANGED.search(line) for line in lines)


def is_letter(character: str) -> bool:
    """Return whether a character is a letter, a digit, the underscore, or belongs to the letter before it."""
    return character.isalnum() or character == "_" or _ATTACHED.match(character) is not None
