"""The training loop: which steps it does, when it validates, saves and stops."""

import json
import logging
import math
import signal
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import hydra
import pytest
import torch
from torch import nn

from seq2seq_lab.config import schema as config
from seq2seq_lab.config.compose import composer
from seq2seq_lab.config.schema import Config, MonitorMode, Normalization, Precision, ValidateUnit
from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.batching import BatchMaker
from seq2seq_lab.data.grammar import Grammar
from seq2seq_lab.data.tokenized import TokenizedText, tokenize_corpus
from seq2seq_lab.data.tokenizers import WordTokenizer
from seq2seq_lab.errors import Preempted, UserError
from seq2seq_lab.files import sha256
from seq2seq_lab.models.seq2seq import build_seq2seq
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.console import Progress
from seq2seq_lab.runtime.heartbeat import heartbeat
from seq2seq_lab.runtime.ranks import Ranks
from seq2seq_lab.runtime.signals import StopSignals
from seq2seq_lab.tasks.base import EpochPlan, StepInfo
from seq2seq_lab.tasks.evaluation import Counted
from seq2seq_lab.tasks.examples import TrainingExamples
from seq2seq_lab.tasks.parts import build_task
from seq2seq_lab.tracking import Tracker
from seq2seq_lab.training import checkpoint
from seq2seq_lab.training import step as step_module
from seq2seq_lab.training.parts import build_optimizer, build_schedule, trainer_settings
from seq2seq_lab.training.profiling import no_profile
from seq2seq_lab.training.schedules import Constant, EpochDecay, Plateau
from seq2seq_lab.training.state import StepResult, TrainState
from seq2seq_lab.training.step import start_momentum
from seq2seq_lab.training.trainer import Trainer

PAIRS, BATCH = 35, 8
STEPS = 5  # of an epoch
GOLDEN_PAIRS, GOLDEN_BATCH = 70, 16
SIZES = (40, 40)  # of the vocabularies, cut

GOLDEN = (3.79438927, 0.52059072, 168)  # mean loss in nats, gradient norm, target tokens

Rows = list[tuple[int, dict[str, float]]]


class Recorder(Tracker):
    """Keeps the metrics."""

    def __init__(self) -> None:
        self.rows: Rows = []

    def log_metrics(self, values: Mapping[str, float], step: int) -> None:
        self.rows.append((step, dict(values)))


def tokenized(pairs: int, max_depth: int) -> TokenizedText:
    corpus = Grammar(
        train=pairs,
        validation=1,
        test=1,
        test_compositional=0,
        held_out_share=0.1,
        seed=1,
        max_depth=max_depth,
    ).load()

    def word() -> WordTokenizer:
        return WordTokenizer(joint=False, lowercase=False, min_frequency=1, max_size=SIZES[0])

    return tokenize_corpus(corpus, word, {}, None).train


@pytest.fixture(scope="module")
def text() -> TokenizedText:
    return tokenized(PAIRS, max_depth=1)


@pytest.fixture(scope="module")
def composed() -> Config:
    overrides = [
        *("logger=none", "trainer.device=cpu", "trainer.precision=fp32"),
        *("model.embedding_size=8", "model.hidden_size=8", "model.encoder_hidden_size=4", "model.dropout=0"),
        *("schedule=constant", "trainer.log_every_steps=1", "trainer.max_epochs=2", "task.samples=0"),
    ]
    with composer():
        return config.typed(hydra.compose("config", overrides))


@pytest.fixture
def make(text: TokenizedText, composed: Config, tmp_path: Path) -> Callable[..., Trainer]:
    """Make a trainer; keyword arguments change settings of the `trainer` section."""

    def made(
        scores: Sequence[float] | Callable[[TrainState], float] = (1.0, 2.0, 3.0, 4.0),
        folder: str = "checkpoints",
        identity: str = "here",
        precision: Precision = Precision.fp32,
        losses: Sequence[float] = (),
        optimizer: Mapping[str, Any] | None = None,
        label_smoothing: float = 0.0,
        text: TokenizedText | Callable[[int], TokenizedText] = text,
        batch_size: int = BATCH,
        **settings: Any,
    ) -> Trainer:
        whole = replace(
            composed,
            trainer=replace(composed.trainer, **settings),
            task={**composed.task, "label_smoothing": label_smoothing, "batch_size": batch_size},
        )
        if optimizer is not None:
            whole = replace(whole, optimizer=dict(optimizer))
        torch.manual_seed(3)
        model = build_seq2seq(whole, *SIZES, joint=False)

        def validate(step: int, counted: Counted) -> dict[str, float]:
            state = trainer.state
            number = len(state.history)
            score = scores(state) if callable(scores) else scores[number]
            loss = {"val/loss_teacher_forced": losses[number]} if losses else {}
            return {"val/bleu": score, "val/aer": -score, **loss}

        task = build_task(whole)
        trainer = Trainer(
            task=task,
            model=model,
            data=TrainingExamples(text, BatchMaker, batch_size=batch_size, unit="sentences", seed=1),
            validate=validate,
            optimizer=build_optimizer(whole, model),
            schedule=build_schedule(whole),
            settings=trainer_settings(whole, task),
            tracker=Recorder(),
            folder=tmp_path / folder,
            seed=1,
            identity={"the data": identity},
            profile=no_profile,
            stop=StopSignals(None),
            compute=Compute(torch.device("cpu"), precision, Ranks()),
        )
        return trainer

    return made


