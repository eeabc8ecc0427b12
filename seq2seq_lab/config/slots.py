"""From the configuration to objects: open slots are checked and their classes instantiated.

The keys and values of a slot are checked against the annotations of its class before any data is read. Arguments that
are only known at run time are passed in addition. Every room that has slots declares the kinds of their classes, in its
module `parts`, and passes them here.
"""

import contextlib
import copy
import importlib
import inspect
import sys
import traceback
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from seq2seq_lab.config import extensions
from seq2seq_lab.config.schema import (
    SLOTS,
    Config,
    OptionalSlot,
    Slot,
    file_keys,
    group_values,
    origin,
    values_with,
)
from seq2seq_lab.config.trust import TRUST_VARIABLE, trusted_modules
from seq2seq_lab.config.type_checks import choices, fits, wrong_type
from seq2seq_lab.errors import ComponentError, UserError, did_you_mean

PACKAGE = Path(__file__).parents[1]
TRUSTED = ("seq2seq_lab.", "torch.optim.")

# *args and **kwargs are not settings.
GATHERING = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

# Keys that are instructions in Hydra's configurations.
INSTRUCTIONS = frozenset({"_target_", "_args_", "_partial_", "_recursive_", "_convert_"})


@dataclass(frozen=True)
class Kind:
    """What the class of a slot must be.

    Attributes:
        base: a base class, or a protocol whose methods the class implements.
        runtime: the arguments that the program passes to the constructor; a configuration must not set them.
        runtime_of: returns more of these for a class.
    """

    base: type
    runtime: frozenset[str] = frozenset()
    runtime_of: Callable[[Any], Collection[str]] = lambda target: ()

    def arguments(self, target: type) -> frozenset[str]:
        """Return the arguments that the program passes to the constructor of a class."""
        return self.runtime.union(self.runtime_of(target))


Kinds = Mapping[str, Kind]  # by the name of the slot, without the name of one of several, as in `metric.NAME`


