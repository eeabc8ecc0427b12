"""A GPU computes what a CPU computes. `SEQ2SEQ_LAB_GPU_TESTS=cpu` runs these tests without one."""

import json
import math
import warnings
from copy import deepcopy
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import command_line
import pytest
import torch
from demo_models import DATA
from small_models import WITHOUT_ATTENTION, ragged_batch, small_config, small_model, values_of
from torch import nn

import seq2seq_lab
from benchmarks import learners
from benchmarks.learners import LEARNING_RATE, Package, synthetic
from seq2seq_lab.analyze import __main__ as analyze
from seq2seq_lab.config.schema import Precision, origin
from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.batching import plan_epoch
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.search.base import Search
from seq2seq_lab.search.beam import BeamSearch
from seq2seq_lab.search.greedy import GreedySearch
from seq2seq_lab.search.sampling import SamplingSearch
from seq2seq_lab.tasks.losses import cross_entropy
from seq2seq_lab.training import checkpoint

pytestmark = pytest.mark.gpu

CPU = torch.device("cpu")
ATTENTIONS = [value for value in values_of("attention") if origin("attention", value) == value]
PAIRS = [
    (decoder, attention)
    for decoder, attention in product(values_of("decoder"), ATTENTIONS)
    if decoder not in (*WITHOUT_ATTENTION, "conditional", "transformer")
    or (decoder in ("conditional", "transformer")) == (attention != "none")
]
LIMITS: dict[str, Any] = {"min_length_factor": 0.0, "max_length_factor": 1.0, "max_length_extra": 5}
SEARCHES: dict[str, Search] = {
    "greedy": GreedySearch(**LIMITS),
    "beam": BeamSearch(size=4, length_penalty=0.6, length_offset=5, coverage_penalty=0.2, nbest=3, **LIMITS),
    "sampling": SamplingSearch(temperature=1.0, top_k=5, top_p=0.9, nbest=2, seed=1, **LIMITS),
}


def on(device: torch.device, batch: Batch) -> Batch:
    moved = {name: getattr(batch, name).to(device) for name in ("index_B", "source_BS", "target_BU")}
    return replace(batch, **moved)


def model_of(
    decoder: str, attention: str, dtype: torch.dtype = torch.float64, encoder: str = "bigru"
) -> Seq2Seq:
    sizes = {"hidden_size": 8} if attention == "dot" else {}
    model = small_model(small_config(encoder, decoder, attention, **sizes)).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)  # distributions far from uniform
    return model