def take_step(trainer: Trainer, number: int = 0) -> StepResult:
    """Perform one step of the first epoch, without the loop."""
    trainer.state.step = trainer.state.position = number
    assert trainer.plan is not None
    return trainer.step(trainer.plan, trainer.state)


def weights(trainer: Trainer) -> torch.Tensor:
    return nn.utils.parameters_to_vector(trainer.model.parameters()).detach()


def rows(trainer: Trainer) -> Rows:
    assert isinstance(trainer.tracker, Recorder)
    return trainer.tracker.rows


def validations(trainer: Trainer) -> list[int]:
    """Train, and return the steps at which it validated."""
    at: list[int] = []
    validate = trainer.validate

    def noting(step: int, counted: Counted) -> Mapping[str, float]:
        at.append(step)
        return validate(step, counted)

    trainer.validate = noting
    trainer.fit()
    return at


def saved(trainer: Trainer) -> list[int]:
    return [int(path.name[5:]) for path in sorted(trainer.checkpoints.folder.iterdir())]


def test_golden_step(make: Callable[..., Trainer]) -> None:
    """Loss and gradient norm of the first step, in fp32.

    They may change with the order of random draws (initialization, plan of the epoch, the grammar), never
    with a change that claims to keep the arithmetic.
    """
    trainer = make(text=tokenized(GOLDEN_PAIRS, max_depth=4), batch_size=GOLDEN_BATCH)
    loss, norm, tokens, _ = take_step(trainer)
    assert (float(loss) / tokens, float(norm), tokens) == pytest.approx(GOLDEN, rel=1e-5)


def test_training_lowers_the_loss_and_logs_it(make: Callable[..., Trainer]) -> None:
    trainer = make(max_epochs=4)
    trainer.fit()
    figures = [row for _, row in rows(trainer)]
    assert [step for step, _ in rows(trainer)] == list(range(1, 4 * STEPS + 1))
    assert figures[-1]["train/loss"] < figures[0]["train/loss"] - 0.05
    assert figures[-1]["train/epoch"] == 4
    assert figures[0]["train/learning_rate"] == pytest.approx(3e-3)
    assert figures[0]["train/teacher_forcing_ratio"] == 1
    assert figures[-1]["train/target_tokens_per_second"] > 0
    assert figures[0]["train/gradient_norm"] > 0


def test_logged_loss_is_the_mean_over_tokens_since_the_last_line(make: Callable[..., Trainer]) -> None:
    trainer, other = make(log_every_steps=3, max_epochs=1), make(folder="b", max_epochs=1)
    trainer.fit()
    sums = [take_step(other, number) for number in range(STEPS)]
    assert [step for step, _ in rows(trainer)] == [3, 5]
    for (_, row), part in zip(rows(trainer), (sums[:3], sums[3:]), strict=True):
        expected = sum(float(result.loss_sum) for result in part) / sum(result.units for result in part)
        assert row["train/loss"] == pytest.approx(expected, rel=1e-6)


def test_micro_batches_give_the_same_weights(make: Callable[..., Trainer]) -> None:
    whole, parts = make(), make(folder="b", micro_batches=3)
    sizes: list[int] = []
    loss = parts.task.loss

    def noting(model: nn.Module, batch: Batch, step: StepInfo) -> torch.Tensor:
        sizes.append(len(batch.index_B))
        return loss(model, batch, step)

    parts.task.loss = noting  # type: ignore[method-assign]
    whole.fit()
    parts.fit()
    assert max(sizes) == 3
    assert torch.allclose(weights(whole), weights(parts), atol=2e-5)
    one, many = (
        make(folder="c", max_steps=1),
        make(folder="d", max_steps=1, micro_batches=40),
    )  # of fewer sentences
    one.fit()
    many.fit()
    assert torch.allclose(weights(one), weights(many), atol=2e-5)


def test_the_loss_of_a_step_is_divided_by_its_units_or_its_examples(make: Callable[..., Trainer]) -> None:
    one, other = (
        take_step(make(folder=name, normalization=Normalization(name), clip_norm=None, micro_batches=parts))
        for name, parts in (("units", 1), ("examples", 3))
    )
    assert (other.units, other.examples) == (one.units, one.examples) == (one.units, 8)
    assert float(other.loss_sum) == pytest.approx(float(one.loss_sum), rel=1e-5)
    assert float(other.norm) == pytest.approx(float(one.norm) * one.units / one.examples, rel=1e-4)


def test_clip_norm(make: Callable[..., Trainer]) -> None:
    def gradient(clip: float | None) -> tuple[float, float]:
        trainer = make(clip_norm=clip)
        seen = []

        def look(*_: object) -> None:
            grads = [p.grad for group in trainer.optimizer.param_groups for p in group["params"]]
            seen.append(float(torch.cat([g.flatten() for g in grads if g is not None]).norm()))

        trainer.optimizer.register_step_pre_hook(look)
        norm = take_step(trainer).norm
        return float(norm), seen[0]

    norm, used = gradient(None)
    assert used == pytest.approx(norm, rel=1e-5)
    assert gradient(norm / 4) == pytest.approx((norm, norm / 4), rel=1e-4)


