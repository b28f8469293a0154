"""Hugging Face folders: `config.json` and safetensors files, single or sharded, by memory map.

`checkpoint.open_checkpoint` calls it. Which files are read is decided by the index alone when there is one, and each
tensor comes only from the shard that the index gives it. Format: https://huggingface.co/docs/safetensors
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
from roofline.weights.mapped_file import MappedFile
from roofline.weights.schemes import SCHEMES
from roofline.weights.strict_json import parse_json_object, read_json_object
from roofline.weights.tensor import Checkpoint, Tensor

CONFIG_NAME: Final = "config.json"
INDEX_NAME: Final = "model.safetensors.index.json"
SINGLE_NAME: Final = "model.safetensors"
_DTYPES: Final = ("F32", "F16", "BF16")  # the same names as the schemes
_MAX_HEADER_BYTES: Final = 100_000_000  # the limit of the reference reader
_MAX_CONFIG_BYTES: Final = 16 << 20
_MAX_DIMS: Final = 8
_MAX_DIM: Final = (1 << 63) - 1
_LENGTH_BYTES: Final = 8
_SHARD_NAME: Final = re.compile(r"[A-Za-z0-9._+ -]{1,200}\.safetensors")


@dataclass(frozen=True)
class _Entry:
    """A tensor in a header; `begin` and `end` count from the end of the header."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def open_safetensors(path: Path) -> Checkpoint:
    """Open a folder, or a single .safetensors file with config.json beside it.

    Raises ModelNotFoundError for absent files and shards, ModelFormatError for damaged or ambiguous ones,
    UnsupportedModelError for a dtype other than F32, F16 and BF16.
    """
    folder = path if path.is_dir() else path.parent
    tensors = _folder_tensors(folder) if path.is_dir() else _file_tensors(path)
    if not (folder / CONFIG_NAME).is_file():
        raise ModelNotFoundError(f"{folder}: no {CONFIG_NAME}", hint="download the whole model folder")
    config = read_json_object(folder / CONFIG_NAME, max_bytes=_MAX_CONFIG_BYTES)
    return Checkpoint(folder, "huggingface", MappingProxyType(config), MappingProxyType(tensors))


def _folder_tensors(folder: Path) -> dict[str, Tensor]:
    if (folder / INDEX_NAME).is_file():
        return _sharded_tensors(folder)
    files = sorted(folder.glob("*.safetensors"))
    if (folder / SINGLE_NAME).is_file():
        files = [folder / SINGLE_NAME]
    if len(files) != 1:
        raise ModelFormatError(
            f"{folder}: {len(files)} safetensors files ({', '.join(file.name for file in files[:5])}), but neither "
            f"{INDEX_NAME} nor {SINGLE_NAME} says which to read",
            hint=f"download {INDEX_NAME}, or give one file",
        )
    return read_safetensors(files[0])


def _file_tensors(path: Path) -> dict[str, Tensor]:
    index_path = path.parent / INDEX_NAME
    if index_path.is_file() and path.name in _read_index(index_path).values():
        raise ModelFormatError(f"{path}: is one shard of a model", hint=f"give the folder: {path.parent}")
    return read_safetensors(path)


def _sharded_tensors(folder: Path) -> dict[str, Tensor]:
    index = _read_index(folder / INDEX_NAME)
    shards = sorted(set(index.values()))
    absent = [shard for shard in shards if not (folder / shard).is_file()]
    if absent:
        raise ModelNotFoundError(f"{folder}: shards are missing: {', '.join(absent)}", hint="download them again")
    stored = {shard: read_safetensors(folder / shard) for shard in shards}
    lost = [f"{name!r} of {shard}" for name, shard in index.items() if name not in stored[shard]]
    if lost:
        raise ModelFormatError(
            f"{folder}: {len(lost)} tensors of the index aren't in their shard: {', '.join(lost[:5])}",
            hint="index and shards are of different versions: download the folder again",
        )
    return {name: stored[shard][name] for name, shard in index.items()}


def _read_index(path: Path) -> Mapping[str, str]:
    """Tensor name -> file name of its shard, in the index's folder."""
    weight_map = read_json_object(path, max_bytes=_MAX_HEADER_BYTES).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelFormatError(f"{path}: weight_map must be an object with at least one tensor")
    for name, shard in weight_map.items():
        if not _is_plain_file_name(shard):
            raise ModelFormatError(f"{path}: weight_map[{name!r}] is {shard!r}; it must be a .safetensors file name")
    return weight_map