class Part:
    """The constructor of a part, with the settings of its config group bound.

    Args:
        make: the constructor; None if the group is null.
        settings: the group's settings.
    """

    def __init__(self, group: str, make: Callable[..., Any] | None, settings: Mapping[str, Any]) -> None:
        self.group = group
        self.settings = settings
        self._make = make

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return a new part.

        Raises:
            UserError: the part refuses a setting, or the group is null.
        """
        if self._make is None:
            raise UserError(
                f"{self.group}=null: the task uses this group. Add {self.group!r} to `uses` of its class, and do not "
                f"override the group with null."
            )
        return self._make(*args, **kwargs)


def check_slot(name: str, slot: Slot, kinds: Kinds) -> None:
    """Check that an open slot has a trusted target and that its settings are arguments of the constructor, of its types.

    Raises:
        UserError: names the key, the value, what is allowed and the nearest spelling.
    """
    target = locate(name, slot, kinds)
    settings = {key: value for key, value in slot.items() if key != "_target_"}
    refuse_instructions(name, settings)
    runtime = kind_of(name, kinds).arguments(target)
    parameters = constructor_parameters(target, runtime)
    settings_of = parameters.get("settings")
    if (
        name == "task"
        and settings_of
        and settings_of.default is inspect.Parameter.empty
        and "settings" not in slot
    ):
        raise UserError(
            f"task._target_={slot['_target_']}{location(target)}: the argument `settings` of the constructor needs the "
            f"annotation of a class of settings, such as `settings: TranslationSettings` (seq2seq_lab.tasks.settings)."
        )
    gathering = [key for key, parameter in parameters.items() if parameter.kind in GATHERING]
    if not gathering and not runtime <= parameters.keys():
        raise UserError(
            f"{name}._target_={slot['_target_']}{location(target)}: the constructor must accept "
            f"{', '.join(sorted(runtime))}, which the program passes in addition to the slot's settings."
        )
    allowed = [key for key in parameters if key not in runtime and key not in gathering]
    hints = {key: parameter.annotation for key, parameter in parameters.items()}
    for key, value in settings.items():
        if key not in allowed:
            raise UserError(
                f"{name}.{key}={value}: {slot['_target_']} has no such setting.{_remedy(name, key, slot, allowed)} "
                f"Allowed: {', '.join(allowed) or 'none'}."
            )
        if not fits(value, hints[key]):
            misplaced = isinstance(value, str) and not choices(hints[key])
            others = values_with_text(name, key, slot) if misplaced else []
            named = ", ".join(f"{name}={other}" for other in others)
            remedy = f" It may be meant for {named}." if others else ""
            # The text "8" needs quotes to differ from the number, the text "big" does not.
            quoted = isinstance(value, str) and not value[:1].isalpha()
            shown = "null" if value is None else repr(value) if quoted else value
            raise UserError(wrong_type(f"{name}.{key}={shown}", value, hints[key]) + remedy)
    missing = [
        key for key in allowed if key not in slot and parameters[key].default is inspect.Parameter.empty
    ]
    if missing:
        raise UserError(f"{name}.{missing[0]} is missing: {slot['_target_']} needs {', '.join(missing)}.")


def _remedy(group: str, key: str, slot: Slot, allowed: Collection[str]) -> str:
    """Return what to do about a setting that the class of a slot does not have, as sentences that begin with a space."""
    users = [value for value in values_with(group, key) if origin(group, value) == value]
    if not users:
        return did_you_mean(key, allowed)
    remedy = f" It is a setting of {' or '.join(f'{group}={value}' for value in users)}."
    files = {value: file_keys(group, value) for value in group_values(group)}
    same = [value for value, keys in files.items() if keys.get("_target_") == slot["_target_"]]
    if any(files[value].keys() <= slot.keys() for value in same):  # its file was chosen
        return remedy
    if same:
        return f"{remedy} Choose {group}={same[0]}."
    # The user has replaced the class, and the other settings are those of the file.
    others = [one for one in slot if one != "_target_" and one not in allowed and values_with(group, one)]
    return f"{remedy} Remove what this class does not have: {' '.join(f'~{group}.{one}' for one in others)}."


def values_with_text(group: str, key: str, slot: Slot) -> list[str]:
    """Return the values of a group, of another class than a slot's, whose files set a key to a text or to null."""
    found = []
    for value in values_with(group, key):
        keys = file_keys(group, value)
        text = keys[key] is None or (isinstance(keys[key], str) and "${" not in keys[key])
        if text and keys.get("_target_") != slot["_target_"]:
            found.append(value)
    return found


def refuse_instructions(path: str, value: object) -> None:
    """Refuse `_target_` and other instructions of Hydra below the slot itself: only the slot's class is called."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key in INSTRUCTIONS:
                raise UserError(
                    f"{path}.{key}={item} is refused: a slot names one class, by its own _target_, and "
                    f"otherwise contains plain values. Leave {key} out."
                )
            refuse_instructions(f"{path}.{key}", item)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            refuse_instructions(f"{path}[{index}]", item)


def constructor_parameters(target: type, runtime: Collection[str] = ()) -> dict[str, inspect.Parameter]:
    """Return the parameters of a constructor by name, with a dataclass of settings replaced by its fields.

    Args:
        runtime: parameters that the program passes.
    """
    hints = annotations(target)
    specs = specifications(hints, runtime)
    found: dict[str, inspect.Parameter] = {}
    for name, parameter in inspect.signature(target).parameters.items():
        if name in specs:
            found |= constructor_parameters(specs[name])
        else:
            found[name] = parameter.replace(annotation=hints.get(name, Any))
    return found


def specifications(hints: Mapping[str, Any], runtime: Collection[str]) -> dict[str, Any]:
    """Return the dataclasses among the annotated types of a constructor's settings, by name."""
    return {name: hint for name, hint in hints.items() if name not in runtime and is_dataclass(hint)}


def annotations(target: type) -> dict[str, Any]:
    """Return the annotated types of a constructor's arguments, by name."""
    constructor = target.__init__  # type: ignore[misc]  # the constructor of this very class
    names = getattr(inspect.unwrap(constructor), "__globals__", {})
    found: dict[str, Any] = {}
    for name, hint in getattr(constructor, "__annotations__", {}).items():
        one = types.SimpleNamespace(__annotations__={name: hint})
        # A name that only type checkers import cannot be resolved: the constructor then checks the value.
        with contextlib.suppress(NameError):
            found |= typing.get_type_hints(one, names, include_extras=True)
    return found


