"""The records that the readers return and that models and loaders take: named tensors, and the checkpoint they form.

Both can be made in memory too, without a file, which is how tests build tiny models.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from roofline.core.errors import ModelFormatError
from roofline.weights.mapped_file import MappedFile
from roofline.weights.schemes import Scheme, dequantize

CheckpointFormat = Literal["gguf", "huggingface"]


@dataclass(frozen=True, eq=False)
class Tensor:
    """One named tensor, not copied. `shape` is in NumPy order: the last dimension is contiguous (K of a matrix)."""

    name: str
    scheme: Scheme
    shape: tuple[int, ...]
    data: NDArray[np.uint8] = field(repr=False)  # [nbytes], exactly the tensor's bytes
    source: MappedFile | None = field(default=None, repr=False)  # the file that `data` is a view of
    source_offset: int = field(default=0, repr=False)  # byte of `source` where `data` starts

    def __post_init__(self) -> None:
        expected_bytes = self.num_rows * self.scheme.row_bytes(self.row_len)
        if self.data.size != expected_bytes:
            raise ModelFormatError(
                f"tensor {self.name!r}: {self.scheme.name} of shape {self.shape} is {expected_bytes} bytes, "
                f"but {self.data.size} are given"
            )

    @property
    def row_len(self) -> int:
        return self.shape[-1] if self.shape else 1

    @property
    def num_rows(self) -> int:
        return math.prod(self.shape[:-1])

    @property
    def nbytes(self) -> int:
        return self.data.size

    def dequantized(self) -> NDArray[np.float32]:
        """A float32 copy in `shape`."""
        return dequantize(self.scheme, self.data, self.num_rows, self.row_len).reshape(self.shape)

    def prefetch(self) -> None:
        """Ask the system to read the tensor's bytes ahead; returns before they are there."""
        if self.source is not None:
            self.source.prefetch(self.source_offset, self.nbytes)

    def release(self, start_row: int = 0, end_row: int | None = None) -> None:
        """Give the file's pages of rows [start_row, end_row) back once they are packed. `data` stays valid, but reads the file again."""
        if self.source is None or not self.nbytes:
            return
        row_bytes = self.nbytes // self.num_rows
        num_rows = (self.num_rows if end_row is None else end_row) - start_row
        self.source.release(self.source_offset + start_row * row_bytes, num_rows * row_bytes)


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A model's tensors and its description, opened and validated but not yet read."""

    path: Path  # the .gguf file (the first of a split one), or the Hugging Face folder
    format: CheckpointFormat
    metadata: Mapping[str, Any] = field(repr=False)  # GGUF keys and values as plain Python, or config.json
    tensors: Mapping[str, Tensor] = field(repr=False)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors as stored."""
        return sum(tensor.nbytes for tensor in self.tensors.values())
