"""The fields of a request: values of JSON with checks that name the field."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from seq2seq_lab.errors import UserError, did_you_mean


class FieldError(UserError):
    """A request that is not as the page writes it."""


class Fields:
    """The fields of a request; each is read once, then `close` refuses those that are left.

    Raises:
        FieldError: names the field, its value and what is allowed.
    """

    def __init__(self, values: Mapping[str, Any], where: str = "") -> None:
        self._left, self._known, self._where = dict(values), set[str](), where

    @classmethod
    def of(cls, body: bytes) -> "Fields":
        """Return the fields of the body of a request."""
        try:
            values = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise FieldError("The body of the request is not JSON in UTF-8.") from error
        if not isinstance(values, dict):
            raise FieldError("The body of the request is not an object of JSON.")
        return cls(values)

    def take(self, name: str, default: Any = None) -> Any:
        """Return the value of a field, or the default if it is missing or null."""
        self._known.add(name)
        value = self._left.pop(name, None)
        return default if value is None else value

    def optional(self, name: str, read: Callable[[], Any]) -> list[Any]:
        """Return what `read` returns in a list; an empty list if the field is missing or null."""
        if self._left.get(name) is None:
            self.take(name)
            return []
        return [read()]

    def text(self, name: str, longest: int, default: str | None = None) -> str:
        """Return a text of one line."""
        value = self.take(name, default)
        if not isinstance(value, str):
            self._refuse(name, value, "a text")
        if len(value) > longest:
            self._refuse(name, value, f"a text of at most {longest:,} characters")
        if "\n" in value or "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
            self._refuse(name, value, "a text of one line in Unicode")
        return value

    def number(self, name: str, low: float, high: float) -> float:
        """Return a number from `low` to `high`."""
        value = self.take(name)
        if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
            self._refuse(name, value, f"a number from {low:g} to {high:g}")
        return value

    def integer(self, name: str, low: int, high: int, default: int | None = None) -> int:
        """Return a whole number from `low` to `high`."""
        value = self.take(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            self._refuse(name, value, f"a whole number from {low} to {high}")
        return value

    def choice(self, name: str, allowed: Sequence[str], default: str | None = None) -> str:
        """Return one of the allowed texts."""
        value = self.take(name, default)
        if value not in allowed:
            self._refuse(name, value, ", ".join(allowed))
        return str(value)

    def list_of(self, name: str, longest: int) -> list[Any]:
        """Return a list; it is empty if the field is missing."""
        value = self.take(name, [])
        if not isinstance(value, list) or len(value) > longest:
            self._refuse(name, value, f"a list of at most {longest:,} values")
        return value

    def texts(self, name: str, count: int, longest: int) -> list[str]:
        """Return a list of texts."""
        values = self.list_of(name, count)
        return [Fields({name: value}, self._where).text(name, longest) for value in values]

    def numbers(self, name: str, count: int, low: float, high: float) -> list[float]:
        """Return a list of numbers from `low` to `high`."""
        values = self.list_of(name, count)
        return [Fields({name: value}, self._where).number(name, low, high) for value in values]

    def fields(self, name: str) -> "Fields | None":
        """Return the fields of an object; None if the field is missing."""
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            self._refuse(name, value, "an object")
        return Fields(value, f"{self._where}{name}.")

    def close(self) -> None:
        """Refuse fields that were not read."""
        for name in self._left:
            near = did_you_mean(name, self._known)
            raise FieldError(f"{self._where}{_short(name)} is not a field of this request.{near}")

    def _refuse(self, name: str, value: Any, allowed: str) -> NoReturn:
        given = "missing" if value is None else _short(value)
        raise FieldError(f"{self._where}{name}={given} is not allowed. Allowed: {allowed}.")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a value of JSON")


def _short(value: Any) -> str:
    """Return a value for a message; of a long one the beginning."""
    if isinstance(value, float) and not math.isfinite(value):
        return "not a finite number"
    text = json.dumps(value) if not isinstance(value, int) or abs(value) < 10**20 else "a large number"
    return text if len(text) <= 60 else f"{text[:60]}…"
