"""Files in the formats of the Penn Treebank and WikiText-2, and the experiment zaremba2014."""

import json
from pathlib import Path
from typing import Any

import command_line
import pytest
import torch
from finished_runs import losses_of, result_of

from seq2seq_lab.config.compose import compose_run
from seq2seq_lab.data.tokenizers import EOS, SOS, UNK
from seq2seq_lab.data.words import words as spans_of_words
from seq2seq_lab.errors import UserError
from seq2seq_lab.tasks.parts import build_task

PENN_TREEBANK = " aer banknote <unk> N \n mr. <unk> is chairman of <unk> n.v. \n"
WIKITEXT_2 = (
    " \n = Robert <unk> = \n \n Robert <unk> is an English film @-@ actor . \n \n = = Career = = \n \n"
)
LINES = {
    PENN_TREEBANK: ["aer banknote <unk> N", "mr. <unk> is chairman of <unk> n.v."],
    WIKITEXT_2: ["= Robert <unk> =", "Robert <unk> is an English film @-@ actor .", "= = Career = ="],
}
SPLITS = {"path": "ptb.train.txt", "validation": "ptb.valid.txt", "test": "ptb.test.txt"}
each_format = pytest.mark.parametrize("text", LINES, ids=["penn_treebank", "wikitext_2"])


def files_of(folder: Path) -> list[str]:
    return [f"dataset.{key}={folder / name}" for key, name in SPLITS.items()]


def task_of(folder: Path) -> Any:
    line = ["task=language_model", "tokenizer=whitespace_all", *files_of(folder)]
    return build_task(compose_run(line).config)


@each_format
def test_unk_in_the_text_is_the_unknown_type(text: str, tmp_path: Path) -> None:
    lines, copies = LINES[text], {"path": 3, "validation": 1, "test": 1}
    for key, name in SPLITS.items():
        changed = text.replace(" is ", " was ") if key == "test" else text
        (tmp_path / name).write_text(changed * copies[key], "utf-8")
    task = task_of(tmp_path)
    task.load(tmp_path / "cache", None, None)
    corpus, tokenizer = task.corpus, task.vocabulary.tokenizer
    assert [line.strip() for line in corpus.validation.lines] == lines
    assert corpus.counts["blank_lines"] == sum(copies.values()) * (text.count("\n") - len(lines))
    expected = [0, 0] if text == PENN_TREEBANK else [1, 2, 3]
    assert list(corpus.validation.documents or ()) == expected
    assert [len(spans_of_words(line)) for line in lines] == [len(line.split()) for line in lines]
    words = [word for line in lines for word in line.split()]
    types = sorted({*words} - {"<unk>"}, key=lambda word: (-words.count(word), word))
    assert tokenizer.types == ("<unk>", "<pad>", "<sos>", "<eos>", *types)
    id_of = {word: 4 + index for index, word in enumerate(types)} | {"<unk>": UNK}
    expected = [token for line in lines for token in (SOS, *map(id_of.get, line.split()), EOS)]
    assert task.tokens["validation"].tokens.tolist() == expected
    unknown = {name: int((tokens.tokens == UNK).sum()) for name, tokens in task.tokens.items()}
    count = words.count("<unk>")
    assert unknown == {"train": 3 * count, "validation": count, "test": count + 1}


def test_lines_of_the_test_file_that_are_in_training_are_counted(tmp_path: Path) -> None:
    for key, lines in {"path": "a b\nc d\n", "validation": "e\n", "test": "a b\nf\n"}.items():
        (tmp_path / SPLITS[key]).write_text(lines, "utf-8")
    assert task_of(tmp_path).corpus.counts["leaked_pairs"] == 1


@each_format
@pytest.mark.parametrize("bad", [b"\xff", b"\0", b"\r "], ids=["encoding", "nul", "carriage_return"])
@pytest.mark.parametrize("key", SPLITS)
def test_a_damaged_file_is_refused_with_its_line(key: str, bad: bytes, text: str, tmp_path: Path) -> None:
    good = text.encode() * 20
    for name in SPLITS.values():
        (tmp_path / name).write_bytes(good)
    (tmp_path / SPLITS[key]).write_bytes(good + text.encode().replace(b"<unk>", b"<u" + bad + b"nk>", 1))
    line = 20 * text.count("\n") + text[: text.index("<unk>")].count("\n") + 1
    with pytest.raises(UserError, match=rf"dataset\.{key}=.*line {line}\b"):
        _ = task_of(tmp_path).corpus


@pytest.mark.parametrize("experiment", ["zaremba2014", "word_language_model"])
@pytest.mark.parametrize("key", SPLITS)
def test_an_experiment_of_a_paper_needs_its_three_files(key: str, experiment: str) -> None:
    others = [setting for setting in files_of(Path()) if not setting.startswith(f"dataset.{key}=")]
    with pytest.raises(UserError, match=rf"dataset\.{key} is missing. Give it a value"):
        compose_run([f"experiment={experiment}", *others])


def test_the_model_of_zaremba2014_has_the_weights_of_the_paper() -> None:
    with torch.device("meta"):
        model = build_task(
            compose_run(["experiment=zaremba2014", *files_of(Path())]).config
        ).parts.language_model(10_002)
    # 10,000 types with <eos>, here with <pad> and <sos> too: an embedding, a row and a bias of the output each.
    assert sum(weight.numel() for weight in model.parameters()) == 19_780_400 + 2 * (2 * 650 + 1)


def test_zaremba2014_trains_and_is_chosen_with_carried_state(tmp_path: Path) -> None:
    for key, name in SPLITS.items():
        (tmp_path / name).write_text(PENN_TREEBANK * (80 if key == "path" else 4), "utf-8")
    folder = tmp_path / "run"
    line = (
        *("experiment=zaremba2014", "logger=none", "trainer.device=cpu", "trainer.precision=fp32"),
        *("model.embedding_size=12", "model.hidden_size=12", "task.samples=1", "trainer.log_every_steps=1"),
        *("trainer.max_epochs=4", "schedule.constant_epochs=2", f"hydra.run.dir={folder}"),
    )
    assert command_line.run(*line, *files_of(tmp_path)) == 0
    rows = [json.loads(text) for text in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    rates = [row["train/learning_rate"] for row in rows if "train/learning_rate" in row]
    steps = len(rates) // 4
    assert rates[::steps] == pytest.approx([1, 1, 1 / 1.2, 1 / 1.44])
    assert losses_of(folder)[-1] < losses_of(folder)[0]
    carried = [row[key] for row in rows if (key := "val/perplexity_per_word_carried") in row]
    result = result_of(folder)
    assert len(carried) == 4
    assert result["val/perplexity_per_word_carried"] == pytest.approx(min(carried), rel=1e-4)
    assert result["test/perplexity_per_word_carried"] == pytest.approx(min(carried), rel=1e-4)  # equal texts
    assert result["test/perplexity_per_word"] > 1
