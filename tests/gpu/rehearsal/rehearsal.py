"""Training, searches and evaluation as on a GPU: checks devices, types, and for what the host waits.

`test_gpu_rehearsal.py` runs this file, with the plugin `fake_cuda`, in a separate process.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import hydra
import numpy as np
import pytest
import torch
from fake_cuda import GPU, WORDS, FakeGpu
from omegaconf import OmegaConf
from parallel_training import word
from torch import nn

from seq2seq_lab import api
from seq2seq_lab.config import schema as config
from seq2seq_lab.config.compose import composer
from seq2seq_lab.config.schema import Config, Precision
from seq2seq_lab.data.batching import BatchMaker, plan_evaluation
from seq2seq_lab.data.corpus import Corpus, Gold, ParallelText
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.tokenized import TokenizedCorpus, TokenizedText, tokenize_corpus
from seq2seq_lab.data.tokenizers import EOS
from seq2seq_lab.models.ensemble import Ensemble
from seq2seq_lab.models.recurrent import RecurrentLayers, RecurrentSpec, RecurrentState
from seq2seq_lab.models.seq2seq import Seq2Seq, build_seq2seq
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.ranks import Ranks
from seq2seq_lab.runtime.signals import StopSignals
from seq2seq_lab.search.base import Hypothesis, Search
from seq2seq_lab.search.frontier import CHECK_EVERY
from seq2seq_lab.tasks.base import EpochPlan
from seq2seq_lab.tasks.examples import TrainingExamples
from seq2seq_lab.tasks.parts import build_search, build_task
from seq2seq_lab.tasks.translation.evaluation import TranslationEvaluator, TranslationSplit
from seq2seq_lab.tasks.translation.teacher_forcing import _needed
from seq2seq_lab.tracking import Trackers
from seq2seq_lab.training import checkpoint, trainer
from seq2seq_lab.training.parts import build_optimizer, build_schedule, trainer_settings
from seq2seq_lab.training.profiling import no_profile
from seq2seq_lab.training.state import TrainState

# torch.nn's recurrent layers warn that this build has no cuDNN.
pytestmark = pytest.mark.filterwarnings("ignore:PyTorch was compiled without cuDNN")

SIZES = (
    *("logger=none", "trainer.device=cpu", "task.batch_size=4", "model.dropout=0.2", "model.state_dropout=0.1"),
    *("model.embedding_size=8", "model.hidden_size=8", "model.encoder_hidden_size=4"),
)  # fmt: skip
FP32, BF16, FP16 = Precision.fp32, Precision.bf16, Precision.fp16
HALF = "teacher_forcing.ratio=0.5"
# Every decoder, attention function, scope, precision, optimizer, bridge and kind of layer; R-Drop; micro-batches.
TRAININGS = [
    (FP32, "decoder=plain", "attention=none", HALF, "teacher_forcing.scope=token"),
    (BF16, "decoder=context", "attention=none", "model.encoder_hidden_size=8", "encoder=gru", "readout=deep"),
    (FP16, "decoder=luong", "attention=multiplicative", HALF, "teacher_forcing.scope=step", "task.r_drop=1"),
    (BF16, "decoder=luong", "attention=dot", "encoder=lstm", "model.encoder_hidden_size=8", "model.num_layers=2",
     "model.reverse_source=true"),
    (BF16, "decoder=luong_feeding", "attention=location_sensitive", "model.locked_dropout=true", HALF, "optimizer=sgd",
     "task.r_drop=1"),
    (FP16, "decoder=bahdanau", "attention=coverage", "teacher_forcing=linear", "task.stop_at_eos=true", "encoder=bilstm"),
    (BF16, "decoder=bahdanau", "attention=additive", HALF, "task.pad_to=16"),
    (FP32, "decoder=tutorial", "attention=location", "teacher_forcing.ratio=0", "model.bridge=mean", "optimizer=adamw"),
    (BF16, "decoder=conditional", "attention=scaled_dot", HALF, "teacher_forcing.scope=sequence", "encoder=birnn",
     "task.batch_unit=tokens", "task.batch_size=6", "task.label_smoothing=0.1"),
    (FP16, "decoder=conditional", "encoder=bigru_layer_norm", "attention=local", "model.bridge=zero", HALF,
     "teacher_forcing.scope=batch", "trainer.micro_batches=2", "task.pad_to=16"),
]  # fmt: skip
SEARCHES = [
    ("search=greedy", "decoder=plain", "attention=none", "search.min_length_factor=0.5"),
    ("search=beam", "decoder=conditional", "search.size=3", "search.nbest=2", "search.coverage_penalty=0.2"),
    ("search=beam", "encoder=bigru_layer_norm", "search.size=2"),
    ("search=beam", "decoder=context", "attention=none", "model.encoder_hidden_size=8", "encoder=lstm"),
    ("search=sampling", "decoder=luong_feeding", "search.nbest=2", "search.top_k=5", "search.top_p=0.9"),
]  # fmt: skip


def settings(overrides: Sequence[str]) -> Config:
    with composer():
        node = hydra.compose("config", [*SIZES, *overrides])
    return config.typed(OmegaConf.merge(OmegaConf.structured(Config), node))  # type: ignore[arg-type]


def text_of(*lines: str) -> ParallelText:
    """Return sentences that are their own translation. Few and short: each operation takes a millisecond."""
    words = [tuple(line.split()) for line in lines]
    gold = [Gold(of, of, frozenset((i, i) for i in range(len(of)))) for of in words]
    return ParallelText(lines, lines, gold)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    train, held_out = text_of("a b", "b c", "c a", "a a"), text_of("a b c", "b a", "c")
    return Corpus("en", "en", train, held_out, {"test": held_out})


@pytest.fixture(scope="module")
def tokenized(corpus: Corpus) -> TokenizedCorpus:
    return tokenize_corpus(corpus, word, {}, None)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run trained on the CPU."""
    folder = tmp_path_factory.mktemp("run") / "run"
    small = ("dataset.train=20", "dataset.validation=2", "dataset.test=2", "dataset.test_compositional=0")
    api.train([*SIZES, *small, "dataset.max_depth=1", "trainer.fast_dev_run=true", "task.samples=0"], folder)
    return folder