def test_label_smoothing_is_in_the_training_loss(make: Callable[..., Trainer]) -> None:
    losses = []
    for smoothing in (0.0, 0.2):
        trainer = make(label_smoothing=smoothing)
        losses.append(float(take_step(trainer).loss_sum))
    assert losses[0] != pytest.approx(losses[1], rel=1e-4)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"validate_every": 1.0}, [5, 10]),
        ({"validate_every": 0.5}, [3, 5, 8, 10]),
        ({"validate_every": 2.0}, [10]),
        ({"validate_every": 3.0}, [10]),
        ({"validate_every": 4, "validate_unit": ValidateUnit.step}, [4, 8, 10]),
        ({"validate_every": 4, "validate_unit": ValidateUnit.step, "max_steps": 7}, [4, 7]),
        ({"max_steps": 3}, [3]),
        ({"fast_dev_run": True}, [3]),
    ],
    ids=str,
)
def test_when_it_validates(
    settings: dict[str, Any], expected: list[int], make: Callable[..., Trainer]
) -> None:
    trainer = make(**settings)
    assert validations(trainer) == expected
    assert trainer.state.step == expected[-1]
    assert rows(trainer)[-1][0] == expected[-1]
    assert expected[-1] in saved(trainer)


def test_the_work_of_a_validation_counts_as_progress(make: Callable[..., Trainer]) -> None:
    trainer, seen = make(max_epochs=1), list[tuple[str, bool]]()
    validate = trainer.validate

    def noting(step: int, counted: Counted) -> Mapping[str, float]:
        seen.append((heartbeat.activity, heartbeat.waits))
        return validate(step, counted)

    trainer.validate = noting
    trainer.fit()
    assert seen == [("validation", False)]


def test_shares_of_an_epoch_meet_its_end_in_spite_of_rounding(make: Callable[..., Trainer]) -> None:
    trainer = make(max_epochs=10**6)
    for share in (0.1, 0.2, 0.3, 0.7, 1 / 3):
        trainer.settings = replace(trainer.settings, validate_every=share)
        epochs = round(share * 10) if share != 1 / 3 else 1
        for steps in range(1, 200):
            trainer.epoch_steps = steps
            trainer.state.step = steps * epochs
            assert trainer._validation_due(), (share, steps)


@pytest.mark.parametrize(
    ("mode", "scores", "best"),
    [("max", (1.0, 3.0, 2.0), 10), ("min", (2.0, 3.0, 1.0), 15)],
)
def test_best_checkpoint(
    mode: str, scores: tuple[float, ...], best: int, make: Callable[..., Trainer]
) -> None:
    trainer = make(scores, max_epochs=3, keep_checkpoints=1, monitor_mode=MonitorMode(mode))
    trainer.fit()
    assert trainer.state.best == f"step_{best:08d}"
    assert saved(trainer) == sorted({best, 15})


@pytest.mark.parametrize("monitor", ["val/bleu", "val/aer"])
@pytest.mark.parametrize(
    ("scores", "losses", "best"),
    [
        ((0.0, 0.0, 0.0, 0.0), (3.0, 2.0, 2.5, 2.2), 10),
        ((1.0, 2.0, 2.0, 1.0), (3.0, 2.0, 1.5, 0.5), 15),
        ((1.0, 2.0, 2.0, 1.0), (3.0, 1.5, 2.0, 0.5), 10),
        ((0.0, 0.0, 0.0, 0.0), (3.0, math.nan, math.inf, 4.0), 5),
        ((0.0, 0.0, 1.0, 1.0), (), 20),
    ],
)
def test_the_loss_decides_between_equal_values_of_the_monitored_metric(
    scores: Sequence[float], losses: Sequence[float], best: int, monitor: str, make: Callable[..., Trainer]
) -> None:
    trainer = make(scores, losses=losses, max_epochs=4, keep_checkpoints=1, monitor=monitor)
    trainer.fit()
    assert trainer.state.best == f"step_{best:08d}"
    assert saved(trainer) == sorted({best, 20})
    assert checkpoint.best(trainer.checkpoints.folder).name == trainer.state.best


def test_patience_and_plateau_count_a_lower_loss_as_an_improvement(make: Callable[..., Trainer]) -> None:
    scores, losses = (0.0,) * 5, (3.0, 2.5, 2.0, 2.1, 2.2)
    assert validations(make(scores, losses=losses, max_epochs=5, patience=2)) == [5, 10, 15, 20, 25]
    assert validations(make(scores, losses=losses, max_epochs=5, patience=1, folder="b")) == [5, 10, 15, 20]
    assert validations(make(scores, max_epochs=5, patience=2, folder="c")) == [5, 10, 15]
    trainer = make(scores, losses=losses, max_epochs=5, folder="d")
    trainer.step.schedule = Plateau(factor=0.5, patience=1)
    trainer.fit()
    rates = [row["train/learning_rate"] for _, row in rows(trainer)]
    assert rates == pytest.approx([3e-3] * 5 * STEPS)
    trainer = make(scores, losses=losses, max_epochs=5, folder="e")
    trainer.step.schedule = Plateau(factor=0.5, patience=0)
    trainer.fit()
    assert [row["train/learning_rate"] for _, row in rows(trainer)][::STEPS] == pytest.approx(
        [3e-3] * 4 + [1.5e-3]
    )


