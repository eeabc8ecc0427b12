"""Custom components are evaluated before the first step: an error names the component, its file and line."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import command_line
import pytest
import torch
from small_models import VOCABULARY, batch_of, random_sentences, small_config, small_model
from torch import Tensor, nn

from seq2seq_lab.config import extensions
from seq2seq_lab.config.slots import named_components
from seq2seq_lab.data.batch import Batch
from seq2seq_lab.errors import ComponentError, UserError
from seq2seq_lab.models.attention import AdditiveAttention, StatefulAttention
from seq2seq_lab.models.attention.base import AttentionFactory, repeat_rows
from seq2seq_lab.models.decoders import AttendBeforeDecoder, TransformerDecoder
from seq2seq_lab.models.decoders.base import Decoder, DecoderState, RecurrentDecoder
from seq2seq_lab.models.encoders.base import EncoderOutputs, EncoderSizes
from seq2seq_lab.models.parts import build_decoder
from seq2seq_lab.models.readouts import LinearReadout
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.models.source import Source
from seq2seq_lab.reporting.component_check import check_gradients
from seq2seq_lab.reporting.output_check import checked_outputs
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.device import Precision
from seq2seq_lab.tasks.base import StepInfo

SETTINGS = (
    *("dataset.train=60", "dataset.validation=10", "dataset.test=6", "dataset.test_compositional=0"),
    *("model.embedding_size=8", "model.hidden_size=8", "model.encoder_hidden_size=4", "logger=none"),
    *("trainer.max_steps=2", "task.batch_size=8", "trainer.device=cpu", "trainer.precision=fp32"),
)
METRIC = """
from seq2seq_lab.metrics.base import Metric
import numpy as np

class Wrong(Metric):
    name, label, higher_is_better, format = "wrong", "wrong", True, ".2f"
    when = "final"

    def rows(self, outputs):
        return np.ones((len(outputs.hypotheses), 1))

    def value(self, totals_K):
        return totals_K[0] / outputs
"""
BUILT = """
from seq2seq_lab.models.attention.base import Attention

class Wrong(Attention):
    def __init__(self, query_size, encoder_output_size):
        super().__init__()

    def score(self, query_BTQ, keys_BSK):
        return query_BTQ @ keys_BSK.mT
"""
ATTENTION = """
from seq2seq_lab.models.attention.base import Attention

class Wrong(Attention):
    def project(self, outputs_BSM):
        return outputs_BSM

    def score(self, query_BTQ, keys_BSK):
        return query_BTQ @ keys_BSK.mT[:, 1:]
"""
ENCODER = """
from seq2seq_lab.models.encoders import RecurrentEncoder

class Wrong(RecurrentEncoder):
    def forward(self, embedded_BSE, lengths):
        encoded = super().forward(embedded_BSE, lengths)
        return encoded.outputs_BSM if self.training else encoded
"""


DETACHED = """
from seq2seq_lab.models.attention import AdditiveAttention

class Wrong(AdditiveAttention):
    def score(self, query_BTQ, keys_BSK):
        return super().score(query_BTQ, keys_BSK).detach()
"""
ROUNDED = DETACHED.replace("detach()", "mul(10).long()")
CUT_ENCODER = """
import torch
from seq2seq_lab.models.encoders import RecurrentEncoder

class Wrong(RecurrentEncoder):
    def forward(self, embedded_BSE, lengths):
        with torch.no_grad():
            return super().forward(embedded_BSE, lengths)
