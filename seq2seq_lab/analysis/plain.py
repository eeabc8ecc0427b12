"""Results as plain data: lists, dictionaries, numbers, strings and None, which JSON can hold."""

import math
from dataclasses import Field, fields, is_dataclass
from typing import Any

import numpy as np

HIDDEN = {"plain": False}
"""The metadata of a dataclass field that `plain` leaves out."""


def plain(value: Any) -> Any:
    """Return a value as plain data.

    A dataclass becomes a dictionary of its fields, an array a list of lists. A number that is not finite becomes None: JSON
    has no such numbers.

    Raises:
        TypeError: a value is of another type.
    """
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, np.generic | np.ndarray):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value) if _shown(one)}
    raise TypeError(f"{type(value).__name__} is not plain data")


def _shown(field: Field[Any]) -> bool:
    return field.metadata.get("plain", True)


class Plain:
    """A dataclass that converts itself to plain data."""

    __slots__ = ()

    def as_json(self) -> dict[str, Any]:
        """Return the fields as plain data; see `plain`."""
        return plain(self)
