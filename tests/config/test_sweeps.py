"""The sweep definitions for W&B: what they would start is a run of this program."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from seq2seq_lab.config import compose
from seq2seq_lab.launching import start
from seq2seq_lab.tasks.translation.evaluation import METRICS

FILES = sorted((Path(__file__).parents[2] / "sweeps").glob("*.yaml"))
DISTRIBUTIONS = {"uniform", "log_uniform_values"}


def values_of(parameter: dict[str, Any]) -> list[Any]:
    """Return what a parameter may be; of an interval, its ends."""
    if "value" in parameter:
        return [parameter["value"]]
    if "values" in parameter:
        return list(parameter["values"])
    assert parameter["distribution"] in DISTRIBUTIONS
    return [parameter["min"], parameter["max"]]


def test_there_are_a_grid_and_a_search() -> None:
    assert {yaml.safe_load(file.read_text())["method"] for file in FILES} == {"grid", "bayes"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_value_of_a_sweep_composes(file: Path) -> None:
    sweep = yaml.safe_load(file.read_text())
    assert sweep["command"] == ["${env}", "python", "-m", "seq2seq_lab", "${args_no_hyphens}"]
    goals = {
        f"val/{metric.name}": "maximize" if metric.higher_is_better else "minimize" for metric in METRICS
    }
    assert goals[sweep["metric"]["name"]] == sweep["metric"]["goal"]
    keys = list(sweep["parameters"])
    values = [*map(values_of, sweep["parameters"].values())]
    # Each value is in one of the runs at least.
    runs = [[of[number % len(of)] for of in values] for number in range(max(map(len, values)))]
    for run in runs:
        arguments = [f"{key}={value}" for key, value in zip(keys, run, strict=True)]
        with compose.composer():
            start.check_parts(compose.compose_job(arguments).config)