def test_the_rate_decays_by_epoch_also_in_a_longer_run(make: Callable[..., Trainer]) -> None:
    scores = (1.0,) * 20
    first = make(scores, max_epochs=2, validate_every=0.5)
    longer = make(scores, max_epochs=4, max_steps=17, validate_every=0.5)
    first.step.schedule = longer.step.schedule = EpochDecay(constant_epochs=1, factor=0.5)
    first.fit()
    longer.load(checkpoint.newest(first.checkpoints.folder))
    longer.fit()
    rates = [row["train/learning_rate"] for trainer in (first, longer) for _, row in rows(trainer)]
    assert rates == pytest.approx([3e-3] * STEPS + [1.5e-3] * STEPS + [0.75e-3] * STEPS + [0.375e-3] * 2)


@pytest.mark.parametrize(
    ("method", "value"),
    [
        *(("factor", value) for value in (-1.0, math.nan, math.inf, None, "0.5")),
        *(("epoch_factor", -1.0), ("momentum", 1.0), ("momentum", math.nan)),
    ],
)
def test_a_value_that_a_schedule_must_not_return_is_refused(
    method: str, value: object, make: Callable[..., Trainer]
) -> None:
    trainer = make((1.0,))
    trainer.step.schedule = type("Wrong", (Constant,), {method: lambda *_: value})()
    with pytest.raises(UserError, match=f"^schedule=Wrong: {method} returned {value!r}"):
        take_step(trainer)


def without(path: Path, *names: str) -> Path:
    """Remove values of the state of the training from a checkpoint, which earlier versions do not write."""
    state = json.loads((path / "state.json").read_text("utf-8"))
    for name in names:
        del state["train_state"][name]
    (path / "state.json").write_text(json.dumps(state), "utf-8")
    manifest = json.loads((path / "manifest.json").read_text("utf-8"))
    manifest["files"]["state.json"] = sha256(path / "state.json")
    (path / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    return path


def test_a_checkpoint_of_an_earlier_version_has_no_losses(make: Callable[..., Trainer]) -> None:
    stopped, resumed = (make((0.0,) * 3, losses=(3.0, 2.0, 2.5), max_epochs=3) for _ in range(2))
    interrupt(stopped, "step", 2 * STEPS)
    with pytest.raises(Preempted):
        stopped.fit()
    resumed.load(without(checkpoint.newest(stopped.checkpoints.folder), "losses", "best_loss"))
    resumed.fit()
    assert resumed.state.losses == [None, None, 2.5]
    assert resumed.state.best == "step_00000015"


def test_the_scores_are_made_once_and_restored() -> None:
    state = TrainState()
    state.keep_score(1.0, 0.5)
    state.keep_score(2.0, None)
    assert state.scores is state.scores  # every step reads them
    assert [*state.scores] == [(1.0, -0.5), (2.0, -math.inf)]
    assert TrainState.restored(asdict(state)).scores == state.scores
    assert [state.out_of_patience(patience) for patience in (None, 0, 1)] == [False, True, False]


def test_a_lost_best_checkpoint_is_replaced_by_that_of_the_lowest_loss(make: Callable[..., Trainer]) -> None:
    trainer = make((0.0,) * 4, losses=(2.0, 1.0, 1.5, 3.0), max_epochs=4, keep_checkpoints=9)
    trainer.fit()
    (trainer.checkpoints.folder / "step_00000010" / "model.safetensors").unlink()
    trainer.checkpoints.replace_lost_best(trainer.state)
    assert (trainer.state.best, trainer.state.best_loss) == ("step_00000015", 1.5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"losses": (3.0, 2.0)},
            "val/bleu was 5 at each of the 2 validations. The best checkpoint has the lowest val/loss_teacher_forced. To "
            "monitor it: trainer.monitor=val/loss_teacher_forced",
        ),
        (
            {"monitor": "val/aer"},
            "val/aer was -5 at each of the 2 validations. The best checkpoint is the last one. Set trainer.monitor to "
            "another metric.",
        ),
        ({"scores": (5.0, 5.0 + 1e-9)}, ""),
        ({"max_epochs": 1}, ""),
    ],
)
def test_a_metric_that_never_changed_is_reported(
    settings: dict[str, Any], message: str, make: Callable[..., Trainer], caplog: pytest.LogCaptureFixture
) -> None:
    make(**{"scores": (5.0, 5.0), **settings}).fit()
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == ([message] if message else [])


def test_the_snapshot_of_a_step_at_which_a_run_was_stopped_is_written_on_resume(
    make: Callable[..., Trainer],
) -> None:
    taken: list[int] = []
    stopped, resumed = make(), make()
    stopped.snapshot = resumed.snapshot = lambda step, always: taken.append(step)
    interrupt(stopped, "step", 3)
    with pytest.raises(Preempted):
        stopped.fit()
    resumed.load(checkpoint.newest(stopped.checkpoints.folder))
    resumed.fit()
    assert sorted({*taken}) == [*range(resumed.total + 1)]


def test_patience(make: Callable[..., Trainer], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "seq2seq_lab")
    trainer = make((1.0, 5.0, 4.0, 5.0, 6.0), max_epochs=5, patience=2)
    assert validations(trainer) == [5, 10, 15, 20]
    assert "Stopped early: val/bleu has not improved for 2 validations" in caplog.text
    again = make((1.0, 5.0, 4.0, 5.0, 6.0), max_epochs=5, patience=2)
    again.load(checkpoint.newest(trainer.checkpoints.folder))
    assert validations(again) == []
    patient = make((1.0, 5.0, 4.0, 5.0, 6.0), max_epochs=5, patience=3)
    patient.load(checkpoint.newest(trainer.checkpoints.folder))
    assert validations(patient) == [25]


def test_checkpoints_between_validations(make: Callable[..., Trainer]) -> None:
    trainer = make(checkpoint_every_steps=2, keep_checkpoints=9)
    trainer.fit()
    assert saved(trainer) == [2, 4, 5, 6, 8, 10]


def interrupt(trainer: Trainer, where: str, step: int) -> None:
    """Let a signal arrive in the computation of a step, or in the validation after it."""

    def receive(*_: object) -> None:
        if trainer.state.step == step:
            trainer.stop.received = signal.SIGTERM

    if where == "step":
        trainer.optimizer.register_step_post_hook(receive)
    else:
        validate = trainer.validate

        def validate_with_signal(number: int, counted: Counted) -> Mapping[str, float]:
            counted(1, 2)
            receive()
            counted(2, 2)
            return validate(number, counted)

        trainer.validate = validate_with_signal


@pytest.mark.parametrize(
    ("where", "step", "left"),
    [
        ("step", 0, [1]),
        ("step", 2, [3]),
        ("step", 4, [5]),
        ("step", 9, [5, 10]),
        ("validation", 5, [5]),
        ("validation", 10, [5, 10]),
    ],
)
def test_a_signal_stops_the_training_without_a_loss(
    where: str, step: int, left: list[int], make: Callable[..., Trainer]
) -> None:
    """A checkpoint of the last step is written; the resumed run computes what the uninterrupted run computes."""
    scores = (3.0, 4.0)
    whole, stopped, resumed = (make(scores, folder=f, log_every_steps=3) for f in ("whole", "run", "run"))
    whole.fit()
    interrupt(stopped, where, step)
    with pytest.raises(Preempted) as preempted:
        stopped.fit()
    assert preempted.value.exit_status == 143
    assert saved(stopped) == left
    resumed.load(checkpoint.newest(stopped.checkpoints.folder))
    assert resumed.state.step == left[-1]
    steps = validations(resumed)
    assert steps == [at for at in (5, 10) if at > left[-1] or at == left[-1] != stopped.state.validated]
    losses = [(at, row["train/loss"].hex()) for at, row in (*rows(stopped), *rows(resumed))]
    assert losses == [(at, row["train/loss"].hex()) for at, row in rows(whole)]
    assert all(map(torch.equal, tensors(resumed), tensors(whole)))
    assert resumed.state.scores == whole.state.scores
    for trainer in (resumed, whole):
        assert checkpoint.best(trainer.checkpoints.folder).name == "step_00000010"


