"""Word vectors: each type of a vocabulary gets the right one, and errors name the location in the file."""

import gzip
import logging
import re
import tracemalloc
from itertools import permutations
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from seq2seq_lab.config.schema import CONF_DIR
from seq2seq_lab.data import progress
from seq2seq_lab.data.tatoeba import Tatoeba
from seq2seq_lab.data.tokenized import tokenize_corpus
from seq2seq_lab.data.tokenizers import SPECIALS, BpeTokenizer, CharTokenizer, Tokenizer, WordTokenizer
from seq2seq_lab.data.vectors import WordVectors, coverage, read_vectors, vector_size
from seq2seq_lab.errors import UserError

KEY = "embedding.source.path"
GLOVE = "the 0.5 -1 2e-1\ncat 1 2 3\n, 4 5 6\n"
FASTTEXT = "3 3\nthe 0.5 -1 2e-1 \ncat 1 2 3 \n, 4 5 6 \n"
CAT = [1.0, 2.0, 3.0]


def write(folder: Path, text: str | bytes, name: str = "vectors.txt") -> Path:
    data = text.encode() if isinstance(text, str) else text
    path = folder / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def vocabulary(*names: str) -> list[str]:
    return [*SPECIALS, *names]


def found(path: Path, types: list[str]) -> dict[str, list[float]]:
    """The vectors of the types that have one."""
    words = read_vectors(path, KEY, types)
    assert words.vectors_VD.dtype == torch.float32
    assert words.found_V.dtype == torch.bool
    assert len(words.vectors_VD) == len(words.found_V) == len(types)
    assert not words.vectors_VD[~words.found_V].any()
    return {types[i]: words.vectors_VD[i].tolist() for i in words.found_V.nonzero().flatten().tolist()}


def test_lower_case_is_that_of_the_language(tmp_path: Path) -> None:
    path = write(tmp_path, "isparta 1 2\n\u0131sparta 3 4\n")
    for case, vector in ((None, [1, 2]), ("tr", [3, 4])):
        assert read_vectors(path, KEY, vocabulary("Isparta"), case).vectors_VD[-1].tolist() == vector


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (GLOVE, "glove.txt"),
        (GLOVE, "glove.txt.gz"),
        (GLOVE.replace("\n", "\r\n"), "glove.txt"),
        ("\ufeff" + GLOVE, "glove.txt"),
        (GLOVE.removesuffix("\n"), "glove.txt"),
        (FASTTEXT, "fasttext.vec"),
        (FASTTEXT, "fasttext.vec.gz"),
    ],
)
def test_formats(tmp_path: Path, text: str, name: str) -> None:
    path = write(tmp_path, text, name)
    assert vector_size(path, KEY) == 3
    vectors = found(path, vocabulary("dog", "cat", "the", "3"))
    assert vectors == {"cat": CAT, "the": pytest.approx([0.5, -1, 0.2])}


@pytest.mark.parametrize(
    "word", ["at name@mail.com", ". . .", "2\u00a0000", "\u00a0", "a\u2028b", "New  York", "1984"]
)
@pytest.mark.parametrize("first", [True, False])
def test_words_that_hold_spaces(tmp_path: Path, word: str, first: bool) -> None:
    lines = [f"{word} 1 2 3\n", "the 4 5 6\n"]
    path = write(tmp_path, "".join(lines if first else reversed(lines)))
    assert vector_size(path, KEY) == 3
    assert found(path, vocabulary(word, "the", word[0])) == {word: CAT, "the": [4, 5, 6]}


def test_a_preferred_form_is_used_in_any_order_of_the_file(tmp_path: Path) -> None:
    lines = ["￭The 1 1\n", "The 2 2\n", "the 3 3\n"]
    for number, order in enumerate(permutations(lines)):
        path = write(tmp_path, "".join(order), f"{number}.txt")
        assert found(path, vocabulary("￭The", "The￭", "the", "THE")) == {
            "￭The": [1, 1],
            "The￭": [2, 2],
            "the": [3, 3],
            "THE": [3, 3],
        }


def test_the_first_of_equal_words_counts(tmp_path: Path) -> None:
    path = write(tmp_path, "the 1 1\nthe 2 2\n")
    assert found(path, vocabulary("the", "The")) == {"the": [1, 1], "The": [1, 1]}


def test_special_tokens_get_no_vector_but_equal_text_does(tmp_path: Path) -> None:
    path = write(tmp_path, "".join(f"{name} 1 2 3\n" for name in (*SPECIALS, "cat")))
    words = read_vectors(path, KEY, vocabulary("cat", "<eos>"))
    assert words.found_V.tolist() == [False] * 4 + [True] * 2


