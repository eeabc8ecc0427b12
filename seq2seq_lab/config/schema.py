"""The schema of the configuration: dataclasses of its closed sections, and checks of their values.

The dataclasses have no defaults; all defaults are in conf/. The open slots name a class with `_target_`; `config.slots`
checks them against its constructor.
"""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, ListConfig, OmegaConf

from seq2seq_lab.config import extensions
from seq2seq_lab.config.type_checks import Count, Positive, Share, Within, fits, wrong_type
from seq2seq_lab.errors import SEEDS, UserError, require

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


class Normalization(Enum):
    """What the summed loss of an optimizer step is divided by: the number of units (see `Task.unit`), or of examples."""

    units = "units"
    examples = "examples"


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
    embedding_size: Count
    encoder_hidden_size: Count
    hidden_size: Count
    num_layers: Count
    attentional_size: Count
    cell: str
    num_heads: Count
    feedforward_size: Count
    dropout: Share
    state_dropout: Share
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
    size: Count
    frozen: Any  # bool | "known": OmegaConf cannot merge a union
    dropout: Share


@dataclass
class EmbeddingConfig:
    """The embedding tables."""

    source: TableConfig
    target: TableConfig


@dataclass
class TrainerConfig:
    """How to train. Meanings: conf/trainer/default.yaml. What depends on the kind of problem is in the group `task`."""

    max_epochs: Count
    max_steps: Count | None
    micro_batches: Count
    normalization: Normalization
    clip_norm: Positive | None
    max_skipped_steps: Count
    validate_every: Positive
    validate_unit: ValidateUnit
    monitor: str | None
    monitor_mode: MonitorMode
    patience: Count | None
    device: Device
    devices: Count
    threads: Any  # int | "auto": OmegaConf cannot merge a union
    backend: Backend
    start_timeout_seconds: Positive
    timeout_seconds: Positive
    max_restarts: Annotated[int, Within(0)]
    precision: Precision
    test_precision: Precision
    deterministic: bool
    checkpoint_every_steps: Count | None
    checkpoint_every_minutes: Positive | None
    keep_checkpoints: Count
    log_every_steps: Count
    profile: bool
    fast_dev_run: bool
    overfit_batches: Annotated[int, Within(0)]


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

    seed: Annotated[int, Within(0, SEEDS)]
    init_from: str | None
    init_part: Any  # str | list[str] | None, as a list after the conversion
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

    def __post_init__(self) -> None:
        self.init_part = part_names(self.init_part)

    def copies(self, part: str) -> bool:
        """Return whether a part of the model, such as `source_embedding`, has its first weights from `init_from`."""
        return self.init_from is not None and (self.init_part is None or part in self.init_part)


def part_names(init_part: object) -> list[str] | None:
    """Return the names of `init_part`, given as a name or as a list of names.

    Raises:
        UserError: it is something else.
    """
    names = [init_part] if isinstance(init_part, str) else init_part
    if names is not None and (not fits(names, list[str]) or not names):
        raise UserError(
            f"init_part={init_part} must be a part of the model, or a list of parts, such as "
            f"init_part=[source_embedding,encoder]."
        )
    return names  # type: ignore[return-value]


# Settings that the program gives to each job of a study.
SET_BY_STUDIES = ("study.varies", "study.number")

# Settings that may change when a run is resumed.
MAY_CHANGE = (
    "cache_dir",
    "dataset.cache_dir",
    "task.eval_batch_size",
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
    *("task.eval_batch_size", "task.max_eval_length", "task.length_bounds"),
    *("task.multi_reference", "task.bleu_tokenizer"),
)

SLOTS = tuple(
    name for name, kind in Config.__annotations__.items() if kind in (Slot, OptionalSlot) and name != "metric"
)
# Groups of components that a task uses or not.
TASK_GROUPS = tuple(name for name, kind in Config.__annotations__.items() if kind == OptionalSlot)

# Not "schema": the store belongs to the process, and the user's own program may have a schema.
ConfigStore.instance().store(name="seq2seq_lab_schema", node=Config, provider="seq2seq_lab")


def typed(node: DictConfig | dict[str, Any]) -> Config:
    """Convert a composed configuration, or its plain values, to dataclasses with plain values and resolved interpolations.

    Raises:
        OmegaConfBaseException: a key that no section has (Hydra allows `+key=value`), or a wrong type.
    """
    values = plain(node) if isinstance(node, DictConfig) else node
    config = OmegaConf.to_object(OmegaConf.unsafe_merge(OmegaConf.structured(Config), values))
    assert isinstance(config, Config)
    return config


def plain(node: DictConfig) -> dict[str, Any]:
    """Convert a composed configuration to nested plain containers with resolved interpolations."""
    container = OmegaConf.to_container(node, resolve=True, throw_on_missing=True, enum_to_str=True)
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


def check(config: Config) -> None:
    """Refuse values of the closed sections that are out of range.

    Raises:
        UserError: names the key, the value and what is allowed.
    """
    _check_ranges(config)
    trainer, threads = config.trainer, config.trainer.threads
    require(
        trainer.validate_unit is ValidateUnit.epoch or trainer.validate_every == int(trainer.validate_every),
        "trainer.validate_every",
        trainer.validate_every,
        "a whole number of steps, or a part of an epoch with trainer.validate_unit=epoch",
    )
    for side, table in vars(config.embedding).items():
        require(
            type(table.frozen) is bool or table.frozen == "known",
            f"embedding.{side}.frozen",
            table.frozen,
            "false; true; or known, to train only the words without a vector",
        )
    require(
        threads == "auto" or (type(threads) is int and threads > 0),
        "trainer.threads",
        threads,
        "auto, or a number above 0",
    )


def _check_ranges(section: Any, prefix: str = "") -> None:
    """Refuse numbers outside the ranges of their fields, in a section and those in it."""
    for name, hint in get_type_hints(type(section), include_extras=True).items():
        value = getattr(section, name)
        if is_dataclass(value):
            _check_ranges(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not fits(value, hint):
            raise UserError(wrong_type(f"{prefix}{name}={value}", value, hint))


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
        # The values of the group that include another value only change its ratio and scope.
        values["teacher_forcing"] = origin("teacher_forcing", choices["teacher_forcing"])
        values["teacher_forcing_ratio"] = teacher_forcing.get("ratio")
        values["teacher_forcing_scope"] = teacher_forcing.get("scope")
    return values


def conf_folders() -> list[Path]:
    """Return the folders of groups: conf/ and, if there is one, the folder of custom components."""
    own = extensions.folder()
    return [CONF_DIR] if own is None else [CONF_DIR, own]


def canonical(group: str, choice: str) -> str:
    """Return a group's value with aliases resolved; an alias is a YAML file that only includes another file."""
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


def values_with(group: str, key: str) -> list[str]:
    """Return the values of a group in conf/ whose files set a key."""
    return [
        path.stem for path in sorted((CONF_DIR / group).glob("*.yaml")) if key in file_keys(group, path.stem)
    ]


def file_keys(group: str, choice: str) -> dict[str, Any]:
    """Return the dotted keys of a file of a group, with its values, and of the files of its group that it includes."""
    node: Any = OmegaConf.to_container(_value_node(group, choice), resolve=False)
    values: dict[str, Any] = {}
    for item in node.get("defaults", []):
        if isinstance(item, str) and item != "_self_":
            values |= file_keys(group, item.partition("@")[0])
    return values | dict(dotted_settings(node))


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
        node = get_type_hints(node, include_extras=True).get(name) if is_dataclass(node) else None
    return node
