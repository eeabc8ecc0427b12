"""The settings that name groups of runs: those that were set, without those that follow from them.

A setting follows from another if the configuration files say so: `model=transformer` chooses the encoder and sets the
sizes, and `encoder.hidden_size` refers to `model.encoder_hidden_size`.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from seq2seq_lab.config import compose
from seq2seq_lab.config.choices import NOT_CHOSEN, changed_choices
from seq2seq_lab.config.job_hash import RESULT_NEUTRAL, without_hydra
from seq2seq_lab.config.schema import SLOTS, dotted_settings, group_values
from seq2seq_lab.config.upgrade import renamed_settings

if TYPE_CHECKING:
    from seq2seq_lab.reporting.runs import Group, Run

SEED = "seed"
SEARCH_SEED = "search.seed"
EXPERIMENT = "experiment"
MISSING = "–"  # the value of a setting that a run does not have
DATA = ("test set", "validation split", "data")  # not settings: what separates runs that cannot be compared
# Dotted keys that also have a top-level key, by which W&B groups runs.
TOP_LEVEL = {
    "model.name": "model",
    "encoder.cell": "cell",
    "teacher_forcing.ratio": "teacher_forcing_ratio",
    "teacher_forcing.scope": "teacher_forcing_scope",
}
NEUTRAL = tuple(f"trainer.{name}" for name in RESULT_NEUTRAL)
EVALUATION_KEYS = ("checkpoint", "ensemble", "precision")  # set by the options of an evaluation


class Template:
    """A composed configuration.

    Attributes:
        unresolved: its values, with references to other keys.
        references: the dotted keys whose values are such references.
        values: the resolved values of dotted keys, as texts.
    """

    def __init__(self, node: DictConfig) -> None:
        container = OmegaConf.to_container(node, resolve=False, enum_to_str=True)
        assert isinstance(container, dict)
        self.unresolved = {str(key): value for key, value in container.items()}
        self.references = {
            key
            for key, value in dotted_settings(self.unresolved)
            if isinstance(value, str) and value.startswith("${")
        }
        self.values = resolved_texts(OmegaConf.create(self.unresolved))


def resolved_texts(node: DictConfig) -> dict[str, str]:
    """Return the resolved values of a configuration as texts, by dotted keys."""
    resolved: Any = OmegaConf.to_container(node, resolve=True)
    return {key: text_of(value) for key, value in dotted_settings(resolved)}


@dataclass(frozen=True)
class Naming:
    """The settings that name the groups of runs.

    Attributes:
        keys: settings that differ and do not follow from others.
        own: for each run, those of the keys that its command set.
    """

    keys: list[str]
    own: list[frozenset[str]]


def name_settings(runs: Sequence["Run"]) -> Naming:
    """Return the settings that name groups of runs.

    Every setting that was set in one of the runs and differs is named, also if others vary together with it. Settings
    that distinguish runs in addition, for example defaults of another version, are added.
    """
    keys = differing_keys(runs)
    others = [key for key in keys if key != EXPERIMENT]
    experiment = _is_function(EXPERIMENT, others, runs)
    # Equal runs are in one group, whether an experiment or the command line set their values.
    keys = keys if experiment else others
    if not keys:
        return Naming([], [frozenset()] * len(runs))
    own = list(_own_settings(runs, keys, experiment))
    named = [key for key in keys if any(key in one for one in own)]
    for key in keys:
        if not _is_function(key, named, runs):
            named.append(key)
            own = [one | {key} for one in own]
    return Naming([key for key in keys if key in named], [frozenset(one) & {*named} for one in own])


def differing_keys(runs: Sequence["Run"]) -> list[str]:
    """Return the settings, except the seed, that differ between runs, each under one name."""
    known = dict.fromkeys(key for run in runs for key in run.settings)
    return [
        key
        for key in known
        if key != SEED
        and TOP_LEVEL.get(key) not in known
        and len({setting_value(run, key) for run in runs}) > 1
    ]


def setting_value(run: "Run", key: str) -> str:
    """Return the value of a setting as text."""
    return run.settings.get(key, MISSING)


def _is_function(key: str, others: Sequence[str], runs: Sequence["Run"]) -> bool:
    """Return whether runs with equal values of the other settings have equal values of a setting."""
    values = [tuple(setting_value(run, other) for other in others) for run in runs]
    return len({*values}) == len(
        {(setting_value(run, key), *one) for run, one in zip(runs, values, strict=True)}
    )


def _own_settings(runs: Sequence["Run"], keys: Sequence[str], experiment: bool) -> Iterator[set[str]]:
    """Yield the settings among `keys` that the command of each run set.

    The recorded command lines are used if the code of all runs is the same; otherwise the configurations are compared with
    what the recorded choices of groups compose to.

    Args:
        experiment: whether the settings of an experiment's file follow from it; otherwise they count as set.
    """
    ignored = {"study"} if experiment else {"study", EXPERIMENT}
    choices = [
        {group: value for group, value in run.record["choices"].items() if group not in ignored}
        for run in runs
    ]
    changed = [changed_choices(one) for one in choices]
    names = {key: next((dotted for dotted, top in TOP_LEVEL.items() if top == key), key) for key in keys}
    # Groups whose values differ under equal names: their files include another value of the group.
    unnamed = {group for group in SLOTS if group not in keys and len({one.get(group) for one in changed}) > 1}
    recorded = _recorded_keys(runs) if experiment else None
    templates: dict[Hashable, Template] = {}
    for run, chosen, groups in zip(runs, choices, changed, strict=True):
        given = recorded[run.folder] if recorded is not None else _set_keys(run, chosen, runs, templates)
        yield {
            key
            for key, name in names.items()
            if key in groups
            or key in EVALUATION_KEYS
            or name.partition(".")[0] in unnamed
            or any(name == one or name.startswith(f"{one}.") for one in given)
        }


def _recorded_keys(runs: Sequence["Run"]) -> dict[Any, set[str]] | None:
    """Return the keys that each command line set, by run folder; None if one is unknown or the code differs."""
    origins = [{**run.record, **run.result["provenance"]} for run in runs]
    code = {(one["source"], *sorted(one["components"].items())) for one in origins}
    if len(code) > 1 or any("overrides" not in run.record for run in runs):
        return None
    found = {}
    for run in runs:
        keys = {line.lstrip("+~").partition("=")[0] for line in renamed_settings(run.record["overrides"])}
        found[run.folder] = {key for key in keys if key not in SLOTS and key != "model"}
    return found


def _set_keys(
    run: "Run", choices: Mapping[str, str], runs: Sequence["Run"], templates: dict[Hashable, Template]
) -> set[str]:
    """Return the dotted keys whose values are neither those of the configuration files nor follow from others.

    A component that is not installed has no file: the keys returned for it are those that differ between its runs.

    Args:
        templates: configurations by their choices; new ones are added.
    """
    existing = {group: value for group, value in choices.items() if value in group_values(group)}
    lines = tuple(f"{group}={value}" for group, value in existing.items() if group != "logger")
    if lines not in templates:
        with compose.composer():
            templates[lines] = Template(without_hydra(compose.compose(lines)))
    unknown = {group for group, value in choices.items() if group not in existing and value != NOT_CHOSEN}
    saved = {key: value for key, value in run.settings.items() if "." in key or key == "init_from"}
    if saved.get(SEARCH_SEED) == "seed":
        del saved[SEARCH_SEED]
    known = {key: value for key, value in saved.items() if key.partition(".")[0] not in unknown}
    found = _minimal_changes(templates[lines], known)
    for key in saved.keys() - known.keys():
        group = key.partition(".")[0]
        same = [one for one in runs if one.record["choices"].get(group) == choices[group]]
        if len({setting_value(one, key) for one in same}) > 1:
            found.add(key)
    return found


def _minimal_changes(template: Template, saved: Mapping[str, str]) -> set[str]:
    """Set the saved values in a configuration, as texts, and return the keys that had to be set.

    A key that refers to another key is set after it, if its value still differs.
    """
    found: set[str] = set()
    now = template.values
    node: DictConfig | None = None
    while True:
        wrong = [key for key, value in saved.items() if now.get(key, MISSING) != value and key not in found]
        values = [key for key in wrong if key not in template.references]
        if not wrong:
            return found
        if node is None:
            node = OmegaConf.create(template.unresolved)
        for key in values or wrong[:1]:
            OmegaConf.update(node, key, saved[key], force_add=True)
            found.add(key)
        now = resolved_texts(node)


def text_of(value: object) -> str:
    """Return a value of a configuration as text."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def joint_settings(groups: Sequence["Group"]) -> list[list[str]]:
    """Return the settings that name groups, in sets that vary together: the value of one determines the others."""
    settings = {key: [group.varies[key] for group in groups] for key in groups[0].varies if key not in DATA}
    return [*_joint(settings), *([key] for key in groups[0].varies if key in DATA)]


