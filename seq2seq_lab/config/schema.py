"""The typed configuration: what a run is told, and the checks that need no data.

The closed sections are dataclasses without defaults (every default stands in conf/). The open slots name a
class with `_target_` and are checked against its constructor in `seq2seq_lab.build`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, get_type_hints

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

from seq2seq_lab.config import extensions
from seq2seq_lab.errors import UserError, did_you_mean

_PACKAGED = Path(__file__).parents[1] / "conf"
CONF_DIR = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[2] / "conf"

Slot = dict[str, Any]


class TiedEmbeddings(Enum):
    """Which tables are one: none, the target's and the output's, or these and the source's."""

    none = "none"
    target = "target"
    all = "all"


class Bridge(Enum):
    """How the decoder starts from what the encoder made of the source."""

    copy = "copy"
    tanh = "tanh"
    mean = "mean"
    zero = "zero"


class BatchUnit(Enum):
    """What `trainer.batch_size` counts."""

    sentences = "sentences"
    tokens = "tokens"


class ValidateUnit(Enum):
    """What `trainer.validate_every` counts."""

    epoch = "epoch"
    step = "step"


class MonitorMode(Enum):
    """Whether a greater or a smaller figure is better; auto: as the figure has it."""

    auto = "auto"
    max = "max"
    min = "min"


# What a validation measures, and which direction is better.
FIGURES = {
    "val/bleu": MonitorMode.max,
    "val/bleu_lowercased_tokenised": MonitorMode.max,
    "val/chrf": MonitorMode.max,
    "val/loss_teacher_forced": MonitorMode.min,
    "val/loss_free_running": MonitorMode.min,
    "val/perplexity_teacher_forced": MonitorMode.min,
    "val/perplexity_free_running": MonitorMode.min,
    "val/aer": MonitorMode.min,
    "val/alignment_precision": MonitorMode.max,
    "val/alignment_recall": MonitorMode.max,
}
ALIGNMENT_FIGURES = ("val/aer", "val/alignment_precision", "val/alignment_recall")


class Device(Enum):
    """Where a run computes."""

    auto = "auto"
    cuda = "cuda"
    mps = "mps"
    cpu = "cpu"


class Backend(Enum):
    """How the ranks of a run add up tensors; auto: NCCL between GPUs, else gloo."""

    auto = "auto"
    gloo = "gloo"
    nccl = "nccl"


class Precision(Enum):
    """In what the matrix products are computed.

    tf32 is float32 whose products a GPU rounds to 10 bits of mantissa; fp32 does not.
    """

    auto = "auto"
    fp32 = "fp32"
    tf32 = "tf32"
    bf16 = "bf16"
    fp16 = "fp16"


class Changed(Enum):
    """What a study does with a job that was computed from other data or code than today's."""

    refuse = "refuse"
    rerun = "rerun"
    keep = "keep"


@dataclass
class ModelConfig:
    """Sizes that several parts of the model share. Meanings: conf/model/attn.yaml."""

    name: str
    embedding_size: int
    encoder_hidden_size: int
    hidden_size: int
    num_layers: int
    attentional_size: int
    dropout: float
    state_dropout: float
    locked_dropout: bool
    tied_embeddings: TiedEmbeddings
    scale_embeddings: bool
    bridge: Bridge
    reverse_source: bool
    share_layers: bool


@dataclass
class TableConfig:
    """The embedding table of one side. Meanings: conf/config.yaml."""

    path: str | None
    size: int
    frozen: bool
    dropout: float


@dataclass
class EmbeddingConfig:
    """The embedding tables."""

    source: TableConfig
    target: TableConfig


@dataclass
class TrainerConfig:
    """How to train. Meanings: conf/trainer/default.yaml."""

    max_epochs: int
    max_steps: int | None
    batch_size: int
    batch_unit: BatchUnit
    micro_batches: int
    max_length: int
    label_smoothing: float
    r_drop: float
    stop_at_eos: bool
    clip_norm: float | None
    validate_every: float
    validate_unit: ValidateUnit
    eval_batch_size: int
    monitor: str
    monitor_mode: MonitorMode
    patience: int | None
    samples: int
    join_subwords: bool
    length_bounds: list[int]
    multi_reference: bool
    device: Device
    devices: int
    backend: Backend
    precision: Precision
    test_precision: Precision
    checkpoint_every_steps: int | None
    keep_checkpoints: int
    log_every_steps: int
    profile: bool
    fast_dev_run: bool
    overfit_batches: int