def _is_plain_file_name(shard: object) -> bool:
    """False for anything that could lead out of the folder."""
    return isinstance(shard, str) and _SHARD_NAME.fullmatch(shard) is not None


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """All tensors of one file, as views, in file order."""
    file = MappedFile(path)
    header_bytes = _header_bytes(file)
    data_start = _LENGTH_BYTES + header_bytes
    header = parse_json_object(file.map[_LENGTH_BYTES:data_start], f"{path}: header")
    _check_metadata(header.pop("__metadata__", {}), path)
    entries = sorted((_entry(name, fields, path) for name, fields in header.items()), key=lambda e: (e.begin, e.end))
    _check_layout(entries, data_start, file)
    return {entry.name: _tensor(entry, data_start, file) for entry in entries}


def _header_bytes(file: MappedFile) -> int:
    if file.nbytes < _LENGTH_BYTES:
        raise ModelFormatError(f"{file.path}: {file.nbytes} bytes can't hold a safetensors header")
    num_bytes = int.from_bytes(file.map[:_LENGTH_BYTES], "little")
    if num_bytes > _MAX_HEADER_BYTES:
        raise ModelFormatError(
            f"{file.path}: header length {num_bytes} is over the limit of {_MAX_HEADER_BYTES} bytes",
            hint="not a safetensors file, or a damaged one",
        )
    if num_bytes > file.nbytes - _LENGTH_BYTES:
        raise ModelFormatError(
            f"{file.path}: header of {num_bytes} bytes, but the file has {file.nbytes} bytes: "
            f"{_LENGTH_BYTES + num_bytes - file.nbytes} bytes are missing",
            hint="download the file again",
        )
    return num_bytes


def _check_metadata(metadata: object, path: Path) -> None:
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ModelFormatError(f"{path}: header: __metadata__ must map strings to strings")


def _entry(name: str, fields: Any, path: Path) -> _Entry:
    where = f"{path}: tensor {name!r}"
    if not isinstance(fields, dict) or set(fields) != {"dtype", "shape", "data_offsets"}:
        raise ModelFormatError(f"{where}: must have exactly dtype, shape and data_offsets")
    dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if dtype not in _DTYPES:
        raise UnsupportedModelError(f"{where}: dtype {dtype!r} isn't supported", hint=f"known: {', '.join(_DTYPES)}")
    if not _is_whole_numbers(shape) or len(shape) > _MAX_DIMS:
        raise ModelFormatError(f"{where}: shape must be at most {_MAX_DIMS} whole numbers under 2^63")
    if not _is_whole_numbers(offsets) or len(offsets) != 2:
        raise ModelFormatError(f"{where}: data_offsets must be two whole numbers under 2^63")
    begin, end = offsets
    expected_bytes = math.prod(shape) * SCHEMES[dtype].block_bytes
    if end - begin != expected_bytes:
        raise ModelFormatError(f"{where}: {dtype} {shape} is {expected_bytes} bytes, data_offsets span {end - begin}")
    return _Entry(name, dtype, tuple(shape), begin, end)


def _is_whole_numbers(values: object) -> bool:
    # type() rather than isinstance(): JSON's true is a bool, which Python counts as an int.
    return isinstance(values, list) and all(type(value) is int and 0 <= value <= _MAX_DIM for value in values)


def _check_layout(entries: Sequence[_Entry], data_start: int, file: MappedFile) -> None:
    """The tensors cover the rest of the file: in order, no gap, no overlap, nothing left over."""
    end = 0
    for entry in entries:
        if entry.begin != end:
            what = "overlaps the tensor before it" if entry.begin < end else "leaves a gap before it"
            raise ModelFormatError(f"{file.path}: tensor {entry.name!r} at offset {entry.begin} {what} (end {end})")
        end = entry.end
    difference = file.nbytes - (data_start + end)
    if difference:
        what = f"{-difference} bytes are missing" if difference < 0 else f"{difference} bytes are left over"
        raise ModelFormatError(
            f"{file.path}: the header describes {data_start + end} bytes, but the file has {file.nbytes}: {what}",
            hint="the download stopped early or the file is damaged: download it again",
        )


def _tensor(entry: _Entry, data_start: int, file: MappedFile) -> Tensor:
    start = data_start + entry.begin
    data = file.view(start, entry.end - entry.begin)
    return Tensor(entry.name, SCHEMES[entry.dtype], entry.shape, data, file, start)
