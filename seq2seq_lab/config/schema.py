"""The schema of the configuration: dataclasses of its closed sections, and checks of their values.

The dataclasses have no defaults; all defaults are in conf/. The open slots name a class with `_target_`; `config.slots`
checks them against its constructor.
"""

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from enum import Enum
from operator import attrgetter
from pathlib import Path
from typing import Any, get_type_hints

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, ListConfig, OmegaConf

from seq2seq_lab.config import extensions
from seq2seq_lab.errors import require

_PACKAGED = Path(__file__).parents[1] / "conf"
CONF_DIR = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[2] / "conf"

Slot = dict[str, Any]
OptionalSlot = Slot | None  # null if the task does not use the group


class TiedEmbeddings(Enum):
    """Which embedding tables share weights: none, target and output, or all of source, target and output."""

    none = "none"
    target = "target"
    all = "all"


class Bridge(Enum):
    """How the decoder's initial state is computed from the encoder."""

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
    """Whether a higher (max) or a lower (min) value is better; auto: as the metric declares."""

    auto = "auto"
    max = "max"
    min = "min"


class Device(Enum):
    """The device of a run."""

    auto = "auto"
    cuda = "cuda"
    mps = "mps"
    cpu = "cpu"


class Backend(Enum):
    """The backend that sums tensors over ranks; auto: NCCL between GPUs, gloo otherwise."""

    auto = "auto"
    gloo = "gloo"
    nccl = "nccl"


class Precision(Enum):
    """The number format of matrix products.

    tf32 is float32 with factors that a GPU rounds to 10 bits of mantissa.
    """

    auto = "auto"
    fp32 = "fp32"
    tf32 = "tf32"
    bf16 = "bf16"
    fp16 = "fp16"


class Changed(Enum):
    """What a study does with a job whose data or code have changed since it began."""

    refuse = "refuse"
    rerun = "rerun"
    keep = "keep"


@dataclass
class ModelConfig:
    """Sizes that several parts of the model share. Meanings: conf/config.yaml and conf/model/attn.yaml."""

    name: str
    embedding_size: int
    encoder_hidden_size: int
    hidden_size: int
    num_layers: int
    attentional_size: int
    cell: str
    num_heads: int
    feedforward_size: int
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
    pad_to: int | None
    label_smoothing: float
    r_drop: float
    stop_at_eos: bool
    clip_norm: float | None
    max_skipped_steps: int
    validate_every: float
    validate_unit: ValidateUnit
    eval_batch_size: int
    max_eval_length: int
    monitor: str | None
    monitor_mode: MonitorMode
    patience: int | None
    samples: int
    join_subwords: bool
    length_bounds: list[int]
    multi_reference: bool
    bleu_tokenizer: str
    device: Device
    devices: int
    threads: Any  # int | "auto": OmegaConf cannot merge a union
    backend: Backend
    start_timeout_seconds: float
    timeout_seconds: float
    max_restarts: int
    precision: Precision
    test_precision: Precision
    deterministic: bool
    checkpoint_every_steps: int | None
    checkpoint_every_minutes: float | None
    keep_checkpoints: int
    log_every_steps: int
    profile: bool
    fast_dev_run: bool
    overfit_batches: int


@dataclass
class StudyConfig:
    """The multirun that a run belongs to. Meanings: conf/config.yaml."""

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
    task: Slot
    model: ModelConfig
    embedding: EmbeddingConfig
    encoder: OptionalSlot
    decoder: OptionalSlot
    attention: OptionalSlot
    pooling: OptionalSlot
    readout: OptionalSlot
    initialization: OptionalSlot
    dataset: OptionalSlot
    tokenizer: OptionalSlot
    teacher_forcing: OptionalSlot
    optimizer: Slot
    schedule: Slot
    search: OptionalSlot
    metric: dict[str, Any]  # a Slot by name: the metrics that are added to the task's own
    trainer: TrainerConfig
    logger: Slot


# Settings that the program gives to each job of a study.
SET_BY_STUDIES = ("study.varies", "study.number")

# Settings that may change when a run is resumed.
MAY_CHANGE = (
    "trainer.max_epochs",
    "trainer.max_steps",
    "trainer.patience",
    "trainer.checkpoint_every_minutes",
    "trainer.keep_checkpoints",
    "trainer.devices",
    "trainer.threads",
    "trainer.backend",
    "trainer.start_timeout_seconds",
    "trainer.timeout_seconds",
    "trainer.max_restarts",
)

