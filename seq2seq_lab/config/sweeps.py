"""The jobs of a multirun: combinations of settings, and cells of settings that belong together."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig

from seq2seq_lab.config.command_line import parse_overrides
from seq2seq_lab.errors import UserError

# Checking a job takes about 0.1 seconds. The cells share this number; beyond it each value is checked, not each combination.
MAX_CHECKED_JOBS = 32


def expand_cells(sweeper: DictConfig, overrides: Sequence[Override]) -> list[list[Override]]:
    """Return the overrides of a multirun for each cell of its sweeper; a sweeper without cells counts as one cell.

    A key in `overrides` replaces the values that `sweeper.params` lists for it. If the cells set that key, it replaces all
    cells.
    """
    params = _overrides(sweeper.get("params") or {})
    cells: list[Mapping[str, Any]] = list(sweeper.get("cells") or [{}])
    if any(override.key_or_group in cell for override in overrides for cell in cells):
        cells = [{}]
    return [[*_overrides(cell), *params, *overrides] for cell in cells]


def _overrides(settings: Mapping[str, Any]) -> list[Override]:
    return parse_overrides([f"{key}={'null' if value is None else value}" for key, value in settings.items()])


def find_varying_keys(cells: Sequence[Sequence[Override]]) -> list[str]:
    """Return the keys that differ between the jobs of a multirun, given the overrides of each of its cells."""
    given: dict[str, list[Override]] = {}
    for overrides in sorted(cells, key=len, reverse=True):  # the keys of the cells come first
        for key, override in {override.get_key_element(): override for override in overrides}.items():
            given.setdefault(key, []).append(override)
    return [
        found[0].key_or_group
        for found in given.values()
        if any(override.is_sweep_override() for override in found)
        or len(found) < len(cells)
        or len({override.input_line for override in found}) > 1
    ]


def combine(overrides: Sequence[Override]) -> Iterator[list[str]]:
    """Yield the settings of each job, combined as Hydra's basic sweeper does."""
    yield from map(list, itertools.product(*_split_by_key(overrides)))


def select_jobs_to_check(cells: Sequence[Sequence[Override]]) -> Iterator[list[str]]:
    """Yield the settings of the jobs to check: each cell's first combinations, then each value they leave out."""
    for overrides in cells:
        found = combine(overrides)
        yield from itertools.islice(found, max(1, MAX_CHECKED_JOBS // len(cells)))
        if next(found, None) is not None:
            choices = _split_by_key(overrides)
            firsts = [choice[0] for choice in choices]
            for index, choice in enumerate(choices):
                for value in choice[1:]:
                    yield [*firsts[:index], value, *firsts[index + 1 :]]


def _split_by_key(overrides: Sequence[Override]) -> list[list[str]]:
    return list({override.get_key_element(): split_values(override) for override in overrides}.values())


def split_values(override: Override) -> list[str]:
    """Return an override unchanged, or one override for each value of a sweep."""
    if not override.is_sweep_override():
        assert override.input_line is not None
        return [override.input_line]
    key = override.get_key_element()
    if override.is_discrete_sweep():
        return [f"{key}={value}" for value in override.sweep_string_iterator()]
    # A sweeper samples from an interval; its start represents it in the checks.
    interval: Any = override.value()
    return [f"{key}={interval.start}"]


def refuse_intervals(cells: Sequence[Sequence[Override]]) -> None:
    """Refuse settings whose values only some sweepers can choose.

    Raises:
        UserError: names the setting.
    """
    for override in (override for overrides in cells for override in overrides):
        if override.is_sweep_override() and not override.is_discrete_sweep():
            raise UserError(
                f"{override.input_line} gives an interval. List the values, separated by commas, or choose a sweeper that "
                f"samples, such as hydra/sweeper=optuna."
            )


def refuse_sweeps(overrides: Sequence[Override]) -> None:
    """Refuse settings with several values outside a multirun.

    Raises:
        UserError: names the setting.
    """
    for override in overrides:
        if override.is_sweep_override():
            point = re.sub(r"=(\d+),(\d+)$", r"=\1.\2", line := str(override.input_line))
            near = f" Write a decimal number as {point}." if point != line else ""
            raise UserError(
                f"{line} gives several values. Add -m to run one job for each. Write a list as [a,b], and a text with a "
                f"comma in quotation marks.{near}"
            )
