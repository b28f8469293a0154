"""GGUF files byte by byte, sound or not: every count and field can be set to what a writer would never write."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

UINT8, UINT32, FLOAT32, BOOL, STRING, ARRAY = 0, 4, 6, 7, 8, 9
TYPE_F32, TYPE_Q4_0 = 0, 2


def uint32(value: int) -> bytes:
    return struct.pack("<I", value)


def uint64(value: int) -> bytes:
    return struct.pack("<Q", value)


def string(text: str | bytes, *, length: int | None = None) -> bytes:
    """`length` is the length to claim; by default the true one."""
    raw = text.encode() if isinstance(text, str) else text
    return uint64(len(raw) if length is None else length) + raw


def key_value(key: str | bytes, type_id: int, value: bytes) -> bytes:
    return string(key) + uint32(type_id) + value


def array(type_id: int, count: int, items: bytes = b"") -> bytes:
    return uint32(type_id) + uint64(count) + items


@dataclass(frozen=True)
class TensorInfo:
    """A directory line; the default is a sound one of 128 bytes."""

    name: str | bytes = "a"
    dims: Sequence[int] = (32,)
    type_id: int = TYPE_F32
    offset: int = 0
    num_dims: int | None = None  # to claim; by default the true one

    def encoded(self) -> bytes:
        num_dims = len(self.dims) if self.num_dims is None else self.num_dims
        dims = b"".join(uint64(dim) for dim in self.dims)
        return string(self.name) + uint32(num_dims) + dims + uint32(self.type_id) + uint64(self.offset)


def gguf_bytes(
    *,
    tensors: Sequence[TensorInfo] = (),
    key_values: Sequence[bytes] = (),
    data_bytes: int = 128,
    alignment: int = 32,
    magic: bytes = b"GGUF",
    version: bytes = uint32(3),
    num_tensors: int | None = None,
    num_key_values: int | None = None,
) -> bytes:
    """A file of these parts; counts are what is given, unless others are claimed."""
    header = magic + version
    header += uint64(len(tensors) if num_tensors is None else num_tensors)
    header += uint64(len(key_values) if num_key_values is None else num_key_values)
    header += b"".join(key_values) + b"".join(tensor.encoded() for tensor in tensors)
    return header + bytes(-len(header) % alignment + data_bytes)
