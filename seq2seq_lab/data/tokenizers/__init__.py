"""Tokenizers: from plain text to the ids of a vocabulary and back."""

from seq2seq_lab.data.corpus import UNKNOWN
from seq2seq_lab.data.tokenizers.base import (
    EOS,
    PAD,
    SOS,
    SPECIALS,
    UNK,
    Tokenizer,
    TokenizerPair,
    fit_tokenizers,
    load_tokenizer,
)
from seq2seq_lab.data.tokenizers.bpe import BpeTokenizer
from seq2seq_lab.data.tokenizers.char import CharTokenizer
from seq2seq_lab.data.tokenizers.char_whitespace import CharWhitespaceTokenizer
from seq2seq_lab.data.tokenizers.pretrained import PretrainedTokenizer
from seq2seq_lab.data.tokenizers.spacy import SpacyTokenizer
from seq2seq_lab.data.tokenizers.unigram import UnigramTokenizer
from seq2seq_lab.data.tokenizers.whitespace import WhitespaceTokenizer
from seq2seq_lab.data.tokenizers.word import WordTokenizer

__all__ = ["EOS", "PAD", "SOS", "SPECIALS", "UNK", "UNKNOWN", "Tokenizer", "TokenizerPair"]
__all__ += [
    "BpeTokenizer",
    "CharTokenizer",
    "CharWhitespaceTokenizer",
    "PretrainedTokenizer",
    "SpacyTokenizer",
]
__all__ += ["UnigramTokenizer"]
__all__ += ["WhitespaceTokenizer", "WordTokenizer", "fit_tokenizers", "load_tokenizer"]
