"""Answers in a text: a run from training to predictions, resumed, on two ranks, and the spans of tokens."""

import io
import sys
from itertools import product
from pathlib import Path
from typing import Any

import command_line
import numpy as np
import pytest
import torch
from finished_runs import check_ranks, check_resumed, losses_of, result_of, rows_of
from torch.nn import functional

from seq2seq_lab import api, predict
from seq2seq_lab.config.compose import compose_run
from seq2seq_lab.data.labelled import LabelledText
from seq2seq_lab.data.questions import Answer, label_of
from seq2seq_lab.data.tokenizers import CharTokenizer
from seq2seq_lab.data.tokenizers.turns import TurnTokenizer
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.span import Pointed, matched_tokens
from seq2seq_lab.tasks.base import StepInfo
from seq2seq_lab.tasks.parts import build_task
from seq2seq_lab.tasks.span.data import QuestionBatch, QuestionBatches, TrainingAnswers, question_tokens
from seq2seq_lab.tasks.span.evaluation import best_spans

SIZES = ("dataset.questions=160", "model.encoder_hidden_size=8", "model.embedding_size=8")
LINE = (
    *("experiment=span", *SIZES, "trainer.max_epochs=2", "task.batch_size=16", "optimizer.lr=0.02", "logger=none"),
    *("trainer.device=cpu", "trainer.precision=fp32", "trainer.log_every_steps=1", "task.samples=1"),
)  # fmt: skip
TEXT = "who met Ann ?\tBob met Ann near Paris ."


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("span") / "run"
    assert command_line.run(*LINE, f"hydra.run.dir={folder}") == 0
    return folder


def test_it_trains_and_writes_its_files(run: Path) -> None:
    result, losses = result_of(run), losses_of(run)
    assert (result["unit"], result["metrics"]["primary"]) == ("questions", "answer_f1")
    assert losses[-1] < losses[0] - 0.5
    rows = rows_of(run, "answers")
    assert result["test/answer_f1"] == pytest.approx(np.mean([row["f1"] for row in rows]), abs=1e-4)
    counts = {row["group"]: row["count"] for row in result["test/answer_f1_by_answer"]}
    missing = sum(row["answers"] == "(no answer)" for row in rows)
    assert counts == {"in the text": len(rows) - missing, "no answer": missing}
    assert result["baseline/no_answer/test/answer_f1"] == pytest.approx(missing / len(rows))
    assert {"baseline/place/test/answer_f1", "baseline/most_frequent/test/answer_f1"} <= result.keys()
    for name in ("pointers.test.png", "pointers.test.jsonl"):
        assert (run / name).is_file(), name


def test_a_killed_run_resumes_with_identical_losses(run: Path, tmp_path: Path) -> None:
    check_resumed(run, tmp_path / "run", *LINE, examples="answers")


@pytest.mark.slow  # starts two ranks
def test_two_ranks_compute_what_one_process_computes(tmp_path: Path) -> None:
    check_ranks(tmp_path, *LINE, examples="answers")


