"""The direction of text."""

import pytest

from seq2seq_lab.runtime.direction import arrow, direction, direction_of_words, isolate, visual_order


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a book", "ltr"),
        ("זה ספר", "rtl"),
        ("(«هذا» is Arabic)", "rtl"),
        ("12. אחת", "rtl"),
        ("GPU ספר", "ltr"),
        ("\u2067זה\u2069 a", "ltr"),
        ("12 !", None),
        ("ܫܠܡܐ", "rtl"),
        ("ދިވެހި", "rtl"),
        ("हिन्दी", "ltr"),
    ],
)
def test_the_first_letter_decides(text: str, expected: str | None) -> None:
    assert direction(text) == expected


def test_special_tokens_have_no_direction() -> None:
    assert direction_of_words(["<sos>", "זה", "<eos>"]) == "rtl"
    assert direction_of_words(["<sos>", "a", "זה", "<eos>"]) == "ltr"


def test_an_arrow_is_shown_from_the_first_to_the_second_text() -> None:
    assert arrow("a", "זה") == "a → זה"
    assert arrow("1 זה", "a") == "1 זה ← a"
    assert arrow("", "זה") == " ← זה"


def test_only_text_with_right_to_left_letters_is_isolated() -> None:
    assert isolate("naïve 書") == "naïve 書"
    assert isolate("זה.") == "\u2067זה.\u2069"
    assert isolate("a זה") == "\u2066a זה\u2069"
    assert isolate("a", "rtl") == "a"
    assert direction(isolate("זה")) is None, "an isolate does not give its line a direction"


@pytest.mark.parametrize(
    ("words", "of_text", "expected"),
    [
        ("a b c", "ltr", "a b c"),
        ("א ב ג", "rtl", "ג ב א"),
        ("א b c ד", "rtl", "ד b c א"),  # foreign words keep their order
        ("a ב ג d", "ltr", "a ג ב d"),
        ("א 12 , 3 .", "rtl", ". 3 , 12 א"),
        ("a ב 12 d", "ltr", "a 12 ב d"),  # a number belongs to the word before it
        ("a b !", "rtl", "! a b"),
        ("א ב !", "ltr", "ב א !"),
        ("", "rtl", ""),
    ],
)
def test_words_from_left_to_right(words: str, of_text: str, expected: str) -> None:
    line = words.split()
    assert " ".join(line[i] for i in visual_order(line, of_text)) == expected  # type: ignore[arg-type]
