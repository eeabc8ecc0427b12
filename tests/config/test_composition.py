"""What the files in conf/ compose to: every value of every group, and the rules that keep them sane."""

import importlib
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from extras import lacks_spacy
from omegaconf import DictConfig, OmegaConf
from small_models import WITHOUT_ATTENTION, recurrent_values_of
from torch import nn

from seq2seq_lab.config import hydra_adapter
from seq2seq_lab.config.command_line import parse_overrides
from seq2seq_lab.config.compose import compose_job, update
from seq2seq_lab.config.schema import (
    CONF_DIR,
    SLOTS,
    Config,
    canonical,
    file_keys,
    flat_keys,
    group_values,
    groups,
    origin,
    values_with,
)
from seq2seq_lab.errors import UserError
from seq2seq_lab.launching import start
from seq2seq_lab.models.dropout import Dropout
from seq2seq_lab.models.seq2seq import build_seq2seq

# encoder=pretrained needs a package and a folder: tests/models/test_pretrained.py
FILES = sorted(set(CONF_DIR.glob("*/*.yaml")) - {CONF_DIR / "encoder" / "pretrained.yaml"})
BUNDLES = ("model", "experiment", "study")
PARTS = ("encoder", "decoder", "pooling", "attention")
RECURRENT_ENCODERS, RECURRENT_DECODERS = recurrent_values_of("encoder"), recurrent_values_of("decoder")

OF_FEATURES = ("task=captions", "dataset.path=features", "encoder.feature_size=512")
TEXT_FILES = [f"dataset.{split}={split}.txt" for split in ("path", "validation", "test")]
# What goes with a value that does not fit the default run by itself.
COMPANIONS = {
    **{("decoder", name): ["attention=none"] for name in WITHOUT_ATTENTION},
    **{("encoder", name): ["decoder=transformer"] for name in ("transformer", "transformer_post_norm")},
    **{("dataset", name): ["task=language_model"] for name in ("monolingual", "analogies")},
    **{
        ("model", name): ["task=language_model"]
        for name in ("language_model", "gpt", "zaremba", "word_language_model")
    },
    ("encoder", "convolutional"): ["task=captions"],
    ("model", "captions"): ["task=captions"],
    ("dataset", "scenes"): ["task=captions"],
    ("dataset", "image_folder"): ["task=captions", "dataset.path=images"],
    ("dataset", "feature_folder"): [*OF_FEATURES, "encoder=features"],
    ("encoder", "features"): [*OF_FEATURES, "dataset=feature_folder"],
    **{("encoder", "hierarchical"): ["task=dialogue"], ("model", "dialogue"): ["task=dialogue"]},
    ("dataset", "dialogue"): ["task=dialogue"],
    ("dataset", "text_files"): ["task=language_model", *TEXT_FILES],
    **{("experiment", name): TEXT_FILES for name in ("word_language_model", "zaremba2014")},
    ("attention", "dot"): ["encoder=gru"],
    **{(group, "g2p"): ["dataset.path=g2p"] for group in ("dataset", "experiment", "study")},
    ("dataset", "parallel"): ["dataset.train=pairs.tsv"],
    ("model", "attn_tied"): ["tokenizer=bpe"],
    **{("model", name): ["tokenizer=bpe"] for name in ("transformer_tied", "wu2021")},
    ("model", "attn_tied_light"): ["tokenizer=bpe"],
    ("model", "attn_char"): ["tokenizer=char", "tokenizer.joint=true"],
    **{("dataset", name): ["task=classification"] for name in ("names", "sentiment")},
    ("dataset", "labelled"): ["task=classification", "dataset.train=texts.tsv"],
    ("dataset", "sentence_pairs"): ["task=classification", "task.pairs=joined"],
    ("dataset", "questions"): ["task=span"],
    ("model", "pair_classifier"): ["task=classification"],
    **{(group, name): ["task=tagging"] for group, name in (("dataset", "tagged"), ("model", "tagger"))},
    **{("model", name): ["task=classification"] for name in ("classifier", "attender")},
    **{
        ("pooling", name): ["task=classification"]
        for name in ("last", "mean", "max", "first", "attention", "attender")
    },
    ("readout", "pointer"): ["tokenizer.joint=true"],
    ("model", "masked_language_model"): ["task=masked_language_model"],
    ("experiment", "shared_lstm"): ["embedding.source.path=en.txt", "embedding.target.path=fr.vec"],
}
# Groups whose values go with those of the others. Their files are composed together, the n-th of each group with the others.
INDEPENDENT = (
    *("attention", "initialization", "logger", "metric", "optimizer"),
    *("schedule", "search", "teacher_forcing"),
)