"""


def write(folder: Path, group: str, code: str) -> Path:
    (folder / group).mkdir(parents=True)
    (folder / "broken.py").write_text(code)
    package = "# @package metric.wrong\n" if group == "metric" else ""
    (folder / group / "wrong.yaml").write_text(f"{package}_target_: broken.Wrong\n")
    return folder


@pytest.mark.parametrize(
    ("group", "code", "line", "said"),
    [
        ("metric", METRIC, 13, "metric.wrong=Wrong failed: "),
        ("attention", BUILT, 6, "attention=Wrong failed: "),
        ("attention", ATTENTION, 9, "attention=Wrong failed: "),
    ],
)
def test_an_error_is_reported_before_the_first_step(
    group: str, code: str, line: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, run = write(tmp_path / "own", group, code), tmp_path / "run"
    words = ("--config-dir", str(own), f"{group}=wrong", f"hydra.run.dir={run}", *SETTINGS)
    assert command_line.run(*words) == 2
    error = capsys.readouterr().err
    assert said in error
    assert f"{own / 'broken.py'}, line {line}: " in error
    assert "Traceback" not in error
    if code is BUILT:
        assert not run.exists()  # no data are read
    else:
        assert "Traceback" in (run / "run.log").read_text("utf-8")
        assert not (run / "checkpoints").exists()


def test_a_wrong_value_in_a_training_step_names_the_custom_components(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The package raises the error, for what the component returned."""
    own, run = write(tmp_path / "own", "encoder", ENCODER), tmp_path / "run"
    (own / "encoder" / "wrong.yaml").write_text("defaults: [bigru, _self_]\n_target_: broken.Wrong\n")
    words = ("--config-dir", str(own), "encoder=wrong", f"hydra.run.dir={run}", *SETTINGS)
    assert command_line.run(*words) == 2
    error = capsys.readouterr().err
    assert re.search(
        r"encoder=Wrong: the run failed in seq2seq_lab/\S+\.py, line \d+: AttributeError: ", error
    )
    assert "Traceback" not in error
    log = (run / "run.log").read_text("utf-8")
    assert "Traceback" in log
    assert "in check_gradients" in log


@pytest.mark.parametrize(
    ("group", "base", "code"),
    [
        ("attention", "additive", DETACHED),
        ("attention", "additive", ROUNDED),
        ("encoder", "bigru", CUT_ENCODER),
    ],
)
def test_a_component_without_a_gradient_is_refused(
    group: str, base: str, code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = write(tmp_path / "own", group, code)
    (own / group / "wrong.yaml").write_text(f"defaults: [{base}, _self_]\n_target_: broken.Wrong\n")
    run = tmp_path / "run"
    words = ("--config-dir", str(own), f"{group}=wrong", f"hydra.run.dir={run}", *SETTINGS)
    assert command_line.run(*words) == 2
    assert f"{group}=Wrong: the loss has no gradient" in capsys.readouterr().err


class Lossy:
    """A task that has only a loss."""

    def __init__(self, change: Callable[[Tensor], object]) -> None:
        self.change = change

    def loss(self, model: nn.Module, batch: Tensor, step: StepInfo) -> Any:
        return self.change(model(batch).sum())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (Tensor.detach, "its loss has no gradient"),
        (lambda loss: loss.long(), "its loss has no gradient"),
        (lambda loss: loss * math.nan, "its loss of the first training batch is nan"),
        (lambda loss: loss.expand(3), "its loss of a training batch is a tensor of shape [3]"),
        (Tensor.item, "its loss of a training batch is of type float"),
    ],
)
def test_a_task_without_a_usable_loss_is_refused(change: Callable[[Tensor], object], said: str) -> None:
    batches = [torch.ones(2, 4)]
    plan = SimpleNamespace(steps=1, share=lambda *_, **__: {0: [[0]]}, batch=lambda _: batches[0])
    train, task = SimpleNamespace(epoch=lambda *_: plan), Lossy(change)
    compute = Compute(torch.device("cpu"), Precision("fp32"))
    own = {Path(__file__): {"Lossy": "task=Lossy"}}
    with pytest.raises(UserError, match=re.escape(f"task=Lossy: {said}")):
        check_gradients(task, nn.Linear(4, 1), train, compute, own)  # type: ignore[arg-type]
    task.change = lambda loss: loss
    check_gradients(task, nn.Linear(4, 1), train, compute, own)  # type: ignore[arg-type]


