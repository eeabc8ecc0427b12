"""Where word, char and whitespace cut a line, and what they do with what they do not know."""

import json
import sys
import unicodedata
from pathlib import Path

import pytest
import regex
from odd_lines import ODD, make, trained

from seq2seq_lab.data.tokenizers import UNK, Tokenizer, WordTokenizer, load_tokenizer


def pieces(tokenizer: Tokenizer, line: str) -> list[str | None]:
    return [tokenizer._backend.id_to_token(number) for number in tokenizer.encode([line])[0]]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("l'homme dort.", ["l'￭", "homme", "dort", "￭."]),
        ("l’homme", ["l’￭", "homme"]),
        ("don't", ["don'￭", "t"]),
        ('"well-known" (1)', ['"￭', "well", "￭-￭", "known", '￭"', "(￭", "1", "￭)"]),
        ("fin... ?", ["fin", "￭.", "￭.", "￭.", "?"]),
        ("(_x)", ["(￭", "_x", "￭)"]),
        ("d'l'a", ["d'￭", "l'￭", "a"]),
        ("a_b ￭ ￭￭c", ["a_b", "<￭>", "<￭>", "￭<￭>￭", "c"]),
    ],
)
def test_word_puts_the_joiner_on_symbols_and_elided_words_only(line: str, expected: list[str]) -> None:
    tokenizer = make("word", min_frequency=1)
    tokenizer.train([line])
    assert pieces(tokenizer, line) == expected
    assert tokenizer.decode(tokenizer.encode([line])[0]) == line


def test_the_pattern_of_word_cuts_as_word_does() -> None:
    numbers = [*range(0x3400), *range(0x3400, 0xD800, 97), *range(0xE000, sys.maxunicode + 1, 97)]
    assigned = [letter for letter in map(chr, numbers) if unicodedata.category(letter) != "Cn"]
    lines = [*ODD, "".join(assigned), *(f".{one}. {one}a'{one} ({one} ￭{one}" for one in assigned)]
    tokenizer = make("word")
    assert isinstance(tokenizer, WordTokenizer)
    pattern = regex.compile(tokenizer.pattern)
    for line in lines:
        found = [
            "￭" * bool(piece["left"]) + (piece[0] if piece[0] != "￭" else "<￭>") + "￭" * bool(piece["right"])
            for piece in pattern.finditer(line)
        ]
        assert found == [*tokenizer._cut(line)], line


def test_word_spans_of_unknown_words_are_those_of_the_line() -> None:
    tokenizer = make("word", min_frequency=1)
    tokenizer.train(["a"])
    assert tokenizer.encode(["zut,  a"]) == [[UNK, UNK, 4]]
    assert tokenizer.spans("zut,  a") == [(0, 3), (3, 4), (6, 7)]


def test_a_character_that_does_not_print_is_shown_as_its_number() -> None:
    tokenizer = trained("word")
    assert tokenizer.tokens(tokenizer.encode(["zero\u200bwidth"])[0]) == ["zero", "<U+200B>", "width"]


def test_char_has_a_token_for_each_code_point() -> None:
    tokenizer = make("char", min_frequency=1)
    tokenizer.train(["a e\u0301\u00a0"])
    assert pieces(tokenizer, "a e\u0301\u00a0") == ["a", " ", "e", "\u0301", "\u00a0"]
    assert tokenizer.tokens(tokenizer.encode(["a \u00a0"])[0]) == ["a", "▁", "<U+00A0>"]
    assert tokenizer.spans("a é") == [(0, 1), (1, 2), (2, 3)]


def test_char_rare_characters_are_unknown() -> None:
    tokenizer = make("char", min_frequency=2)
    tokenizer.train(["aab"])
    assert tokenizer.encode(["ab a"]) == [[4, UNK, UNK, 4]]
    assert tokenizer.decode([4, UNK, 4]) == "a⁇a"


def test_whitespace_cuts_only_at_spaces() -> None:
    tokenizer = make("whitespace", min_frequency=1)
    line = "sub@@ word ( 10\u00a0000 ) <pad> ￭\t."
    tokenizer.train([line])
    (ids,) = tokenizer.encode([line])
    assert tokenizer.tokens(ids) == [
        "sub@@",
        "word",
        "(",
        "10<U+00A0>000",
        ")",
        "<pad>",
        "￭<U+0009>.",
    ]
    assert UNK not in ids
    assert tokenizer.decode(ids) == line


@pytest.mark.parametrize("lowercase", [True, False])
def test_unk_in_the_text_is_the_unknown_type(lowercase: bool, tmp_path: Path) -> None:
    tokenizer = make("whitespace", min_frequency=1, lowercase=lowercase)
    tokenizer.train(["a a <unk> <UNK> <unk>"])
    other = UNK if lowercase else 5
    assert tokenizer.encode(["<unk> a <UNK> zebra"]) == [[UNK, 4, other, UNK]]
    assert tokenizer.size == (5 if lowercase else 6)
    # The vocabulary of an earlier version has the type <unk> of the text beside the unknown one.
    tokenizer.save(tmp_path, "x")
    path = tmp_path / "x.json"
    saved = json.loads(path.read_text("utf-8"))
    saved["model"]["vocab"][" <unk>"] = tokenizer.size
    path.write_text(json.dumps(saved), "utf-8")
    earlier = load_tokenizer(tmp_path, "x")
    assert earlier.encode(["<unk> zebra"]) == [[tokenizer.size, UNK]]
    assert earlier.tokens([tokenizer.size]) == ["<unk>"]


@pytest.mark.parametrize("name", ["word", "char", "whitespace", "spacy"])
@pytest.mark.parametrize("lowercase", [True, False])
def test_the_fast_way_to_cut_is_the_same(name: str, lowercase: bool) -> None:
    tokenizer = make(name, lowercase=lowercase)
    for line in [*ODD, "ΟΔΟΣ Σ. İSTANBUL"]:
        assert list(tokenizer._cut(line)) == [token for token, _, _ in tokenizer.pieces(line)]
