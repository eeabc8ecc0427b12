"""The decoding benchmark: all searches return outputs of the same length, loop and package the same translations."""

import importlib
import io
import json
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from test_training_benchmark import SMALL, small_data

from benchmarks import decoding
from benchmarks.decoding import (
    Workload,
    bound,
    check_same,
    greedy_tokens,
    start_joeynmt,
    weights_of_a_step,
)
from benchmarks.learners import MODELS, copy_weights
from benchmarks.turns import Turn
from seq2seq_lab.config.schema import Precision
from seq2seq_lab.data.batching import BatchMaker
from seq2seq_lab.errors import UserError

CPU = torch.device("cpu")
PEAKS = dict.fromkeys(("fp32", "bf16"), 1e15)  # so that memory is the limit


@pytest.fixture(scope="module")
def work() -> Workload:
    data = small_data()
    plan = [[np.arange(i, i + 8)] for i in range(0, 40, 8)]
    return Workload(data, data.text, plan, CPU, dict.fromkeys(("fp32", "bf16"), 1e9), PEAKS, SMALL)


def test_each_search_has_a_row(work: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "choose_precision", lambda *_: Precision.bf16)  # it measures for seconds
    rows = decoding.measure(work, Namespace(rounds=1, batches=1, joeynmt=None))
    assert [row.name for row in rows[:2]] == [decoding.LOOP, "package, greedy 1, fp32"]
    assert "package, beam 5, fp32" in [row.name for row in rows]
    assert (rows[0].times_the_first, rows[0].share) == (1, None)
    assert all(row.tokens_per_second > row.sentences_per_second > 0 for row in rows)
    # The bound: 8 sentences, as many steps per second as the weights can be read.
    at_most = 8 * 1e9 / (4 * weights_of_a_step(work.package("luong")))
    assert rows[1].share == pytest.approx(rows[1].tokens_per_second / at_most)


WORKER = """#!{python}
import json, sys
import numpy as np
data, settings = np.load(sys.argv[2]), json.load(open(sys.argv[3]))
print(json.dumps(settings), flush=True)
for line in sys.stdin:
    first, count, beam = map(int, line.split())
    index = data["batches"][first : first + count].flatten()
    tokens = int(np.diff(data["offsets"])[index].sum())
    print(json.dumps({{"tokens": tokens, "seconds": beam}}), flush=True)
"""


def test_joeynmt_is_given_the_batches_and_the_size_of_the_beam(work: Workload, tmp_path: Path) -> None:
    """With a program instead of JoeyNMT's interpreter."""
    python = tmp_path / "python"
    python.write_text(WORKER.format(python=sys.executable))
    python.chmod(0o755)
    with start_joeynmt(python, work) as translate:
        turn = translate(5, 1, 2)
    expected = work.text.lengths[torch.arange(8, 24)].sum()
    assert turn == Turn(int(expected), 5)


def test_the_worker_answers_with_the_tokens_of_the_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without JoeyNMT: its model and its search are replaced."""
    parts = {"batch": "Batch", "model": "build_model", "search": "search", "vocabulary": "Vocabulary"}
    for name, part in {"": "", **parts}.items():
        module = ModuleType(f"joeynmt.{name}")
        setattr(module, part, None)
        monkeypatch.setitem(sys.modules, f"joeynmt.{name}".rstrip("."), module)
    worker = importlib.import_module("benchmarks.joeynmt_worker")
    searched: list[int] = []
    monkeypatch.setattr(worker, "new_model", lambda _: torch.nn.Identity())
    monkeypatch.setattr(worker, "new_batch", lambda _, index, __: SimpleNamespace(src_length=index))
    monkeypatch.setattr(worker, "search_batch", lambda _, __, beam: searched.append(beam))
    np.savez(tmp_path / "data.npz", batches=np.array([[1, 2], [3, 4]]))
    settings = {"threads": torch.get_num_threads(), "device": "cpu"}
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path / "data.npz"), str(tmp_path / "settings.json")])
    monkeypatch.setattr(sys, "stdin", io.StringIO("0 2 5\n"))
    worker.main()
    first, answer = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first, answer["tokens"], searched) == ({}, 10, [5, 5, 5])  # the first batch twice


@pytest.mark.parametrize(
    "script",
    [None, "#!/bin/sh\nexit 3\n", "#!/bin/sh\nexec 0<&-\necho '{}'\nexit 3\n"],
    ids=["missing", "fails", "fails later"],
)
def test_an_environment_without_joeynmt_is_refused(
    work: Workload, script: str | None, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    if script is not None:
        python.write_text(script)
        python.chmod(0o755)
    with pytest.raises(UserError, match="--joeynmt"), start_joeynmt(python, work) as translate:
        translate(1, 0, 1)


@pytest.mark.parametrize("beam", [1, 3])
def test_the_bound_of_slow_products(work: Workload, beam: int) -> None:
    """At 1 operation per second the bound is the number of tokens divided by the number of operations."""
    embedding, hidden, vocabulary = SMALL.embedding, SMALL.hidden, SMALL.target_vocabulary
    step = 3 * hidden * (embedding + hidden) + 3 * hidden * hidden + hidden * vocabulary
    operations = tokens = 0
    for length in work.lengths:
        prefixes = [1] + [beam] * (length - 1)
        source = 2 * 3 * hidden * (embedding + hidden) + 2 * hidden * hidden  # both directions, and the keys
        attended = length * (hidden + 2 * hidden)  # scores and context
        operations += 2 * (length * source + 2 * hidden * hidden + sum(prefixes) * (step + attended))
        tokens += length
    slow = replace(work, peaks={"fp32": 1.0})
    assert bound(slow, work.package("luong"), beam, "fp32") == pytest.approx(tokens / operations)


def test_each_output_has_the_length_of_its_source(work: Workload) -> None:
    package, batch = work.package("luong"), BatchMaker(work.text, CPU)(work.plan[0][0])
    for search in decoding.SEARCHES.values():
        for (hypothesis, *_), length in zip(search(package, batch, False), batch.source_lengths, strict=True):
            assert length <= len(hypothesis.tokens) <= length + 1
    loop = MODELS["luong"].reference(SMALL, 0.0).eval()
    assert len(greedy_tokens(loop, batch.source_BS[:1].t(), (5,))) == 5


def test_a_turn_counts_the_sentences_that_it_translates(work: Workload) -> None:
    batches: list[Any] = []
    turn = decoding.translate(work, batches.append, first=4, count=2, every=2, reuse=False)
    first, second = work.plan[4][0][::2].tolist(), work.plan[0][0][::2].tolist()
    # The first one is also translated before.
    assert [batch.index_B.tolist() for batch in batches] == [first, first, second]
    assert turn.tokens == int(work.text.lengths[torch.tensor(first + second)].sum())


def test_models_that_differ_are_refused(work: Workload) -> None:
    loop, package = MODELS["luong"].reference(SMALL, 0.0).eval(), work.package("luong")
    copy_weights(loop, package)
    check_same(loop, package, work)
    with torch.no_grad():
        loop.get_parameter("output.bias")[7] += 9
    with pytest.raises(UserError, match="tutorial's loop"):
        check_same(loop, package, work)


def test_the_weights_of_a_step(work: Workload) -> None:
    embedding, hidden, vocabulary = SMALL.embedding, SMALL.hidden, SMALL.target_vocabulary
    gru = 3 * hidden * (embedding + hidden + 2)
    combine, output = 3 * hidden * hidden, (hidden + 1) * vocabulary
    assert weights_of_a_step(work.package("luong")) == gru + combine + output