TWO = """
class First:
    def fails(self):
        helps()

class Second:
    def fails(self):
        raise KeyError("x")

class Third(Second):
    pass

def helps():
    raise KeyError("y")
"""


def test_of_two_components_in_a_file_the_one_that_failed_is_named(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(TWO)
    (tmp_path / "shown.py").write_text("from two import Third\n")
    config = small_config()
    slots = {
        name: {"_target_": f"two.{target}"}
        for name, target in (("attention", "First"), ("encoder", "Second"))
    }
    both = replace(config, **slots, decoder={"_target_": "shown.Third"})
    with extensions.using(tmp_path):
        module = extensions.load("two")
        extensions.load("shown")
        for fails, said in (
            (module.First().fails, "attention=First failed: "),
            (module.Second().fails, "encoder=Second failed: "),
            (module.Third().fails, "decoder=Third failed: "),
            (module.helps, "encoder=Second, decoder=Third, attention=First failed: "),
        ):
            with pytest.raises(ComponentError, match=f"^{said}"), named_components(both):
                fails()


def test_an_error_without_custom_components_stays_as_it_is() -> None:
    with pytest.raises(KeyError, match="missing"), named_components(small_config()):
        raise KeyError("missing")


class NotFinite(AdditiveAttention):
    def score(self, query_BTQ: Tensor, keys_BSK: Tensor) -> Tensor:
        return super().score(query_BTQ, keys_BSK) * math.nan


def small_example() -> tuple[Seq2Seq, Batch]:
    sentences = random_sentences([3, 2], seed=0)
    return small_model(small_config()), batch_of(sentences, sentences)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda scores: scores[..., 1:], f"{VOCABULARY}\\]"),
        (lambda scores: torch.cat([scores, scores[..., :1]], -1), f"{VOCABULARY}\\]"),
        (lambda scores: scores.mean(1), f"{VOCABULARY}\\]"),
        (lambda scores: scores.masked_fill(scores > 0, -math.inf), "not finite"),
        (lambda scores: scores.softmax(-1), "probabilities"),
    ],
)
def test_wrong_scores_of_a_readout_are_refused(change: Callable[[Tensor], Tensor], said: str) -> None:
    model, batch = small_example()
    with checked_outputs(model):
        model(batch, batch.target_BU)

    class Wrong(LinearReadout):
        def forward(self, *inputs: Any, **named: Any) -> Tensor:
            return change(super().forward(*inputs, **named))

    model.readout.__class__ = Wrong
    with checked_outputs(model), pytest.raises(UserError, match=rf"^readout=Wrong: .*{said}"):
        model(batch, batch.target_BU)


def test_attention_weights_that_are_not_finite_are_refused() -> None:
    model, batch = small_example()
    model.decoder.attention.__class__ = NotFinite
    with checked_outputs(model), pytest.raises(UserError, match=r"^attention=NotFinite: .*not finite"):
        model(batch, batch.target_BU)


