"""One weight of a program as a back end takes it: rows of a checkpoint's tensor, not copied unless its values must change."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofline.weights.schemes import SCHEMES, Scheme
from roofline.weights.tensor import Tensor


@dataclass(frozen=True, eq=False)
class LoadedWeight:
    """A weight [N, K] or [N]: `tensor` holds exactly its rows."""

    tensor: Tensor

    @property
    def scheme(self) -> Scheme:
        return self.tensor.scheme

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    @property
    def rows(self) -> NDArray[np.uint8]:
        """The stored bytes [N, row_bytes]; a vector is one row."""
        return self.tensor.data.reshape(self.tensor.num_rows, -1)

    def dequantized(self) -> NDArray[np.float32]:
        """A float32 copy in `shape`."""
        return self.tensor.dequantized()

    def prefetch(self) -> None:
        """Start to read these rows from the disk."""
        self.tensor.prefetch()

    def release(self, start_row: int = 0, end_row: int | None = None) -> None:
        """Give the pages of rows [start_row, end_row) back to the system; they can still be read, from the disk."""
        self.tensor.release(start_row, end_row)


def slice_rows(tensor: Tensor, start: int, stop: int, shape: tuple[int, ...]) -> Tensor:
    """Rows [start, stop) of `tensor` flattened to [prod(shape[:-1]), K], as a view named and shaped `shape`."""
    row_bytes = tensor.scheme.row_bytes(tensor.row_len)
    data = tensor.data[start * row_bytes : stop * row_bytes]
    return Tensor(tensor.name, tensor.scheme, shape, data, tensor.source, tensor.source_offset + start * row_bytes)


def reshape(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The same bytes under another shape with the same row length; [K] and [1, K] are the same row."""
    assert math.prod(shape) == math.prod(tensor.shape)
    return Tensor(tensor.name, tensor.scheme, shape, tensor.data, tensor.source, tensor.source_offset)


def plus_one(tensor: Tensor) -> Tensor:
    """A float32 copy with one added, for norm weights that are stored as w - 1."""
    values = tensor.dequantized() + np.float32(1.0)
    return Tensor(tensor.name, SCHEMES["F32"], tensor.shape, np.ascontiguousarray(values).view(np.uint8).reshape(-1))