# Settings that may change when a trained run is loaded.
OPENED_GROUPS = ("search", "dataset", "metric")
OPENED_KEYS = (
    *("trainer.eval_batch_size", "trainer.max_eval_length", "trainer.length_bounds"),
    *("trainer.multi_reference", "trainer.bleu_tokenizer"),
)

SLOTS = tuple(
    name for name, kind in Config.__annotations__.items() if kind in (Slot, OptionalSlot) and name != "metric"
)
# Groups of components that a task uses or not.
TASK_GROUPS = tuple(name for name, kind in Config.__annotations__.items() if kind == OptionalSlot)
# Settings of the trainer section that a task uses or not.
TASK_SETTINGS = (
    *(
        "batch_size",
        "batch_unit",
        "max_length",
        "pad_to",
        "label_smoothing",
        "r_drop",
        "stop_at_eos",
        "eval_batch_size",
        "max_eval_length",
    ),
    *("samples", "join_subwords", "length_bounds", "multi_reference"),
    "bleu_tokenizer",
)

# Not "schema": the store belongs to the process, and the user's own program may have a schema.
ConfigStore.instance().store(name="seq2seq_lab_schema", node=Config, provider="seq2seq_lab")


def typed(node: DictConfig | dict[str, Any]) -> Config:
    """Convert a composed configuration, or its plain values, to dataclasses with plain values and resolved interpolations.

    Raises:
        OmegaConfBaseException: a key that no section has (Hydra allows `+key=value`), or a wrong type.
    """
    values = plain(node) if isinstance(node, DictConfig) else node
    config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Config), values))
    assert isinstance(config, Config)
    return config


def plain(node: DictConfig) -> dict[str, Any]:
    """Convert a composed configuration to nested plain containers with resolved interpolations."""
    container = OmegaConf.to_container(node, resolve=True, throw_on_missing=True, enum_to_str=True)
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


# Keys whose values are numbers in a range; null is allowed where the type allows it.
ABOVE_ZERO = (
    *("model.embedding_size", "model.encoder_hidden_size", "model.hidden_size", "model.num_layers"),
    *("model.num_heads", "model.feedforward_size"),
    *("model.attentional_size", "embedding.source.size", "embedding.target.size", "trainer.max_epochs"),
    *("trainer.max_steps", "trainer.batch_size", "trainer.micro_batches", "trainer.max_length"),
    "trainer.pad_to",
    *("trainer.clip_norm", "trainer.validate_every", "trainer.eval_batch_size", "trainer.devices"),
    *("trainer.patience", "trainer.checkpoint_every_steps", "trainer.keep_checkpoints"),
    *("trainer.log_every_steps", "trainer.max_skipped_steps", "trainer.max_eval_length"),
    *("trainer.checkpoint_every_minutes", "trainer.start_timeout_seconds", "trainer.timeout_seconds"),
)
BELOW_ONE = (
    *("model.dropout", "model.state_dropout", "embedding.source.dropout", "embedding.target.dropout"),
    "trainer.label_smoothing",
)
NOT_NEGATIVE = ("trainer.r_drop", "trainer.samples", "trainer.overfit_batches", "trainer.max_restarts")


def check(config: Config) -> None:
    """Refuse values of the closed sections that are out of range.

    Raises:
        UserError: names the key, the value and what is allowed.
    """
    trainer = config.trainer
    for key in (*ABOVE_ZERO, *BELOW_ONE, *NOT_NEGATIVE):
        value = attrgetter(key)(config)
        if value is None:
            continue
        if key in ABOVE_ZERO:
            require(0 < value < math.inf, key, value, "a finite number above 0")
        elif key in BELOW_ONE:
            require(0 <= value < 1, key, value, "a number of at least 0 and less than 1")
        else:
            require(value >= 0, key, value, "0 or more")
    require(
        trainer.validate_unit is ValidateUnit.epoch or trainer.validate_every == int(trainer.validate_every),
        "trainer.validate_every",
        trainer.validate_every,
        "a whole number of steps, or a part of an epoch with trainer.validate_unit=epoch",
    )
    threads = trainer.threads
    require(
        threads == "auto" or (type(threads) is int and threads > 0),
        "trainer.threads",
        threads,
        "auto, or a number above 0",
    )
    require(0 <= config.seed < 2**32, "seed", config.seed, "a whole number from 0 to 4294967295")
    bounds = trainer.length_bounds
    require(
        bounds == sorted(set(bounds)) and all(bound > 0 for bound in bounds),
        "trainer.length_bounds",
        bounds,
        "increasing numbers above 0",
    )


