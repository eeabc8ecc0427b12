"""Byte-level BPE and its dropout."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from odd_lines import ODD, make

from seq2seq_lab.data.tokenizers import SPECIALS, BpeTokenizer, bpe

LINES = [*ODD, "le chat dort", "the cat sleeps", "the cat", "abcab abc ΟΔΟΣ İ"] * 3


def trained(dropout: float, lines: list[str] = LINES, lowercase: bool = False) -> BpeTokenizer:
    tokenizer = make("bpe", vocab_size=330, lowercase=lowercase, dropout=dropout)
    tokenizer.train(lines)
    return tokenizer


def test_one_type_for_a_word_first_or_later() -> None:
    tokenizer = trained(0.0, ["the cat", "cat the"] * 3)
    (ids,) = tokenizer.encode(["cat the cat"])
    assert ids[0] == ids[2]
    assert tokenizer.tokens(ids) == ["▁cat", "▁the", "▁cat"]
    assert tokenizer.spans("cat the cat") == [(0, 3), (4, 7), (8, 11)]


@pytest.mark.parametrize("name", ["bpe", "unigram"])
def test_characters_in_parts(name: str) -> None:
    tokenizer = make(name)
    tokenizer.train(["a"])
    (ids,) = tokenizer.encode(["a🦜b"])
    shown = tokenizer.tokens(ids)
    assert shown[-5:] == ["<0xF0>", "<0x9F>", "<0xA6>", "<0x9C>", "b"]
    assert "".join(shown[:-5]) == "▁a"
    assert tokenizer.spans("a🦜b")[-5:] == [(1, 2), (1, 2), (1, 2), (1, 2), (2, 3)]
    broken = [*ids[:-3], ids[-1]]
    assert tokenizer.decode_spans(broken)[0] == "a��b"
    assert tokenizer.decode_spans(broken)[1][-3:] == [(1, 2), (2, 3), (3, 4)]


@pytest.mark.parametrize("name", ["bpe", "unigram"])
def test_new_text_is_decoded_exactly(name: str) -> None:
    tokenizer = make(name)
    tokenizer.train(["a b"])
    for line in [*ODD, "ჩემი 🦜 Ωmega\u0000\x1f"]:
        assert tokenizer.decode(tokenizer.encode([line])[0]) == line


def test_the_vocabulary_begins_with_special_tokens_and_has_the_requested_size() -> None:
    tokenizer = trained(0.0)
    assert tokenizer.size == 330
    assert tokenizer.tokens(range(4)) == list(SPECIALS)


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("lowercase", [True, False])
def test_every_sample_is_the_same_text_and_a_function_of_the_generator(
    dropout: float, lowercase: bool
) -> None:
    tokenizer = trained(dropout, lowercase=lowercase)
    assert tokenizer.stochastic
    expected = [tokenizer.decode(ids) for ids in tokenizer.encode(LINES)]
    first = tokenizer.sample(LINES, np.random.default_rng(7))
    assert [tokenizer.decode(ids) for ids in first] == expected
    assert tokenizer.sample(LINES, np.random.default_rng(7)) == first
    assert (tokenizer.sample(LINES, np.random.default_rng(8)) == first) is (dropout == 1)
    assert first != tokenizer.encode(LINES)


@pytest.mark.parametrize("lowercase", [True, False])
def test_without_omitted_merges_a_sample_equals_encode(lowercase: bool) -> None:
    # U+001F is white space for Python, and a symbol for the library.
    lines = [*LINES, *["!\x1f! \u2003!\x1c!\t\u00a0 !"] * 9]
    tokenizer = trained(1e-300, lines, lowercase)
    assert tokenizer.sample(lines, np.random.default_rng(1)) == tokenizer.encode(lines)


def test_without_merges_a_sample_is_bytes() -> None:
    tokenizer = trained(1.0)
    for line, ids in zip(ODD, tokenizer.sample(ODD, np.random.default_rng(1)), strict=True):
        text = f" {line}".encode() if line else b""
        assert b"".join(tokenizer._bytes[number] for number in ids) == text
        assert len(ids) == len(text)


def test_a_word_of_two_merges_deviates_as_often_as_it_should() -> None:
    tokenizer = trained(0.3, ["ab"] * 3)  # " ", "a", "b" -> " ", "ab" or " a", "b" -> " ab"
    assert tokenizer.tokens(tokenizer.encode(["ab"])[0]) == ["▁ab"]
    times = 20_000
    sampled = tokenizer.sample(["ab"] * times, np.random.default_rng(3))
    counts = Counter(map(len, sampled))
    for length, probability in {1: 0.7**2, 2: 0.7 * 0.3, 3: 0.3}.items():
        spread = (probability * (1 - probability) / times) ** 0.5
        assert abs(counts[length] / times - probability) < 4 * spread


def outcomes(tokenizer: BpeTokenizer, state: tuple[bytes, ...], rank: dict) -> dict[tuple, float]:
    """Return the exact probability of each segmentation, from the definition."""
    possible = sorted((rank[pair], place) for place, pair in enumerate(pairwise(state)) if pair in rank)
    found: Counter[tuple] = Counter({state: tokenizer.dropout ** len(possible)})
    for better, (_, place) in enumerate(possible):
        chosen = tokenizer.dropout**better * (1 - tokenizer.dropout)
        merged = (*state[:place], state[place] + state[place + 1], *state[place + 2 :])
        for final, probability in outcomes(tokenizer, merged, rank).items():
            found[final] += chosen * probability
    return found


def test_segmentations_have_the_probabilities_of_the_definition() -> None:
    tokenizer = trained(0.4, ["abcab", "abc", "cab", "bc.,."] * 3)
    rank = {
        (tokenizer._bytes[left], tokenizer._bytes[right]): rank
        for (left, right), rank in tokenizer._rank_of.items()
    }
    exact = {
        (*left, *right): p * q  # two words without a space between them: each merges independently
        for left, p in outcomes(tokenizer, tuple(bytes([b]) for b in b" abcab"), rank).items()
        for right, q in outcomes(tokenizer, (b".", b",", b"."), rank).items()
    }
    assert len(exact) > 20
    assert sum(exact.values()) == pytest.approx(1)
    times = 30_000
    sampled = tokenizer.sample(["abcab.,."] * times, np.random.default_rng(5))
    counts = Counter(tuple(tokenizer._bytes[number] for number in ids) for ids in sampled)
    assert set(counts) <= set(exact)
    for state, probability in exact.items():
        spread = (probability * (1 - probability) / times) ** 0.5
        assert abs(counts[state] / times - probability) < 4.5 * spread + 1 / times


def test_a_full_cache_does_not_change_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = trained(0.3).sample(LINES, np.random.default_rng(1))
    monkeypatch.setattr(bpe, "_CACHED", 2)
    tokenizer = trained(0.3)
    assert tokenizer.sample(LINES, np.random.default_rng(1)) == expected
    assert len(tokenizer._segments) <= 2