def on_gpu(whole: Config, tokenized: TokenizedCorpus) -> Seq2Seq:
    pair = tokenized.tokenizers
    return build_seq2seq(whole, pair.source.size, pair.target.size, joint=False).to(GPU)


def named(case: Any) -> str:
    return " ".join(str(getattr(part, "value", part)) for part in case)


@pytest.mark.parametrize("case", TRAININGS, ids=named)
def test_training(
    case: Any, tokenized: TokenizedCorpus, fake_gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run two steps with validation and logging; no step waits for the GPU."""
    precision, *overrides = case
    whole = settings((*overrides, "trainer.max_steps=2", "trainer.log_every_steps=1"))
    model, task = on_gpu(whole, tokenized), build_task(whole)
    pad_to = whole.task["pad_to"] or 1
    made = trainer.Trainer(
        task=task,
        model=model,
        data=TrainingExamples(
            tokenized.train,
            partial(BatchMaker, pad_to=pad_to),
            batch_size=whole.task["batch_size"],
            unit="sentences",
            seed=1,
            pad_to=pad_to,
        ),
        validate=lambda step, counted: {"val/bleu": 1.0},
        optimizer=build_optimizer(whole, model),
        schedule=build_schedule(whole),
        settings=trainer_settings(whole, task),
        tracker=Trackers(()),
        folder=Path(),
        seed=1,
        identity={},
        profile=no_profile,
        stop=StopSignals(None),
        compute=Compute(GPU, precision, Ranks()),
    )
    assert made.step.scaler.is_enabled() == (precision is FP16)
    made.step.scaler.state_dict = dict  # type: ignore[method-assign]  # it would read the scale for a checkpoint
    made.step.scaler.get_scale = lambda: 1.0  # type: ignore[method-assign]  # read for the logged metrics
    saved: list[nn.Module] = []
    monkeypatch.setattr(checkpoint, "save", lambda *parts, **_: saved.append(parts[2]))
    monkeypatch.setattr(checkpoint, "prune", lambda *_: None)
    step, waits = made.step, []

    def watched(plan: EpochPlan, state: TrainState) -> Any:
        before = fake_gpu.waits
        done = step(plan, state)
        waits.append(fake_gpu.waits - before)
        return done

    made.step = watched  # type: ignore[assignment]
    made.fit()
    assert waits == [0, 0]
    assert fake_gpu.reads > 0  # the logged metrics
    assert set(saved) == {model}
    for parameter in model.parameters():
        assert parameter.device == GPU
        assert {x.device for x in made.optimizer.state[parameter].values() if x is not None} <= {GPU}


@pytest.mark.parametrize("overrides", SEARCHES, ids=named)
def test_searches(overrides: Sequence[str], tokenized: TokenizedCorpus, fake_gpu: FakeGpu) -> None:
    """The host waits at the start, for the result, and every few steps to check whether all sentences have ended."""
    whole = settings(overrides)
    found, waits = searched(build_search(whole), on_gpu(whole, tokenized).eval(), tokenized, fake_gpu)
    assert [len(hypothesis.tokens) for (hypothesis, *_) in found] == [WORDS] * 3
    assert (found[0][0].weights_TS is None) == ("attention=none" in overrides)
    assert waits < 2 * CHECK_EVERY  # no wait at each step


def searched(
    search: Search, model: Any, tokenized: TokenizedCorpus, fake_gpu: FakeGpu
) -> tuple[list[list[Hypothesis]], int]:
    """Return the result of a search and the number of waits. All sentences have ended at the second check."""
    batch = BatchMaker(tokenized.validation, GPU)(plan_evaluation(tokenized.validation, 3)[0])
    before = fake_gpu.waits
    with torch.autocast("cuda", torch.bfloat16):
        return search(model, batch, True), fake_gpu.waits - before


def test_an_ensemble_does_not_wait_at_each_step(tokenized: TokenizedCorpus, fake_gpu: FakeGpu) -> None:
    whole = settings(("search=greedy",))
    members = [on_gpu(whole, tokenized).eval() for _ in range(2)]
    waits = [
        searched(build_search(whole), model, tokenized, fake_gpu)[1]
        for model in (members[0], Ensemble(members))
    ]
    assert waits[1] < waits[0] + CHECK_EVERY  # it encodes the source twice


def test_a_step_on_dialogues_does_not_wait(fake_gpu: FakeGpu) -> None:
    """The shape of the turns depends on their lengths, which the host has."""
    whole = settings(("encoder=hierarchical",))
    model = build_seq2seq(whole, 9, 9, joint=False).to(GPU)
    text = TokenizedText(Ragged.of([[5, EOS, 4, 6], [7]]), Ragged.of([[4], [5, 6]]))
    make = BatchMaker(text, GPU)
    before = fake_gpu.waits
    batch = make(np.array([1, 0]))
    model(batch, batch.inputs_BT)[0].sum().backward()
    assert batch.turn_lengths == ((3,), (3, 3))
    assert fake_gpu.waits == before


def test_evaluation(corpus: Corpus, tokenized: TokenizedCorpus, fake_gpu: FakeGpu) -> None:
    whole = settings(())
    split = TranslationSplit("val", corpus.validation, tokenized.validation, "en")
    search, model = build_search(whole), on_gpu(whole, tokenized)
    evaluate = TranslationEvaluator(
        model,
        split,
        tokenized.tokenizers,
        Compute(GPU, BF16),
        search=search,
        batch_size=4,
        samples=[0, 2],
    )
    evaluation = evaluate()
    assert {len(text.split()) for text in evaluation.texts} == {WORDS}
    assert "val/aer" in evaluation.values
    assert evaluation.hypotheses.keys() == {0, 2}


@torch.no_grad()
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("packed", [False, True])
def test_recurrent_layers_in_bfloat16_compute_in_float32(cell: Any, packed: bool, fake_gpu: FakeGpu) -> None:
    """Autocast would run cuDNN's layers in float16, where gradients need a scaled loss."""
    layers = RecurrentLayers(RecurrentSpec(cell, 4, 2, 0.0, False), 4, bidirectional=False).to(GPU)
    x: Any = torch.ones(3, 5, 4, device=GPU, dtype=torch.bfloat16)
    if packed:
        x = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 2, 2]), batch_first=True)
    for precision, dtype in ((torch.bfloat16, torch.float32), (torch.float16, torch.float16)):
        with torch.autocast("cuda", precision):
            states, last = layers(x, None)
            assert (states.data.dtype, last.hidden_LBH.dtype) == (dtype, dtype)
            if not packed:
                start = RecurrentState(*(None if state is None else state.to(precision) for state in last))
                _, again = layers.step(x[:, 0], start)
                assert again.hidden_LBH.dtype is dtype