def test_predict_in_python_and_on_the_command_line(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded, recorded = api.load(run), rows_of(run, "answers")
    found = loaded.predict([f"{row['question']}\t{row['text']}" for row in recorded])
    assert [one.text or "(no answer)" for one in found] == [row["prediction"] for row in recorded]
    assert [one.score for one in found] == pytest.approx([row["probability"] for row in recorded], abs=1e-4)
    first = found[0]
    assert first.tokens[1:] == recorded[0]["text"].split()
    assert first.weights_2S.sum(1) == pytest.approx(np.ones(2), abs=1e-5)
    assert first.weights_2S[[0, 1], first.found].prod() == pytest.approx(first.score, abs=1e-5)
    assert loaded.predict([]) == []
    for wrong in ("who ?", "who ?\t ", "\tBob", "a\tb\tc"):
        with pytest.raises(UserError, match=r"number 1|line 1"):
            loaded.predict([wrong])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{TEXT}\n".encode())))
    predict.main([str(run), "--device", "cpu", "--weights", "--attention", str(tmp_path / "a.png")])
    assert "\twho met Ann ?\n" in capsys.readouterr().out
    assert (tmp_path / "a.png").is_file()


def test_answers_are_the_tokens_that_share_characters_with_them() -> None:
    tokenizer = TurnTokenizer.of(CharTokenizer(joint=True, lowercase=False, min_frequency=1, max_size=None))
    lines = ["ab ?\tcde f", "a\tbcd"]
    tokenizer.train(lines)
    ids: Any = None
    labels = [label_of([Answer("de f", 1), Answer("c", 0)]), label_of([])]
    found = question_tokens(lines, labels, ids, tokenizer, "here")
    spans = tokenizer.spans(lines[0])
    assert lines[0][spans[int(found.null[0])][0]] == "\t"
    first, last = found.answer[0].tolist()
    assert lines[0][spans[first][0] : spans[last][1]] == "de f"
    assert found.last[0] == len(spans) - 1
    assert found.answer[1].tolist() == [1, 1] == [int(found.null[1])] * 2


def random_batch(seed: int) -> tuple[Pointed, QuestionBatch]:
    """Return log-probabilities of three questions with texts of the positions 3 to 9, 3 to 8 and 3 to 7."""
    rng = torch.Generator().manual_seed(seed)
    null_B, last_B, position_S = torch.tensor([2, 2, 2]), torch.tensor([9, 8, 7]), torch.arange(11)
    outside = (position_S < null_B[:, None]) | (position_S > last_B[:, None])
    rows = (torch.randn(3, 11, generator=rng).masked_fill(outside, -torch.inf) for _ in range(2))
    batch = QuestionBatch(torch.zeros(3, 11), (11, 11, 11), null_B, last_B, torch.zeros(3, 2), 2)
    return Pointed(*(row.log_softmax(-1) for row in rows)), batch


@pytest.mark.parametrize("longest", [1, 3, 30])
@pytest.mark.parametrize("threshold", [-2.0, 0.0, 2.0])
def test_the_best_span_equals_that_of_a_loop(longest: int, threshold: float) -> None:
    for seed in range(4):
        pointed, batch = random_batch(seed)
        for i, found in enumerate(best_spans(pointed, batch, longest, threshold).tolist()):
            start_S, end_S = (one[i].double().tolist() for one in pointed)
            null, last = int(batch.null_B[i]), int(batch.last_B[i])
            spans = {
                (first, end): start_S[first] + end_S[end]
                for first, end in product(range(null + 1, last + 1), repeat=2)
                if 0 <= end - first < longest
            }
            best = max(spans, key=spans.__getitem__)
            none = start_S[null] + end_S[null]
            expected = (null, null) if none - spans[best] > threshold else best
            assert tuple(found[:2]) == expected
            assert found[2] == pytest.approx(spans.get(expected, none))


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("setting", ["attention=additive", "attention=dot", "encoder=transformer"])
def test_the_loss_is_that_of_a_loop_without_padding(setting: str, label_smoothing: float) -> None:
    line = ["task=span", setting, *SIZES, "model.dropout=0", "model.state_dropout=0"]
    task: Any = build_task(compose_run([*line, f"task.label_smoothing={label_smoothing}"]).config)
    task.corpus  # noqa: B018  (generated once)
    task.vocabulary = task.fit(task.corpus.train.texts, [])
    lines = task.corpus.train.texts[:3]
    questions = task.label(task.corpus.train.first(3), task.encode(lines), "")
    torch.manual_seed(1)
    model = task.build(task.vocabulary.tokenizer.size, 0).eval()
    torch.nn.init.normal_(model.matched)
    batches = QuestionBatches(questions, torch.device("cpu"))
    loss = task.loss(model, batches(np.arange(3)), StepInfo(0, 0))
    total = 0.0
    for i in range(3):
        pointed, null = model(batches(np.array([i]))), int(questions.null[i])
        for log_probs_BS, gold in zip(pointed, questions.answer[i], strict=True):
            allowed = log_probs_BS[0, null : int(questions.last[i]) + 1]
            assert allowed.exp().sum().item() == pytest.approx(1, rel=1e-5)
            total += functional.cross_entropy(allowed, gold - null, label_smoothing=label_smoothing).item()
    assert loss.item() == pytest.approx(total, rel=1e-4)


def test_the_query_of_the_end_depends_on_the_start() -> None:
    task: Any = build_task(compose_run(["task=span", *SIZES]).config)
    torch.manual_seed(1)
    model = task.build(20, 0).eval()
    batch = QuestionBatch(
        torch.randint(4, 20, (1, 9)), (9,), torch.tensor([2]), torch.tensor([8]), torch.zeros(1, 2), 2
    )
    before = model(batch)
    with torch.no_grad():
        for weight in model.pointers.start.parameters():
            weight.mul_(-30)
    after = model(batch)
    assert not torch.allclose(before.start_BS[0, 2:], after.start_BS[0, 2:])
    assert not torch.allclose(before.end_BS[0, 2:], after.end_BS[0, 2:])
    assert before.end_BS[0, :2].tolist() == [-torch.inf, -torch.inf]


def test_tokens_of_the_text_that_the_question_has_are_marked() -> None:
    source = torch.tensor([[5, 6, 2, 6, 7, 5, 2], [7, 2, 8, 7, 1, 1, 1]])
    batch = QuestionBatch(source, (7, 4), torch.tensor([2, 1]), torch.tensor([6, 3]), torch.zeros(2, 2), 2)
    assert matched_tokens(batch).int().tolist() == [[0, 0, 0, 1, 0, 1, 0], [0, 0, 0, 1, 0, 0, 0]]
    task: Any = build_task(compose_run(["task=span", *SIZES, "task.matched_tokens=false"]).config)
    assert task.build(20, 0).matched is None


def test_baselines_answer_from_the_training_answers() -> None:
    lines = [
        "who met Ann ?\tBob met Ann .",
        "Who saw ?\tAnn saw Eve .",
        "who ran ?\tAnn ran .",
        "where ?\tin Rome .",
    ]
    answers = [[Answer("Bob", 0)], [Answer("Eve", 8)], [Answer("Ann", 0)], []]
    training = TrainingAnswers(LabelledText(lines, [label_of(one) for one in answers]))
    assert training.at_most_frequent_place(TEXT) == "Bob"
    assert training.most_frequent("who ?\tEve or Annie met Bob") == "Bob"
    assert training.most_frequent("where ?\tin Rome") == ""


@pytest.mark.parametrize(
    ("train", "answer", "line", "frequent", "place"),
    [
        ("谁住在北京？\t小明住在北京。", "小明", "谁来了？\t今天小明来了。", "小明", "今天"),
        ("कौन आया ?\tराम आया ।", "राम", "कौन ?\tरामायण पढ़ी ।", "", "रामायण"),  # not in a word
    ],
)
def test_trivial_answers_in_scripts_with_marks_or_without_spaces(
    train: str, answer: str, line: str, frequent: str, place: str
) -> None:
    start = train.partition("\t")[2].index(answer)
    training = TrainingAnswers(LabelledText([train], [label_of([Answer(answer, start)])]))
    assert training.most_frequent(line) == frequent
    assert training.at_most_frequent_place(line) == place


@pytest.mark.parametrize(
    ("setting", "key"),
    [
        ("attention=none", "task=span"),
        ("attention=local", "attention=local"),
        ("attention=uniform", "attention=uniform"),
        ("attention=coverage", "task=span"),
        ("readout=linear", "readout="),
        ("dataset=tagged", "task=span"),
        ("tokenizer=bpe_dropout", "tokenizer.dropout"),
    ],
)
def test_what_does_not_fit_is_refused(setting: str, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run("task=span", setting, "logger=none") == 2
    assert key in capsys.readouterr().err
