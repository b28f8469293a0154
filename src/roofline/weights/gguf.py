"""GGUF version 2 and 3, by memory map: header, metadata and tensor directory are validated in full, tensors stay views.

`checkpoint.open_checkpoint` calls it. A file that was split into `name-00001-of-00003.gguf` and so on is opened by its
first part. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from roofline.core.errors import ModelFormatError, ModelNotFoundError, UnsupportedModelError
from roofline.weights.gguf_values import UINT32, HeaderReader
from roofline.weights.mapped_file import MappedFile
from roofline.weights.schemes import SCHEMES, SCHEMES_BY_GGUF_ID, Scheme
from roofline.weights.tensor import Checkpoint, Tensor

MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_MAX_DIMS: Final = 4
_MAX_ELEMENTS: Final = (1 << 63) - 1
_DEFAULT_ALIGNMENT: Final = 32
_MAX_ALIGNMENT: Final = 1 << 16
_MIN_KEY_VALUE_BYTES: Final = 8 + 1 + 4 + 1  # length, a one-letter key, type, a one-byte value
_MIN_TENSOR_BYTES: Final = 8 + 1 + 4 + 8 + 4 + 8  # length, a one-letter name, count, one dimension, type, offset
_SPLIT_NAME: Final = re.compile(r"(?P<stem>.+)-(?P<part>\d{5})-of-(?P<count>\d{5})\.gguf")
# Types that exist but have no decoder here, so that the error can name them.
_OTHER_TYPES: Final = {
    9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S", 24: "I8",
    25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0",
}  # fmt: skip


@dataclass(frozen=True)
class _Entry:
    """A line of the tensor directory; `offset` counts from the start of the data section."""

    name: str
    scheme: Scheme
    shape: tuple[int, ...]
    offset: int
    nbytes: int


@dataclass(frozen=True)
class _Part:
    """One file of a checkpoint."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


def open_gguf(path: Path) -> Checkpoint:
    """Open a GGUF file, or all parts of a split one by its first.

    Raises ModelNotFoundError for absent files and parts, ModelFormatError for damaged or hostile ones (naming the
    field), UnsupportedModelError for a tensor type that has no decoder.
    """
    first = _read_part(path)
    count = _split_number(first, "split.count", default=1)
    parts = [first] if count <= 1 else [first, *_other_parts(first, count)]
    return Checkpoint(path, "gguf", first.metadata, MappingProxyType(_merged_tensors(parts)))