@pytest.fixture(autouse=True)
def composer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compose in a folder with pretrained vectors of 100 and of 300 numbers."""
    for name, size in (("en.txt", 100), ("fr.vec", 300)):
        (tmp_path / name).write_text(f"the{' 0.5' * size}\n")
    monkeypatch.chdir(tmp_path)
    with hydra_adapter.initialized(CONF_DIR, None):
        yield


@cache
def compose(*overrides: str) -> tuple[Config, dict[str, Any], dict[str, str]]:
    """Return the typed and the plain configuration, and the groups' choices."""
    composed = compose_job(overrides)
    if lacks_spacy(composed.config):
        pytest.skip("spacy is not installed (pip install 'seq2seq_lab[spacy]')")
    start.check_parts(composed.config)  # builds the model, without memory
    return composed.config, composed.plain, composed.choices


def load(path: Path) -> dict[str, Any]:
    node = OmegaConf.load(path)
    assert isinstance(node, DictConfig)
    return {str(key): value for key, value in node.items_ex(resolve=False)}


def overridden(path: Path) -> dict[str, str]:
    """Return the groups that a file's defaults list overrides, with their values."""
    lines = [item for item in load(path).get("defaults", []) if not isinstance(item, str)]
    pairs = [(str(key), str(value)) for line in lines for key, value in line.items()]
    return {key.removeprefix("override").strip().lstrip("/"): value for key, value in pairs}


def test_the_walk_over_the_files_is_not_empty() -> None:
    assert len(FILES) >= 35
    assert {path.parent.name for path in FILES} == set(groups())
    assert set(SLOTS) | {"model", "trainer", "experiment"} <= set(groups())


def chosen_together(group: str, value: str) -> dict[str, str]:
    """Return a value, with those of the other groups in a composition that contains it."""
    if group not in INDEPENDENT:
        return {group: value}
    index = group_values(group).index(value)
    values = {other: group_values(other) for other in INDEPENDENT}
    return {other: values[other][index % len(values[other])] for other in INDEPENDENT}


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}={path.stem}")
def test_every_file_composes_to_a_model(path: Path) -> None:
    group, value = path.parent.name, path.stem
    together = chosen_together(group, value)
    companions = [setting for pair in together.items() for setting in COMPANIONS.get(pair, ())]
    _, _, choices = compose(*(f"{group}={value}" for group, value in together.items()), *companions)
    assert choices[group] == value
    assert together.items() <= choices.items()


@pytest.mark.parametrize("encoder", RECURRENT_ENCODERS)
def test_the_decoder_has_the_encoders_cell(encoder: str) -> None:
    config, _, _ = compose(f"encoder={encoder}", *DROPOUTS)
    cell = encoder.removeprefix("bi").removesuffix("_layer_norm")
    assert config.decoder["cell"] == config.encoder["cell"] == cell


BETWEEN, STATES = 0.11, 0.22
DROPOUTS = (f"model.dropout={BETWEEN}", f"model.state_dropout={STATES}", "model.locked_dropout=true")


