"""The contract of every tokenizer in conf/tokenizer, on difficult lines: text, spans, files."""

import json
import logging
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from odd_lines import DECODED, FOLDER, NAMES, ODD, make, trained
from omegaconf import OmegaConf

from seq2seq_lab.data.corpus import ParallelText
from seq2seq_lab.data.tokenizers import (
    EOS,
    PAD,
    SOS,
    SPECIALS,
    UNK,
    UNKNOWN,
    CharTokenizer,
    Tokenizer,
    TokenizerPair,
    WordTokenizer,
    base,
    fit_tokenizers,
    load_tokenizer,
)
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import MAX_JSON_BYTES

every_tokenizer = pytest.mark.parametrize("name", NAMES)
fitted = cache(trained)


def test_all_tokenizers_are_tested() -> None:
    names = {"bpe", "char", "char_whitespace", "spacy", "unigram", "whitespace", "word"}
    assert set(NAMES) == set(DECODED) == names


@every_tokenizer
def test_yaml_files_set_every_argument(name: str) -> None:
    config = OmegaConf.to_container(OmegaConf.load(FOLDER / f"{name}.yaml"))
    assert config == {"_target_": config["_target_"], **make(name).options()}


def assert_inside_and_in_order(spans: list[tuple[int, int]], text: str) -> None:
    assert all(0 <= start <= end <= len(text) for start, end in spans)
    assert [start for start, _ in spans] == sorted(start for start, _ in spans)
    assert [end for _, end in spans] == sorted(end for _, end in spans)


def assert_round_trip(tokenizer: Tokenizer, lines: Iterable[str], name: str) -> None:
    for line in lines:
        (ids,) = tokenizer.encode([line])
        assert min(ids, default=EOS + 1) > EOS, line
        text, there = tokenizer.decode_spans(ids)
        assert text == tokenizer.decode(ids) == DECODED[name](line)
        spans = tokenizer.spans(line)
        assert len(spans) == len(there) == len(ids)
        assert_inside_and_in_order(spans, line)
        assert_inside_and_in_order(there, text)
        covered = {place for start, end in spans for place in range(start, end)}
        assert covered >= {place for place, letter in enumerate(line) if not letter.isspace()}, line
        assert there == tokenizer.spans(text)
        assert [line[slice(*a)].split() for a in spans] == [text[slice(*b)].split() for b in there]


@every_tokenizer
def test_decoded_text_and_spans_match_the_line(name: str) -> None:
    assert_round_trip(fitted(name), ODD, name)


