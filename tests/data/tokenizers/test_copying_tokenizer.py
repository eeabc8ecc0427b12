"""The tokenizer whose vocabulary is extended by the unknown words of each source."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from seq2seq_lab.data.corpus import ParallelText
from seq2seq_lab.data.tokenized import tokenize_text
from seq2seq_lab.data.tokenizers import UNK, CharTokenizer, TokenizerPair, WhitespaceTokenizer, WordTokenizer
from seq2seq_lab.data.tokenizers.bpe import BpeTokenizer
from seq2seq_lab.data.tokenizers.copying import CopyingTokenizer
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.embedding import Embedding
from seq2seq_lab.tasks.vectors import load_vectors

OPTIONS: dict[str, Any] = {"joint": True, "lowercase": False, "min_frequency": 1, "max_size": None}
SOURCE = "Zoe met Bob and Zoe saw Kim"


def copying(kind: type[Any] = WhitespaceTokenizer, count: int = 2) -> CopyingTokenizer:
    made = CopyingTokenizer.of(kind(**OPTIONS), count)
    made.train(["met and saw ."])
    return made


def test_unknown_words_of_a_source_are_numbered() -> None:
    made = copying()
    base = made.size - 2
    zoe, bob = base, base + 1
    (ids,) = made.encode([SOURCE])
    assert [ids[i] for i in (0, 2, 4)] == [zoe, bob, zoe]
    assert ids[-1] == UNK  # the third one
    assert made.encode_outputs(["Bob met Eve Kim Zoe"], [SOURCE]) == [[bob, ids[1], UNK, UNK, zoe]]
    assert [*made.for_source(SOURCE).encode([SOURCE])[0]] == ids
    assert made.encode(["Bob met Zoe"]) == [[zoe, ids[1], bob]]  # of another source
    assert made.for_source(SOURCE).size == made.size


def test_the_sign_of_unknown_words_is_no_word_to_copy() -> None:
    made = copying()
    zoe, bob = made.size - 2, made.size - 1
    line = "<unk> met Zoe and Bob"
    (ids,) = made.encode([line])
    assert [ids[i] for i in (0, 2, 4)] == [UNK, zoe, bob]
    assert made.encode_outputs(["<unk> saw Zoe"], [line])[0][::2] == [UNK, zoe]


def test_an_output_is_text_with_the_words_of_its_source() -> None:
    made = copying(WordTokenizer, 3)
    made.train(["he met her, it’s met."])
    line, output = "Zoe, it’s Bob.", "it’s Zoe. Eve met Bob."
    view = made.for_source(line)
    (ids,) = made.encode_outputs([output], [line])
    assert view.encode([output])[0] == ids
    assert view.decode(ids) == output.replace("Eve", "⁇")
    assert {"Zoe", "Bob"} <= {*view.tokens(ids)}
    text, spans = view.decode_spans(ids)
    assert [text[start:end] for start, end in spans if text[start:end] in ("Zoe", "Bob")] == ["Zoe", "Bob"]
    assert "⁇" in made.decode([made.size - 1])  # without a source
    assert made.unknown_words(line) == []


def test_it_is_saved_and_read(tmp_path: Path) -> None:
    made = copying()
    TokenizerPair(made, made).save(tmp_path)
    pair = TokenizerPair.load(tmp_path)
    assert pair.source.options() == made.options()
    assert (pair.target.size, pair.source.encode([SOURCE])) == (made.size, made.encode([SOURCE]))
    assert pair.for_source(SOURCE).target.decode(made.encode([SOURCE])[0]) == SOURCE.replace("Kim", "⁇")
    plain = WhitespaceTokenizer(**OPTIONS)
    plain.train(["a"])
    assert TokenizerPair(plain, plain).for_source("b").source is plain


def test_targets_are_encoded_with_their_sources() -> None:
    made = copying()
    text = ParallelText([SOURCE, "Kim met Zoe"], ["Bob and Zoe", "Zoe"])
    found = tokenize_text(text, TokenizerPair(made, made), "train")
    rows = found.target.tokens.tolist()
    expected = made.encode_outputs(text.target, text.source)
    assert rows[1:4] == expected[0]
    assert rows[6:7] == expected[1] == [made.size - 1]


def test_word_vectors_are_those_of_the_words_with_an_embedding(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = copying()
    (tmp_path / "words.txt").write_text("met 1 2\nZoe 3 4\n<unk> 5 6\n", "utf-8")
    parts: Any = SimpleNamespace(vectors={"source": tmp_path / "words.txt"})
    embedding = Embedding(made.size - 2, 2, 2, frozen=False, extended=True)
    (ids,) = made.encode([SOURCE])
    with caplog.at_level("INFO"):
        load_vectors(parts, "source", embedding, scale=1.0, tokenizer=made, tokens=torch.tensor(ids))
    zoe, met, *_ = ids
    assert embedding(torch.tensor(met)).tolist() == [1, 2]
    assert torch.equal(embedding(torch.tensor(zoe)), embedding(torch.tensor(UNK)))
    assert embedding(torch.tensor(zoe)).tolist() != [3, 4]
    assert "1 of 4 types (25.0%), 14.3% of the training tokens" in caplog.text  # 1 of 7 tokens


def test_tokenizers_whose_unknown_tokens_are_no_words_are_refused() -> None:
    with pytest.raises(UserError, match=r"readout\.copied_words"):
        CopyingTokenizer.of(
            BpeTokenizer(joint=True, lowercase=False, vocab_size=300, min_frequency=2, dropout=0.0), 2
        )
    assert CopyingTokenizer.of(CharTokenizer(**OPTIONS), 2).joint
