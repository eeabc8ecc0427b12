"""The program that trains word vectors and looks at them."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from seq2seq_lab import word_vectors
from seq2seq_lab.data.vectors import read_vectors, vector_size
from seq2seq_lab.errors import UserError

pytest.importorskip("gensim", reason="gensim is not installed (pip install 'seq2seq_lab[vectors]')")

CORPUS = ("dataset.train=300", "dataset.validation=2", "dataset.test=2", "dataset.test_compositional=0")
SMALL = ("--train", "--size", "6", "--epochs", "2")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vectors") / "en.vec"
    word_vectors.main([str(path), *CORPUS, *SMALL])
    return path


def test_the_file_is_read_as_embeddings(file: Path) -> None:
    assert vector_size(file, "embedding.source.path") == 6
    found = read_vectors(
        file, "embedding.source.path", ["<unk>", "<pad>", "<sos>", "<eos>", "the", "king", "￭."]
    )
    assert found.found_V.tolist() == [False] * 4 + [True] * 3
    row = next(line for line in file.read_text("utf-8").splitlines() if line.startswith("king "))
    assert found.vectors_VD[5].tolist() == pytest.approx([float(value) for value in row.split()[1:]])
    assert "<unk>" not in file.read_text("utf-8")
    values = np.loadtxt(file, skiprows=1, usecols=range(1, 7), encoding="utf-8", comments=None)
    assert (values**2).mean() == pytest.approx(1, rel=1e-3)


def test_the_same_command_writes_the_same_file(file: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.vec"
    word_vectors.main([str(again), *CORPUS, *SMALL])
    assert again.read_bytes() == file.read_bytes()
    other = tmp_path / "other.vec"
    word_vectors.main([str(other), *CORPUS, *SMALL, "--method", "cbow", "--side", "target"])
    words = [line.split()[0] for line in other.read_text("utf-8").splitlines()[1:]]
    assert "roi" in words
    assert "king" not in words


def test_nearest_words_analogies_and_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, picture = tmp_path / "four.vec", tmp_path / "four.png"
    vectors = {"man": "1 0 0", "men": "1 0 1", "woman": "0 1 0", "women": "0 1 1", "up": "0.9 0 0.1"}
    file.write_text("5 3\n" + "".join(f"{word} {row}\n" for word, row in vectors.items()), "utf-8")
    questions = ("--nearest", "man", "--analogy", "man", "men", "woman", "--count", "1")
    word_vectors.main([str(file), *questions, "--picture", str(picture)])
    assert capsys.readouterr().out.splitlines()[:2] == ["man: up (0.99)", "man : men = woman : women (0.96)"]
    assert picture.stat().st_size > 0


def test_files_of_glove_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "glove.txt.gz"
    file.write_bytes(gzip.compress(b"man 1 0 0\nNew York 1 0 1\nup 0 1 0\nman 0 0 1\n"))
    word_vectors.main([str(file), "--nearest", "man", "--count", "1"])
    assert capsys.readouterr().out == "man: New York (0.71)\n"


def test_the_generated_text_has_gender_number_and_tense(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As docs/word_vectors.md shows, with smaller vectors."""
    file, picture = tmp_path / "words.vec", tmp_path / "pairs.png"
    made = (
        "--train",
        "dataset=analogies",
        "--size",
        "32",
        "--analogies",
        "generated",
        "--picture",
        str(picture),
    )
    word_vectors.main([str(file), *made])
    rows = [line.replace("│", " ").split() for line in capsys.readouterr().out.splitlines()]
    accuracy = {row[0]: float(row[1].rstrip("%")) for row in rows if len(row) == 6 and row[1].endswith("%")}
    assert len(accuracy) == 7
    assert min(accuracy.values()) > 80
    assert picture.stat().st_size > 0


def test_pairs_without_vectors_are_not_drawn(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions, picture = tmp_path / "questions.txt", tmp_path / "pairs.png"
    questions.write_text(": gram8\nMan men Xx yy\nking kings woman women\n: none\nxx yy zz qq\n", "utf-8")
    asked = ("--analogies", str(questions), "--picture", str(picture))
    word_vectors.main([str(file), *asked])
    assert "3 pairs drawn" in capsys.readouterr().out
    questions.write_text(": none\nxx yy zz qq\n", "utf-8")
    with pytest.raises(SystemExit):
        word_vectors.main([str(file), *asked])
    assert "--picture" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (["--train", "--size", "0"], "--size=0"),
        (["--train", "dataset=multi"], "dataset=multi"),
        (["--train"], "en.vec exists"),
        (["dataset=grammar"], "--train"),
        ([], "Nothing to do"),
        (["--nearest", "kingg"], "kingg"),
        (
            ["--nearest", "king", "--words", "king"],
            "--words=['king'] is not allowed. Allowed: only with --picture",
        ),
        (["--nearest", "king", "--size", "300"], "--size=300 is not allowed. Allowed: only with --train"),
        (["--nearest", "king", "--side", "target"], "--side=target"),
        (["--nearest", "king", "--count", "0"], "--count=0"),
        (["--analogies", "missing.txt"], "--analogies=missing.txt"),
        (["--words", "king", "--picture", "x.png"], "--words=king"),
        (["--train", "--seed", "-1"], "-1 is not allowed. Allowed: a whole number from 0 to 4294967295"),
        (["--train", "--seed", str(2**32)], "4294967296 is not allowed"),
    ],
)
def test_errors_name_what_is_wrong(
    file: Path, arguments: list[str], key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        word_vectors.main([str(file), *arguments])
    assert key in capsys.readouterr().err


def test_a_vector_of_zeros_has_no_neighbors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "zero.vec"
    file.write_text("2 2\nking 0 0\nqueen 0 1\n", "utf-8")
    with pytest.raises(SystemExit):
        word_vectors.main([str(file), "--nearest", "king"])
    assert "king has a vector of zeros" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("question", "key"),
    [
        (["--nearest", "king", "--count", "0"], "--count=0"),
        (["--analogies", "missing.txt"], "--analogies=missing.txt"),
        (["--picture", "king.png", "--words", "king"], "--words=king"),
    ],
)
def test_questions_are_checked_before_the_training(
    question: list[str], key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        word_vectors.main([str(tmp_path / "en.vec"), *CORPUS, *SMALL, *question])
    assert key in capsys.readouterr().err
    assert not (tmp_path / "en.vec").exists()


def test_a_picture_needs_two_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "one.vec").write_text("1 2\nking 0 1\n", "utf-8")
    with pytest.raises(SystemExit):
        word_vectors.main([str(tmp_path / "one.vec"), "--picture", str(tmp_path / "one.png")])
    assert "one.vec has one word" in capsys.readouterr().err


def test_a_missing_folder_is_named_before_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        word_vectors.main([str(tmp_path / "missing" / "en.vec"), *CORPUS, *SMALL])
    assert "missing is not a folder" in capsys.readouterr().err


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.vec"
    path.write_text("no vectors\n", "utf-8")
    with pytest.raises(UserError, match=r"text\.vec"):
        word_vectors.read(path)
