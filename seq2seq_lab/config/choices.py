"""The values of config groups that a run's command line chose, and those that follow from other choices."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from seq2seq_lab.config.schema import CONF_DIR

# Groups whose files choose values of other groups; later ones win.
BUNDLES = ("task", "model", "pooling", "experiment", "study")
NOT_CHOSEN = "None"  # how Hydra records that a group is null


@functools.cache
def choices_of(path: Path) -> dict[str, str]:
    """Return the value of each group that a configuration file chooses, also by files of its group that it includes."""
    if not path.is_file():  # of a custom component
        return {}
    items: Any = OmegaConf.to_container(OmegaConf.load(path)).get("defaults", [])  # type: ignore[union-attr]
    chosen: dict[str, str] = {}
    for item in items:
        if isinstance(item, str):
            chosen |= choices_of(path.parent / f"{item.partition('@')[0]}.yaml")
        else:
            for key, value in item.items():
                group = key.removeprefix("override ").removeprefix("/").partition("@")[0]
                chosen[group] = str(value)
    return chosen


def changed_choices(choices: Mapping[str, str]) -> dict[str, str]:
    """Return the groups whose values are neither the defaults nor set by another group, such as the experiment.

    Args:
        choices: the value of each group of a run.
    """
    expected = dict(choices_of(CONF_DIR / "config.yaml"))
    for group in BUNDLES:
        expected |= choices_of(CONF_DIR / group / f"{choices.get(group)}.yaml")
    return {
        group: value
        for group, value in sorted(choices.items())
        if value != expected.get(group) and group != "logger"
    }
