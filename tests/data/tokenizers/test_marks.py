"""Marks, joiners and soft hyphens belong to the letter before them; recorded tokenizers keep their rule."""

import json
import random
from pathlib import Path

import pytest
from tokenizers import pre_tokenizers

from seq2seq_lab.data.tokenizers import (
    BpeTokenizer,
    CharTokenizer,
    Tokenizer,
    WhitespaceTokenizer,
    WordTokenizer,
    load_tokenizer,
)
from seq2seq_lab.errors import UserError

HINDI = "हिन्दी में एक किताब है।"


def fitted(tokenizer: Tokenizer, *lines: str) -> Tokenizer:
    tokenizer.train(lines)
    return tokenizer


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (HINDI, "हिन्दी|में|एक|किताब|है|।"),
        ("كِتَابٌ جَمِيلٌ", "كِتَابٌ|جَمِيلٌ"),
        ("שָׁלוֹם", "שָׁלוֹם"),
        ("l'ẹ́ni dort.", "l'|ẹ́ni|dort|."),
        ("👩🏽\u200d💻 ok!", "👩🏽\u200d💻|ok|!"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("ᠬᠠᠷ\u180eᠠ a\u2060b", "ᠬᠠᠷ\u180eᠠ|a\u2060b"),
        ("🇩🇪🇫🇷 hi🇯🇵", "🇩🇪|🇫🇷|hi|🇯🇵"),
        ("\U0001f3f4\U000e0067\U000e0062\U000e007f!", "\U0001f3f4\U000e0067\U000e0062\U000e007f|!"),
    ],
)
def test_words_keep_their_marks(line: str, expected: str) -> None:
    tokenizer = fitted(WordTokenizer(False, False, 1, None), line)
    assert tokenizer.tokens(tokenizer.encode([line])[0]) == expected.split("|")
    assert tokenizer.decode(tokenizer.encode([line])[0]) == line


@pytest.mark.parametrize(("line", "pieces"), [(HINDI, 6), ("ᠬᠠᠷ\u180eᠠ a\u2060b", 2)])
def test_bpe_merges_across_marks(line: str, pieces: int) -> None:
    tokenizer = fitted(BpeTokenizer(False, False, 2000, 2, 0.0), *[line] * 3)
    assert len(tokenizer.encode([line])[0]) == pieces


@pytest.mark.parametrize("name", ["word", "bpe"])
def test_text_without_marks_is_cut_as_before(name: str) -> None:
    draw = random.Random(1)
    lines = ["".join(draw.choices("ab1 '’séL\t\u00a0.!?😀今ǅ½²_\x1c-ß", k=20)) for _ in range(500)]
    new = WordTokenizer(False, False, 1, None) if name == "word" else BpeTokenizer(False, False, 300, 2, 0)
    fitted(new, *lines)
    if name == "word":
        old = WordTokenizer(False, False, 1, None)
        old.rules = 1
        assert fitted(old, *lines).encode(lines) == new.encode(lines)
    else:
        gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
        for line in lines:
            assert new._backend.pre_tokenizer.pre_tokenize_str(line) == gpt2.pre_tokenize_str(line)


def test_a_recorded_tokenizer_keeps_its_rule(tmp_path: Path) -> None:
    old = WordTokenizer(False, False, 1, None)
    old.rules = 1
    ids = fitted(old, HINDI).encode([HINDI])
    old.save(tmp_path, "source")
    assert "rules" not in json.loads((tmp_path / "source.options.json").read_text("utf-8"))
    assert load_tokenizer(tmp_path, "source").encode([HINDI]) == ids
    new = fitted(WordTokenizer(False, False, 1, None), HINDI)
    new.save(tmp_path, "target")
    assert load_tokenizer(tmp_path, "target").encode([HINDI]) == new.encode([HINDI])
    assert len(ids[0]) == 18


def test_a_tokenizer_of_the_second_rules_keeps_them(tmp_path: Path) -> None:
    line = "ᠬᠠᠷ\u180eᠠ 🇩🇪 हिन्दी"
    old = WordTokenizer(False, False, 1, None)
    old.rules = 2
    fitted(old, line).save(tmp_path, "source")
    assert len(load_tokenizer(tmp_path, "source").encode([line])[0]) == 6
    sigma = CharTokenizer(False, True, 1, None)
    sigma.rules = 2
    fitted(sigma, "ΟΣ").save(tmp_path, "target")
    loaded = load_tokenizer(tmp_path, "target")
    assert loaded.decode(loaded.encode(["ΟΣ"])[0]) == "οσ"


@pytest.mark.parametrize("rules", [0, 4, True, "3"])
def test_unknown_rules_are_refused(rules: object, tmp_path: Path) -> None:
    fitted(CharTokenizer(False, False, 1, None), "a").save(tmp_path, "source")
    path = tmp_path / "source.options.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "rules": rules}), "utf-8")
    with pytest.raises(UserError, match=r"source\.options\.json.*rules"):
        load_tokenizer(tmp_path, "source")


@pytest.mark.parametrize("kind", [WordTokenizer, CharTokenizer, WhitespaceTokenizer, BpeTokenizer])
def test_the_last_sigma_of_a_word_has_a_lower_case_of_its_own(kind: type) -> None:
    line = "ΣΟΦΟΣ ΛΟΓΟΣ, ΘΕΟ\u0301Σ. Σ 1Σ"
    tokenizer = kind(False, True, *((2000, 1, 0.0) if kind is BpeTokenizer else (1, None)))
    fitted(tokenizer, line)
    assert tokenizer.decode(tokenizer.encode([line])[0]) == line.lower()
    assert tokenizer.spans(line)[-1][1] == len(line)


@pytest.mark.parametrize(("label", "expected"), [("tr", "iısı"), ("az-AZ", "iısı"), ("Turkish", "iısı")])
@pytest.mark.parametrize("kind", [WordTokenizer, CharTokenizer, WhitespaceTokenizer, BpeTokenizer])
def test_lower_case_follows_the_language(kind: type, label: str, expected: str, tmp_path: Path) -> None:
    last = (2000, 1, 0.0) if kind is BpeTokenizer else (1, None)
    tokenizer = kind(False, True, *last)
    tokenizer.use_languages(label)
    fitted(tokenizer, "İISI")
    tokenizer.save(tmp_path, "x")
    for one in (tokenizer, load_tokenizer(tmp_path, "x")):
        assert one.decode(one.encode(["İISI"])[0]) == expected
        assert one.spans("İISI")[-1][1] == 4


def test_languages_of_different_case_do_not_share_a_lowercased_vocabulary() -> None:
    with pytest.raises(UserError, match=r"tokenizer\.joint"):
        BpeTokenizer(True, True, 2000, 1, 0.0).use_languages("en", "tr")
    BpeTokenizer(True, False, 2000, 1, 0.0).use_languages("en", "tr")