class Changed:
    """A decoder whose results of `unroll` are changed."""

    def __init__(self, change: Callable[[Any, Any, Any], object]) -> None:
        self.change = change

    def of(self, decoder: Decoder) -> type[Decoder]:
        original, change = type(decoder), self.change

        class Wrong(original):  # type: ignore[valid-type, misc]
            def unroll(
                self, embedded_BTE: Tensor, state: Any, source: Source, with_weights: bool = True
            ) -> Any:
                return change(*super().unroll(embedded_BTE, state, source, True))

        return Wrong


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda features, state, weights: (features, state),
            "unroll returned 2 values.*Expected 3: the features",
        ),
        (lambda features, state, weights: (features[..., 1:], state, weights), r"as features.*\[B, T, F"),
        (lambda features, state, weights: (features[:, None], state, weights), r"as features"),
        (lambda features, state, weights: (features, state, None), r"of type NoneType as weights"),
        (lambda features, state, weights: (features, state, weights[..., 1:]), r"as weights.*\[B, T, S\]"),
        (
            lambda features, state, weights: (features, (state,), weights),
            "of type tuple as the next state.*select",
        ),
        (
            lambda features, state, weights: (features.roll(1, 1), state, weights),
            "features of unroll differ from those of repeated",
        ),
        (
            lambda features, state, weights: (features, state, weights.roll(1, 2)),
            "weights of unroll differ from those of repeated",
        ),
    ],
)
def test_what_a_custom_decoder_returns_is_checked(
    change: Callable[[Any, Any, Any], object], said: str
) -> None:
    model, batch = small_example()
    model.decoder.__class__ = Changed(lambda *returned: returned).of(model.decoder)
    with torch.no_grad(), checked_outputs(model.eval()):
        model(batch, batch.target_BU)
    model.decoder.__class__ = Changed(change).of(model.decoder)
    with (
        torch.no_grad(),
        checked_outputs(model),
        pytest.raises(UserError, match=rf"^decoder=Wrong: .*{said}"),
    ):
        model(batch, batch.target_BU)


def batch_first(features: Tensor, state: DecoderState, weights: Tensor) -> tuple[Tensor, Any, Tensor]:
    hidden_NLH = state.layers.hidden_LBH.transpose(0, 1)
    return features, state._replace(layers=state.layers._replace(hidden_LBH=hidden_NLH)), weights


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (batch_first, r"as hidden_LBH of the next state\. Expected: \[L, N, H\] = \[1, 2, "),
        (
            lambda features, state, weights: (features.squeeze(), state, weights),
            r"as features\. Expected: \[N, F \(feature_size\)\] = \[1, ",
        ),
        (
            lambda features, state, weights: (features.roll(len(features) // 4, 0), state, weights),
            "same results for both.*repeat_rows",
        ),
        (
            lambda features, state, weights: (features + features.new_ones(2, 1), state, weights),
            "fails for a sentence with 2 hypotheses.*RuntimeError.*repeat_rows",
        ),
    ],
)
def test_the_rows_of_a_step_of_a_custom_decoder_are_checked(
    change: Callable[[Any, Any, Any], object], said: str
) -> None:
    model, batch = small_example()
    original = type(model.decoder)

    class Wrong(original):  # type: ignore[valid-type, misc]
        unroll = Decoder.unroll

        def step(self, *inputs: Any) -> Any:
            return change(*super().step(*inputs))

    model.decoder.__class__ = Wrong
    with (
        torch.no_grad(),
        checked_outputs(model.eval()),
        pytest.raises(UserError, match=rf"^decoder=Wrong: .*{said}"),
    ):
        model(batch, batch.target_BU)


@pytest.mark.parametrize("repeats", [True, False])
def test_the_rows_of_a_custom_readout_are_checked(repeats: bool) -> None:
    model, batch = small_example()

    class Added(LinearReadout):
        def forward(
            self, features_NTF: Tensor, weights_NTS: Tensor | None = None, source: Source | None = None
        ) -> Tensor:
            assert source is not None
            scores: Tensor = super().forward(features_NTF)
            length_B = source.lengths_B
            length_N = repeat_rows(length_B, len(scores)) if repeats else length_B
            return scores + length_N.reshape(-1, *[1] * (scores.dim() - 1))

    model.readout.__class__ = Added
    with torch.no_grad(), checked_outputs(model.eval()):
        call = partial(model.step, batch.target_BU[:, 0], *model.start(batch))
        if repeats:
            call()
            return
        with pytest.raises(UserError, match=r"^readout=Added: .*2 hypotheses.*repeat_rows"):
            call()


class Last(NamedTuple):
    weights_NS: Tensor

    def select(self, index_N: Tensor) -> "Last":
        return Last(self.weights_NS[index_N])