def kind_of(name: str, kinds: Kinds) -> Kind:
    """Return the kind of a slot."""
    return kinds[name.partition(".")[0]]


def locate(name: str, slot: Slot, kinds: Kinds) -> Any:
    """Return the class that a slot's `_target_` names, if its module is trusted.

    Raises:
        UserError: the target is not trusted, does not exist, or is not a class for this slot.
    """
    path = slot.get("_target_")
    if not isinstance(path, str):
        raise UserError(f"{name}._target_={path} names no class. Choose one of the group's values, {name}=…")
    target = imported(name, path)
    kind = kind_of(name, kinds).base
    lacking: list[str] = []
    if inspect.isclass(target):
        # A trusted module may import classes that are not trusted.
        origin = target.__module__
        if extensions.file_of(origin) is None and not f"{origin}.".startswith((*TRUSTED, *trusted_modules())):
            raise refusal(name, path, origin)
        lacking = sorted(missing_methods(target, kind))
        if (is_protocol(kind) or issubclass(target, kind)) and not lacking:
            return target
    methods = f" It lacks {', '.join(lacking)}." if lacking else ""
    raise UserError(
        f"{name}._target_={path} is not a class for {name}{location(target)}.{methods} "
        f"Allowed: classes that are a {kind.__module__}.{kind.__name__}."
    )


def imported(name: str, path: str) -> Any:
    """Return what the `_target_` of a slot names, if its module is trusted.

    Raises:
        UserError: the target is not trusted, or does not exist.
    """
    module, _, attribute = path.rpartition(".")
    if not module:
        raise UserError(
            f"{name}._target_={path} names no file. Write FILE.CLASS, for example my_file.{path}."
        )
    file = extensions.file_of(module)
    if file is None and not path.startswith((*TRUSTED, *trusted_modules())):
        raise refusal(name, path, module)
    try:
        home = importlib.import_module(module) if file is None else extensions.load(module)
    except (ImportError, UserError) as error:
        raise UserError(f"{name}._target_={path} cannot be imported: {error}") from error
    if not hasattr(home, attribute):
        near = did_you_mean(attribute, [key for key, value in vars(home).items() if inspect.isclass(value)])
        raise UserError(
            f"{name}._target_={path} cannot be imported: {file or module} has no {attribute}.{near}"
        )
    return getattr(home, attribute)


def refusal(name: str, path: str, module: str) -> UserError:
    """Return the error for a class whose module is not trusted."""
    return UserError(
        f"{name}._target_={path} is refused: a configuration may only name classes of "
        f"{', '.join((*TRUSTED, *trusted_modules()))} and of modules you trust. {extensions.hint(module)} "
        f"If it is an installed package that you trust, set {TRUST_VARIABLE}={module.split('.')[0]} in the environment."
    )


def location(target: object) -> str:
    """Return " (FILE, line N)" for a class or function of a custom component, otherwise an empty string."""
    if not (inspect.isclass(target) or inspect.isfunction(target)):
        return ""
    file = extensions.file_of(target.__module__)
    return f" ({file}, line {inspect.getsourcelines(target)[1]})" if file else ""


def missing_methods(target: type, kind: type) -> set[str]:
    """Return the methods of a kind that a class does not implement."""
    if not is_protocol(kind):
        return set(getattr(target, "__abstractmethods__", ()))
    methods = {
        name
        for name, member in vars(kind).items()
        if inspect.isfunction(member) and (name == "__call__" or not name.startswith("_"))
    }
    return {method for method in methods if not any(method in vars(base) for base in target.__mro__)}


def is_protocol(kind: type) -> bool:
    """Return whether a kind is a protocol."""
    return bool(getattr(kind, "_is_protocol", False))


