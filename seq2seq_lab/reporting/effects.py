"""The effect of each setting (differences between groups that differ in nothing else), and the next steps."""

import math
import shlex
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations

from seq2seq_lab.metrics.significance import LEAST_TESTED, MAX_SEEDS
from seq2seq_lab.reporting.advice import Advice, training_command
from seq2seq_lab.reporting.comparison import Table, difference_text, p_text
from seq2seq_lab.reporting.group_tests import GroupDifference
from seq2seq_lab.reporting.naming import joint_settings
from seq2seq_lab.reporting.runs import Group

HEADS = ["setting", "from", "to", "with", "difference [95% CI]", "p"]
SHOWN = 30  # the largest effects


@dataclass(frozen=True, eq=False)
class SettingEffect:
    """The difference that a change of one setting makes.

    Attributes:
        keys: the setting, and those that vary together with it.
        worse, better: groups that differ in these settings only, with one test set.
        value: the mean of the better one minus that of the worse one.
        difference: the tested difference; None if one of both has a single run or a run without statistics.
    """

    keys: list[str]
    worse: Group
    better: Group
    value: float
    difference: GroupDifference | None

    def cells(self, table: Table) -> list[str]:
        """Return the texts of a row below `HEADS`."""
        old, new = ([group.varies[key] for key in self.keys] for group in (self.worse, self.better))
        others = [f"{key}={value}" for key, value in self.better.varies.items() if key not in self.keys]
        form, found = table.metrics[table.metric].format, self.difference
        return [
            ", ".join(self.keys),
            ", ".join(old),
            ", ".join(new),
            ", ".join(others) or "–",
            f"{self.value:+{form}} (single runs)" if found is None else difference_text(found, form),
            "–" if found is None or found.p is None else p_text(found.p),
        ]


def effects(table: Table) -> list[SettingEffect]:
    """Return the effects of the settings that name the lines, the largest first."""
    return sorted(_effects(table), key=lambda one: -abs(one.value))


def _effects(table: Table) -> Iterator[SettingEffect]:
    sets = joint_settings(table.groups)
    for better, worse in combinations(table.groups, 2):  # the better one is first
        changed = [keys for keys in sets if any(better.varies[key] != worse.varies[key] for key in keys)]
        scores = [group.values(table.score) for group in (worse, better)]
        if len(changed) != 1 or better.runs[0].test_set != worse.runs[0].test_set or not all(scores):
            continue
        low, high = map(statistics.mean, scores)
        found = table.pairs.get((better, worse))  # of the worse one from the better one
        turned = None if found is None else replace(found, value=-found.value)
        yield SettingEffect(changed[0], worse, better, high - low, turned)


def next_steps(table: Table) -> Iterator[Advice]:
    """Yield the next steps after a comparison, with their commands."""
    first = table.lines[0].group
    run = first.median(table.score) or first.runs[0]
    opened = [(*pair, found) for pair, found in table.pairs.items() if found.open]
    for better, group, found in sorted(opened, key=lambda one: one[2].seeds or math.inf)[:2]:
        yield _undecided(table, better, group, found)
    few = [group for group in table.groups if len(group.runs) < LEAST_TESTED]
    if few and len(table.groups) > 1:
        yield Advice(
            f"{len(few)} of {len(table.groups)} lines have fewer than {LEAST_TESTED} runs, so their differences are not "
            f"tested. Train more seeds.",
            _seeds(few[0], LEAST_TESTED),
        )
    if any(text.startswith("warning:") for text in table.warnings) and not effects(table):
        yield Advice("No two lines differ in one setting only. Train one that does, before you name a cause.")
    folder = shlex.quote(str(run.folder))
    if run.heatmaps:
        yield Advice(
            f"Look at what {first.label} attends to in a sentence of your own.",
            f"python -m seq2seq_lab.predict {folder} --weights",
        )
    yield Advice(
        "Read the scores, the worst outputs and the settings of one run.",
        f"python -m seq2seq_lab.runs {folder}",
    )


def _undecided(table: Table, better: Group, group: Group, found: GroupDifference) -> Advice:
    difference = difference_text(found, table.metrics[table.metric].format)
    reason = f"The difference of {group.label} from {better.label} ({difference}) is not decided."
    if found.seeds is None:
        return Advice(
            f"{reason} More than {MAX_SEEDS} seeds would be needed: choose between them by size or speed."
        )
    few = [one for one in (better, group) if len({run.seed for run in one.runs}) < found.seeds]
    return Advice(
        f"{reason} {found.seeds} seeds of both lines would decide one of this size.",
        " && ".join(filter(None, (_seeds(one, found.seeds) for one in few))),
    )


def _seeds(group: Group, needed: int) -> str:
    """Return the command that trains a group with further seeds, up to a number of different ones."""
    known = {run.seed for run in group.runs}
    new = [str(seed) for seed in range(1, needed + len(known) + 1) if str(seed) not in known]
    return training_command(group.runs[0], "-m", f"seed={','.join(new[: needed - len(known)])}")