class Remembering(StatefulAttention):
    """A dot product whose state has the last weights."""

    def start(self, source: Source) -> Last:
        return Last(source.encoder_outputs_BSM.new_zeros(source.encoder_outputs_BSM.shape[:2]))

    def score_step(self, query_NQ: Tensor, keys_BSK: Tensor, history: Last) -> Tensor:
        keys_NSK = repeat_rows(keys_BSK, len(query_NQ))
        return torch.bmm(keys_NSK[..., : self.query_size], query_NQ[..., None])[..., 0] - history.weights_NS

    def advance(self, history: Last, weights_NS: Tensor) -> Last:
        return Last(weights_NS)


class InPlace(Remembering):
    def advance(self, history: Last, weights_NS: Tensor) -> Last:
        history.weights_NS.add_(weights_NS)
        return history


class All(NamedTuple):
    """All earlier weights; the mean is computed once."""

    past: list[Tensor]
    cache: dict[str, Tensor]

    def select(self, index_N: Tensor) -> "All":
        return All([one[index_N] for one in self.past], {})


class Caching(Remembering):
    def start(self, source: Source) -> Any:
        return All([super().start(source).weights_NS], {})

    def score_step(self, query_NQ: Tensor, keys_BSK: Tensor, history: Any) -> Tensor:
        history.cache["mean"] = torch.stack(history.past).mean(0)
        return super().score_step(query_NQ, keys_BSK, Last(history.cache["mean"]))

    def advance(self, history: Any, weights_NS: Tensor) -> Any:
        return All([*history.past, weights_NS], {})


class Appending(Caching):
    def advance(self, history: Any, weights_NS: Tensor) -> Any:
        history.past.append(weights_NS)
        return history


class FirstHypothesis(Remembering):
    def score_step(self, query_NQ: Tensor, keys_BSK: Tensor, history: Last) -> Tensor:
        return super().score_step(query_NQ, keys_BSK, history).roll(int(len(query_NQ) > len(keys_BSK)), 0)


class NoRepeat(Remembering):
    def score_step(self, query_NQ: Tensor, keys_BSK: Tensor, history: Last) -> Tensor:
        return torch.bmm(keys_BSK, query_NQ[..., None])[..., 0]


class Unselectable(Remembering):
    def start(self, source: Source) -> Any:
        return (super().start(source).weights_NS,)

    def score_step(self, query_NQ: Tensor, keys_BSK: Tensor, history: Any) -> Tensor:
        return super().score_step(query_NQ, keys_BSK, Last(*history))

    def advance(self, history: Last, weights_NS: Tensor) -> Any:
        return (weights_NS,)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Remembering, ""),
        (Caching, ""),
        (InPlace, "in place"),
        (Appending, "in place"),
        (FirstHypothesis, "same results for both.*repeat_rows"),
        (NoRepeat, "fails for a sentence with 2 hypotheses.*repeat_rows"),
        (Unselectable, "its state is a value of type tuple.*select"),
    ],
)
def test_the_states_and_the_rows_of_a_custom_attention_function_are_checked(
    kind: type[StatefulAttention], said: str
) -> None:
    outputs_BSM = torch.randn(2, 4, 3)
    source = Source.encoded(EncoderOutputs(outputs_BSM, (4, 2), None), lambda outputs_BSM: outputs_BSM)
    attention = kind(query_size=3, encoder_output_size=3)
    with torch.no_grad(), checked_outputs(attention):
        calls = partial(attention, torch.randn(2, 1, 3), source, attention.initial_state(source))
        if not said:
            calls()
            return
        with pytest.raises(UserError, match=rf"^attention={kind.__name__}: .*{said}"):
            calls()


