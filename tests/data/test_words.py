"""Letters and words in scripts with and without spaces."""

import re
from itertools import accumulate, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq_lab.data import words as words_module
from seq2seq_lab.data.words import is_letter, is_unspaced, letter_words, words


def parts(text: str, *tokens: str) -> list[str]:
    """Return the words of a text; the tokens are in the order of the text."""
    starts = accumulate(tokens, lambda end, token: text.index(token, end), initial=0)
    spans = [(start, start + len(token)) for start, token in zip([*starts][1:], tokens, strict=True)]
    return [text[start:end] for start, end in words(text, spans)]


def test_words_are_separated_by_white_space() -> None:
    assert words(" John  loves\tMary.") == [(1, 5), (7, 12), (13, 18)]
    assert words("") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("हिन्दी में एक किताब है।", "हिन्दी|में|एक|किताब|है।"),
        ("كِتَابٌ جَمِيلٌ", "كِتَابٌ|جَمِيلٌ"),
        ("می‌خواهم بروم", "می‌خواهم|بروم"),
        ("나는 학생이다.", "나는|학생이다."),
        ("今天很好，GPT-4 说。", "今|天|很|好|，|GPT-4|说|。"),
        ("コーヒーを2杯", "コ|ー|ヒ|ー|を|2|杯"),
        ("น้ำดี ๒๐", "น้ำ|ดี|๒๐"),
        ("ខ្ញុំស្រលាញ់", "ខ្ញុំ|ស្រ|លា|ញ់"),
        ("မြန်မာ", "မြ|န်|မာ"),
        ("ສະ\u200bບາຍ", "ສ|ະ|ບ|າ|ຍ"),
        ("ሰላም፡ለዓለም፡፡ሁሉ።", "ሰላም፡|ለዓለም፡፡|ሁሉ።"),
        ("፡ሰላም ለዓለም", "፡|ሰላም|ለዓለም"),
        ("ᠬᠠᠷ\u180eᠠ ᠨᠣᠮ", "ᠬᠠᠷ\u180eᠠ|ᠨᠣᠮ"),
    ],
)
def test_each_letter_of_a_script_without_spaces_is_a_word(text: str, expected: str) -> None:
    assert parts(text) == expected.split("|")


def test_words_that_share_a_token_are_joined() -> None:
    assert parts("今天天气好。", "今天", "天气", "好", "。") == ["今天", "天气", "好", "。"]
    assert parts("今天 good", "今", "天", "go", "od") == ["今", "天", "good"]
    assert parts("a b c", "a b", " c") == ["a b", "c"]


@given(st.text(st.characters(max_codepoint=0xDFF)))
def test_in_scripts_with_spaces_words_are_what_is_between_them(text: str) -> None:
    assert words(text) == [match.span() for match in re.finditer(r"\S+", text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("हिन्दी है।", "हिन्दी|है"),
        ("l'homme, 3.5 a_b", "l|homme|3|5|a_b"),
        ("ᠬᠠᠷ\u180eᠠ, a\u2060b", "ᠬᠠᠷ\u180eᠠ|a\u2060b"),
        ("今天，GPT-4 说。", "今|天|GPT|4|说"),
        ("cʼest co\u00adop", "cʼest|co\u00adop"),
    ],
)
def test_letter_words_have_no_punctuation(text: str, expected: str) -> None:
    assert letter_words(text) == expected.split("|")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("今天天气很好。", True),
        ("你好", True),
        ("ฉันรักเธอมาก วันนี้อากาศดี", True),
        ("ខ្ញុំស្រលាញ់អ្នក", True),
        ("今天 天气 很 好 。", False),
        ("나는 학생이다.", False),
        ("hello 世界", False),
        ("हिन्दी में एक किताब है।", False),
        ("abcdef", False),
    ],
)
def test_text_without_spaces_is_found(line: str, expected: bool) -> None:
    assert is_unspaced([line] * 3) is expected


def test_what_belongs_to_a_letter_is_a_letter() -> None:
    assert all(map(is_letter, "a1_é\u0301\u200d\u200c\u00adि"))
    assert not any(map(is_letter, " .।、😀-"))


def test_the_pattern_for_latin_letters_finds_the_same_words() -> None:
    latin = [chr(code) for code in range(0x300)]
    texts = ["".join(pair) for pair in product(latin[:0x180], ("", "a", "\u00ad", "1 b", "-"))]
    texts += [
        "".join(latin),
        "",
        "l'été n’est pas fini\u00adé",
        "cafe\u0301 au lait",
        "naïve façade, no. 7_b",
    ]
    assert [letter_words(text) for text in texts] == [words_module._LETTERS.findall(text) for text in texts]
