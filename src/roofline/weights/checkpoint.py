"""Decides what kind of checkpoint a path holds and opens it: the door of this floor for models, text and back ends."""

from __future__ import annotations

from pathlib import Path

from roofline.core.errors import ModelFormatError, ModelNotFoundError
from roofline.weights.gguf import MAGIC, open_gguf
from roofline.weights.safetensors import INDEX_NAME, open_safetensors
from roofline.weights.tensor import Checkpoint, CheckpointFormat, Tensor

__all__ = ["Checkpoint", "CheckpointFormat", "Tensor", "open_checkpoint"]

_WAY_OUT = "give a .gguf file, a folder with config.json and *.safetensors, or a .safetensors file beside config.json"


def open_checkpoint(path: Path | str) -> Checkpoint:
    """Open and validate a checkpoint without reading its tensors.

    A GGUF file is known by its first bytes, whatever its name. Raises ModelNotFoundError when nothing loadable is
    there, ModelFormatError for a damaged file, UnsupportedModelError for tensor types that have no decoder.
    """
    try:
        return _open(Path(path).expanduser())
    except (OSError, RuntimeError) as error:  # no permission, name too long, a loop of links, an unknown ~user
        raise ModelNotFoundError(f"{path} can't be opened: {error}", hint=_WAY_OUT) from error


def _open(path: Path) -> Checkpoint:
    if path.is_dir():
        return _open_folder(path)
    if not path.is_file():
        raise ModelNotFoundError(f"{path}: no such file or folder", hint=_WAY_OUT)
    if path.suffix == ".gguf" or _starts_with_gguf_magic(path):
        return open_gguf(path)
    if path.suffix == ".safetensors":
        return open_safetensors(path)
    raise ModelFormatError(f"{path}: neither a GGUF nor a .safetensors file", hint=_WAY_OUT)


def _open_folder(path: Path) -> Checkpoint:
    if (path / INDEX_NAME).is_file() or any(path.glob("*.safetensors")):
        return open_safetensors(path)
    gguf_files = sorted(file.name for file in path.glob("*.gguf"))
    if gguf_files:
        raise ModelNotFoundError(f"{path}: holds GGUF files", hint=f"give one of them: {', '.join(gguf_files[:10])}")
    if any(path.glob("*.bin")):
        raise ModelNotFoundError(f"{path}: holds only .bin weights, which can run code", hint="convert to safetensors")
    raise ModelNotFoundError(f"{path}: no model in this folder", hint=_WAY_OUT)


def _starts_with_gguf_magic(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC
