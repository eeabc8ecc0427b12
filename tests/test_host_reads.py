"""An update never waits for its device: no operation in it hands a number, or a size that depends on one, to the host.

On a GPU each of these waits until all that was queued has been computed. They are the same operations on a CPU.
"""

from pathlib import Path
from typing import Any

import hydra
import pytest
import torch
from omegaconf import OmegaConf
from parallel_training import GRAMMAR, word
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from seq2seq_lab import build, config
from seq2seq_lab.config import Config, Precision
from seq2seq_lab.data.tokenized import tokenize_corpus
from seq2seq_lab.profiling import no_profile
from seq2seq_lab.ranks import Ranks
from seq2seq_lab.task import TranslationTask
from seq2seq_lab.teacher_forcing import _needed
from seq2seq_lab.tracker import Trackers
from seq2seq_lab.trainer import Trainer

SETTINGS = (
    *("logger=none", "trainer.device=cpu", "trainer.batch_size=8", "model.dropout=0.2"),
    *("model.embedding_size=8", "model.hidden_size=8", "model.encoder_hidden_size=8"),
)
HALF = "teacher_forcing.ratio=0.5"
CASES = (
    (HALF,),
    ("decoder=luong_feeding", HALF, "trainer.r_drop=1", "model.locked_dropout=true"),
    ("decoder=bahdanau", "teacher_forcing=linear", "trainer.stop_at_eos=true", "encoder=bilstm"),
    ("decoder=conditional", "model.locked_dropout=true", HALF, "trainer.batch_unit=tokens", "trainer.batch_size=60"),
    ("encoder=lstm", "model.reverse_source=true", "attention=location", "optimizer=sgd", "trainer.micro_batches=2"),
    ("decoder=tutorial", "model.bridge=mean", "teacher_forcing.ratio=0", "optimizer=adamw", "trainer.label_smoothing=0.1"),
    ("decoder=context", "attention=none", "encoder=gru", "model.bridge=zero", "readout=deep"),
)  # fmt: skip
READS = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal", "_unique", "bincount")


class HostReads(TorchDispatchMode):
    """Notes the operations that a host has to wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        by_mask = name in ("index", "index_put_") and any(
            isinstance(index, Tensor) and index.dtype is torch.bool for index in args[1]
        )
        if by_mask or name.startswith(READS):
            self.seen.append(name)
        return func(*args, **(kwargs or {}))


def trainer(*overrides: str) -> Trainer:
    tokenized = tokenize_corpus(GRAMMAR.load(), word, {}, None)
    with hydra.initialize_config_dir(str(config.CONF_DIR), version_base="1.3"):
        node = hydra.compose("config", [*SETTINGS, *overrides])
    settings = config.typed(OmegaConf.merge(OmegaConf.structured(Config), node))  # type: ignore[arg-type]
    pair, of = tokenized.tokenizers, settings.trainer
    model = build.model(settings, pair.source.size, pair.target.size, joint=False)
    forcing = build.teacher_forcing(settings)
    return Trainer(
        task=TranslationTask(model, forcing, of.label_smoothing, of.r_drop, of.stop_at_eos, seed=1),
        text=lambda epoch: tokenized.train,
        validate=lambda state, counted: {},
        optimizer=build.optimizer(settings, model),
        schedule=build.schedule(settings),
        config=of,
        tracker=Trackers(()),
        folder=Path(),
        seed=1,
        device=torch.device("cpu"),
        precision=Precision.bf16,
        identity={},
        profile=no_profile,
        ranks=Ranks(),
    )


@pytest.mark.parametrize("overrides", CASES, ids=lambda overrides: overrides[0])
def test_an_update_reads_nothing(overrides: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    # What a CPU alone may ask its coins; elsewhere every step may need the model's own choice.
    monkeypatch.setattr("seq2seq_lab.teacher_forcing._needed", lambda coins_BT: [True] * coins_BT.shape[1])
    made = trainer(*overrides)
    first, second, *_ = made.open_epoch(0)
    made.step(first)  # the optimizer makes its state
    made.state.update += 1
    with HostReads() as reads:
        made.step(second)
    assert reads.seen == []


@pytest.mark.parametrize(
    "read", [lambda x: x.sum().item(), lambda x: x[x > 0], lambda x: bool(x.any()), torch.nonzero]
)
def test_a_read_is_seen(read: Any) -> None:
    with HostReads() as reads:
        read(torch.ones(3))
    assert reads.seen


def test_coins_are_not_read_where_that_would_wait() -> None:
    assert _needed(torch.zeros(2, 5, dtype=torch.bool, device="meta")) == [True] * 5


def test_every_optimizer_is_fused() -> None:
    """One kernel for all weights, and the found infinities of float16 stay on the device."""
    with hydra.initialize_config_dir(str(config.CONF_DIR), version_base="1.3"):
        for name in config.group_values("optimizer"):
            assert hydra.compose("config", [f"optimizer={name}"]).optimizer.fused is True, name
