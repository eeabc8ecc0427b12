"""GPT: a run from training to generation, resumed, and on two ranks."""

import math
from pathlib import Path

import command_line
import pytest
from finished_runs import losses_of, result_of
from forked_ranks import forked_ranks

from seq2seq_lab import api
from seq2seq_lab.models.decoders import TransformerDecoder

LINE = (
    *("experiment=language_model", "model=gpt", "logger=none", "trainer.device=cpu", "trainer.precision=fp32"),
    *("dataset.train=120", "dataset.validation=10", "dataset.test=40", "dataset.max_depth=2", "task.batch_size=20"),
    *("model.embedding_size=8", "model.num_layers=2", "model.num_heads=2", "model.feedforward_size=16"),
    *("trainer.max_epochs=2", "trainer.log_every_steps=1", "task.samples=2", "optimizer.lr=0.02"),
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpt") / "run"
    assert command_line.run(*LINE, f"hydra.run.dir={folder}") == 0
    return folder


def test_it_trains_and_is_scored_as_a_language_model(run: Path) -> None:
    result, losses = result_of(run), losses_of(run)
    assert losses[-1] < losses[0] - 0.5
    assert result["metrics"]["primary"] == "perplexity_per_word"
    assert 0 <= result["test/minimal_pairs"] <= 1
    assert result["test/minimal_pairs_by_distance"]


def test_its_scores_do_not_depend_on_the_words_that_follow(run: Path) -> None:
    model = api.load(run, device="cpu")
    assert isinstance(model.model.decoder, TransformerDecoder)
    one, other = (model.score([""], [f"the king{mark}"])[0].log_probs for mark in ".,")
    assert one[:2] == pytest.approx(other[:2])
    assert not math.isclose(one[2], other[2])


def test_a_killed_run_resumes_with_identical_losses(run: Path, tmp_path: Path) -> None:
    command_line.run_until(8, *LINE, f"hydra.run.dir={tmp_path}")
    assert command_line.run(f"resume={tmp_path}") == 0
    assert losses_of(tmp_path) == losses_of(run)
    assert result_of(tmp_path)["test/minimal_pairs"] == result_of(run)["test/minimal_pairs"]


@pytest.mark.slow  # starts two ranks
def test_two_ranks_compute_what_one_process_computes(tmp_path: Path) -> None:
    two, one = tmp_path / "two", tmp_path / "one"
    with forked_ranks():
        assert command_line.run(*LINE, "trainer.devices=2", f"hydra.run.dir={two}") == 0
    assert command_line.run(*LINE, "trainer.micro_batches=2", f"hydra.run.dir={one}") == 0
    assert losses_of(two) == losses_of(one)
    assert result_of(two)["test/minimal_pairs"] == result_of(one)["test/minimal_pairs"]
