"""The decoding benchmark: all ways say as many tokens, the tutorial's loop and the package the same ones."""

import argparse
from typing import Any

import numpy as np
import pytest
import torch
from test_training_benchmark import SMALL, small_data

from benchmarks import decoding
from benchmarks.decoding import Given, alone, check_same, greedy_of_one, table, weights_of_a_step
from benchmarks.learners import MODELS, copy_weights
from seq2seq_lab.data.batching import BatchMaker
from seq2seq_lab.errors import UserError

CPU = torch.device("cpu")


@pytest.fixture
def given() -> Given:
    data = small_data()
    plan = [[np.arange(i, i + 8)] for i in range(0, 40, 8)]
    return Given(data, data.text, plan, 8, CPU, {"fp32": 1e9, "bf16": 1e9}, SMALL)


def test_each_way_has_a_row(given: Given, capsys: pytest.CaptureFixture[str]) -> None:
    rows = decoding.beside_the_tutorial(given, argparse.Namespace(rounds=1, batches=1))
    names = [row.name for row in rows]
    assert names[:2] == ["tutorial's loop, greedy, one sentence at a time", "package, greedy 1, fp32"]
    assert "package, beam 5, fp32" in names
    assert rows[0].times_the_first == 1
    assert rows[0].share is None
    assert all(row.tokens_per_second > row.sentences_per_second > 0 for row in rows)
    assert all(row.share and row.share > 0 for row in rows[1:])
    assert table(rows).row_count == len(rows)


def test_every_output_is_as_long_as_its_source(given: Given) -> None:
    package, batches = given.package("luong"), BatchMaker(given.text, CPU)
    batch = batches(given.plan[0][0])
    for search in decoding.SEARCHES.values():
        for (hypothesis, *_), length in zip(search(package, batch, False), batch.source_lengths, strict=True):
            assert length <= len(hypothesis.tokens) <= length + 1
    loop = MODELS["luong"].reference(SMALL, 0.0).eval()
    turn = alone(loop, batches, given.plan, CPU, 1, 2)
    some = np.concatenate([given.plan[1][0], given.plan[2][0]])[:: decoding.ALONE_OF]
    assert turn.tokens == int(given.text.source_lengths[torch.tensor(some)].sum())


def test_ways_that_differ_are_refused(given: Given) -> None:
    loop, package = MODELS["luong"].reference(SMALL, 0.0).eval(), given.package("luong")
    batches = BatchMaker(given.text, CPU)
    copy_weights(loop, package)
    check_same(loop, package, batches, given.plan[0])
    with torch.no_grad():
        loop.output.bias[7] += 9
    with pytest.raises(UserError, match="the tutorial's loop differ"):
        check_same(loop, package, batches, given.plan[0])
    assert set(greedy_of_one(loop, batches(np.arange(1)).source_BS.t(), (5,))) == {7}


def test_the_weights_of_a_step(given: Given) -> None:
    embedding, hidden, vocabulary = SMALL.embedding, SMALL.hidden, SMALL.target_vocabulary
    gru = 3 * hidden * (embedding + hidden + 2)
    combine, output = 3 * hidden * hidden, (hidden + 1) * vocabulary
    assert weights_of_a_step(given.package("luong")) == gru + combine + output


def test_joeynmt_is_asked_for_its_beam(given: Given) -> None:
    asked: list[Any] = []
    turn = decoding.Turn(10, 1.0, None, 0)
    peer = decoding.Peer(3, lambda *numbers: (asked.append(numbers), turn)[1])
    assert decoding.asked(peer, 5, 2, 4) is turn
    assert asked == [(2, 4, 5)]
