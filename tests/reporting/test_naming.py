"""Which settings name groups of runs, and which effects the groups cannot separate."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from rewriting import rewrite

from seq2seq_lab.config.compose import compose_run
from seq2seq_lab.reporting.naming import confounded
from seq2seq_lab.reporting.runs import Group, Run, group_runs, read_run

PROVENANCE = {"source": "s", "components": {}, "data": {"fingerprint": "d"}}
MACHINE = {"device_name": "EPYC", "threads": 1, "torch": "2.13.0"}
EPOCHS, PAIRS = "trainer.max_epochs=2", "dataset.train=500"


def make_run(folder: Path, lines: Sequence[str], *, known: bool = True, **changes: Any) -> Run:
    """Return the run of a command line, without its scores.

    Args:
        known: whether run.json has the command line.
        changes: further contents of run.json and of result.json's provenance, and "config": changed keys.
    """
    composed = compose_run(lines)
    config = OmegaConf.create(composed.plain)
    for key, value in changes.pop("config", {}).items():
        OmegaConf.update(config, key, value)
    choices = composed.choices | changes.pop("choices", {})
    record = {"choices": choices, **({"overrides": list(lines)} if known else {})}
    rewrite(folder / "config.yaml", OmegaConf.to_yaml(config))
    rewrite(folder / "run.json", json.dumps(record))
    aspects = {"commit": "", "dirty": False, "test_precision": "fp32", "machine": MACHINE}
    return read_run(folder, {"provenance": PROVENANCE | aspects | changes, "test/examples": "t"})


def groups_of(folder: Path, lines: Sequence[str], known: bool) -> list[Group]:
    """Return the groups of the runs with these command lines."""
    return group_runs(make_runs(folder, lines, known))


def make_runs(folder: Path, lines: Sequence[str], known: bool) -> list[Run]:
    """Return runs with these command lines."""
    return [make_run(folder / str(i), line.split(), known=known) for i, line in enumerate(lines)]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("lines", "keys"),
    [
        (["", "seed=2"], []),
        (["", "trainer.max_steps=40 dataset.test_compositional=0"], ["dataset.test_compositional", "trainer.max_steps"]),
        (["", "model=vanilla"], ["model"]),
        (["model=transformer", "attention=multiplicative"], ["model", "attention"]),
        (["", "encoder=lstm"], ["encoder"]),
        (["", "encoder=lstm encoder.num_layers=2"], ["encoder", "encoder.num_layers"]),
        (["", "encoder.cell=lstm decoder.input_feeding=true"], ["cell", "decoder.input_feeding"]),
        # Others refer to the size and the rate.
        (["", f"model.hidden_size=384 {EPOCHS}"], ["model.hidden_size", "trainer.max_epochs"]),
        (["model=vanilla", "model=vanilla model.dropout=0.2", ""], ["model", "model.dropout"]),
        (["model=vanilla model.hidden_size=200", ""], ["model", "model.hidden_size"]),
        (["", "teacher_forcing=half_per_step"], ["teacher_forcing_ratio", "teacher_forcing_scope"]),
        (["experiment=luong2015 dataset.path=a", "experiment=bahdanau2015 dataset.path=a"], ["experiment"]),
        (
            ["experiment=luong2015 dataset.path=a", f"experiment=luong2015 dataset.path=a {EPOCHS} attention=additive"],
            ["attention", "trainer.max_epochs"],
        ),
        (["task=classification", "task=classification encoder=bilstm pooling=attender"], ["encoder", "pooling"]),
    ],
)  # fmt: skip
def test_every_setting_that_was_set_is_named(
    lines: list[str], keys: list[str], known: bool, tmp_path: Path
) -> None:
    runs = make_runs(tmp_path, lines, known)
    for order in (runs, runs[::-1]):
        groups = group_runs(order)
        assert sorted(groups[0].varies) == sorted(keys)
        assert len(groups) == (len(lines) if keys else 1)


def test_runs_with_equal_settings_are_one_group_whoever_set_them(tmp_path: Path) -> None:
    first = make_run(tmp_path / "1", ["experiment=luong2015", "dataset.path=a"])
    by_hand = ["dataset=multi30k", "dataset.path=a", "tokenizer=spacy_lowercase", "model=luong"]
    by_hand += ["optimizer=adam_slow", "trainer.max_epochs=10", "task.batch_size=128"]
    second = make_run(tmp_path / "2", by_hand)
    third = make_run(tmp_path / "3", [EPOCHS])
    one, other = group_runs([first, second, third])
    assert len(one.runs) == 2
    assert "experiment" not in one.varies
    assert {"model", "dataset", "trainer.max_epochs", "task.batch_size"} <= one.varies.keys()
    assert other.varies["trainer.max_epochs"] == "2"


def test_a_run_without_an_experiment_has_a_dash(tmp_path: Path) -> None:
    lines = [[], ["experiment=luong2015", "dataset.path=a"]]
    groups = group_runs([make_run(tmp_path / str(i), line) for i, line in enumerate(lines)])
    assert [group.varies["experiment"] for group in groups] == ["–", "luong2015"]


def test_a_default_of_other_code_is_named(tmp_path: Path) -> None:
    old = make_run(tmp_path / "1", [], source="old", config={"task.batch_size": 7})
    new = make_run(tmp_path / "2", ["attention=multiplicative"])
    assert [*group_runs([old, new])[0].varies] == ["attention", "task.batch_size"]
    # Without a difference of the code too, although nothing set it.
    old = make_run(tmp_path / "1", [], config={"task.batch_size": 7})
    assert "task.batch_size" in group_runs([old, make_run(tmp_path / "2", [])])[0].varies


def test_settings_of_a_component_that_is_not_there_follow_from_it_unless_they_vary(tmp_path: Path) -> None:
    def own(name: str, size: int, *lines: str) -> Run:
        config = {"encoder._target_": "mine.Encoder", "encoder.hidden_size": size}
        return make_run(tmp_path / name, lines, known=False, config=config, choices={"encoder": "mine"})

    default = make_run(tmp_path / "0", [], known=False)
    assert [*group_runs([default, own("1", 3)])[0].varies] == ["encoder"]
    varied = group_runs([default, own("1", 3), own("2", 4)])
    assert [*varied[0].varies] == ["encoder", "encoder.hidden_size"]


@pytest.mark.parametrize(
    ("lines", "warned"),
    [
        ([EPOCHS, "trainer.max_epochs=3"], []),
        (
            ["", "trainer.max_steps=40 dataset.test_compositional=0"],
            ["dataset.test_compositional and trainer.max_steps vary together: a difference cannot be attributed to one"],
        ),
        # One more line separates the two.
        (["", EPOCHS, f"{EPOCHS} {PAIRS}"], []),
        (["", f"{EPOCHS} {PAIRS}", EPOCHS, PAIRS], []),
        # Two settings vary together, the third one alone.
        (
            ["", f"{EPOCHS} {PAIRS}", "model.dropout=0.2"],
            ["dataset.train and trainer.max_epochs vary together"],
        ),
        (
            ["", f"{EPOCHS} {PAIRS}", f"{EPOCHS} dataset.train=600"],
            ["no two lines differ in trainer.max_epochs alone"],
        ),
        # A setting that cannot change results has no effect to separate.
        (["", f"{EPOCHS} trainer.keep_checkpoints=5"], []),
        # The attention follows from the model; the size belongs to the search.
        (["model=vanilla", "", "attention=multiplicative"], []),
        (["search=beam search.size=3", ""], []),
        (["model=vanilla", "attention=multiplicative"], ["model and attention vary together"]),
    ],
)  # fmt: skip
def test_effects_that_cannot_be_separated_are_named(
    lines: list[str], warned: list[str], tmp_path: Path
) -> None:
    found = confounded(groups_of(tmp_path, lines, known=True))
    assert len(found) == len(warned)
    for text, part in zip(found, warned, strict=True):
        assert text.startswith(part)


def test_data_that_differ_count_unless_settings_of_the_data_do(tmp_path: Path) -> None:
    first = make_run(tmp_path / "1", [])
    other = {"data": {"fingerprint": "e"}}
    (text,) = confounded(group_runs([first, make_run(tmp_path / "2", [EPOCHS], **other)]))
    assert "trainer.max_epochs" in text
    assert "data" in text
    assert confounded(group_runs([first, make_run(tmp_path / "2", [PAIRS], **other)])) == []
