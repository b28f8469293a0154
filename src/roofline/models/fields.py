"""Typed reading of a checkpoint's metadata: a missing, mistyped or absurd value is an error that names the key.

Both config readers take every value through this.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roofline.core.errors import ModelFormatError

# No real model is past this in any size; a larger count is a damaged file and would only fail later, less clearly.
_MAX_COUNT = 1 << 24


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

    def count(self, key: str, default: int | None = None) -> int:
        """A positive integer."""
        value = self.integer(key, default)
        if not 0 < value <= _MAX_COUNT:
            raise self.error(key, f"is {value}, not in [1, {_MAX_COUNT}]")
        return value

    def integer(self, key: str, default: int | None = None) -> int:
        value = default if default is not None and not self.has(key) else self.raw(key)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(key, f"is {value!r}, not an integer")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = default if default is not None and not self.has(key) else self.raw(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
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
        """A list of finite numbers."""
        value = self.raw(key)
        if not isinstance(value, list | tuple) or not all(isinstance(x, int | float) for x in value):
            raise self.error(key, "is not a list of numbers")
        if not all(math.isfinite(x) and x != 0 for x in value):
            raise self.error(key, "holds a zero, a NaN or an infinity")
        return tuple(float(x) for x in value)

    def error(self, key: str, what: str) -> ModelFormatError:
        """The error to raise for a bad value of `key`."""
        return ModelFormatError(f"{self.origin}: {self.prefix + key!r} {what}")