def test_joiners_are_not_looked_for(tmp_path: Path) -> None:
    path = write(tmp_path, "l' 1 1\n. 2 2\nhomme 3 3\n￭ 4 4\n")
    types = vocabulary("L'￭", "￭.", ".￭", "￭.￭", "homme", "￭<￭>", "￭")
    assert found(path, types) == {
        "L'￭": [1, 1],
        "￭.": [2, 2],
        ".￭": [2, 2],
        "￭.￭": [2, 2],
        "homme": [3, 3],
        "￭<￭>": [4, 4],
        "￭": [4, 4],
    }


def trained(tokenizer: Tokenizer, lines: list[str]) -> list[str]:
    tokenizer.train(lines)
    return tokenizer.tokens(range(tokenizer.size))


def test_types_of_the_tokenizer_of_words(tmp_path: Path) -> None:
    tokenizer = WordTokenizer(joint=False, lowercase=False, min_frequency=1, max_size=None)
    types = trained(tokenizer, ["L'homme dort.", "Les chiens"])
    path = write(tmp_path, "l' 1 1\nhomme 2 2\nDort 3 3\n. 4 4\n")
    assert found(path, types) == {"L'": [1, 1], "homme": [2, 2], ".": [4, 4]}


def test_types_of_the_tokenizer_of_characters(tmp_path: Path) -> None:
    types = trained(CharTokenizer(joint=False, lowercase=False, min_frequency=1, max_size=None), ["à vu"])
    assert found(write(tmp_path, "à 1 1\nvu 2 2\n▁ 3 3\n"), types) == {"à": [1, 1], "▁": [3, 3]}


def test_subwords_inside_a_word_get_no_vector(tmp_path: Path) -> None:
    tokenizer = BpeTokenizer(joint=False, lowercase=False, vocab_size=285, min_frequency=2, dropout=0.0)
    types = trained(tokenizer, ["low tower. Low flower. Ice ice"] * 9)
    assert {"▁low", "low", "▁Low", "ow", ".", "w", "▁", "<0xC3>"} <= set(types)
    path = write(tmp_path, "low 1 1\now 2 2\n. 3 3\nw 4 4\n▁ice 5 5\nice 6 6\n")
    assert found(path, types) == {
        "▁low": [1, 1],
        "▁Low": [1, 1],
        ".": [3, 3],
        "▁ice": [5, 5],
        "▁Ice": [6, 6],
    }


def test_vectors_of_other_words_are_not_parsed(tmp_path: Path) -> None:
    path = write(tmp_path, "the 1 2 3\ndog x nan\tinf 3\n")
    assert found(path, vocabulary("the")) == {"the": CAT}


LINES = "the 1 2 3\ncat 4 5 6\n"
FAULTS: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "empty"),
    "no numbers": ("hello there world\n", "line 1: 'hello there world'"),
    "a blank first line": ("\n" + LINES, "line 1: ''"),
    "a size of 4,400 digits": ("2 " + "3" * 4400 + "\n" + LINES, "line 1: '2 333"),
    "a count of 4,400 digits": ("3" * 4400 + " 3\n" + LINES, "line 1: '333"),
    "no size": ("2 0\n" + LINES, "line 1: '2 0'"),
    "another size": ("2 4\n" + LINES, "line 2: 3 values"),
    "too few": (LINES + "a 1 2\n", "line 3: 2 values"),
    "a blank line": (LINES + "\n", "line 3: 0 values"),
    "cut off": (LINES + "a 1 2 ", "line 3: 2 values"),
    "too many": (LINES + "a 1.5 2.5 3.5 4.5\n", "line 3: more than 3 values"),
    "no number": (LINES + "dog 1 two 3\n", "line 3: 'two'"),
    "not a number": (LINES + "dog 1 nan 3\n", "line 3: 'nan'"),
    "infinite": (LINES + "dog 1 -inf 3\n", "line 3: '-inf'"),
    "over float32": (LINES + "dog 1 2 1e39\n", "line 3: '1e39'"),
    "two spaces": (LINES + "dog 1  3\n", "line 3: ''"),
    "not UTF-8": (LINES.encode() + b"caf\xe9 1 2 3\n", "line 3: byte 4"),
    "zip": (b"PK\x03\x04\x14\x00\x00 \xff", "is a ZIP archive"),
    "another language": (LINES, "begins with 'the', 'cat'; the vocabulary with 'dog', 'le chien'"),
}