def dropouts(part: nn.Module) -> dict[str, float]:
    """The dropouts of a part, each with one mask a sentence, by their names."""
    found = {name: module for name, module in part.named_modules() if isinstance(module, Dropout)}
    assert all(module.locked for module in found.values())
    return {name: module.probability for name, module in found.items()}


@pytest.mark.parametrize("encoder", RECURRENT_ENCODERS)
def test_an_encoder_uses_the_dropout_rates_of_the_model(encoder: str) -> None:
    config, _, _ = compose(f"encoder={encoder}", *DROPOUTS)
    made = build_seq2seq(config, 8, 8, joint=False).encoder
    assert dropouts(made) == {"layers.dropout": BETWEEN, "encoder_output_dropout": STATES}


def test_a_transformer_uses_the_dropout_rates_of_the_model() -> None:
    config, _, _ = compose("model=transformer", *DROPOUTS)
    model = build_seq2seq(config, 8, 8, joint=False)
    for part, count in ((model.encoder, 2), (model.decoder, 3)):
        found = dropouts(part)
        assert len(found) == count * config.model.num_layers
        assert set(found.values()) == {BETWEEN}


@pytest.mark.parametrize("encoder", ["rnn", "gru", "lstm"])
def test_an_encoder_reads_in_the_order_of_model_reverse_source(encoder: str) -> None:
    config, _, _ = compose(f"encoder={encoder}", "model.reverse_source=true")
    assert config.encoder["reverse"] is True


@pytest.mark.parametrize("decoder", RECURRENT_DECODERS)
def test_a_decoder_uses_the_dropout_rates_of_the_model(decoder: str) -> None:
    config, _, _ = compose(f"decoder={decoder}", *COMPANIONS.get(("decoder", decoder), []), *DROPOUTS)
    found = dropouts(build_seq2seq(config, 8, 8, joint=False).decoder)
    between = {name for name in found if name.endswith("layers.dropout")}
    assert bool(between) == (decoder != "conditional")  # its two networks have a layer each
    states = set(found) - between - {"first.dropout", "second.dropout", "output.dropout"}
    if decoder in ("bahdanau", "tutorial", "context"):
        states |= {"output.dropout"}
    assert states
    assert {found[name] for name in between} <= {BETWEEN}
    assert {found[name] for name in states} == {STATES}


def test_self_comes_first_the_bundle_after_the_parts_and_the_experiment_last() -> None:
    defaults = [
        item if isinstance(item, str) else next(iter(item))
        for item in load(CONF_DIR / "config.yaml")["defaults"]
    ]
    order = [str(name) for name in defaults if not str(name).startswith("override")]
    assert order[:2] == ["seq2seq_lab_schema", "_self_"]
    assert order[-4:] == ["model", "task", "experiment", "study"]
    assert set(order[2:]) == set(groups())
    for path in (path for path in FILES if path.parent.name in BUNDLES):
        assert set(overridden(path)) <= set(groups()), path


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.parent.name == "experiment"], ids=lambda path: path.stem
)
def test_an_experiment_names_a_bundle_and_never_the_parts(path: Path) -> None:
    assert not set(PARTS) & set(overridden(path))
    assert not set(PARTS) & set(load(path))


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.parent.name in BUNDLES], ids=lambda path: path.stem
)
def test_a_bundle_sets_no_key_inside_a_slot(path: Path) -> None:
    assert not set(SLOTS) & set(load(path)) - {"task"}  # a bundle is of one task
    assert path.read_text("utf-8").startswith("# @package _global_\n")


def test_every_slot_of_every_file_names_one_class() -> None:
    slots = [path for path in FILES if path.parent.name in SLOTS]
    assert len(slots) >= 30
    for path in slots:
        assert isinstance(file_keys(path.parent.name, path.stem).get("_target_"), str), path


