"""Check plain values of a configuration against annotated types."""

import math
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal

from seq2seq_lab.errors import did_you_mean

_PLAIN = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}
_LISTS = (list, tuple, Sequence, Iterable)
_MAPPINGS = (dict, Mapping)


@dataclass(frozen=True)
class Above:
    """A number is finite, above a bound and below `limit`: `Annotated[int, Above(0)]`."""

    bound: float
    limit: float = math.inf

    def allows(self, number: float) -> bool:
        """Return whether a number is in the range."""
        return self.bound < number < self.limit

    def __str__(self) -> str:
        return f"above {self.bound}" + _below(self.limit)


@dataclass(frozen=True)
class Within:
    """A number is finite, at least `least` and below `limit`: `Annotated[float, Within(0, 1)]`."""

    least: float
    limit: float = math.inf

    def allows(self, number: float) -> bool:
        """Return whether a number is in the range."""
        return self.least <= number < self.limit

    def __str__(self) -> str:
        return f"of at least {self.least}" + _below(self.limit)


@dataclass(frozen=True)
class AtMost:
    """A number is at most `most`, in addition to another range: `Annotated[float, Above(0), AtMost(1)]`."""

    most: float

    def allows(self, number: float) -> bool:
        """Return whether a number is in the range."""
        return number <= self.most

    def __str__(self) -> str:
        return f"and at most {self.most}"


def _below(limit: float) -> str:
    return f" and below {limit}" if limit < math.inf else ""


Count = Annotated[int, Above(0)]
Positive = Annotated[float, Above(0)]
NonNegative = Annotated[float, Within(0)]
Probability = Annotated[float, Within(0), AtMost(1)]
Share = Annotated[float, Within(0, 1)]


def fits(value: object, hint: Any) -> bool:
    """Return whether a plain value has an annotated type and range; an integer is a number, a boolean is not."""
    if typing.get_origin(hint) is Annotated:
        base, *ranges = typing.get_args(hint)
        return fits(value, base) and all(one.allows(value) for one in ranges)
    origin, arguments = _parts(hint)
    if hint is Any or isinstance(hint, typing.TypeVar):
        return True
    if _is_union(hint):
        return any(fits(value, argument) for argument in arguments)
    if origin is Literal:
        return any(value == argument and type(value) is type(argument) for argument in arguments)
    if origin in _LISTS:
        if not isinstance(value, list | tuple):
            return False
        if origin is tuple and arguments and arguments[-1] is not Ellipsis:
            return len(value) == len(arguments) and all(map(fits, value, arguments))
        return all(fits(item, arguments[0]) for item in value) if arguments else True
    if origin in _MAPPINGS:
        return isinstance(value, Mapping)
    if isinstance(value, bool):
        return hint is bool
    if hint is float:
        return isinstance(value, int | float)
    return hint in _PLAIN and isinstance(value, hint)


def describe(hint: Any) -> str:
    """Describe an annotated type in words, without the members of a union that a configuration cannot contain."""
    if typing.get_origin(hint) is Annotated:
        base, *ranges = typing.get_args(hint)
        return " ".join(map(str, (describe(base), *ranges)))
    origin, arguments = _parts(hint)
    if origin is Literal or _is_enum(hint):
        return ", ".join(choices(hint))
    if _is_union(hint):
        return " or ".join(describe(argument) for argument in arguments if _is_plain(argument))
    if origin is tuple and arguments and arguments[-1] is not Ellipsis:
        return f"a list of {len(arguments)}: [{', '.join(map(describe, arguments))}]"
    if origin in _LISTS:
        return f"a list, each {describe(arguments[0])}" if arguments else "a list"
    return "keys and values" if origin in _MAPPINGS else _PLAIN.get(hint, str(hint))


def choices(hint: Any) -> list[str]:
    """Return the words that a literal or an enumeration allows."""
    if _is_union(hint):
        return [word for argument in typing.get_args(hint) for word in choices(argument)]
    if _is_enum(hint):
        return [member.name for member in hint]
    return [str(argument) for argument in typing.get_args(hint)] if typing.get_origin(hint) is Literal else []


def wrong_type(setting: str, value: object, hint: Any) -> str:
    """Return an error message for a setting (key=value) with a value of a wrong type."""
    near = did_you_mean(str(value), choices(hint))
    return f"{setting} is not allowed.{near} Allowed: {describe(hint)}."


def _parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return typing.get_origin(hint) or hint, typing.get_args(hint)


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _is_enum(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Enum)


def _is_plain(hint: Any) -> bool:
    return (
        hint in _PLAIN
        or hint in (*_LISTS, *_MAPPINGS)
        or typing.get_origin(hint) is not None
        or _is_enum(hint)
    )