def part(name: str, slot: OptionalSlot, kinds: Kinds) -> Part:
    """Return the constructor of a slot with the slot's settings bound.

    The class is located here, where the folder of custom components is trusted: a run that is open builds parts later. A
    class that cannot be located raises its error when the part is built, so a run can be opened without its data set. A
    ValueError of the constructor, or a RuntimeError of torch's constructors, becomes a UserError.
    """
    if slot is None:
        return Part(name, None, {})
    target: Any = None
    failed: Exception | None = None
    try:
        target = locate(name, slot, kinds)  # refuses a class that is not trusted before it is imported
    except Exception as error:  # custom code may raise any
        failed = error

    def call(*args: Any, **kwargs: Any) -> Any:
        if failed is not None:
            raise failed.with_traceback(None)
        specs = specifications(annotations(target), kwargs)
        settings = copy.deepcopy({key: value for key, value in slot.items() if key != "_target_"})
        try:
            for key, spec in specs.items():
                kwargs[key] = spec(**{field.name: settings.pop(field.name) for field in fields(spec)})
            return target(*args, **settings, **kwargs)
        except UserError:
            raise
        except (ValueError, RuntimeError) as error:
            text = str(error)
            if not text.startswith(name):
                given = ", ".join(f"{name}.{key}={value}" for key, value in slot.items())
                text = f"{name}: {text.rstrip('.')}. Its settings: {given}."
            raise UserError(text) from error

    return Part(name, call, slot)


def custom_components(config: Config) -> dict[Path, dict[str, str]]:
    """Return the classes that the configuration names of each file of `--config-dir`, with their settings.

    The setting of the class `MyClass` is such as `attention=MyClass`.
    """
    slots = {name: getattr(config, name) for name in SLOTS}
    slots |= {f"metric.{name}": slot for name, slot in config.metric.items()}
    found: dict[Path, dict[str, str]] = {}
    for name, slot in slots.items():
        if slot is not None:
            module, _, target = str(slot["_target_"]).rpartition(".")
            # A package may import its class from another module.
            loaded = getattr(sys.modules.get(module), target, None)
            module, target = getattr(loaded, "__module__", module), getattr(loaded, "__name__", target)
            if (file := extensions.file_of(module)) is not None:
                settings = found.setdefault(file, {})
                settings[target] = ", ".join(filter(None, (settings.get(target), f"{name}={target}")))
    return found


def _failed(error: Exception, components: Mapping[Path, Mapping[str, str]]) -> str:
    """Return the setting of the component in whose methods an error was raised; all of its file if none of them was."""
    places = extensions.places(error)
    named = (components[file].get(name) for file, name in places if file in components)
    alone = next(filter(None, named), None)
    return alone or ", ".join(components.get(places[0][0], {}).values()) or "A custom component"


@contextlib.contextmanager
def named_components(
    config: Config,
    of_others: Callable[[Exception], bool] = lambda error: False,
    opened_with: str | Path | None = None,
) -> Iterator[None]:
    """Replace an exception of a configuration with custom components by a `ComponentError`; `run.log` has the traceback.

    The package can raise it too, for a wrong value that a component returned. An `OSError` of the package stays as it is.

    Args:
        of_others: whether an exception comes from outside of this process; it stays as it is.
        opened_with: the folder of the components of a run that is open; None for the folder that is trusted now. The caller
            may have caused an error of an open run outside of the code of its components; it stays as it is.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # custom code may raise any
        if of_others(error):
            raise
        with contextlib.nullcontext() if opened_with is None else extensions.naming_code_of(opened_with):
            named = _named(error, config, opened_with is not None)
        if named is None:
            raise
        raise named from error


def _named(error: Exception, config: Config, opened: bool) -> ComponentError | None:
    """Return an exception with the name of the component that caused it; None if it stays as it is."""
    frame, components = extensions.frame_of(error), custom_components(config)
    if frame is not None:
        return ComponentError(
            f"{_failed(error, components)} failed: {extensions.where(error)}, in {frame.name}. Correct the code."
        )
    if opened or not components or isinstance(error, OSError):
        return None
    settings = ", ".join(setting for classes in components.values() for setting in classes.values())
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(PACKAGE)][-1]
    return ComponentError(
        f"{settings}: the run failed in {Path(own.filename).relative_to(PACKAGE.parent)}, line "
        f"{own.lineno}: {type(error).__name__}: {error}. A component probably returned a wrong value; compare it with "
        f"its contract in docs/extending.md."
    )