def _joint(settings: Mapping[str, Sequence[str]]) -> list[list[str]]:
    sets: dict[Hashable, list[str]] = {}
    for key, values in settings.items():
        partition = tuple(values.index(value) for value in values)
        sets.setdefault(partition if len({*partition}) > 1 else key, []).append(key)
    return list(sets.values())


def confounded(groups: Sequence["Group"]) -> list[str]:
    """Return a text for each set of settings whose effects the groups cannot separate.

    The effect of a setting can be seen if two groups differ in it only.
    """
    compared = _compared_keys(groups)
    differences = [_difference(one, other, compared) for one, other in combinations(groups, 2)]
    separated = {key for keys in differences if len(keys) == 1 for key in keys}
    hidden = {key for keys in differences for key in keys} - separated
    texts, alone = [], []
    for keys in _joint({key: [_value(group, key) for group in groups] for key in compared}):
        left = [key for key in keys if key in hidden]
        if len(left) > 1:
            texts.append(f"{_listed(left)} vary together: a difference cannot be attributed to one of them")
        else:
            alone += left
    if alone:
        texts.append(
            f"no two lines differ in {_listed(alone, 'or')} alone: a difference cannot be attributed to one setting"
        )
    return texts


def _listed(names: Sequence[str], word: str = "and") -> str:
    return f"{', '.join(names[:-1])} {word} {names[-1]}" if len(names) > 1 else names[0]


def _value(group: "Group", key: str) -> str:
    return group.runs[0].recorded["data"] if key == "data" else group.varies[key]


def _compared_keys(groups: Sequence["Group"]) -> list[str]:
    """Return the keys that name the groups and can change results, and "data" if they do not explain how the data differ."""
    keys = [key for key in groups[0].varies if key not in (*DATA, *NEUTRAL)]
    of_data = [key for key in keys if key.partition(".")[0] in ("dataset", "task", EXPERIMENT)]
    pairs = {(tuple(group.varies[key] for key in of_data), _value(group, "data")) for group in groups}
    return keys if len(pairs) == len({settings for settings, _ in pairs}) else [*keys, "data"]


def _difference(one: "Group", other: "Group", keys: Sequence[str]) -> list[str]:
    """Return the settings in which two groups differ, without those that follow from others.

    A setting of a component that the other group does not use belongs to the choice of the component.
    """
    values = {key: (_value(one, key), _value(other, key)) for key in keys}
    differing = [key for key, (first, second) in values.items() if first != second]
    own = [key for key in differing if key in one.own | other.own or key == "data"] or differing
    return [
        key for key in own if MISSING not in values[key] or "." not in key or key.partition(".")[0] not in own
    ]