@pytest.mark.parametrize(("text", "problem"), FAULTS.values(), ids=FAULTS)
def test_faults_are_named_with_their_place(tmp_path: Path, text: str | bytes, problem: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UserError) as caught:
        read_vectors(path, KEY, vocabulary("dog", "le chien"))
    for part in (KEY, str(path), problem):
        assert part in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    missing, other = tmp_path / "glove.txt", write(tmp_path, GLOVE, "other.vec")
    cut = tmp_path / "cut.vec.gz"
    cut.write_bytes(gzip.compress(LINES.encode() * 100)[:-20])
    plain = tmp_path / "plain.gz"
    plain.write_text(LINES)
    bare = tmp_path / "bare.txt"
    bare.write_bytes(b"t\xff 1 2 3\n")
    for path, problem in (
        (missing, f"{KEY}={missing}: .*{other.name}"),
        (tmp_path, f"{KEY}={tmp_path}: .*{other.name}"),
        (cut, f"{KEY}: {cut} cannot be read to its end"),
        (plain, f"{KEY}: {plain} cannot be read to its end"),
        (bare, f"{KEY}: {bare} line 1: byte 2 is not UTF-8"),
    ):
        with pytest.raises(UserError, match=problem):
            read_vectors(path, KEY, vocabulary("dog"))
    for path in (missing, tmp_path, plain, write(tmp_path, "", "empty.txt")):
        with pytest.raises(UserError, match=re.escape(KEY)):
            vector_size(path, KEY)


def test_a_long_file_is_read_as_a_stream(tmp_path: Path) -> None:
    size, count = 200, 4_000
    numbers = " 0.12345" * size
    path = write(tmp_path, f"{count} {size}\n" + "".join(f"word{i}{numbers}\n" for i in range(count)))
    assert path.stat().st_size > 6_000_000
    tracemalloc.start()
    words = read_vectors(path, KEY, vocabulary("word7", f"word{count - 1}", "dog"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert words.found_V.tolist() == [False] * 4 + [True, True, False]
    assert peak < 500_000


def test_a_long_file_shows_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progress, "AFTER_SECONDS", 0.0)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    caplog.set_level(logging.INFO, "seq2seq_lab")
    found(write(tmp_path, GLOVE), vocabulary("the"))
    assert len(caplog.messages) == 3  # one per line
    assert all(message.startswith("Reading vectors.txt: ") for message in caplog.messages)


def test_fewer_vectors_than_promised_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found(write(tmp_path, FASTTEXT), vocabulary("the"))
    assert not caplog.text
    found(write(tmp_path, FASTTEXT.replace("3 3", "400000 3", 1)), vocabulary("the"))
    assert "400,000 vectors, and the file has 3" in caplog.text


def test_coverage_does_not_count_special_tokens() -> None:
    words = WordVectors(torch.zeros(7, 2), torch.tensor([False, False, False, False, True, False, True]))
    #                             unk pad  sos  eos  three types
    share = coverage(words, torch.tensor([10, 99, 500, 500, 60, 25, 5]))
    assert (share.found, share.types, share.token_share) == (2, 3, 0.65)
    assert str(share) == "2 of 3 types (66.7%), 65.0% of the training tokens"
    large = WordVectors(torch.zeros(7853, 1), torch.arange(7853) >= 7853 - 6512)
    assert str(coverage(large, torch.ones(7853, dtype=torch.int64))).startswith(
        "6,512 of 7,849 types (83.0%)"
    )


@pytest.mark.corpora
def test_coverage_of_the_words_of_tatoeba(corpora: Path) -> None:
    path = str(corpora / "tatoeba" / "eng-fra.txt")
    slot = OmegaConf.load(CONF_DIR / "dataset" / "tatoeba.yaml")
    slot.merge_with({"cache_dir": None, "path": path})
    del slot["_target_"]
    corpus = Tatoeba(**slot).load()
    tokenized = tokenize_corpus(
        corpus, lambda: WordTokenizer(joint=False, lowercase=False, min_frequency=2, max_size=None), {}, None
    )
    # The English file has no vector for "I", "a", "'t" and similar words.
    for name, size, tokenizer, tokens, text in (
        (
            "glove.6B.100d.cut.txt",
            100,
            tokenized.tokenizers.source,
            tokenized.train.source_tokens,
            "9,280 of 9,977 types (93.0%), 85.9% of the training tokens",
        ),
        (
            "fr.300d.cut.vec.gz",
            300,
            tokenized.tokenizers.target,
            tokenized.train.target_tokens,
            "14,746 of 15,003 types (98.3%), 99.0% of the training tokens",
        ),
    ):
        file = corpora / "vectors" / name
        assert vector_size(file, KEY) == size
        words = read_vectors(file, KEY, tokenizer.tokens(range(tokenizer.size)))
        assert words.vectors_VD.shape == (tokenizer.size, size)
        assert str(coverage(words, tokens.bincount(minlength=tokenizer.size))) == text
