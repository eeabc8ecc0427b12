"""The languages that are treated differently from others, by the labels that data sets give to languages."""

import re

# Other names for the codes of ISO 639-1: those of ISO 639-2 and 639-3, English names, and frequent mistakes.
_NAMES = {
    "zh": "zho chi cmn yue wuu gan hsn cjy lzh cn chinese mandarin cantonese",
    "ja": "jpn jp japanese",
    "ko": "kor korean",
    "th": "tha thai",
    "lo": "lao",
    "km": "khm khmer cambodian",
    "my": "mya bur burmese myanmar",
    "bo": "bod tib tibetan",
    "dz": "dzo dzongkha",
    "shn": "shan",
    "tr": "tur turkish",
    "az": "aze azj azb azerbaijani",
    "el": "ell gre greek",
}
_CODES = {name: code for code, names in _NAMES.items() for name in names.split()}

UNSPACED = frozenset(("zh", "ja", "th", "lo", "km", "my", "bo", "dz", "shn"))
"""The codes of languages that are written without spaces between words."""


def language_code(label: str | None) -> str:
    """Return the code of a language: `zh` for `zh-CN`, `zho_Hans`, `cmn` and `Chinese`.

    A label that is in none of the lists of this module is returned without what follows its first part, in lower case.
    """
    first = re.split(r"[-_.@ (]", (label or "").strip().lower())[0]
    return _CODES.get(first, first)


_SIGMA = "Σ"  # its lower case depends on its position in the word
_DOTTED = (("İ", "i"), ("I", "ı"))  # in Turkish and Azerbaijani, i and ı are two letters
CASES = {"tr": _DOTTED, "az": _DOTTED}
"""The capital letters whose lower case differs from that of other languages, with it, by the code of the language."""


def lowercase(text: str, label: str | None) -> str:
    """Return a text in lower case by the rules of a language.

    Args:
        label: that of the language; see `language_code`.
    """
    return _with_own_cases(text, label).lower()


def fold_case(text: str, label: str | None) -> str:
    """Return a text without differences of case, for comparison, by the rules of a language.

    Args:
        label: that of the language; see `language_code`.
    """
    return _with_own_cases(text, label).casefold()


def _with_own_cases(text: str, label: str | None) -> str:
    for capital, small in CASES.get(language_code(label), ()):
        text = text.replace(capital, small)
    return text


def lowercase_letters(text: str, label: str | None) -> list[str]:
    """Return the lower case of each character of a text by the rules of a language; that of İ has two characters.

    Σ becomes ς at the end of a word.

    Args:
        label: that of the language; see `language_code`.
    """
    letters = [lowercase(letter, label) for letter in text]
    if _SIGMA in text:
        whole = text.replace("İ", "I").lower()  # as long as the text
        letters = [whole[i] if text[i] == _SIGMA else letter for i, letter in enumerate(letters)]
    return letters
