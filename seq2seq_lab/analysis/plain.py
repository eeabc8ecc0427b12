"""Results as plain data: lists, dictionaries, numbers, strings and None, which JSON can hold."""

import math
from dataclasses import Field, fields, is_dataclass
from functools import cache
from typing import Any

import numpy as np

HIDDEN = {"plain": False}
"""The metadata of a dataclass field that `plain` leaves out."""
PLAIN = frozenset({str, int, bool, type(None)})


def plain(value: Any) -> Any:
    """Return a value as plain data.

    A dataclass becomes a dictionary of its fields, an array a list of lists. A number that is not finite becomes None: JSON
    has no such numbers.

    Raises:
        TypeError: a value is of another type.
    """
    if isinstance(value, float):  # the most frequent case
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, np.generic | np.ndarray):
        known = value.dtype.kind in "biu" or (value.dtype.kind == "f" and np.isfinite(value).all())
        return value.tolist() if known else plain(value.tolist())
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {
            name: one if type(one := getattr(value, name)) in PLAIN else plain(one)
            for name in _shown(type(value))
        }
    raise TypeError(f"{type(value).__name__} is not plain data")


@cache
def _shown(kind: Any) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass that become plain data."""
    every: tuple[Field[Any], ...] = fields(kind)
    return tuple(one.name for one in every if one.metadata.get("plain", True))


class Plain:
    """A dataclass that converts itself to plain data."""

    __slots__ = ()

    def as_json(self) -> dict[str, Any]:
        """Return the fields as plain data; see `plain`."""
        return plain(self)