@dataclass
class StudyConfig:
    """The multirun that a run is a job of. Meanings: conf/config.yaml."""

    name: str | None
    varies: list[str]
    number: int | None
    changed: Changed


@dataclass
class Config:
    """One run. Meanings: conf/config.yaml."""

    seed: int
    init_from: str | None
    cache_dir: str | None
    study: StudyConfig
    model: ModelConfig
    embedding: EmbeddingConfig
    encoder: Slot
    decoder: Slot
    attention: Slot
    readout: Slot
    initialization: Slot
    dataset: Slot
    tokenizer: Slot
    teacher_forcing: Slot
    optimizer: Slot
    schedule: Slot
    search: Slot
    trainer: TrainerConfig
    logger: Slot


# What a run that goes on may be given anew.
MAY_CHANGE = (
    "trainer.max_epochs",
    "trainer.max_steps",
    "trainer.patience",
    "trainer.keep_checkpoints",
    "trainer.devices",
    "trainer.backend",
)

# What a run that is opened to translate may be given anew.
OPENED_GROUPS = ("search", "dataset")
OPENED_KEYS = ("trainer.eval_batch_size", "trainer.length_bounds", "trainer.multi_reference")

SLOTS = tuple(name for name, kind in Config.__annotations__.items() if kind == Slot)

ConfigStore.instance().store(name="schema", node=Config, provider="seq2seq_lab")


def typed(node: DictConfig) -> Config:
    """Return the composed configuration as dataclasses with plain values, every interpolation resolved.

    Raises:
        OmegaConfBaseException: a key that no section has (Hydra lets `+key=value` add it), or a wrong type.
    """
    config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Config), plain(node)))
    assert isinstance(config, Config)
    return config


def plain(node: DictConfig) -> dict[str, Any]:
    """Return the composed configuration as nested plain containers, every interpolation resolved."""
    container = OmegaConf.to_container(node, resolve=True, throw_on_missing=True, enum_to_str=True)
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


def check(config: Config) -> None:
    """Refuse values of the closed sections that no run can have.

    Raises:
        UserError: names the key, the value and what is allowed.
    """
    model, trainer = config.model, config.trainer
    positive: dict[str, float | None] = {
        "model.embedding_size": model.embedding_size,
        "model.encoder_hidden_size": model.encoder_hidden_size,
        "model.hidden_size": model.hidden_size,
        "model.num_layers": model.num_layers,
        "model.attentional_size": model.attentional_size,
        "embedding.source.size": config.embedding.source.size,
        "embedding.target.size": config.embedding.target.size,
        "trainer.max_epochs": trainer.max_epochs,
        "trainer.max_steps": trainer.max_steps,
        "trainer.batch_size": trainer.batch_size,
        "trainer.micro_batches": trainer.micro_batches,
        "trainer.max_length": trainer.max_length,
        "trainer.clip_norm": trainer.clip_norm,
        "trainer.validate_every": trainer.validate_every,
        "trainer.eval_batch_size": trainer.eval_batch_size,
        "trainer.devices": trainer.devices,
        "trainer.patience": trainer.patience,
        "trainer.checkpoint_every_steps": trainer.checkpoint_every_steps,
        "trainer.keep_checkpoints": trainer.keep_checkpoints,
        "trainer.log_every_steps": trainer.log_every_steps,
    }
    for key, value in positive.items():
        _require(value is None or value > 0, key, value, "a number above 0")
    for key, value in {
        "model.dropout": model.dropout,
        "model.state_dropout": model.state_dropout,
        "embedding.source.dropout": config.embedding.source.dropout,
        "embedding.target.dropout": config.embedding.target.dropout,
        "trainer.label_smoothing": trainer.label_smoothing,
    }.items():
        _require(0 <= value < 1, key, value, "0 up to, not including, 1")
    for key, value in {
        "trainer.r_drop": trainer.r_drop,
        "trainer.samples": trainer.samples,
        "trainer.overfit_batches": trainer.overfit_batches,
    }.items():
        _require(value >= 0, key, value, "0 or more")
    _require(
        trainer.validate_unit is ValidateUnit.epoch or trainer.validate_every == int(trainer.validate_every),
        "trainer.validate_every",
        trainer.validate_every,
        "a whole number of steps, or a share of an epoch with trainer.validate_unit=epoch",
    )
    _require(
        trainer.monitor in FIGURES,
        "trainer.monitor",
        trainer.monitor,
        ", ".join(FIGURES),
        did_you_mean(trainer.monitor, FIGURES),
    )
    _require(0 <= config.seed < 2**32, "seed", config.seed, "a whole number from 0 to 4294967295")
    bounds = trainer.length_bounds
    _require(
        bounds == sorted(set(bounds)) and all(bound > 0 for bound in bounds),
        "trainer.length_bounds",
        bounds,
        "growing numbers above 0",
    )