def test_checkpoints_by_time(make: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make(checkpoint_every_minutes=2.0)
    monkeypatch.setattr(checkpoint, "prune", lambda *_: None)
    now = 1000.0
    monkeypatch.setattr("seq2seq_lab.training.checkpointer.time.monotonic", lambda: now)

    def wait(*_: object) -> None:
        nonlocal now
        now += 50

    trainer.optimizer.register_step_post_hook(wait)
    trainer.fit()
    assert saved(trainer) == [3, 5, 8, 10]  # 120 s after the start, and after the checkpoint of step 5


def test_the_last_checkpoints_do_not_depend_on_the_time(
    make: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("seq2seq_lab.training.checkpointer.time.monotonic", lambda: now)

    def wait(*_: object) -> None:
        nonlocal now
        now += 50

    # The first validation is the best one, and at last neither one of the newest two nor one of the last two.
    settings = {"checkpoint_every_minutes": 1.0, "keep_checkpoints": 2, "max_epochs": 4}
    stopped, resumed = (make((9.0, 4.0, 4.0, 5.0), folder="run", **settings) for _ in range(2))
    for trainer in (stopped, resumed):
        trainer.optimizer.register_step_post_hook(wait)
    interrupt(stopped, "step", 17)
    with pytest.raises(Preempted):
        stopped.fit()
    folder = stopped.checkpoints.folder
    assert saved(stopped) == [5, 10, 15, 17, 18]
    resumed.load(checkpoint.newest(folder))
    resumed.fit()
    assert saved(resumed) == [5, 15, 18, 20]
    assert [path.name[-2:] for path in checkpoint.named(folder, "last:2")] == ["15", "20"]
    with pytest.raises(UserError, match="last:1 to last:2"):
        checkpoint.named(folder, "last:3")


def test_a_run_of_an_earlier_version_keeps_its_last_checkpoints(make: Callable[..., Trainer]) -> None:
    short, longer = (make(folder="run", max_epochs=epochs, keep_checkpoints=3) for epochs in (2, 3))
    short.fit()
    longer.load(without(checkpoint.newest(short.checkpoints.folder), "regular"))
    longer.fit()
    assert saved(longer) == [5, 10, 15]


def test_a_run_that_is_killed_in_a_long_validation_resumes_with_it(
    make: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = (3.0, 4.0)
    whole, killed, resumed = (make(scores, folder=f, log_every_steps=3) for f in ("whole", "run", "run"))
    whole.fit()
    now = 1000.0
    monkeypatch.setattr("seq2seq_lab.training.checkpointer.time.monotonic", lambda: now)
    left = []

    def validate(step: int, counted: Counted) -> Mapping[str, float]:
        nonlocal now
        for done in range(1, 5):
            now += 301  # a checkpoint is due after 600
            counted(done, 4)
            left.append(saved(killed) if killed.checkpoints.folder.exists() else [])
        raise RuntimeError("killed")

    killed.validate = validate
    saves = []
    monkeypatch.setattr(checkpoint, "prune", lambda *_: saves.append(killed.state.step))
    with pytest.raises(RuntimeError, match="killed"):
        killed.fit()
    assert (left, saves) == ([[], [5], [5], [5]], [5])
    resumed.load(checkpoint.newest(killed.checkpoints.folder))
    assert validations(resumed) == [5, 10]
    assert all(map(torch.equal, tensors(resumed), tensors(whole)))
    assert resumed.state.scores == whole.state.scores


def test_epochs_differ_and_overfitting_repeats_the_same_batches(make: Callable[..., Trainer]) -> None:
    def plan(trainer: Trainer, epoch: int) -> list[list[list[int]]]:
        steps = trainer.open_epoch(epoch)
        assert trainer.plan is not None
        return [[index.tolist() for index in step] for step in trainer.plan.plan[:steps]]

    trainer = make()
    assert plan(trainer, 0) != plan(trainer, 1)
    sentences = [
        sorted(i for step in plan(trainer, epoch) for index in step for i in index) for epoch in (0, 1)
    ]
    assert sentences == [list(range(PAIRS))] * 2
    overfitting = make(overfit_batches=2)
    assert overfitting.total == 4
    assert len(plan(overfitting, 0)) == 2
    assert plan(overfitting, 0) == plan(overfitting, 1)


def test_the_examples_of_an_epoch_are_released_before_the_next_are_drawn(
    make: Callable[..., Trainer], text: TokenizedText
) -> None:
    drawn: list[weakref.ref[torch.Tensor]] = []

    def draw(epoch: int) -> TokenizedText:
        assert [tokens() for tokens in drawn] == [None] * len(drawn)
        examples = text.select(torch.arange(PAIRS))
        drawn.append(weakref.ref(examples.source.tokens))
        return examples

    make(text=draw).fit()
    assert len(drawn) == 2


def spoil(trainer: Trainer, where: str, *steps: int) -> None:
    """Make the loss, or one element of the gradient, NaN in these steps."""
    loss = trainer.task.loss

    def spoiled(model: nn.Module, batch: Batch, step: StepInfo) -> torch.Tensor:
        value = loss(model, batch, step)
        if step.step not in steps:
            return value
        if where == "loss":
            return value + math.nan
        element = next(model.parameters()).flatten()[0] * 0
        element.register_hook(lambda gradient: gradient * math.nan)  # type: ignore[no-untyped-call]
        return value + element

    trainer.task.loss = spoiled  # type: ignore[method-assign]


def optimizer_settings(name: str) -> Any:
    group, _, momentum = name.partition(" with ")
    with composer():
        return hydra.compose(
            "config", [f"optimizer={group}", *(["optimizer.momentum=0.9"] if momentum else [])]
        ).optimizer


def tensors(trainer: Trainer) -> list[torch.Tensor]:
    """Return copies of the weights and of the optimizer's tensors."""
    state = trainer.optimizer.state_dict()["state"]
    moments = [value.clone() for _, values in sorted(state.items()) for _, value in sorted(values.items())]
    return [weights(trainer).clone(), *moments]


def skip_on_device(trainer: Trainer) -> None:
    """Skip steps in the fused kernel, as on a GPU."""
    trainer.step._skips_on_device = True
    start_momentum(trainer.optimizer)


def test_dampening_is_refused_where_the_fused_kernel_skips_steps() -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    start_momentum(torch.optim.SGD([weight], lr=1.0, momentum=0.0, dampening=0.5))
    with pytest.raises(UserError, match=r"optimizer\.dampening=0\.5 .*optimizer\.dampening=0"):
        start_momentum(torch.optim.SGD([weight], lr=1.0, momentum=0.9, dampening=0.5))


@pytest.mark.parametrize(("where", "on_device"), [("loss", False), ("gradient", True)])
@pytest.mark.parametrize("name", ["adam", "adamw", "sgd", "sgd with momentum"])
def test_a_step_that_is_not_finite_changes_nothing(
    name: str, where: str, on_device: bool, make: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make(optimizer=optimizer_settings(name))
    # Memory that is not initialized holds anything.
    monkeypatch.setattr(torch, "empty_like", lambda x, **of: torch.full_like(x, 3, **of))
    if on_device:
        skip_on_device(trainer)
    spoil(trainer, where, 0, 2)
    before = weights(trainer)
    take_step(trainer, 0)
    assert torch.equal(weights(trainer), before)
    take_step(trainer, 1)
    after_one = tensors(trainer)
    assert not torch.equal(after_one[0], before)
    take_step(trainer, 2)
    assert all(map(torch.equal, tensors(trainer), after_one))
    # The step after the skipped one is the first of the optimizer.
    other = make(optimizer=optimizer_settings(name), folder="b")
    take_step(other, 1)
    assert all(map(torch.equal, tensors(other), after_one))


@pytest.mark.parametrize(
    ("name", "on_device", "precision"),
    [
        ("adam", False, Precision.fp32),
        ("adamw", True, Precision.fp32),
        ("adam", True, Precision.bf16),
        ("sgd", False, Precision.fp16),
        ("sgd", True, Precision.fp32),
    ],
)
def test_finite_steps_are_those_of_the_optimizer(
    name: str,
    on_device: bool,
    precision: Precision,
    make: Callable[..., Trainer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The possibility to skip a step changes no bit of a loss, a weight or a moment."""
    guarded, plain = (
        make(optimizer=optimizer_settings(name), precision=precision, folder=f, max_epochs=1)
        for f in ("a", "b")
    )
    if on_device:
        skip_on_device(guarded)
    guarded.fit()
    monkeypatch.setattr(step_module, "step_if", lambda finite, optimizer, on_device: optimizer.step())
    plain.fit()
    for one, other in zip(rows(guarded), rows(plain), strict=True):
        assert one[1]["train/loss"].hex() == other[1]["train/loss"].hex()
        assert one[1]["train/skipped_steps"] == 0
    assert all(map(torch.equal, tensors(guarded), tensors(plain)))


def test_skipped_steps_are_counted_and_left_out_of_the_loss(
    make: Callable[..., Trainer], caplog: pytest.LogCaptureFixture
) -> None:
    each, mean = make(folder="each"), make(log_every_steps=5)
    for trainer in (each, mean):
        spoil(trainer, "loss", 1, 2, 6)
        trainer.fit()
    counts = [row["train/skipped_steps"] for _, row in rows(each)]
    assert counts == [0, 1, 2, 2, 2, 2, 3, 3, 3, 3]
    assert [step for step, row in rows(each) if math.isnan(row["train/loss"])] == [2, 3, 7]
    assert all(math.isfinite(row["train/loss"]) for _, row in rows(mean))
    assert mean.state.skipped == 3
    assert "Up to step 5, 2 steps were skipped" in caplog.text
    assert weights(mean).isfinite().all()
    assert torch.equal(weights(mean), weights(each))


@pytest.mark.parametrize("stop", [1, 3, 5, 7])
def test_a_resumed_run_counts_the_same_skipped_steps(stop: int, make: Callable[..., Trainer]) -> None:
    settings = {"log_every_steps": 4, "checkpoint_every_steps": 1, "keep_checkpoints": 99}
    whole, again = make(folder="whole", **settings), make(folder="again", **settings)
    for trainer in (whole, again):
        spoil(trainer, "gradient", 1)
        spoil(trainer, "loss", 2, 6)
    whole.fit()
    again.load(whole.checkpoints.folder / f"step_{stop:08d}")
    again.fit()
    assert again.state.skipped == whole.state.skipped == 3
    expected = [(step, row["train/loss"].hex()) for step, row in rows(whole) if step > stop]
    assert [(step, row["train/loss"].hex()) for step, row in rows(again)] == expected
    assert all(map(torch.equal, tensors(again), tensors(whole)))


@pytest.mark.parametrize(
    ("spoiled", "log_every", "stops"),
    [((0, 1, 3, 4), 1, None), ((3, 4, 5), 1, 6), ((0, 1, 2), 4, 4), ((6, 7, 8), 100, 10)],
)
def test_many_skipped_steps_in_a_row_end_the_training(
    spoiled: tuple[int, ...], log_every: int, stops: int | None, make: Callable[..., Trainer]
) -> None:
    trainer = make(max_skipped_steps=3, log_every_steps=log_every, optimizer=optimizer_settings("adam"))
    spoil(trainer, "loss", *spoiled)
    if stops is None:
        trainer.fit()
        return
    with pytest.raises(UserError, match=r"trainer\.max_skipped_steps=3.*optimizer\.lr \(now 0\.003\)"):
        trainer.fit()
    assert trainer.state.step == stops
    assert [path.name for path in trainer.checkpoints.folder.glob("*")] == (
        ["step_00000005"] if stops > 5 else []
    )


def test_a_step_that_another_rank_makes_all_skip_is_counted(
    make: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make()

    def all_reduce(ranks: Ranks, sums: torch.Tensor) -> torch.Tensor:
        return sums + torch.tensor([0.0, math.nan if trainer.state.step == 3 else 1.0])

    monkeypatch.setattr(Ranks, "all_reduce", all_reduce)
    trainer.fit()
    assert trainer.state.skipped == 1


@pytest.mark.parametrize("what", ["weight", "moment"])
def test_weights_that_are_not_finite_are_not_saved(what: str, make: Callable[..., Trainer]) -> None:
    trainer = make(checkpoint_every_steps=1, keep_checkpoints=9, max_skipped_steps=100)
    step = trainer.step

    def damaging(plan: EpochPlan, state: TrainState) -> StepResult:
        done = step(plan, state)
        if state.step == 6:
            weight = next(trainer.model.parameters())
            damaged = weight if what == "weight" else trainer.optimizer.state[weight]["exp_avg"]
            damaged.data[0, 0] = math.inf
        return done

    trainer.step = damaging  # type: ignore[assignment]
    with pytest.raises(UserError, match=r"source_embedding\.table\.weight.*at step 7.*optimizer\.lr"):
        trainer.fit()
    assert saved(trainer) == [1, 2, 3, 4, 5, 6]


def test_a_monitored_metric_that_is_not_finite_ends_the_training(make: Callable[..., Trainer]) -> None:
    with pytest.raises(UserError, match=r"val/bleu=nan.*clip_norm \(now 1\.0\).*precision=fp32"):
        make((math.nan,), losses=(math.nan,)).fit()


def test_the_learning_rate_is_not_blamed_if_only_the_monitored_metric_is_not_finite(
    make: Callable[..., Trainer],
) -> None:
    with pytest.raises(UserError, match=r"val/bleu=nan.*loss_teacher_forced is.*trainer\.monitor") as caught:
        make((math.nan,), losses=(1.0,)).fit()
    assert "optimizer.lr" not in str(caught.value)


def test_a_monitored_metric_that_validation_lacks_is_refused(make: Callable[..., Trainer]) -> None:
    with pytest.raises(UserError, match=r"trainer\.monitor=val/chrf.*val/bleu"):
        make(monitor="val/chrf").fit()


@pytest.mark.parametrize("precision", [Precision.bf16, Precision.fp16])
def test_half_precision_trains_about_alike(precision: Precision, make: Callable[..., Trainer]) -> None:
    losses = []
    for chosen in (Precision.fp32, precision):
        trainer = make(precision=chosen, folder=chosen.value)
        trainer.fit()
        losses.append([row["train/loss"] for _, row in rows(trainer)])
    assert losses[1] == pytest.approx(losses[0], rel=0.02)
    if precision is Precision.fp16:
        assert trainer.state.scaler["scale"] > 0
        again = make(precision=precision)
        again.load(checkpoint.newest(trainer.checkpoints.folder))
        assert again.step.scaler.state_dict() == trainer.step.scaler.state_dict()


def test_an_overflow_of_fp16_halves_the_scale_and_does_not_count(make: Callable[..., Trainer]) -> None:
    trainer = make(precision=Precision.fp16)
    spoil(trainer, "gradient", 0, 7)
    trainer.fit()
    assert trainer.step.scaler.get_scale() == 2.0**14
    assert trainer.state.skipped == 0
    lost = make(precision=Precision.fp16, folder="b")
    lost.step.scaler = torch.amp.GradScaler("cpu", init_scale=0.5)
    spoil(lost, "gradient", 7)
    lost.fit()
    assert lost.state.skipped == 1


def test_gradients_are_clipped_after_the_scale_is_taken_off(make: Callable[..., Trainer]) -> None:
    norms = []
    for precision in (Precision.fp32, Precision.fp16):
        sgd = {"_target_": "torch.optim.SGD", "lr": 1.0, "fused": True}
        trainer = make(precision=precision, optimizer=sgd, clip_norm=0.01)
        before = nn.utils.parameters_to_vector(trainer.model.parameters()).detach()
        norm = take_step(trainer).norm
        change = nn.utils.parameters_to_vector(trainer.model.parameters()).detach() - before
        assert change.norm().item() == pytest.approx(0.01, rel=1e-3)
        norms.append(norm.item())
    assert norms[1] == pytest.approx(norms[0], rel=0.01)


def test_other_identity_is_refused(make: Callable[..., Trainer]) -> None:
    trainer = make(max_steps=1)
    trainer.fit()
    with pytest.raises(UserError, match="the data was here and is now there"):
        make(identity="there").load(checkpoint.newest(trainer.checkpoints.folder))


def test_a_longer_run_logs_that_the_schedule_is_stretched(
    make: Callable[..., Trainer], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "seq2seq_lab")
    trainer = make(max_epochs=1)
    trainer.fit()
    longer = make(max_epochs=3)
    longer.load(checkpoint.newest(trainer.checkpoints.folder))
    assert (longer.state.step, longer.total, longer.done) == (5, 15, False)
    assert "now has 15 steps instead of 5" in caplog.text


def test_state_is_plain_json(make: Callable[..., Trainer]) -> None:
    trainer = make(max_epochs=1, log_every_steps=2)
    trainer.fit()
    state = checkpoint.load_state(checkpoint.newest(trainer.checkpoints.folder))
    assert json.loads(json.dumps(state, allow_nan=False)) == state
    assert (state["train_state"]["step"], state["train_state"]["epoch"], state["total"]) == (5, 1, 5)
    assert state["best"] == "step_00000005"


def test_a_resumed_validation_shows_the_epoch_that_has_ended(
    make: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(Progress, "due", lambda self: True)
    monkeypatch.setattr(Progress, "_print", lambda self, step, parts: shown.append(parts[0]))
    stopped, resumed = make(), make()
    interrupt(stopped, "validation", 2 * STEPS)
    with pytest.raises(Preempted):
        stopped.fit()
    resumed.load(checkpoint.newest(stopped.checkpoints.folder))
    shown.clear()
    interrupt(resumed, "validation", -1)  # which counts its batches
    resumed.fit()
    assert shown == ["epoch 2/2"] * 2


@pytest.mark.parametrize(("monitor", "best"), [("val/bleu", "val/bleu 50.00"), ("val/aer", "val/aer -50.00")])
def test_progress_has_the_epochs_the_best_score_and_the_batches_of_a_validation(
    make: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch, monitor: str, best: str
) -> None:
    shown: list[tuple[object, ...]] = []

    class Shown(Progress):
        def due(self) -> bool:
            return True

        def _print(self, step: int, parts: Sequence[str]) -> None:
            shown.append((step, *parts))

    monkeypatch.setattr("seq2seq_lab.training.trainer.Progress", Shown)
    trainer = make((50.0, 20.0), monitor=monitor)
    validate = trainer.validate

    def validated(step: int, counted: Counted) -> Mapping[str, float]:
        counted(4, 10)
        return validate(step, counted)

    trainer.validate = validated
    trainer.fit()
    epoch = trainer.epoch_steps
    assert (epoch, "epoch 1/2", "validating 4/10", "") in shown
    assert (2 * epoch, "epoch 2/2", "validating 4/10", f"best {best}") in shown
    assert [parts[3] for parts in shown if str(parts[2]).startswith("loss")] == [""] * epoch + [
        f"best {best}"
    ] * epoch