@pytest.mark.parametrize(
    "path", sorted(CONF_DIR.rglob("*.yaml")), ids=lambda path: f"{path.parent.name}={path.stem}"
)
def test_every_file_has_a_comment_that_explains_it(path: Path) -> None:
    lines = [line for line in path.read_text("utf-8").splitlines() if not line.startswith("# @package")]
    assert lines[0].startswith("# ")


def test_every_default_is_in_the_files() -> None:
    """Neither the classes that slots name nor the dataclasses of the closed sections have defaults."""
    targets = {load(path).get("_target_") for path in FILES} - {None}
    ours = {str(target) for target in targets if str(target).startswith("seq2seq_lab.")}
    assert len(ours) >= 15
    for target in ours:
        module, _, name = target.rpartition(".")
        parameters = inspect.signature(getattr(importlib.import_module(module), name)).parameters.values()
        assert [
            parameter.name for parameter in parameters if parameter.default is not inspect.Parameter.empty
        ] == []
    for section in (Config, Config.__annotations__["model"], Config.__annotations__["trainer"]):
        parameters = inspect.signature(section).parameters.values()
        assert all(parameter.default is inspect.Parameter.empty for parameter in parameters)


def some(group: str, experiment: str) -> list[str]:
    """Every eighth value of a group, others for the next experiment: a composition takes a fifth of a second."""
    values = group_values(group)[group_values("experiment").index(experiment) % 8 :: 8]
    return [value for value in values if not str(COMPANIONS.get((group, value))).startswith("['task=")]


TRANSLATION = [
    value
    for value in group_values("experiment")
    if "task" not in overridden(CONF_DIR / "experiment" / f"{value}.yaml")
]


@pytest.mark.parametrize("experiment", sorted({*TRANSLATION[::4], "shared_lstm"}))
def test_a_component_chosen_with_an_experiment_replaces_its_component(experiment: str) -> None:
    given = COMPANIONS.get(("experiment", experiment), [])
    vectors = any(setting.startswith("embedding.") for setting in given)
    _, of_experiment, _ = compose(f"experiment={experiment}", *given)
    for model in some("model", experiment):
        joint = COMPANIONS.get(("model", model), [])
        if any(setting.startswith("task=") for setting in joint):
            continue  # a model of another task
        file = load(CONF_DIR / "model" / f"{model}.yaml")
        tied = file["model"].get("tied_embeddings", "none") != "none" or model in (
            "attn_tied_light",
            "wu2021",
        )
        if vectors and tied:  # frozen vectors cannot be output weights
            with pytest.raises(UserError, match=r"embedding\."):
                compose(f"experiment={experiment}", f"model={model}", *given, *joint)
            continue
        if vectors:
            joint = [*joint, "model.scale_embeddings=false"]
        config, values, _ = compose(f"experiment={experiment}", f"model={model}", *given, *joint)
        alone, _, _ = compose(f"model={model}", *joint)
        assert config.model.name == model
        for part in PARTS:
            assert getattr(config, part) == getattr(alone, part)
        assert values["dataset"] == of_experiment["dataset"]
        assert values["trainer"] == of_experiment["trainer"]
    for attention in set(some("attention", experiment)) - {"dot", "none", "location"}:
        settings = ("model=attn", "model.scale_embeddings=false", f"attention={attention}", *given)
        config, _, _ = compose(f"experiment={experiment}", *settings)
        alone, _, _ = compose(f"attention={attention}")
        assert config.attention["_target_"] == alone.attention["_target_"]


@pytest.mark.parametrize(
    ("choice", "setting"),
    [
        ("experiment=names", "search.beam_size=3"),
        ("experiment=language_model", "encoder.cell=lstm"),
        ("seed=1", "pooling.size=3"),
    ],
)
def test_a_setting_of_a_group_that_the_task_does_not_use_is_refused(choice: str, setting: str) -> None:
    with pytest.raises(UserError, match=rf"^{setting} is not allowed"):
        compose(choice, setting)


