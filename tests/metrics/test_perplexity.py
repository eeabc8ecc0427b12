"""Mean losses and perplexities."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from seq2seq_lab.metrics.loss import LossOverPadding, MeanLoss, Perplexity, perplexity
from seq2seq_lab.metrics.texts import References


def test_losses_of_several_processes_are_averaged_over_all_units() -> None:
    outputs = SimpleNamespace(losses={"free_running": np.array([[6.0, 2], [3.0, 1], [0.0, 0]])})
    loss, other = (kind("free_running", "loss") for kind in (MeanLoss, Perplexity))
    assert (loss.name, other.name) == ("loss_free_running", "perplexity_free_running")
    assert loss.value(loss.rows(outputs).sum(0)) == 3
    assert other.value(other.rows(outputs).sum(0)) == pytest.approx(math.exp(3))


def test_a_loss_over_padding_is_the_mean_over_the_positions_of_each_batch() -> None:
    outputs = SimpleNamespace(losses={"teacher_forced": np.array([[6.0, 2], [3.0, 5], [4.0, 3]])})
    metric = LossOverPadding(batch_size=2)
    assert metric.value(metric.rows(outputs).sum(0)) == 13 / (2 * 5 + 1 * 3)


def test_a_loss_over_padding_needs_a_row_for_each_target() -> None:
    for multiple in (False, True):
        outputs = SimpleNamespace(references=References(["a", "b"], ["x", "x"], multiple))
        assert (LossOverPadding(batch_size=2).unavailable(outputs) is not None) == multiple


def test_perplexity() -> None:
    assert perplexity(math.log(7)) == pytest.approx(7)
    assert perplexity(1e4) == math.inf
    assert math.isnan(perplexity(math.nan))
