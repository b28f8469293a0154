"""Every tensor type that a checkpoint may hold: its block size, its GGUF id and its meaning in float32.

The readers look types up here, the loader packs by them, and kernel tests take `dequantize` as their oracle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.core.errors import ModelFormatError
from roofline.weights import block_formats as blocks_of

# Elements decoded at a time: 1 MiB of float32, so that temporaries stay in cache and peak memory is the result's own.
_CHUNK_LEN = 1 << 18


@dataclass(frozen=True)
class Scheme:
    """A tensor type. Rows are cut into blocks of `block_len` elements, each stored in `block_bytes` bytes."""

    name: str
    gguf_id: int
    block_len: int
    layout: np.dtype[Any] = field(repr=False, compare=False)  # of one block
    decode: blocks_of.Decoder = field(repr=False, compare=False)  # layout [n] -> float32, n * block_len elements

    @property
    def block_bytes(self) -> int:
        return self.layout.itemsize

    @property
    def is_quantized(self) -> bool:
        return self.block_len > 1

    def row_bytes(self, row_len: int) -> int:
        """Bytes of a row of `row_len` elements; ModelFormatError if it isn't a whole number of blocks."""
        if row_len % self.block_len:
            raise ModelFormatError(f"a {self.name} row of {row_len} elements isn't a multiple of {self.block_len}")
        return row_len // self.block_len * self.block_bytes


_ALL = (
    Scheme("F32", 0, 1, np.dtype("<f4"), blocks_of.decode_f32),
    Scheme("F16", 1, 1, np.dtype("<f2"), blocks_of.decode_f16),
    Scheme("Q4_0", 2, 32, blocks_of.Q4_0_LAYOUT, blocks_of.decode_q4_0),
    Scheme("Q4_1", 3, 32, blocks_of.Q4_1_LAYOUT, blocks_of.decode_q4_1),
    Scheme("Q5_0", 6, 32, blocks_of.Q5_0_LAYOUT, blocks_of.decode_q5_0),
    Scheme("Q5_1", 7, 32, blocks_of.Q5_1_LAYOUT, blocks_of.decode_q5_1),
    Scheme("Q8_0", 8, 32, blocks_of.Q8_0_LAYOUT, blocks_of.decode_q8_0),
    Scheme("Q2_K", 10, 256, blocks_of.Q2_K_LAYOUT, blocks_of.decode_q2_k),
    Scheme("Q3_K", 11, 256, blocks_of.Q3_K_LAYOUT, blocks_of.decode_q3_k),
    Scheme("Q4_K", 12, 256, blocks_of.Q4_K_LAYOUT, blocks_of.decode_q4_k),
    Scheme("Q5_K", 13, 256, blocks_of.Q5_K_LAYOUT, blocks_of.decode_q5_k),
    Scheme("Q6_K", 14, 256, blocks_of.Q6_K_LAYOUT, blocks_of.decode_q6_k),
    Scheme("IQ4_NL", 20, 32, blocks_of.IQ4_NL_LAYOUT, blocks_of.decode_iq4_nl),
    Scheme("IQ4_XS", 23, 256, blocks_of.IQ4_XS_LAYOUT, blocks_of.decode_iq4_xs),
    Scheme("BF16", 30, 1, np.dtype("<u2"), blocks_of.decode_bf16),
    Scheme("MXFP4", 39, 32, blocks_of.MXFP4_LAYOUT, blocks_of.decode_mxfp4),
)

SCHEMES: Mapping[str, Scheme] = MappingProxyType({scheme.name: scheme for scheme in _ALL})
SCHEMES_BY_GGUF_ID: Mapping[int, Scheme] = MappingProxyType({scheme.gguf_id: scheme for scheme in _ALL})


def dequantize(scheme: Scheme, raw: NDArray[np.uint8], num_rows: int, row_len: int) -> NDArray[np.float32]:
    """Float32 [num_rows, row_len] of the blocks in `raw` (u8, any shape, num_rows * row_bytes bytes).

    Raises ModelFormatError when the byte count or the row length does not fit the scheme.
    """
    expected_bytes = num_rows * scheme.row_bytes(row_len)
    if raw.dtype != np.uint8 or raw.size != expected_bytes:
        raise ModelFormatError(
            f"{num_rows} {scheme.name} rows of {row_len} need {expected_bytes} u8 bytes, not {raw.size} {raw.dtype}"
        )
    blocks = np.ascontiguousarray(raw).reshape(-1).view(scheme.layout)
    result = np.empty(num_rows * row_len, np.float32)
    chunk_blocks = _CHUNK_LEN // scheme.block_len
    # A file may hold infinite scales: inf * 0 is NaN by IEEE rules and no reason for a warning here.
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, len(blocks), chunk_blocks):
            values = scheme.decode(blocks[start : start + chunk_blocks]).reshape(-1)
            first = start * scheme.block_len
            result[first : first + values.size] = values
    return result.reshape(num_rows, row_len)
