"""Words that are added to the vocabulary of the training text."""

from pathlib import Path
from typing import Any

import pytest

from seq2seq_lab.data.tokenizers import (
    UNK,
    BpeTokenizer,
    Tokenizer,
    WhitespaceTokenizer,
    WordTokenizer,
    load_tokenizer,
)
from seq2seq_lab.data.tokenizers.turns import TurnTokenizer
from seq2seq_lab.errors import UserError

SETTINGS: dict[str, Any] = {"joint": False, "lowercase": False, "min_frequency": 2, "max_size": 5}


def trained(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.use_languages("en")
    tokenizer.train(["the cat", "the dog", "the cat"])  # max_size: only "the" is a type
    return tokenizer


@pytest.mark.parametrize(
    "tokenizer",
    [WordTokenizer(**SETTINGS), WhitespaceTokenizer(**SETTINGS), TurnTokenizer.of(WordTokenizer(**SETTINGS))],
)
def test_added_words_follow_the_types_of_the_training_text(tokenizer: Tokenizer, tmp_path: Path) -> None:
    trained(tokenizer).add_words(["zebra", "the", "cat", "<unk>", "zebra", "two words", "<eos>"])
    assert tokenizer.encode(["the zebra cat dog"]) == [[4, 5, 6, UNK]]
    assert "zebra" in tokenizer.tokens(range(tokenizer.size))
    tokenizer.save(tmp_path, "source")
    saved = load_tokenizer(tmp_path, "source")
    assert saved.encode(["the zebra <eos>"]) == tokenizer.encode(["the zebra <eos>"])


def test_the_words_are_cut_as_the_text_is() -> None:
    tokenizer = trained(WordTokenizer(**SETTINGS | {"lowercase": True}))
    tokenizer.add_words(["Zebra", "n't", "-"])  # "n't" is two tokens
    assert tokenizer.tokens(range(4, tokenizer.size)) == ["the", "zebra", "-"]
    assert tokenizer.encode(["ZEBRA"]) == [[5]]


def test_a_tokenizer_of_subwords_is_refused() -> None:
    tokenizer = BpeTokenizer(joint=False, lowercase=False, vocab_size=300, min_frequency=2, dropout=0.0)
    with pytest.raises(UserError, match=r"task\.vector_words.*tokenizer=word"):
        tokenizer.add_words(())