@pytest.mark.parametrize("other", ["classification", "translation"])
def test_another_task_than_that_of_the_experiment_is_refused(other: str) -> None:
    with pytest.raises(
        UserError, match=f"task={other} cannot be combined with experiment=span, .* task=span"
    ):
        compose("experiment=span", f"task={other}")
    compose("experiment=span", "task=span")


def test_a_setting_of_a_group_that_a_recorded_run_does_not_use_is_refused() -> None:
    recorded = OmegaConf.create({"search": None})
    with pytest.raises(UserError, match=r"^search\.size=3 is not allowed"):
        update(recorded, parse_overrides(["search.size=3"]))


def test_the_command_line_beats_all() -> None:
    config, _, choices = compose(
        "trainer.max_epochs=99",
        "experiment=multi30k_de_en",
        "encoder=gru",
        "attention=scaled_dot",
        "model.dropout=0.33",
    )
    assert config.trainer.max_epochs == 99
    assert (choices["model"], config.model.name) == ("attn_tied", "attn_tied")
    assert (choices["encoder"], config.encoder["cell"], config.encoder["bidirectional"]) == (
        "gru",
        "gru",
        False,
    )
    assert config.attention["_target_"].endswith(".ScaledDotAttention")
    assert {config.encoder["dropout"], config.decoder["dropout"], config.model.state_dropout} == {0.33}


def test_sizes_that_parts_share_have_one_node() -> None:
    config, _, _ = compose("model.hidden_size=96", "model.embedding_size=48", "model.num_layers=3")
    assert (config.decoder["hidden_size"], config.attention["size"]) == (96, 96)
    assert config.decoder["attentional_size"] == 48
    assert config.encoder["num_layers"] == config.decoder["num_layers"] == 3


def test_vanilla_has_the_plain_decoder_without_attention() -> None:
    config, values, choices = compose("model=vanilla")
    assert (config.attention["_target_"].rpartition(".")[2], choices["attention"]) == ("NoAttention", "none")
    assert compose("model=vanilla", "attention=none")[1] == values
    same = compose("decoder=plain", "attention=none", "model.dropout=0.0")  # that of model=vanilla
    assert same[1]["decoder"] == values["decoder"]


def test_an_alias_is_logged_by_its_canonical_name() -> None:
    _, values, choices = compose("attention=linear")
    _, same, canonical_choices = compose("attention=additive")
    assert choices["attention"] == "linear"
    assert values == same
    assert flat_keys(values, choices) == flat_keys(same, canonical_choices)
    assert flat_keys(values, choices)["attention"] == "additive"
    assert canonical("attention", "dot") == "dot"
    assert origin("teacher_forcing", "half_per_step") == "constant"
    assert origin("teacher_forcing", "linear") == "linear"
    assert canonical("attention", "of_a_folder_of_the_users") == "of_a_folder_of_the_users"


def test_settings_of_included_files_are_found() -> None:
    """For the message about a setting that belongs to another value of a group."""
    assert {"bigru", "bilstm", "lstm", "rnn"} <= set(values_with("encoder", "bidirectional"))
    assert "plain" in values_with("decoder", "input_feeding")


def test_flat_keys() -> None:
    _, values, choices = compose(
        "experiment=multi30k_de_en", "encoder=lstm", "seed=7", "teacher_forcing.ratio=0.5"
    )
    assert flat_keys(values, choices) == {
        "task": "translation",
        "model": "attn_tied",
        "encoder": "lstm",
        "decoder": "luong",
        "attention": "scaled_dot",
        "readout": "linear",
        "dataset": "multi30k",
        "tokenizer": "bpe",
        "cell": "lstm",
        "initialization": "default",
        "teacher_forcing": "constant",
        "teacher_forcing_ratio": 0.5,
        "teacher_forcing_scope": "token",
        "optimizer": "adam_slow",
        "schedule": "one_cycle",
        "seed": 7,
    }
