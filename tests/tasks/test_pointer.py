"""A run of readout=pointer copies names that its vocabulary lacks: searches, scores, prefixes, and the coverage loss."""

import math
from pathlib import Path
from typing import Any

import command_line
import numpy as np
import pytest
import torch
from finished_runs import check_ranks, check_resumed, result_of, rows_of
from small_models import batch_of, small_config, small_model

import seq2seq_lab
from seq2seq_lab.analysis.attributions import Options, attribute, without
from seq2seq_lab.analyze import __main__ as analyze
from seq2seq_lab.data.headlines import Headlines
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.seq2seq import build_seq2seq
from seq2seq_lab.tasks.base import StepInfo
from seq2seq_lab.tasks.translation.loss import TrainingLoss
from seq2seq_lab.tasks.translation.teacher_forcing import Constant

LINE = (
    *("experiment=pointer", "dataset.train=480", "dataset.validation=5", "dataset.test=30", "logger=none"),
    *("model.embedding_size=24", "model.encoder_hidden_size=24", "model.hidden_size=24", "model.dropout=0"),
    *("trainer.max_epochs=1", "task.batch_size=8", "optimizer.lr=0.02", "task.coverage_loss=0.1"),
    *("trainer.device=cpu", "trainer.precision=fp32", "trainer.log_every_steps=1", "task.samples=0"),
    "trainer.checkpoint_every_steps=50",
)
REPORT = "Bob met the queen yesterday . Zoltan left Kim today ."


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pointer") / "run"
    assert command_line.run(*LINE, f"hydra.run.dir={folder}") == 0
    return folder


def test_it_copies_names_that_it_has_never_seen(run: Path) -> None:
    result = result_of(run)
    assert result["test/copied_words"] > 0.8
    assert 0.5 < result["test/novel_2_grams"] < 1
    assert result["test/aer"] < 0.4
    assert result["test/pointing_accuracy"] > 0.8
    texts = [row["hypothesis"] for row in rows_of(run, "translations")]
    assert not any("<unk>" in text or "⁇" in text for text in texts)
    loaded = seq2seq_lab.load(run)
    (one,) = loaded.predict([REPORT])
    assert one.text.split()[0] == "Zoltan" == one.target_tokens[0]
    assert one.source_tokens[-4:] == ["Kim", "today", ".", "<eos>"]
    assert one.unknown_words == []


def test_the_table_of_tokenized_pairs_has_the_names(run: Path) -> None:
    table = (run / "run.log").read_text("utf-8").split("tokenized pairs")[1].split("Computing on")[0]
    first = Headlines(train=480, validation=5, test=30, seed=1).load().train.target[0]
    assert first in table
    assert "<unk>" not in table
    assert "⁇" not in table


@pytest.mark.parametrize("search", ["beam", "sampling"])
def test_every_search_prints_the_words_of_the_source(run: Path, search: str) -> None:
    loaded = seq2seq_lab.load(run, changes=[f"search={search}"])
    found = [one.text.split()[0] for one in loaded.nbest([REPORT])[0]]
    assert {*found} <= {"Zoltan", "Kim", "Bob"}
    assert "Zoltan" in found


def test_given_outputs_and_prefixes_have_words_of_the_source(run: Path) -> None:
    loaded = seq2seq_lab.load(run)
    right, wrong, absent = loaded.score(
        [REPORT] * 3, ["Zoltan leaves Kim", "Kim leaves Bob", "Eve leaves Kim"]
    )
    assert right.tokens == ["Zoltan", "leaves", "Kim", "<eos>"]
    assert right.log_prob > wrong.log_prob
    assert absent.log_prob < right.log_prob
    for one in (loaded.attribute(REPORT, "Zoltan leaves Kim"), loaded.intervene(REPORT, "Zoltan leaves Kim")):
        assert one.tokens == right.tokens
    assert absent.unknown_words == ["Eve"]
    traced = loaded.trace(REPORT, prefix="Kim")
    assert traced.best.text.split()[0] == "Kim"
    assert [*REPORT.split(), "<eos>"] == [token.text for token in traced.source.tokens][-12:]
    assert {"Zoltan", "Kim"} <= {one.text for step in traced.steps for one in step.top}


@pytest.mark.parametrize("how", ["zero", "unknown", "removed"])
def test_a_deleted_word_cannot_be_copied(run: Path, how: str, capsys: pytest.CaptureFixture[str]) -> None:
    loaded = seq2seq_lab.load(run, device="cpu")
    one = loaded.question(REPORT, "Zoltan leaves Kim")
    assert one.only_copied == 2
    least = math.log(torch.finfo(torch.float32).tiny)
    zoltan = one.source_names.index("Zoltan")
    (kept, without_zoltan), nothing = (
        without(one, Options(), np.array(removed), how).tolist()
        for removed in (
            [np.zeros(len(one.source_names), np.bool_), np.arange(len(one.source_names)) == zoltan],
            [np.isin(np.arange(len(one.source_names)), one.inner)],
        )
    )
    assert kept[0] > -1
    assert without_zoltan[0] == pytest.approx(least, abs=1e-3)
    assert [nothing[0][0], nothing[0][2]] == pytest.approx([least, least], abs=1e-3)
    assert nothing[0][1] > -20  # a word of the vocabulary is generated
    assert attribute(one, ["value_zeroing"])["value_zeroing"].scores_TU[0, zoltan] > 80
    analyze.main(["attribute", str(run), "--first", "2", "--delete", how, "--methods", "attention,attention"])
    assert "can only copy" in capsys.readouterr().out