def loss_and_gradients(model: Seq2Seq, batch: Batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    logits_BTV, _ = model(batch, batch.inputs_BT)
    loss = cross_entropy(logits_BTV, batch.outputs_BT, label_smoothing=0.1)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach(), {
        name: weight.grad.cpu() for name, weight in model.named_parameters() if weight.grad is not None
    }


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-6), (torch.float32, 1e-3)], ids=["fp64", "fp32"]
)
@pytest.mark.parametrize(
    ("decoder", "attention", "encoder"),
    [*((*pair, "bigru") for pair in PAIRS), ("luong", "additive", "bigru_layer_norm")],
)
def test_losses_and_gradients(
    decoder: str, attention: str, encoder: str, dtype: torch.dtype, tolerance: float, gpu: torch.device
) -> None:
    model = model_of(decoder, attention, dtype, encoder).train()
    loss, gradients = loss_and_gradients(deepcopy(model).to(gpu), on(gpu, ragged_batch()))
    expected, expected_gradients = loss_and_gradients(model, ragged_batch())
    assert len(gradients) == len([*model.parameters()])
    torch.testing.assert_close(loss.cpu(), expected, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(gradients, expected_gradients, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize(("decoder", "attention"), [pair for pair in PAIRS if pair[1] == "additive"])
def test_translations(decoder: str, attention: str, name: str, gpu: torch.device) -> None:
    model = model_of(decoder, attention).eval()
    expected = SEARCHES[name](model, ragged_batch(), True)
    found = SEARCHES[name](deepcopy(model).to(gpu), on(gpu, ragged_batch()), True)
    for some, others in zip(found, expected, strict=True):
        assert [one.tokens for one in some] == [one.tokens for one in others]
        assert [one.log_prob for one in some] == pytest.approx([one.log_prob for one in others], rel=1e-6)


def package(name: str, device: torch.device, dropout: float = 0.0) -> tuple[Package, list[Any]]:
    data = synthetic(200, 1)
    made = learners.package(name, data, device, sizes=data.sizes(16, 16), dropout=dropout, batch_size=16)
    return made, plan_epoch(data.text, 16, "sentences", seed=1, epoch=0)


@pytest.mark.parametrize("ratio", [1.0, 0.5])
@pytest.mark.parametrize("name", ["sutskever", "cho", "bahdanau", "luong", "luong_feeding"])
def test_training_steps(name: str, ratio: float, gpu: torch.device) -> None:
    (here, plan), (there, _) = package(name, gpu), package(name, CPU)
    for step in plan[:6]:
        losses = [float(learner.train_step(step, ratio, Precision.fp32)) for learner in (here, there)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_bfloat16_is_near_float32(gpu: torch.device) -> None:
    losses = []
    for precision in (Precision.bf16, Precision.fp32):
        learner, plan = package("luong", gpu)
        losses.append([float(learner.train_step(step, 0.5, precision)) for step in plan[:6]])
    assert losses[0] == pytest.approx(losses[1], rel=0.02)
    assert losses[0] != losses[1]


def test_float16_skips_a_step_that_overflows_and_trains(gpu: torch.device) -> None:
    learner, plan = package("bahdanau", gpu)
    learner.step.scaler = torch.amp.GradScaler(gpu.type, init_scale=2.0**40)
    before = nn.utils.parameters_to_vector(learner.model.parameters()).detach().clone()
    learner.train_step(plan[0], 1.0, Precision.fp16)
    assert torch.equal(nn.utils.parameters_to_vector(learner.model.parameters()), before)
    assert learner.step.scaler.get_scale() == 2.0**39
    learner.step.scaler = torch.amp.GradScaler(gpu.type, init_scale=2.0**10)
    losses = [float(learner.train_step(plan[0], 1.0, Precision.fp16)) for _ in range(30)]
    assert all(map(math.isfinite, losses))
    assert losses[-1] < losses[0]
    assert learner.step.scaler.get_scale() == 2.0**10


def test_a_checkpoint_moves_to_a_cpu_and_back(gpu: torch.device, tmp_path: Path) -> None:
    (here, plan), (there, _), (back, _) = (
        package("bahdanau", gpu),
        package("bahdanau", CPU),
        package("bahdanau", gpu),
    )
    for step in plan[:3]:
        here.train_step(step, 1.0, Precision.fp32)
    for number, (written, read) in enumerate(((here, there), (there, back))):
        path = checkpoint.save(
            tmp_path, f"step_{number}", written.model, written.step.optimizer, {}, best=None, task_state={}
        )
        checkpoint.load_weights(path, read.model)
        checkpoint.load_optimizer(path, read.step.optimizer)
        read.state.step = 3
    for (name, weight), other in zip(here.model.named_parameters(), back.model.parameters(), strict=True):
        assert other.device.type == gpu.type
        assert torch.equal(weight, other), name
    losses = [float(learner.train_step(plan[3], 1.0, Precision.fp32)) for learner in (here, there, back)]
    assert losses[1:] == pytest.approx(losses[:1] * 2, rel=1e-4)
    # The state of the optimizer has moved too; otherwise the steps of Adam would have another size.
    weights = [
        nn.utils.parameters_to_vector(learner.model.parameters()).detach().cpu()
        for learner in (here, there, back)
    ]
    for other in weights[1:]:
        assert float((other - weights[0]).abs().mean()) < 0.01 * LEARNING_RATE


def test_a_step_does_not_wait_for_the_gpu(gpu: torch.device) -> None:
    if gpu.type == "cpu":
        pytest.skip("a CPU has no synchronization to detect")
    for name, ratio in product(("sutskever", "bahdanau", "luong", "luong_feeding"), (1.0, 0.5)):
        learner, plan = package(name, gpu, dropout=0.2)
        learner.train_step(plan[0], ratio, Precision.bf16)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the mode is a prototype and warns
            torch.cuda.set_sync_debug_mode("error")
            try:
                learner.train_step(plan[1], ratio, Precision.bf16)
            finally:
                torch.cuda.set_sync_debug_mode("default")


RUN = [
    *(
        "dataset.train=100",
        "dataset.validation=8",
        "dataset.test=8",
        "dataset.test_compositional=0",
        "logger=none",
    ),
    *("model.embedding_size=8", "model.hidden_size=8", "model.encoder_hidden_size=8", "schedule=constant"),
    *("task.batch_size=16", "task.samples=0", "trainer.log_every_steps=1", "teacher_forcing.ratio=0.5"),
    *("trainer.validate_every=3", "trainer.validate_unit=step"),
]


def losses_of(folder: Path) -> list[float]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").split("\n") if line]
    return [row["train/loss"] for row in rows if "train/loss" in row]


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_resumed_run_has_the_losses_of_an_uninterrupted_one(
    precision: str, gpu: torch.device, tmp_path: Path
) -> None:
    settings = [*RUN, f"trainer.device={gpu.type}", f"trainer.precision={precision}"]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    seq2seq_lab.train([*settings, "trainer.max_steps=6"], folder=whole)
    seq2seq_lab.train([*settings, "trainer.max_steps=3"], folder=cut)
    assert command_line.run(f"resume={cut}", "trainer.max_steps=6") == 0
    assert len(losses_of(whole)) == 6
    assert losses_of(cut) == pytest.approx(losses_of(whole), rel=1e-5)


@pytest.mark.parametrize(
    ("question", "options"),
    [("attribute", ["--methods", "grad_x_input"]), ("adversary", ["--steps", "2"])],
    ids=["attribute", "adversary"],
)
def test_questions_that_need_gradients(
    question: str, options: list[str], gpu: torch.device, capsys: pytest.CaptureFixture[str]
) -> None:
    """The decoder of `demo` has a recurrent step after attention."""
    analyze.main(
        [question, "demo", *DATA, "--first", "1", "--device", gpu.type, "--format", "jsonl", *options]
    )
    assert [*map(json.loads, capsys.readouterr().out.splitlines())]
