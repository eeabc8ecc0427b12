"""Tokenizers: what they cut, that they give the text back, and that files give them back."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from seq2seq_lab.data.corpus import ParallelText
from seq2seq_lab.data.tokenizers import (
    EOS,
    PAD,
    SOS,
    SPECIALS,
    UNK,
    BpeTokenizer,
    Tokenizer,
    TokenizerPair,
    WordTokenizer,
    fit_tokenizers,
    load_tokenizer,
)
from seq2seq_lab.errors import UserError

SPACED = [
    "The man who swam across the river sleeps.",
    "L'homme qui dort n'est pas là, aujourd’hui !",
    "« Qu'est-ce que c'est ? » (rien...)",
    '"Don\'t!" she said: "it\'s 3.5 o\'clock" -- well-known',
    "@@ a@@ b <eos> </s> <unk> <pad> snake_case #1",
    "literal ￭ and ￭￭ and a￭b <￭> joiners",
    "emoji 🙂👩‍👩‍👧 and 漢字 end",
    "combining cafe\u0301 n\u0303",
    "zero\u200bwidth",
    "'tis the dogs' day'",
    "",
]
ODD = [
    *SPACED,
    "Pourquoi\u202f? Oui\u00a0! \u00a0x",
    "tab\tand  two spaces ",
    " leads with a space",
    "\u00a0leads with a no-break space",
    "line\u2028separator\u0085next",
    "   ",
    " ",
    "\t",
]
TEXT = [*ODD, "le chat dort", "the cat sleeps", "the cat", "the <eos> cat <eos>"] * 3


def word(lowercase: bool = False, min_frequency: int = 1, max_size: int | None = None) -> WordTokenizer:
    return WordTokenizer(joint=False, lowercase=lowercase, min_frequency=min_frequency, max_size=max_size)


def bpe(joint: bool = True, lowercase: bool = False, vocab_size: int = 320) -> BpeTokenizer:
    return BpeTokenizer(joint=joint, lowercase=lowercase, vocab_size=vocab_size, min_frequency=2)


def trained(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.train(TEXT)
    return tokenizer


@pytest.mark.parametrize("line", SPACED)
def test_word_gives_single_spaced_text_back(line: str) -> None:
    tokenizer = trained(word())
    (ids,) = tokenizer.encode([line])
    assert tokenizer.decode(ids) == line
    assert tokenizer.decode_spans(ids) == (line, tokenizer.spans(line))


@pytest.mark.parametrize("line", ODD)
def test_word_makes_any_white_space_one_space(line: str) -> None:
    tokenizer = trained(word())
    assert tokenizer.decode(tokenizer.encode([line])[0]) == " ".join(line.split())


@pytest.mark.parametrize("line", [*ODD, "never seen: ჩემი 🦜 Ωmega\u0000\x1f"])
def test_bpe_gives_every_text_back_exactly(line: str) -> None:
    tokenizer = trained(bpe())
    (ids,) = tokenizer.encode([line])
    assert tokenizer.decode(ids) == line
    assert tokenizer.decode_spans(ids) == (line, tokenizer.spans(line))
    assert not {UNK, PAD, SOS, EOS} & set(ids)


@pytest.mark.parametrize("make", [word, bpe])
def test_empty_line_has_no_ids(make: Callable[..., Tokenizer]) -> None:
    tokenizer = trained(make())
    assert tokenizer.encode([""]) == [[]]
    assert tokenizer.spans("") == []
    assert tokenizer.decode_spans([]) == ("", [])


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
    tokenizer = word()
    tokenizer.train([line])
    assert pieces(tokenizer, line) == expected
    assert tokenizer.decode(tokenizer.encode([line])[0]) == line


def test_word_vocabulary_is_ordered_by_frequency_then_alphabet() -> None:
    tokenizer = word()
    tokenizer.train(["d c a b", "b c"])
    assert [tokenizer._backend.id_to_token(i) for i in range(tokenizer.size)] == [*SPECIALS, *"bcad"]


def test_word_bounds_of_the_vocabulary() -> None:
    lines = ["b a b c", "d c"]
    rare = word(min_frequency=2)
    rare.train(lines)
    assert rare.encode(["a b c d"]) == [[UNK, 4, 5, UNK]]
    assert rare.decode([UNK, 4, UNK]) == "<unk> b <unk>"
    small = word(max_size=5)
    small.train(lines)
    assert small.size == 5
    assert small.encode(["b c"]) == [[4, UNK]]


def test_spans_of_unknown_words_are_those_of_the_line() -> None:
    tokenizer = word()
    tokenizer.train(["a"])
    assert tokenizer.encode(["zut,  a"]) == [[UNK, UNK, 4]]
    assert tokenizer.spans("zut,  a") == [(0, 3), (3, 4), (6, 7)]


def test_bpe_has_one_type_for_a_word_first_or_later() -> None:
    tokenizer = trained(bpe())
    (ids,) = tokenizer.encode(["cat the cat"])
    assert ids[0] == ids[2]
    assert tokenizer.tokens(ids) == ["▁cat", "▁the", "▁cat"]
    assert tokenizer.spans("cat the cat") == [(0, 3), (4, 7), (8, 11)]


def test_bpe_characters_in_parts() -> None:
    tokenizer = bpe()
    tokenizer.train(["a"])
    (ids,) = tokenizer.encode(["a🦜b"])
    assert tokenizer.spans("a🦜b") == [(0, 0), (0, 1), (1, 2), (1, 2), (1, 2), (1, 2), (2, 3)]
    assert tokenizer.tokens(ids) == ["▁", "a", "<0xF0>", "<0x9F>", "<0xA6>", "<0x9C>", "b"]
    broken = [*ids[:4], *ids[6:]]
    assert tokenizer.decode_spans(broken) == ("a��b", [(0, 0), (0, 1), (1, 2), (2, 3), (3, 4)])


def test_bpe_vocabulary_has_specials_first_and_the_size_asked_for() -> None:
    tokenizer = trained(bpe(vocab_size=300))
    assert tokenizer.size == 300
    assert tokenizer.tokens([UNK, PAD, SOS, EOS]) == list(SPECIALS)


@pytest.mark.parametrize("make", [word, bpe])
def test_specials_named_in_the_text_are_text(make: Callable[..., Tokenizer], tmp_path: Path) -> None:
    tokenizer = make()
    tokenizer.train(["<eos> <pad> <sos> <unk> <eos><eos>"] * 50)
    tokenizer.save(tmp_path, "x")
    for one in (tokenizer, load_tokenizer(tmp_path, "x")):
        (ids,) = one.encode(["<eos><sos> <pad> <unk>"])
        assert min(ids) > EOS
        assert one.decode(ids) == "<eos><sos> <pad> <unk>"


@pytest.mark.parametrize("make", [word, bpe])
def test_specials_are_left_out_of_decoded_text(make: Callable[..., Tokenizer]) -> None:
    tokenizer = trained(make())
    (ids,) = tokenizer.encode(["the cat."])
    text, spans = tokenizer.decode_spans([SOS, *ids, EOS, PAD])
    assert text == tokenizer.decode(ids) == "the cat."
    assert spans == [(0, 0), *tokenizer.spans("the cat."), (8, 8), (8, 8)]
    assert tokenizer.tokens([SOS, PAD, EOS, UNK]) == ["<sos>", "<pad>", "<eos>", "<unk>"]
    assert "<unk>" in tokenizer.decode([*ids, UNK])


@pytest.mark.parametrize("make", [word, bpe])
def test_lowercase_keeps_the_spans_of_the_line(make: Callable[..., Tokenizer]) -> None:
    tokenizer = make(lowercase=True)
    line = "THE İİ Cat"
    tokenizer.train([line] * 3)
    (ids,) = tokenizer.encode([line])
    assert tokenizer.decode(ids) == "the i̇i̇ cat"
    cut = [line[start:end] for start, end in tokenizer.spans(line)]
    assert cut[0] == "THE"
    assert cut[-1] == "Cat"
    assert set(cut[1:-1]) <= {"İ", "İİ"}
    assert {place for start, end in tokenizer.spans(line) for place in range(start, end)} == {
        *range(3),
        4,
        5,
        *range(7, 10),
    }
    assert tokenizer.encode(["the cat"]) == tokenizer.encode(["THE CAT"])


@pytest.mark.parametrize("make", [word, bpe])
def test_tokens_are_printable(make: Callable[..., Tokenizer]) -> None:
    tokenizer = trained(make())
    shown = [token for ids in tokenizer.encode(ODD) for token in tokenizer.tokens(ids)]
    assert shown
    assert all(token.isprintable() for token in shown)


def test_a_character_that_does_not_print_is_shown_as_its_number() -> None:
    tokenizer = trained(word())
    assert tokenizer.tokens(tokenizer.encode(["zero\u200bwidth"])[0]) == ["zero", "<U+200B>", "width"]


@pytest.mark.parametrize("make", [word, bpe])
def test_files_give_the_tokenizer_back(make: Callable[..., Tokenizer], tmp_path: Path) -> None:
    tokenizer = trained(make(lowercase=True))
    tokenizer.save(tmp_path / "new", "side")
    again = load_tokenizer(tmp_path / "new", "side")
    assert type(again) is type(tokenizer)
    assert again.options() == tokenizer.options()
    assert again.size == tokenizer.size
    assert again.encode(ODD) == tokenizer.encode(ODD)
    assert [again.decode(ids) for ids in again.encode(ODD)] == [
        tokenizer.decode(ids) for ids in tokenizer.encode(ODD)
    ]
    again.save(tmp_path / "again", "side")
    for name in ("side.json", "side.options.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "new" / name).read_bytes()


def test_loading_what_is_not_there_or_not_known(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no tokenizer 'source'"):
        TokenizerPair.load(tmp_path)
    trained(word()).save(tmp_path, "source")
    options = tmp_path / "source.options.json"
    options.write_text(json.dumps(json.loads(options.read_text()) | {"class": "WordTokeniser"}))
    with pytest.raises(UserError, match="Did you mean 'WordTokenizer'"):
        load_tokenizer(tmp_path, "source")


@pytest.mark.parametrize("joint", [True, False])
def test_pair_is_fitted_on_its_sides_and_read_back(joint: bool, tmp_path: Path) -> None:
    def make() -> Tokenizer:
        return WordTokenizer(joint=joint, lowercase=False, min_frequency=1, max_size=None)

    pair = fit_tokenizers(make, ParallelText(["the cat"], ["le chat"]))
    assert pair.joint is joint
    assert (pair.source is pair.target) is joint
    assert (UNK in pair.source.encode(["le chat"])[0]) is not joint
    assert UNK not in pair.target.encode(["le chat"])[0]
    pair.save(tmp_path)
    again = TokenizerPair.load(tmp_path)
    assert (again.source is again.target) is joint
    assert again.source.encode(["the cat"]) == pair.source.encode(["the cat"])
    assert again.target.encode(["le chat"]) == pair.target.encode(["le chat"])


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: word(min_frequency=0), "tokenizer.min_frequency=0"),
        (lambda: word(max_size=4), "tokenizer.max_size=4"),
        (lambda: bpe(vocab_size=259), "tokenizer.vocab_size=259"),
        (lambda: BpeTokenizer(True, False, 300, 0), "tokenizer.min_frequency=0"),
    ],
)
def test_values_out_of_range_are_named(make: Callable[[], Tokenizer], key: str) -> None:
    with pytest.raises(UserError, match=key):
        make()


def test_library_threads_are_decided() -> None:
    assert "TOKENIZERS_PARALLELISM" in os.environ


def test_configs_name_the_classes_and_all_their_arguments() -> None:
    from hydra.utils import instantiate
    from omegaconf import OmegaConf

    folder = Path(__file__).parents[2] / "conf" / "tokenizer"
    for name, kind in (("word", WordTokenizer), ("bpe", BpeTokenizer)):
        config = OmegaConf.load(folder / f"{name}.yaml")
        tokenizer = instantiate(config)
        assert type(tokenizer) is kind
        assert OmegaConf.to_container(config) == {"_target_": config._target_, **tokenizer.options()}
