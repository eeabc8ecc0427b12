"""The typed configuration and its checks, and types in words."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Literal, get_type_hints

import hydra
import pytest
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError, MissingMandatoryValue, ValidationError
from torch import Tensor

from seq2seq_lab.config.compose import composer
from seq2seq_lab.config.schema import (
    SET_BY_STUDIES,
    SLOTS,
    Config,
    Precision,
    TrainerConfig,
    ValidateUnit,
    annotation,
    check,
    dotted_keys,
    plain,
    typed,
)
from seq2seq_lab.config.trust import trusted_modules
from seq2seq_lab.config.type_checks import Above, choices, describe, fits, wrong_type
from seq2seq_lab.errors import UserError


@pytest.fixture(scope="module")
def composed() -> DictConfig:
    with composer():
        return hydra.compose("config")


@pytest.fixture
def node(composed: DictConfig) -> DictConfig:
    """A configuration that a test may change."""
    copy = composed.copy()
    OmegaConf.set_struct(copy, False)
    return copy


def test_typed_gives_dataclasses_of_plain_values(node: DictConfig) -> None:
    config = typed(node)
    assert isinstance(config.trainer, TrainerConfig)
    assert config.trainer.precision is Precision.auto
    assert type(config.encoder) is dict
    assert config.encoder["hidden_size"] == config.model.encoder_hidden_size
    assert type(config.optimizer["betas"]) is list


def test_typed_refuses_keys_and_values_that_hydra_accepts(node: DictConfig) -> None:
    for change, error in (
        ({"foo": 1}, ConfigKeyError),
        ({"trainer": {"foo": 1}}, ConfigKeyError),
        ({"model": {"x": {"_target_": "os.system"}}}, ConfigKeyError),
    ):
        with pytest.raises(error):
            typed(OmegaConf.create({**plain(node), **change}))
    with pytest.raises(ValidationError):
        typed(OmegaConf.create({**plain(node), "seed": "many"}))
    lacking = plain(node)
    del lacking["encoder"]
    with pytest.raises(MissingMandatoryValue):
        typed(OmegaConf.create(lacking))


def test_plain_is_what_yaml_and_json_can_hold(node: DictConfig) -> None:
    values = plain(node)
    assert values["trainer"]["precision"] == "auto"
    assert "${" not in str(values)
    assert typed(OmegaConf.create(OmegaConf.to_yaml(OmegaConf.create(values)))) == typed(node)


def test_every_field_has_a_default_in_the_files(node: DictConfig) -> None:
    assert set(plain(node)) == {field.name for field in fields(Config)}
    assert set(SLOTS) | {
        "metric",
        "model",
        "embedding",
        "trainer",
        "study",
        "seed",
        "init_from",
        "init_part",
        "cache_dir",
    } == set(plain(node))
    assert not OmegaConf.missing_keys(node)


def numbers(section: type = Config, prefix: str = "") -> Iterator[tuple[str, type]]:
    """The keys of the closed sections whose values are numbers, with their types."""
    for name, hint in get_type_hints(section).items():
        kinds = [int, float] if hint in (int | None, float | None) else [hint]
        if is_dataclass(hint):
            yield from numbers(hint, f"{prefix}{name}.")
        elif kinds[0] in (int, float) and f"{prefix}{name}" not in SET_BY_STUDIES:
            yield f"{prefix}{name}", kinds[0]


@pytest.mark.parametrize("key", [key for key, _ in numbers()])
def test_every_number_of_the_closed_sections_has_a_range(node: DictConfig, key: str) -> None:
    OmegaConf.update(node, key, -1)
    with pytest.raises(UserError, match=rf"{re.escape(key)}=-1(\.0)? is not allowed"):
        check(typed(node))


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("model.num_layers", 0, "a whole number above 0"),
        ("model.dropout", 1.0, "at least 0 and below 1"),
        ("trainer.max_restarts", -1, "at least 0"),
        ("trainer.clip_norm", math.inf, "above 0"),
        ("trainer.patience", 0, "a whole number above 0 or null"),
        ("seed", 2**32, "below 4294967296"),
    ],
)
def test_check_names_key_value_and_what_is_allowed(
    node: DictConfig, key: str, value: object, allowed: str
) -> None:
    check(typed(node))
    OmegaConf.update(node, key, value)
    with pytest.raises(UserError) as raised:
        check(typed(node))
    assert str(raised.value).startswith(f"{key}={OmegaConf.select(node, key)} is not allowed.")
    assert allowed in str(raised.value)


def test_shares_of_an_epoch_but_no_shares_of_a_step(node: DictConfig) -> None:
    node.trainer.validate_every = 0.5
    check(typed(node))
    node.trainer.validate_unit = ValidateUnit.step
    with pytest.raises(UserError, match=r"trainer\.validate_every=0\.5.*a whole number of steps"):
        check(typed(node))
    node.trainer.validate_every = 5.0
    check(typed(node))
    node.trainer.validate_every = math.inf
    with pytest.raises(UserError, match=r"trainer\.validate_every=inf"):
        check(typed(node))


def test_the_number_of_threads_is_no_truth_value(node: DictConfig) -> None:
    node.trainer.threads = True
    with pytest.raises(UserError, match=r"trainer\.threads=True"):
        check(typed(node))


def test_annotation_of_a_dotted_key() -> None:
    assert annotation("trainer.profile") is bool
    assert annotation("trainer.clip_norm") == Annotated[float, Above(0)] | None
    assert annotation("trainer.foo") is None
    assert annotation("encoder.hidden_size") is None
    assert annotation("seed.x") is None


def test_dotted_keys_go_through_sections() -> None:
    assert list(dotted_keys({"a": 1, "b": {"c": {"d": [1]}}})) == ["a", "b", "b.c", "b.c.d"]


def test_trusted_modules_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert trusted_modules() == ()
    monkeypatch.setenv("SEQ2SEQ_LAB_TRUST", "mine,theirs.parts")
    assert trusted_modules() == ("mine.", "theirs.parts.")


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (1, int, True),
        (1.0, int, False),
        (True, int, False),
        ("1", int, False),
        (1, float, True),
        (1.5, float, True),
        (True, float, False),
        (True, bool, True),
        (1, bool, False),
        ("a", str, True),
        (None, str, False),
        (None, str | None, True),
        (0.1, float | Tensor, True),
        ("fast", float | Tensor, False),
        ("a", Literal["a", "b"], True),
        ("c", Literal["a", "b"], False),
        (True, Literal[1], False),
        ([0.9, 0.99], tuple[float | Tensor, float | Tensor], True),
        ([0.9], tuple[float | Tensor, float | Tensor], False),
        (0.9, tuple[float, float], False),
        ([1, 2, 3], tuple[int, ...], True),
        ([1, "x"], Sequence[int], False),
        ([], Sequence[int], True),
        ("abc", Sequence[str], False),
        (["x"], list, True),
        ({"a": 1}, Mapping[str, int], True),
        ([1], Mapping[str, int], False),
        ("x", Tensor, False),
        ("x", Any, True),
    ],
)
def test_fits(value: object, hint: Any, expected: bool) -> None:
    assert fits(value, hint) is expected


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (int, "a whole number"),
        (bool, "true or false"),
        (float | Tensor, "a number"),
        (int | None, "a whole number or null"),
        (Literal["a", "b"] | None, "a, b or null"),
        (Precision, "auto, fp32, tf32, bf16, fp16"),
        (list[int], "a list, each a whole number"),
        (tuple[int, ...], "a list, each a whole number"),
        (tuple[float | Tensor, float | Tensor], "a list of 2: [a number, a number]"),
        (Mapping[str, int], "keys and values"),
    ],
)
def test_describe(hint: Any, words: str) -> None:
    assert describe(hint) == words


def test_wrong_type_knows_the_nearest_word() -> None:
    assert choices(Precision | None) == ["auto", "fp32", "tf32", "bf16", "fp16"]
    said = wrong_type("scope=tokens", "tokens", Literal["token", "step"])
    assert said == "scope=tokens is not allowed. Did you mean 'token'? Allowed: token, step."
