"""The protocol of a back end: an interpreter of one Program that runs step batches over its own KV cache."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from roofline.core.batch import Float32, StepBatch
from roofline.program.program import Program
from roofline.weights.schemes import Scheme


class WeightTensor(Protocol):
    """One weight as the loader hands it over: raw bytes [N, row_bytes] in `scheme`, or whatever `dequantized` gives as float32."""

    @property
    def scheme(self) -> Scheme: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def rows(self) -> np.ndarray: ...  # u8 [N, row_bytes] (a vector has one row)
    def dequantized(self) -> Float32: ...
    def prefetch(self) -> None: ...  # start to read the source; called one weight ahead
    # A back end has its own copy of these rows.
    def release(self, start_row: int = 0, end_row: int | None = None) -> None: ...


class Backend(Protocol):
    """Runs a Program. One instance owns its weights and its KV cache of `num_blocks` blocks."""

    @property
    def program(self) -> Program: ...
    @property
    def num_blocks(self) -> int: ...

    def step(self, batch: StepBatch) -> Float32:
        """Append the batch's K and V, and return logits [L, V] float32 of `batch.logit_rows`; the array is the caller's to keep."""
        ...