# Groups of parts by which runs are grouped and filtered.
FLAT_PARTS = (
    *("encoder", "decoder", "pooling", "attention", "readout"),
    *("dataset", "tokenizer", "initialization"),
)


def flat_keys(config: Mapping[str, Any], choices: Mapping[str, str]) -> dict[str, object]:
    """Return the top-level keys by which runs are grouped and filtered, with aliases resolved.

    Args:
        config: the plain configuration.
        choices: the chosen value of each group.
    """
    layers, teacher_forcing = config["encoder"] or config["decoder"] or {}, config["teacher_forcing"]
    values: dict[str, object] = {
        "task": canonical("task", choices["task"]),
        "model": config["model"]["name"],
        **{group: canonical(group, choices[group]) for group in FLAT_PARTS if config[group] is not None},
        "cell": layers.get("cell"),
        "optimizer": choices["optimizer"],
        "schedule": choices["schedule"],
        "seed": config["seed"],
    }
    if teacher_forcing is not None:
        # The values of the group that include another one only change its ratio and scope.
        values["teacher_forcing"] = origin("teacher_forcing", choices["teacher_forcing"])
        values["teacher_forcing_ratio"] = teacher_forcing.get("ratio")
        values["teacher_forcing_scope"] = teacher_forcing.get("scope")
    return values


def conf_folders() -> list[Path]:
    """Return the folders of groups: conf/ and, if there is one, the folder of custom components."""
    own = extensions.folder()
    return [CONF_DIR] if own is None else [CONF_DIR, own]


def canonical(group: str, choice: str) -> str:
    """Return a group's value with aliases resolved; an alias is a YAML file that only includes another one."""
    node = _value_node(group, choice)
    return str(node["defaults"][0]) if list(node) == ["defaults"] and len(node["defaults"]) == 1 else choice


def origin(group: str, choice: str) -> str:
    """Return the value that a group's value is based on, or the value itself if it includes no other."""
    included = _value_node(group, choice).get("defaults", [])
    return origin(group, str(included[0])) if included else choice


def _value_node(group: str, choice: str) -> DictConfig:
    """Return the YAML file of a group's value, empty if there is none."""
    for folder in conf_folders():
        path = folder / group / f"{choice}.yaml"
        if path.is_file():
            node = _load(path, path.stat().st_mtime_ns)
            if isinstance(node, DictConfig):
                return node
    return OmegaConf.create({})


@functools.cache
def _load(path: Path, changed: int) -> DictConfig | ListConfig:
    """Return a YAML file, which is read again when the time of its last change differs. Callers do not change the node."""
    return OmegaConf.load(path)


def trainer_defaults() -> dict[str, Any]:
    """Return the settings of conf/trainer/default.yaml."""
    node: Any = OmegaConf.to_container(_value_node("trainer", "default"))
    return {str(key): value for key, value in node.items()}


def group_values(group: str) -> list[str]:
    """Return the values of a group, with those of custom components."""
    return sorted(path.stem for folder in conf_folders() for path in (folder / group).glob("*.yaml"))


def values_with(group: str, key: str, kinds: type | tuple[type, ...] = object) -> list[str]:
    """Return the values of a group in conf/ whose files set a key to a value of one of these types."""
    values = []
    for path in sorted((CONF_DIR / group).glob("*.yaml")):
        node = _with_included(group, path.stem)
        if key in node and isinstance(node[key], kinds):
            values.append(path.stem)
    return values


def _with_included(group: str, choice: str) -> dict[str, Any]:
    """Return the keys of a file and of the files of its group that it includes."""
    node: Any = OmegaConf.to_container(_value_node(group, choice), resolve=False)
    values: dict[str, Any] = {}
    for item in node.get("defaults", []):
        if isinstance(item, str) and item != "_self_":
            values |= _with_included(group, item)
    return values | node


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
    """Yield every dotted key of a plain configuration that is not a section, with its value."""
    for key, value in node.items():
        if isinstance(value, Mapping):
            yield from dotted_settings(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def annotation(key: str) -> Any:
    """Return the annotated type of a dotted key in a closed section, or None for any other key."""
    node: Any = Config
    for name in key.split("."):
        node = get_type_hints(node).get(name) if is_dataclass(node) else None
    return node
