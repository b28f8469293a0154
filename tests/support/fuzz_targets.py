"""What the fuzzers run on each input: open it as a checkpoint, and if that succeeds, touch every byte of every tensor.

The one exception let through as an answer is RooflineError; anything else, a crash above all, is a finding.
"""

from __future__ import annotations

import json
import mmap
from pathlib import Path

import numpy as np

from roofline.core.errors import RooflineError
from roofline.weights.checkpoint import Checkpoint, open_checkpoint

_MAX_DEQUANTIZED = 1 << 16  # elements; enough to reach every decoder, small enough to stay fast
_SHARD = "model-00001-of-00001.safetensors"
_SHARD_HEADER = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()


def try_gguf(content: bytes, folder: Path) -> bool:
    """True if the content was accepted as a GGUF file."""
    return _try(_written(folder / "x.gguf", content))


def try_safetensors(content: bytes, folder: Path) -> bool:
    """The same for a .safetensors file, or, if the content starts with a brace, for an index of one sound shard."""
    if content[:1] != b"{":
        _written(folder / "config.json", b"{}")
        return _try(_written(folder / "x.safetensors", content))
    sharded = folder / "sharded"
    sharded.mkdir(exist_ok=True)
    _written(sharded / "config.json", content)
    _written(sharded / _SHARD, len(_SHARD_HEADER).to_bytes(8, "little") + _SHARD_HEADER + bytes(8))
    _written(sharded / "model.safetensors.index.json", content)
    return _try(sharded)


def _written(path: Path, content: bytes) -> Path:
    # A new file each time: the one of the run before may still be mapped, and cutting a mapped file is SIGBUS.
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    return path


def _try(path: Path) -> bool:
    try:
        checkpoint = open_checkpoint(path)
    except RooflineError:
        return False
    _touch(checkpoint)
    return True


def _touch(checkpoint: Checkpoint) -> None:
    for tensor in checkpoint.tensors.values():
        assert tensor.source is not None
        assert 0 <= tensor.source_offset <= tensor.source_offset + tensor.nbytes <= tensor.source.nbytes
        np.add.reduce(tensor.data[:: mmap.PAGESIZE], dtype=np.uint64)
        if tensor.num_rows * tensor.row_len <= _MAX_DEQUANTIZED:
            assert tensor.dequantized().shape == tensor.shape
        tensor.release()
