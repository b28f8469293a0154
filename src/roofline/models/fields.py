"""Typed reading of a checkpoint's metadata: a missing, mistyped or absurd value is an error that names the key.

Both config readers take every value through this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roofline.core.errors import ModelFormatError

# No real model is past these; a larger count is a damaged or hostile file, and would cost memory before it fails.
MAX_COUNT = 1 << 24
MAX_LAYERS = 1024
MAX_EXPERTS = 1024
MAX_HEAD_SIZE = 4096
_MAX_NUMBER = 1e30


@dataclass(frozen=True)
class Fields:
    """Metadata under keys `prefix + key`; `origin` names the source in errors. A null value counts as absent."""

    values: Mapping[str, Any]
    origin: str
    prefix: str = ""

    def has(self, key: str) -> bool:
        return self.values.get(self.prefix + key) is not None

    def raw(self, key: str) -> Any:
        """The value as stored; ModelFormatError if it is absent."""
        value = self.values.get(self.prefix + key)
        if value is None:
            raise ModelFormatError(f"{self.origin}: {self.prefix + key!r} is missing")
        return value

    def count(self, key: str, default: int | None = None, *, limit: int = MAX_COUNT) -> int:
        """A positive integer, at most `limit`."""
        value = self.integer(key, default)
        if not 0 < value <= limit:
            raise self.error(key, f"is {value}, not in [1, {limit}]")
        return value

    def integer(self, key: str, default: int | None = None) -> int:
        value = default if default is not None and not self.has(key) else self.raw(key)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(key, f"is {value!r}, not an integer")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = default if default is not None and not self.has(key) else self.raw(key)
        if not _is_finite_number(value):
            raise self.error(key, f"is {value!r}, not a finite number")
        return float(value)

    def positive(self, key: str, default: float | None = None) -> float:
        """A number above zero: a norm's epsilon, a rotary base, a scale."""
        value = self.number(key, default)
        if value <= 0:
            raise self.error(key, f"is {value}, not above 0")
        return value

    def boolean(self, key: str, *, default: bool) -> bool:
        value = self.raw(key) if self.has(key) else default
        if not isinstance(value, bool):
            raise self.error(key, f"is {value!r}, not true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = default if default is not None and not self.has(key) else self.raw(key)
        if not isinstance(value, str):
            raise self.error(key, f"is {value!r}, not a string")
        return value

    def numbers(self, key: str) -> tuple[float, ...]:
        """A list of finite numbers, none of them 0."""
        value = self.raw(key)
        if not isinstance(value, list) or not all(_is_finite_number(item) and item != 0 for item in value):
            raise self.error(key, "is not a list of finite numbers other than 0")
        return tuple(float(item) for item in value)

    def table(self, key: str) -> Mapping[str, Any]:
        """A JSON object; empty where the key is absent."""
        value = self.raw(key) if self.has(key) else {}
        if not isinstance(value, dict):
            raise self.error(key, f"is {value!r}, not an object")
        return value

    def error(self, key: str, what: str) -> ModelFormatError:
        """The error to raise for a bad value of `key`."""
        return ModelFormatError(f"{self.origin}: {self.prefix + key!r} {what}")


def _is_finite_number(value: object) -> bool:
    """JSON integers have no bound, and those past float's range are no numbers here."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < _MAX_NUMBER