def flat_keys(config: Mapping[str, Any], choices: Mapping[str, str]) -> dict[str, object]:
    """Return the canonical top-level keys that runs are grouped and filtered by.

    Args:
        config: the plain configuration.
        choices: the chosen value of each group, as Hydra knows them.
    """
    return {
        "model": config["model"]["name"],
        **{
            group: canonical(group, choices[group])
            for group in ("encoder", "decoder", "attention", "readout", "dataset", "tokenizer")
        },
        "cell": config["encoder"].get("cell"),
        "initialization": choices["initialization"],
        # The settings that make half_per_step of constant stand beside it.
        "teacher_forcing": origin("teacher_forcing", choices["teacher_forcing"]),
        "teacher_forcing_ratio": config["teacher_forcing"].get("ratio"),
        "teacher_forcing_scope": config["teacher_forcing"].get("scope"),
        "optimizer": choices["optimizer"],
        "schedule": choices["schedule"],
        "seed": config["seed"],
    }


def conf_folders() -> list[Path]:
    """Return where groups have their values: conf/ and, where one was given, the user's own folder."""
    own = extensions.folder()
    return [CONF_DIR] if own is None else [CONF_DIR, own]


def canonical(group: str, choice: str) -> str:
    """Return a group's value as it is logged: an alias is a YAML that does nothing but include another."""
    node = _value_node(group, choice)
    return str(node["defaults"][0]) if list(node) == ["defaults"] and len(node["defaults"]) == 1 else choice


def origin(group: str, choice: str) -> str:
    """Return the value that a group's value includes and changes settings of, or itself if it includes none."""
    included = _value_node(group, choice).get("defaults", [])
    return origin(group, str(included[0])) if included else choice


def _value_node(group: str, choice: str) -> DictConfig:
    """Return the YAML of a group's value, empty where there is none."""
    for folder in conf_folders():
        path = folder / group / f"{choice}.yaml"
        if path.is_file():
            node = OmegaConf.load(path)
            if isinstance(node, DictConfig):
                return node
    return OmegaConf.create({})


def group_values(group: str) -> list[str]:
    """Return the values of a group, the user's own among them."""
    return sorted(path.stem for folder in conf_folders() for path in (folder / group).glob("*.yaml"))


def values_with(group: str, key: str, kinds: type | tuple[type, ...] = object) -> list[str]:
    """Return the values of a group in conf/ whose files set a key, to a value of one of these types."""
    found = []
    for path in sorted((CONF_DIR / group).glob("*.yaml")):
        node: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
        if key in node and isinstance(node[key], kinds):
            found.append(path.stem)
    return found


def settings_of(group: str, value: str) -> list[str]:
    """Return the settings that the file of a group's value has, without its class and what it includes."""
    return [str(key) for key in _value_node(group, value) if key not in ("_target_", "defaults")]


def groups() -> list[str]:
    """Return the groups in conf/."""
    return sorted(path.name for path in CONF_DIR.iterdir() if path.is_dir())


def dotted_keys(node: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield every dotted key of a plain configuration, sections included."""
    for key, value in node.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from dotted_keys(value, f"{prefix}{key}.")


def dotted_settings(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every dotted key of a plain configuration with its value, without the sections themselves."""
    for key, value in node.items():
        if isinstance(value, Mapping):
            yield from dotted_settings(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def annotation(key: str) -> Any:
    """Return the annotated type of a closed section's dotted key, or None where there is none."""
    node: Any = Config
    for name in key.split("."):
        node = get_type_hints(node).get(name) if is_dataclass(node) else None
    return node


def _require(holds: bool, key: str, value: object, allowed: str, near: str = "") -> None:
    if not holds:
        raise UserError(f"{key}={value} is not allowed.{near} Allowed: {allowed}.")