def test_the_masks_of_a_batch_have_the_words_of_each_source(tmp_path: Path) -> None:
    sizes = ("model=transformer", "model.num_layers=1", "model.num_heads=2", "model.feedforward_size=8")
    model = seq2seq_lab.train((*LINE, *sizes, "readout=pointer", "trainer.max_steps=1"), tmp_path / "run")
    figure = model.plot_masks([REPORT, "Eve left Kim today ."], ["Zoltan leaves Kim", "Eve leaves Kim"])
    shown = {label.get_text() for axes in figure.axes for label in axes.get_yticklabels()}
    assert {"Zoltan", "Eve", "Kim"} <= shown
    assert not shown & {"<unk>", "⁇"}


@pytest.mark.parametrize("state", ["decoder", "encoder"])
def test_neighbors_are_named_by_their_own_sources(run: Path, state: Any) -> None:
    found = seq2seq_lab.load(run).neighbors(REPORT, 0, state, count=8)
    for one in found.neighbors:
        words = [*one.source.split(), "<eos>"] if state == "encoder" else one.target.split()
        assert (one.word, one.next) == (["<sos>", *words][one.position], [*words, "<eos>"][one.position])
        assert one.same_next == (one.next == found.next)
    assert found.next == ("Bob" if state == "encoder" else "Zoltan")
    assert any(one.next not in ("<unk>", "⁇") for one in found.neighbors)


def test_a_killed_run_resumes_with_identical_losses(run: Path, tmp_path: Path) -> None:
    check_resumed(run, tmp_path / "run", *LINE, examples="translations")


@pytest.mark.slow  # starts two ranks
def test_two_ranks_compute_what_one_process_computes(tmp_path: Path) -> None:
    check_ranks(tmp_path, *LINE, examples="translations")


def test_the_coverage_loss_equals_its_formula_in_loops() -> None:
    torch.manual_seed(1)
    weights_BTS = torch.rand(2, 4, 3, dtype=torch.float64).softmax(-1)
    outputs_BT = torch.tensor([[5, 6, 7, 3], [5, 3, 1, 1]])
    expected = 0.0
    for b in range(2):
        for t in range(4):
            if outputs_BT[b, t] != 1:
                for s in range(3):
                    covered = sum(float(weights_BTS[b, before, s]) for before in range(t))
                    expected += min(float(weights_BTS[b, t, s]), covered)
    settings: Any = {"label_smoothing": 0.0, "r_drop": 0.0, "stop_at_eos": False, "seed": 1}
    losses = [TrainingLoss(Constant(1.0, "token"), coverage_loss=share, **settings) for share in (0.0, 0.5)]
    penalty = losses[1].penalty(weights_BTS, outputs_BT)
    assert penalty is not None
    assert penalty.item() == pytest.approx(0.5 * expected)
    model, batch = small_model(small_config()), batch_of([[4, 5, 6]], [[7, 8, 9]])
    without, with_coverage = (loss(model, batch, StepInfo(0, 0)).item() for loss in losses)
    assert with_coverage > without


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        (("tokenizer=bpe", "tokenizer.joint=true"), "readout.copied_words"),
        (("tokenizer.joint=false",), "tokenizer.joint=true"),
        (("model=vanilla",), "readout=PointerReadout"),
        (("readout=linear", "model=vanilla", "task.coverage_loss=1"), "task.coverage_loss"),
        (("task.label_smoothing=0.1",), "task.label_smoothing"),
    ],
)
def test_what_does_not_fit_is_refused(
    settings: tuple[str, ...], key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.run("experiment=pointer", *settings, "logger=none") == 2
    assert key in capsys.readouterr().err


@pytest.mark.parametrize("task", ["dialogue", "classification", "language_model", "captions"])
def test_other_tasks_refuse_the_readout(task: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run(f"task={task}", "readout=pointer", "logger=none") == 2
    assert "readout" in capsys.readouterr().err


def test_a_vocabulary_without_types_to_generate_is_refused() -> None:
    with pytest.raises(UserError, match=r"readout\.copied_words=20"):
        build_seq2seq(small_config(readout="pointer"), 13, 13, True)


def test_the_vocabulary_of_another_run_needs_the_same_copied_words(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = (*LINE, f"init_from={run}", "init_part=source_embedding", f"hydra.run.dir={tmp_path / 'run'}")
    assert command_line.run(*line, "readout.copied_words=5") == 2
    assert "'copied_words': 5" in capsys.readouterr().err
