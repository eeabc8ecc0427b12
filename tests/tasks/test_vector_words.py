"""Words of the pretrained vectors in the vocabulary of a task of texts with labels."""

from pathlib import Path

import command_line
import pytest
import torch

import seq2seq_lab
from seq2seq_lab.errors import UserError

SIZE = 4
LINE = (
    *("task=classification", "tokenizer=whitespace", "dataset=labelled", "dataset.columns=[1,2]"),
    *(
        "model.encoder_hidden_size=4",
        f"model.embedding_size={SIZE}",
        "trainer.max_epochs=1",
        "task.samples=1",
    ),
    *("trainer.device=cpu", "trainer.precision=fp32", "embedding.source.frozen=true"),
)
WORDS = ("good", "bad", "never", "unseen", "last")


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """The settings of data whose test text has words that the training text does not have, and of vectors."""
    texts = {
        "train": "very good\tyes\nvery bad\tno\n" * 4,
        "validation": "good\tyes\n",
        "test": "never unseen\tno\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.tsv").write_text(text, "utf-8")
    rows = "".join(f"{word} {' '.join([str(float(i))] * SIZE)}\n" for i, word in enumerate(WORDS, start=1))
    (tmp_path / "vectors.txt").write_text(rows, "utf-8")
    return [
        *(f"dataset.{name}={tmp_path / name}.tsv" for name in texts),
        f"embedding.source.path={tmp_path / 'vectors.txt'}",
    ]


@pytest.mark.parametrize(("count", "known"), [("null", ()), ("3", ("never",)), ("all", ("never", "unseen"))])
def test_words_of_the_vectors_are_known_in_new_texts(
    count: str, known: tuple[str, ...], files: list[str], tmp_path: Path
) -> None:
    run = seq2seq_lab.train([*LINE, *files, f"task.vector_words={count}"], tmp_path / "run")
    tokenizer = run.task.vocabulary.tokenizer
    table = run.model.source_embedding.weight * run.model.dropout.scale
    unknown = tokenizer.unknown_words("never unseen")
    assert unknown == [word for word in ("never", "unseen") if word not in known]
    for word in ("good", *known):
        vector = torch.full((SIZE,), float(WORDS.index(word) + 1))
        assert torch.equal(table[tokenizer.encode([word])[0][0]], vector)


@pytest.mark.parametrize("setting", ["embedding.target.path=vectors.txt", "embedding.target.frozen=true"])
def test_vectors_of_a_side_without_text_are_refused(
    setting: str, files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.run(*LINE, *files, setting, f"hydra.run.dir={tmp_path / 'run'}") == 2
    assert "embedding.target" in capsys.readouterr().err


def test_a_run_resumes_and_opens_without_the_file(files: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run = seq2seq_lab.train([*LINE, *files, "task.vector_words=all"], folder)
    (tmp_path / "vectors.txt").unlink()
    assert command_line.run(f"resume={folder}", "trainer.max_epochs=2") == 0
    again = seq2seq_lab.load(folder)
    assert again.result["steps"] == 2 * run.result["steps"]
    assert torch.equal(again.model.source_embedding.weight, run.model.source_embedding.weight)
    assert not again.predict(["unseen last"])[0].unknown_words


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("embedding.source.path=null", r"task\.vector_words=all needs .*embedding\.source\.path=FILE"),
        ("tokenizer=bpe", r"tokenizer\._target_=.*task\.vector_words"),
        ("task.vector_words=0", r"task\.vector_words=0"),
    ],
)
def test_what_cannot_be_combined_is_refused(
    setting: str, message: str, files: list[str], tmp_path: Path
) -> None:
    frozen = ["embedding.source.frozen=false"]
    with pytest.raises(UserError, match=message):
        seq2seq_lab.train([*LINE, *files, "task.vector_words=all", *frozen, setting], tmp_path / "run")