@pytest.mark.parametrize("name", ["bpe", "unigram"])
@pytest.mark.parametrize(("vocab_size", "reported"), [(270, False), (6_000, True)])
def test_a_vocabulary_smaller_than_requested_is_reported(
    name: str, vocab_size: int, reported: bool, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = make(name, vocab_size=vocab_size)
    with caplog.at_level(logging.INFO):
        tokenizer.train(ODD * 2)
    sizes = f"tokenizer.vocab_size=6,000: the training text gives only {tokenizer.size} types"
    assert (sizes in caplog.text) is ("vocab_size" in caplog.text) is reported


@every_tokenizer
def test_lowercase_keeps_the_spans_of_the_line(name: str) -> None:
    tokenizer = make(name, lowercase=True, min_frequency=1, vocab_size=320)
    line = "THE İİ Cat ΟΔΟΣ, L'HOMME"
    tokenizer.train([line, "the cat", *ODD] * 2)
    (ids,) = tokenizer.encode([line])
    assert tokenizer.decode(ids).startswith("the i̇i̇ cat οδο")
    spans = tokenizer.spans(line)
    assert len(spans) == len(ids)
    assert_inside_and_in_order(spans, line)
    cut = [line[start:end] for start, end in spans]
    assert "".join(dict.fromkeys(cut)).startswith("THE")
    assert {place for start, end in spans for place in range(start, end)} >= {
        place for place, letter in enumerate(line) if letter != " "
    }
    assert tokenizer.encode(["the cat"]) == tokenizer.encode(["THE CAT"])
    for odd in ODD:
        assert len(tokenizer.encode([odd])[0]) == len(tokenizer.spans(odd))


@every_tokenizer
def test_specials_named_in_the_text_are_text(name: str, tmp_path: Path) -> None:
    line = "<eos> <sos> <pad> x<unk>"
    tokenizer = make(name)
    tokenizer.train([line] * 50)
    tokenizer.save(tmp_path, "x")
    for one in (tokenizer, load_tokenizer(tmp_path, "x")):
        (ids,) = one.encode([line])
        assert min(ids) > EOS
        assert one.decode(ids) == line
        assert "".join(one.tokens(ids)).replace("▁", "") == line.replace(" ", "")


@every_tokenizer
def test_specials_are_left_out_of_decoded_text(name: str) -> None:
    tokenizer = make(name, min_frequency=1)
    tokenizer.train(["the cat ."])
    (ids,) = tokenizer.encode(["the cat ."])
    text, spans = tokenizer.decode_spans([SOS, *ids, EOS, PAD])
    assert text == "the cat ."
    assert spans == [(0, 0), *tokenizer.spans("the cat ."), (9, 9), (9, 9)]
    assert tokenizer.tokens([SOS, PAD, EOS, UNK]) == ["<sos>", "<pad>", "<eos>", "<unk>"]
    decoded = tokenizer.decode([*ids, UNK])
    assert UNKNOWN in decoded
    assert "<unk>" not in decoded


@every_tokenizer
def test_tokens_are_printable(name: str) -> None:
    tokenizer = fitted(name)
    shown = [token for ids in tokenizer.encode(ODD) for token in tokenizer.tokens(ids)]
    assert shown
    plain = [token.translate(dict.fromkeys(map(ord, "\u200c\u200d\u00ad"))) for token in shown]
    assert all(token.isprintable() and token and " " not in token for token in plain)


@every_tokenizer
def test_empty_text_is_accepted(name: str, tmp_path: Path) -> None:
    for lines in ([], [""], ["a"]):
        tokenizer = make(name, min_frequency=1)
        tokenizer.train(iter(lines))
        tokenizer.save(tmp_path, "x")
        assert load_tokenizer(tmp_path, "x").encode(["", "a b"]) == tokenizer.encode(["", "a b"])
        assert tokenizer.encode([""]) == [[]]
        assert tokenizer.spans("") == []
        assert tokenizer.decode_spans([]) == ("", [])


@every_tokenizer
def test_the_same_lines_give_the_same_files(name: str, tmp_path: Path) -> None:
    for folder, lines in (("one", ODD * 2), ("two", (ODD * 2)[::-1])):
        tokenizer = make(name, vocab_size=300)
        tokenizer.train(line for line in lines)
        tokenizer.save(tmp_path / folder, "x")
    for file in ("x.json", "x.options.json"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


@every_tokenizer
@pytest.mark.parametrize("lowercase", [True, False])
def test_a_saved_tokenizer_is_loaded_unchanged(name: str, lowercase: bool, tmp_path: Path) -> None:
    tokenizer = trained(name, lowercase)
    tokenizer.save(tmp_path / "new", "side")
    again = load_tokenizer(tmp_path / "new", "side")
    assert type(again) is type(tokenizer)
    assert again.options() == tokenizer.options()
    assert again.size == tokenizer.size
    assert again.encode(ODD) == tokenizer.encode(ODD)
    for ids in again.encode(ODD):
        assert again.decode_spans(ids) == tokenizer.decode_spans(ids)
    again.save(tmp_path / "again", "side")
    for file in ("side.json", "side.options.json"):
        assert (tmp_path / "again" / file).read_bytes() == (tmp_path / "new" / file).read_bytes()


@every_tokenizer
def test_sampling_without_dropout_equals_encode(name: str) -> None:
    tokenizer = fitted(name)
    assert not tokenizer.stochastic
    assert tokenizer.sample(ODD, np.random.default_rng(1)) == tokenizer.encode(ODD)


@every_tokenizer
@pytest.mark.parametrize("joint", [True, False])
def test_pair_is_fitted_on_its_sides_and_read_back(name: str, joint: bool, tmp_path: Path) -> None:
    changes = {"joint": joint, "min_frequency": 1, "languages": {"left": "xx", "right": "xx"}}
    make(name)
    pair = fit_tokenizers(
        lambda: make(name, **changes), ParallelText(["the cat"], ["le chat"]), ("left", "right")
    )
    assert pair.joint is joint
    assert (pair.source is pair.target) is joint
    pair.save(tmp_path)
    again = TokenizerPair.load(tmp_path)
    assert (again.source is again.target) is joint
    assert again.source.encode(["the cat"]) == pair.source.encode(["the cat"])
    assert again.target.encode(["le chat"]) == pair.target.encode(["le chat"])
    if name in ("word", "whitespace", "spacy"):
        assert (UNK in pair.source.encode(["le chat"])[0]) is not joint
        assert UNK not in pair.target.encode(["le chat"])[0]


def test_loading_missing_files_or_an_unknown_class_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="okenizer 'source' not found"):
        TokenizerPair.load(tmp_path)
    trained("word").save(tmp_path, "source")
    options = tmp_path / "source.options.json"
    options.write_text(
        json.dumps(
            json.loads(options.read_text()) | {"class": "seq2seq_lab.data.tokenizers.word.WordTokeniser"}
        )
    )
    with pytest.raises(
        UserError, match=r"Did you mean 'seq2seq_lab\.data\.tokenizers\.word\.WordTokenizer'"
    ) as raised:
        load_tokenizer(tmp_path, "source")
    assert "VocabularyTokenizer" not in str(raised.value)


def test_indirect_subclasses_of_users_are_found(tmp_path: Path) -> None:
    class Shouting(CharTokenizer):
        pass

    tokenizer = Shouting(joint=False, lowercase=False, min_frequency=1, max_size=None)
    tokenizer.train(["a"])
    tokenizer.save(tmp_path, "x")
    assert type(load_tokenizer(tmp_path, "x")) is Shouting


def test_threads_of_the_library_are_configured() -> None:
    assert "TOKENIZERS_PARALLELISM" in os.environ


@pytest.mark.corpora
@every_tokenizer
def test_odd_lines_of_the_real_corpora(corpora: Path, name: str) -> None:
    german = (corpora / "multi30k" / "train.de").read_bytes().decode().split("\n")
    lines = [german[number - 1] for number in (7366, 16510, 16664)]
    no_break = [line for line in german if "\u00a0" in line]
    pairs = (corpora / "tatoeba" / "eng-fra.txt").read_bytes().decode().split("\n")
    french = [pair.split("\t")[1] for pair in pairs if "\u00a0" in pair or "\u202f" in pair][:2000]
    assert no_break
    assert len(french) > 100
    tokenizer = make(name, min_frequency=1, vocab_size=1000)
    tokenizer.train(lines + no_break + french)
    assert_round_trip(tokenizer, lines + no_break + french, name)


def test_vocabulary_is_ordered_by_frequency_then_alphabet() -> None:
    tokenizer = make("word", min_frequency=1)
    tokenizer.train(["d c a b", "b c"])
    assert tokenizer.tokens(range(tokenizer.size)) == [*SPECIALS, *"bcad"]


def test_bounds_of_the_vocabulary() -> None:
    lines = ["b a b c", "d c"]
    rare = make("word", min_frequency=2)
    rare.train(lines)
    assert rare.encode(["a b c d"]) == [[UNK, 4, 5, UNK]]
    assert rare.decode([UNK, 4, UNK]) == "⁇ b ⁇"
    small = WordTokenizer(joint=False, lowercase=False, min_frequency=1, max_size=5)
    small.train(lines)
    assert small.size == 5
    assert small.encode(["b c"]) == [[4, UNK]]


@every_tokenizer
def test_a_vocabulary_that_cannot_be_read_again_is_not_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = trained(name)
    tokenizer.save(tmp_path, "source")
    size = (tmp_path / "source.json").stat().st_size
    monkeypatch.setattr(base, "MAX_VOCABULARY_BYTES", size)
    tokenizer.save(tmp_path, "source")
    load_tokenizer(tmp_path, "source")
    monkeypatch.setattr(base, "MAX_VOCABULARY_BYTES", size - 1)
    with pytest.raises(UserError, match=rf"{tokenizer.size:,} types .* tokenizer\.max_size=N"):
        tokenizer.save(tmp_path, "source")
    with pytest.raises(UserError, match=r"source\.json is larger than"):
        load_tokenizer(tmp_path, "source")


def test_a_vocabulary_that_is_too_large_is_refused_when_it_is_learned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(base, "MAX_VOCABULARY_BYTES", 1000)
    lines = [" ".join(f"word{number}" for number in range(100))]
    with pytest.raises(UserError, match=r"104 types .* tokenizer\.max_size=N"):
        make("word", min_frequency=1).train(lines)
    small = WordTokenizer(joint=False, lowercase=False, min_frequency=1, max_size=5)
    small.train(lines)
    with pytest.raises(UserError, match=r"task\.vector_words=N"):
        small.add_words(lines[0].split())


def test_a_vocabulary_may_be_larger_than_other_json_files(tmp_path: Path) -> None:
    tokenizer = trained("word")
    tokenizer.save(tmp_path, "source")
    with (tmp_path / "source.json").open("ab") as file:
        file.write(b" " * MAX_JSON_BYTES)
    assert load_tokenizer(tmp_path, "source").size == tokenizer.size
