"""Random but valid weight blocks for kernel and reader tests: all code bits random, scales finite, weights near +-1."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.weights.schemes import SCHEMES, Scheme

# Largest |code| (times sub-scale where there is one): divides the scale so that weights come out within about +-1.
_CODE_RANGE = {
    "Q4_0": 8, "Q4_1": 15, "Q5_0": 16, "Q5_1": 31, "Q8_0": 127, "IQ4_NL": 127,
    "Q2_K": 15 * 3, "Q3_K": 32 * 4, "Q4_K": 63 * 15, "Q5_K": 63 * 31, "Q6_K": 128 * 32, "IQ4_XS": 32 * 127,
}  # fmt: skip
_MIN_RANGE = {"Q2_K": 15, "Q4_K": 63, "Q5_K": 63}


def random_blocks(scheme_name: str, num_rows: int, row_len: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Raw bytes, u8 [num_rows, row_bytes], of random weights of about +-1; some scales are negative and some zero."""
    scheme = SCHEMES[scheme_name]
    num_blocks = num_rows * row_len // scheme.block_len
    row_bytes = scheme.row_bytes(row_len)
    if scheme.is_quantized:
        blocks = _quantized_blocks(scheme, num_blocks, rng)
    else:
        blocks = _floats(scheme, num_blocks, rng)
    return blocks.view(np.uint8).reshape(num_rows, row_bytes)


def _floats(scheme: Scheme, num_values: int, rng: np.random.Generator) -> NDArray[Any]:
    values = rng.standard_normal(num_values).astype(np.float32) / np.float32(4)
    if scheme.name == "BF16":
        return (values.view(np.uint32) >> np.uint32(16)).astype("<u2")
    return values.astype(scheme.layout)


def _quantized_blocks(scheme: Scheme, num_blocks: int, rng: np.random.Generator) -> NDArray[Any]:
    raw = rng.integers(0, 256, num_blocks * scheme.block_bytes, dtype=np.uint8)
    blocks = raw.view(scheme.layout)
    if scheme.name == "MXFP4":
        blocks["exponent"] = rng.integers(118, 127, num_blocks)  # values up to 6 * 2^-1
        return blocks
    blocks["scale"] = _scales(num_blocks, rng) / _CODE_RANGE[scheme.name]
    if "minimum" in scheme.layout.fields:
        blocks["minimum"] = rng.uniform(-1, 0.25, num_blocks)
    if "min_scale" in scheme.layout.fields:
        blocks["min_scale"] = rng.uniform(0, 1, num_blocks) / _MIN_RANGE[scheme.name]
    return blocks


def _scales(num_blocks: int, rng: np.random.Generator) -> NDArray[np.float64]:
    signs = rng.choice([-1.0, 0.0, 1.0], num_blocks, p=[0.25, 0.02, 0.73])
    return signs * rng.uniform(0.25, 1.0, num_blocks)
