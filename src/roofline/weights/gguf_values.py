"""Reads the typed values of a GGUF header: every count and length is compared with the bytes left before it is used.

`gguf` drives it through the header; nothing here knows what the keys mean.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np

from roofline.core.errors import ModelFormatError
from roofline.weights.mapped_file import MappedFile

UINT32: Final = 4
_BOOL: Final = 7
_STRING: Final = 8
_ARRAY: Final = 9
_NUMBER_FORMATS: Final = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", UINT32: "<u4", 5: "<i4", 6: "<f4", _BOOL: "<u1", 10: "<u8", 11: "<i8",
    12: "<f8",
}  # fmt: skip
_NUMBERS: Final = {type_id: np.dtype(code) for type_id, code in _NUMBER_FORMATS.items()}

# A vocabulary of a million tokens with scores, types and merges stays under 2^23; beyond it is a hostile file.
_MAX_ARRAY_ELEMENTS: Final = 1 << 24
# Real headers, a quarter of a million tokens included, stay under 16 MiB. Without a bound, a hostile header could have
# all of a large file copied as one string.
_MAX_HEADER_BYTES: Final = 1 << 28
_MAX_ARRAY_DEPTH: Final = 4
_MAX_KEY_BYTES: Final = 65535  # by the format's definition
_STRING_LENGTH: Final = struct.Struct("<Q")
_STRING_MIN_BYTES: Final = 8
_ARRAY_MIN_BYTES: Final = 12


class HeaderReader:
    """A position in a GGUF file that only moves over bytes that exist. `field` names what is being read, for errors."""

    def __init__(self, file: MappedFile) -> None:
        self.path = file.path
        self._map = file.map
        self._end = min(file.nbytes, _MAX_HEADER_BYTES)
        self._num_elements_left = _MAX_ARRAY_ELEMENTS
        self.position = 0

    @property
    def bytes_left(self) -> int:
        return self._end - self.position

    def error(self, message: str, hint: str = "") -> ModelFormatError:
        return ModelFormatError(f"{self.path}: {message}", hint=hint)

    def _past_end(self, claim: str, consequence: str) -> ModelFormatError:
        end = f"the file has {self._end} bytes" if self._end < _MAX_HEADER_BYTES else f"a header may have {self._end}"
        return self.error(
            f"{claim}, but {end}: {consequence}", hint="the file is cut short or damaged: download it again"
        )

    def require(self, num_bytes: int, field: str) -> None:
        """Raise unless `num_bytes` more exist."""
        if num_bytes > self.bytes_left:
            missing = num_bytes - self.bytes_left
            raise self._past_end(
                f"{field} needs {num_bytes} bytes at byte {self.position}", f"{missing} bytes are missing"
            )

    def require_items(self, count: int, min_bytes: int, field: str) -> None:
        """Raise unless `count` items of at least `min_bytes` each can follow."""
        if count > self.bytes_left // min_bytes:
            what = f"{field} claims {count} items of at least {min_bytes} bytes"
            raise self._past_end(what, f"{self.bytes_left} bytes are left")

    def take(self, num_bytes: int, field: str) -> bytes:
        self.require(num_bytes, field)
        start = self.position
        self.position += num_bytes
        return self._map[start : self.position]

    def uint32(self, field: str) -> int:
        return int.from_bytes(self.take(4, field), "little")

    def uint64(self, field: str) -> int:
        return int.from_bytes(self.take(8, field), "little")

    def string(self, field: str) -> str:
        raw = self.take(self.uint64(f"length of {field}"), field)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.error(f"{field} is not UTF-8: {error.reason} at its byte {error.start}") from error

    def key(self, field: str) -> str:
        """A name: a string that is neither empty nor absurdly long."""
        name = self.string(field)
        if not 0 < len(name) <= _MAX_KEY_BYTES:
            raise self.error(f"{field} has {len(name)} characters; 1 to {_MAX_KEY_BYTES} are allowed")
        return name

    def value(self, type_id: int, field: str) -> Any:
        """A value as plain Python: int, float, bool, str, or a list of them."""
        if type_id == _STRING:
            return self.string(field)
        if type_id == _ARRAY:
            return self._array(field, depth=1)
        return self._numbers(type_id, 1, field)[0]

    def _array(self, field: str, depth: int) -> list[Any]:
        if depth > _MAX_ARRAY_DEPTH:
            raise self.error(f"{field}: arrays are nested more than {_MAX_ARRAY_DEPTH} deep")
        type_id = self.uint32(f"element type of {field}")
        count = self.uint64(f"element count of {field}")
        self._spend_elements(count, field)
        if type_id == _STRING:
            return self._strings(count, field)
        if type_id == _ARRAY:
            self.require_items(count, _ARRAY_MIN_BYTES, field)
            return [self._array(field, depth + 1) for _ in range(count)]
        return self._numbers(type_id, count, field)

    def _spend_elements(self, count: int, field: str) -> None:
        self._num_elements_left -= count
        if self._num_elements_left < 0:
            raise self.error(f"{field} claims {count} elements; a header may hold {_MAX_ARRAY_ELEMENTS} in all arrays")

    def _numbers(self, type_id: int, count: int, field: str) -> list[Any]:
        dtype = _NUMBERS.get(type_id)
        if dtype is None:
            raise self.error(f"{field} has value type {type_id}; 0 to 12 are defined")
        values = np.frombuffer(self.take(count * dtype.itemsize, field), dtype)
        if type_id != _BOOL:
            return list(values.tolist())
        if (values > 1).any():
            raise self.error(f"{field} holds a bool that is neither 0 nor 1")
        return [value == 1 for value in values.tolist()]

    def _strings(self, count: int, field: str) -> list[str]:
        """A token list has a quarter of a million strings, so the loop keeps everything in locals."""
        self.require_items(count, _STRING_MIN_BYTES, field)
        data, end, position, unpack_length = self._map, self._end, self.position, _STRING_LENGTH.unpack_from
        strings: list[str] = []
        try:
            for _ in range(count):
                start = position + _STRING_MIN_BYTES
                position = start + unpack_length(data, position)[0]
                if position > end:
                    break
                strings.append(data[start:position].decode("utf-8"))
        except struct.error:  # fewer than the eight bytes of a length are left
            position = end + 1
        except UnicodeDecodeError as error:
            raise self.error(
                f"{field}[{len(strings)}] is not UTF-8: {error.reason} at its byte {error.start}"
            ) from error
        if position > end:
            raise self._past_end(f"{field} claims {count} items", f"item {len(strings)} runs past the end")
        self.position = position
        return strings
