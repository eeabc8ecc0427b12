"""Turns of a dialogue as one sequence of tokens, with every tokenizer."""

from pathlib import Path

import numpy as np
import pytest
from odd_lines import NAMES, make

from seq2seq_lab.data.tokenizers import EOS, TokenizerPair, load_tokenizer
from seq2seq_lab.data.tokenizers.turns import TURN, TurnTokenizer
from seq2seq_lab.errors import UserError

LINES = [
    TURN.join(turns) for turns in (["hello there .", "hi !"], ["hello"], ["hi there", "hello .", "there !"])
]


def trained(name: str) -> TurnTokenizer:
    tokenizer = TurnTokenizer.of(make(name))
    tokenizer.use_languages(*(["en", "en"] if tokenizer.joint else ["en"]))
    tokenizer.train(LINES * 3)
    return tokenizer


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("spacy", "char_whitespace")])
def test_eos_is_between_the_tokens_of_turns(name: str, tmp_path: Path) -> None:
    tokenizer, alone = trained(name), make(name)
    alone.use_languages(*tokenizer._labels)
    alone.train([turn for line in LINES * 3 for turn in line.split(TURN)])
    for line, ids in zip(LINES, tokenizer.encode(LINES), strict=True):
        parts = alone.encode(line.split(TURN))
        assert ids == [token for part in parts for token in (*part, EOS)][:-1]
        spans = tokenizer.spans(line)
        assert len(spans) == len(ids)
        assert [line[slice(*span)] for span, token in zip(spans, ids, strict=True) if token == EOS] == (
            [TURN] * line.count(TURN)
        )
        assert [line[slice(*span)].strip() for span in tokenizer.units(line)] == line.split(TURN)
    assert tokenizer.decode(alone.encode(["hi there"])[0]) == "hi there"
    tokenizer.save(tmp_path, "source")
    loaded = load_tokenizer(tmp_path, "source")
    assert isinstance(loaded, TurnTokenizer)
    assert (loaded.options(), loaded.size) == (tokenizer.options(), tokenizer.size)
    assert loaded.encode(LINES) == tokenizer.encode(LINES)


@pytest.mark.parametrize("name", ["word", "char", "bpe"])
def test_a_window_reads_the_last_turns(name: str, tmp_path: Path) -> None:
    """The characters of tokens and turns are those of the whole line."""
    all_turns = trained(name)
    last_two = TurnTokenizer.of(all_turns.of_one_text, window=2)
    ends = [TURN.join(line.split(TURN)[-2:]) for line in LINES]
    assert last_two.encode(LINES) == all_turns.encode(ends) != all_turns.encode(LINES)
    for line, end in zip(LINES, ends, strict=True):
        for found, expected in (
            (last_two.spans(line), all_turns.spans(end)),
            (last_two.units(line), all_turns.units(end)),
        ):
            assert [line[slice(*span)] for span in found] == [end[slice(*span)] for span in expected]
    last_two.save(tmp_path, "source")
    assert load_tokenizer(tmp_path, "source").encode(LINES) == last_two.encode(LINES)


def test_a_stochastic_tokenizer_draws_each_turn() -> None:
    bpe = make("bpe")
    settings = {**bpe.options(), "dropout": 0.5}
    tokenizer = TurnTokenizer.of(type(bpe)(**settings))
    tokenizer.use_languages("en", "en")
    tokenizer.train(LINES * 30)
    assert tokenizer.stochastic
    drawn = [tokenizer.sample(LINES, np.random.default_rng(seed)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert [ids.count(EOS) for ids in drawn[0]] == [line.count(TURN) for line in LINES]


def test_an_unknown_tokenizer_of_turns_is_refused() -> None:
    with pytest.raises(UserError, match=r"my_file\.Mine"):
        TurnTokenizer("my_file.Mine", {})


def test_a_pair_is_saved_with_its_turns(tmp_path: Path) -> None:
    pair = TokenizerPair(trained("word"), trained("word"))
    pair.save(tmp_path)
    loaded = TokenizerPair.load(tmp_path)
    assert loaded.languages == ("en", "en")
    assert loaded.source.encode(LINES) == pair.source.encode(LINES)