class ByName(AttendBeforeDecoder):
    """Its methods call each other and the attention function with named arguments."""

    def attend(self, states_NTH: Tensor, embedded_NTE: Tensor, state: Any, source: Source) -> Any:
        query_NTQ = self.attention.build_query(states_NTH, embedded_NTE)
        return self.attention(query_NTQ=query_NTQ, source=source, state=state)

    def unroll(self, embedded_BTE: Tensor, state: Any, source: Source, with_weights: bool = True) -> Any:
        features, weights = [], []
        for embedded_BE in embedded_BTE.unbind(1):
            feature_BF, state, weight_BS = self.step(
                embedded_NE=embedded_BE, state=state, source=source, scale=1.0
            )
            features.append(feature_BF)
            weights.append(weight_BS)
        return torch.stack(features, 1), state, torch.stack(weights, 1)

    def step(self, *inputs: Any, scale: float = 1.0, **named: Any) -> Any:
        features_NF, state, weights_NS = super().step(*inputs, **named)
        return scale * features_NF, state, weights_NS


@pytest.mark.parametrize("kind", ["bahdanau", "transformer"])
def test_a_decoder_whose_methods_call_each_other_is_accepted(kind: str) -> None:
    config = small_config(encoder="transformer" if kind == "transformer" else "bigru", decoder=kind)
    model, batch = small_model(config), small_example()[1]
    model.decoder.__class__ = (
        ByName if kind == "bahdanau" else type("Own", (TransformerDecoder,), {"__module__": "own"})
    )
    with torch.no_grad(), checked_outputs(model.eval()):
        model(batch, batch.target_BU)
        model.step(batch.target_BU[:, 0], *model.start(batch))
    assert "step" not in vars(model.decoder)


def test_a_recurrent_decoder_with_its_own_start_needs_no_bridge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQ2SEQ_LAB_TRUST", __name__)
    config = small_config()
    built = build_decoder({"_target_": f"{__name__}.OwnStart"}, config.attention, 4, EncoderSizes(4, 4, 1))
    assert isinstance(built, OwnStart)


def test_a_decoder_without_an_attribute_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQ2SEQ_LAB_TRUST", __name__)
    config = small_config()
    with pytest.raises(UserError, match=r"^decoder=Unset: its constructor does not set self\.attention\."):
        build_decoder({"_target_": f"{__name__}.Unset"}, config.attention, 4, EncoderSizes(4, 4, 1))


class OwnStart(RecurrentDecoder):
    def __init__(self, input_size: int, encoder: EncoderSizes, attention: AttentionFactory) -> None:
        super().__init__()
        self.attention, self.feature_size = attention(query_size=4, encoder_output_size=4), 4

    def start(self, source: Source) -> Any:
        raise NotImplementedError

    def step(self, embedded_NE: Tensor, state: Any, source: Source, with_weights: bool = True) -> Any:
        raise NotImplementedError


class Unset(RecurrentDecoder):
    def __init__(self, input_size: int, encoder: EncoderSizes, attention: AttentionFactory) -> None:
        super().__init__()

    def step(self, embedded_NE: Tensor, state: Any, source: Source, with_weights: bool = True) -> Any:
        raise NotImplementedError


def test_the_check_changes_no_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a run with dropout and a metric of the user's own; nothing of the check is printed."""
    good = METRIC.replace("totals_K[0] / outputs", "float(totals_K[0])")
    own = write(tmp_path / "own", "metric", good)
    losses, printed = [], []
    for options in ((), ("--config-dir", str(own), "metric=wrong")):
        run = tmp_path / f"run_{len(losses)}"
        settings = ("model.dropout=0.3", "trainer.log_every_steps=1", f"hydra.run.dir={run}")
        assert command_line.run(*options, *settings, *SETTINGS) == 0
        rows = (run / "metrics.jsonl").read_text("utf-8").splitlines()
        losses.append([row.partition('"train/loss": ')[2].partition(",")[0] for row in rows])
        printed.append(capsys.readouterr().out.count("alignment"))
    assert losses[0] == losses[1]
    assert any(losses[0])
    assert printed[0] == printed[1]