def _read_part(path: Path) -> _Part:
    file = MappedFile(path)
    reader = HeaderReader(file)
    _check_magic_and_version(reader)
    num_tensors = reader.uint64("tensor count")
    num_key_values = reader.uint64("metadata count")
    reader.require_items(num_tensors, _MIN_TENSOR_BYTES, "tensor count")
    reader.require_items(num_key_values, _MIN_KEY_VALUE_BYTES, "metadata count")
    metadata, alignment = _read_metadata(reader, num_key_values)
    entries = _read_directory(reader, num_tensors)
    data_start = -(-reader.position // alignment) * alignment
    _check_layout(reader, entries, data_start, file.nbytes, alignment)
    tensors = {entry.name: _tensor(entry, data_start, file) for entry in entries}
    return _Part(path, MappingProxyType(metadata), tensors)


def _check_magic_and_version(reader: HeaderReader) -> None:
    magic = reader.take(4, "magic")
    if magic == MAGIC[::-1]:
        raise _big_endian_error(reader)
    if magic != MAGIC:
        raise reader.error(f"not a GGUF file: it starts with {magic!r}, not {MAGIC!r}")
    raw_version = reader.take(4, "version")
    version = int.from_bytes(raw_version, "little")
    if int.from_bytes(raw_version, "big") in (1, *_VERSIONS):
        raise _big_endian_error(reader)
    if version not in _VERSIONS:
        raise reader.error(f"GGUF version {version} is not supported; versions 2 and 3 are", hint="convert it again")


def _big_endian_error(reader: HeaderReader) -> ModelFormatError:
    return reader.error("the file is big-endian; only little-endian GGUF is read", hint="convert it for little-endian")


def _read_metadata(reader: HeaderReader, count: int) -> tuple[dict[str, Any], int]:
    """Metadata, and the alignment of the data section in bytes."""
    metadata: dict[str, Any] = {}
    alignment = _DEFAULT_ALIGNMENT
    for index in range(count):
        key = reader.key(f"key {index}")
        if key in metadata:
            raise reader.error(f"metadata key {key!r} occurs twice")
        type_id = reader.uint32(f"type of {key!r}")
        metadata[key] = reader.value(type_id, repr(key))
        if key == "general.alignment":
            alignment = _checked_alignment(reader, type_id, metadata[key])
    return metadata, alignment


def _checked_alignment(reader: HeaderReader, type_id: int, value: Any) -> int:
    is_sane = type_id == UINT32 and 8 <= value <= _MAX_ALIGNMENT and value & (value - 1) == 0
    if not is_sane:
        raise reader.error(f"general.alignment is {value!r}; it must be a u32 power of two from 8 to {_MAX_ALIGNMENT}")
    return int(value)


def _read_directory(reader: HeaderReader, count: int) -> list[_Entry]:
    reader.require_items(count, _MIN_TENSOR_BYTES, "tensor count")
    entries: list[_Entry] = []
    names: set[str] = set()
    for index in range(count):
        entry = _read_entry(reader, index)
        if entry.name in names:
            raise reader.error(f"tensor {entry.name!r} occurs twice")
        names.add(entry.name)
        entries.append(entry)
    return entries


def _read_entry(reader: HeaderReader, index: int) -> _Entry:
    name = reader.key(f"name of tensor {index}")
    shape = _read_shape(reader, name)
    scheme = _scheme_of(reader, reader.uint32(f"type of tensor {name!r}"), name)
    offset = reader.uint64(f"offset of tensor {name!r}")
    row_len = shape[-1]
    if row_len % scheme.block_len:
        raise reader.error(f"tensor {name!r}: {scheme.name} rows of {row_len} aren't a multiple of {scheme.block_len}")
    return _Entry(name, scheme, shape, offset, math.prod(shape[:-1]) * scheme.row_bytes(row_len))


def _read_shape(reader: HeaderReader, name: str) -> tuple[int, ...]:
    """Dimensions in NumPy order: the file lists the contiguous one first."""
    num_dims = reader.uint32(f"number of dimensions of tensor {name!r}")
    if not 1 <= num_dims <= _MAX_DIMS:
        raise reader.error(f"tensor {name!r} has {num_dims} dimensions; 1 to {_MAX_DIMS} are allowed")
    dims = [reader.uint64(f"dimension {axis} of tensor {name!r}") for axis in range(num_dims)]
    if 0 in dims or math.prod(dims) > _MAX_ELEMENTS:
        raise reader.error(f"tensor {name!r} has dimensions {dims}: each must be at least 1, their product under 2^63")
    return tuple(reversed(dims))


def _scheme_of(reader: HeaderReader, type_id: int, name: str) -> Scheme:
    scheme = SCHEMES_BY_GGUF_ID.get(type_id)
    if scheme is None:
        what = _OTHER_TYPES.get(type_id, "unknown")
        raise UnsupportedModelError(
            f"{reader.path}: tensor {name!r} has type {type_id} ({what}), which isn't supported",
            hint=f"use a file with these types: {', '.join(SCHEMES)}",
        )
    return scheme


def _check_layout(
    reader: HeaderReader, entries: Sequence[_Entry], data_start: int, file_bytes: int, alignment: int
) -> None:
    """Every tensor is aligned, inside the file, and shares no byte with another."""
    end, last_name = 0, ""
    for entry in sorted(entries, key=lambda entry: entry.offset):
        if entry.offset % alignment:
            raise reader.error(f"tensor {entry.name!r}: offset {entry.offset} isn't a multiple of {alignment}")
        if entry.offset < end:
            raise reader.error(f"tensors {last_name!r} and {entry.name!r} overlap at offset {entry.offset}")
        end, last_name = entry.offset + entry.nbytes, entry.name
    expected_bytes = data_start + end
    if entries and expected_bytes > file_bytes:
        raise reader.error(
            f"tensor {last_name!r} ends at byte {expected_bytes}, but the file has {file_bytes} bytes: "
            f"{expected_bytes - file_bytes} bytes are missing",
            hint="the download stopped early or the header is damaged: download the file again",
        )


def _tensor(entry: _Entry, data_start: int, file: MappedFile) -> Tensor:
    start = data_start + entry.offset
    return Tensor(entry.name, entry.scheme, entry.shape, file.view(start, entry.nbytes), file, start)


def _split_number(part: _Part, key: str, default: int) -> int:
    value = part.metadata.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 99999:
        raise ModelFormatError(f"{part.path}: {key} is {value!r}; it must be a whole number from 0 to 99999")
    return value


def _other_parts(first: _Part, count: int) -> list[_Part]:
    """Parts 2 to `count`, read; ModelNotFoundError lists the absent ones."""
    paths = _part_paths(first, count)
    absent = [path.name for path in paths if not path.is_file()]
    if absent:
        listed = ", ".join(absent[:20]) + (f" and {len(absent) - 20} more" if len(absent) > 20 else "")
        raise ModelNotFoundError(f"{first.path}: parts are missing: {listed}", hint="download them into its folder")
    parts = [_read_part(path) for path in paths]
    for index, part in enumerate(parts, start=1):
        found = (_split_number(part, "split.no", 0), _split_number(part, "split.count", 1))
        if found != (index, count):
            raise ModelFormatError(f"{part.path}: is part {found[0] + 1} of {found[1]}, not {index + 1} of {count}")
    return parts


def _part_paths(first: _Part, count: int) -> list[Path]:
    name = _SPLIT_NAME.fullmatch(first.path.name)
    number = _split_number(first, "split.no", 0)
    if name is None or int(name["count"]) != count or int(name["part"]) != number + 1:
        raise ModelFormatError(
            f"{first.path}: is part {number + 1} of {count}, but its name doesn't say so",
            hint=f"rename the parts to NAME-{number + 1:05}-of-{count:05}.gguf",
        )
    folder, stem = first.path.parent, name["stem"]
    if number != 0:
        raise ModelFormatError(f"{first.path}: is not the first part", hint=f"open {stem}-00001-of-{count:05}.gguf")
    return [folder / f"{stem}-{part:05}-of-{count:05}.gguf" for part in range(2, count + 1)]


def _merged_tensors(parts: Sequence[_Part]) -> dict[str, Tensor]:
    merged: dict[str, Tensor] = {}
    for part in parts:
        for name, tensor in part.tensors.items():
            if name in merged:
                raise ModelFormatError(f"{part.path}: tensor {name!r} is also in an earlier part")
            merged[name] = tensor
    expected = _split_number(parts[0], "split.tensors.count", len(merged))
    if len(merged) != expected:
        raise ModelFormatError(f"{parts[0].path}: the parts hold {len(merged)} tensors, not {expected}")
    return merged
