"""The unigram language model: sizes, order, and what the library's own training lacks."""

import pytest
from odd_lines import ODD, make

from seq2seq_lab.data.tokenizers import SPECIALS, Tokenizer

LINES = [*ODD, "le chat dort", "the cat sleeps", "the cat"] * 3


def trained(lines: list[str], vocab_size: int) -> Tokenizer:
    tokenizer = make("unigram", vocab_size=vocab_size)
    tokenizer.train(lines)
    return tokenizer


@pytest.mark.parametrize("vocab_size", [260, 261, 300, 6000])
@pytest.mark.parametrize("lines", [[], ["é ü 漢字 🦜"], LINES])
def test_the_size_is_at_most_the_requested_one(lines: list[str], vocab_size: int) -> None:
    tokenizer = trained(lines, vocab_size)
    assert 260 <= tokenizer.size <= vocab_size
    assert tokenizer.tokens(range(4)) == list(SPECIALS)
    assert len(set(tokenizer._bytes)) == tokenizer.size


def test_what_frequent_words_share_becomes_one_piece() -> None:
    tokenizer = trained(["the cat sleeps", "then cats sleep", "they sleep", "them cats"] * 20, 300)
    (ids,) = tokenizer.encode(["the cats sleeps"])
    assert tokenizer.tokens(ids) == ["▁the", "▁cat", "s", "▁sleep", "s"]
    assert tokenizer.spans("the cats sleeps") == [(0, 3), (4, 7), (7, 8), (9, 14), (14, 15)]


def test_training_again_gives_the_same_scores() -> None:
    files = {trained(LINES, 300)._backend.to_str() for _ in range(5)}
    assert len(files) == 1