def test_a_run_opened_on_the_gpu(run: Path, fake_gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """`load` and `ensemble` translate in batches."""
    monkeypatch.setattr(api, "choose_device", lambda *_: GPU)
    # FakeTensorMode cannot move a module that is already on the GPU.
    monkeypatch.setattr(Ensemble, "to", lambda self, device: self)
    # The weights of a fake GPU have a column for some source tokens only.
    monkeypatch.setattr(api.LoadedTranslation, "_links", lambda *_: set())
    one = api.load(run, precision="bf16")
    assert {parameter.device for parameter in one.model.parameters()} == {GPU}
    for opened in (one, api.ensemble([one, one])):
        sentences = ["the king sleeps.", "", "the queen sees the old king."]
        translations = opened.predict(
            sentences, join_subwords=False
        )  # the tokens of a fake GPU form no words
        assert [len(found.target_tokens) for found in translations] == [4, 0, 4]


def test_a_read_fails(fake_gpu: FakeGpu) -> None:
    x = torch.ones(3, device=GPU)
    for read in (
        lambda: x.sum().item(),
        lambda: x[x > 0],
        lambda: bool(x.any()),
        lambda: x.nonzero(),
        lambda: x.cpu().tolist(),
        lambda: x + torch.ones(3),
    ):
        with pytest.raises(RuntimeError):
            read()


def test_copies_are_counted(fake_gpu: FakeGpu) -> None:
    host = torch.arange(3)
    host.pin_memory().to(GPU, non_blocking=True)
    assert fake_gpu.copies == 0
    host.to(GPU, non_blocking=True)
    torch.tensor([1, 2], device=GPU)
    torch.ones(3, device=GPU).cpu()
    assert fake_gpu.copies == 3


def test_teacher_forcing_does_not_read_its_mask(fake_gpu: FakeGpu) -> None:
    assert _needed(torch.zeros(2, 5, dtype=torch.bool, device=GPU)) == [True] * 5
