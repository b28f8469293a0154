"""Packing loses nothing: tiles unpack to exactly the floats that the file's own definition gives."""

from __future__ import annotations

import numpy as np
import pytest

from roofline import _native
from roofline.weights.schemes import SCHEMES, dequantize
from support.random_blocks import random_blocks

NAMES = sorted(SCHEMES)


def row_lens(scheme: str) -> list[int]:
    return {1: [1, 7, 64, 130], 32: [32, 64, 576, 896], 256: [256, 512, 1536]}[SCHEMES[scheme].block_len]


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and np.array_equal(a.view(np.uint32), b.view(np.uint32))


@pytest.mark.parametrize("scheme", NAMES)
@pytest.mark.parametrize("num_rows", [1, 15, 16, 37])
def test_unpack_and_dequantize_equal_the_definition(scheme: str, num_rows: int) -> None:
    rng = np.random.default_rng(num_rows)
    for row_len in row_lens(scheme):
        raw = random_blocks(scheme, num_rows, row_len, rng)
        expected = dequantize(SCHEMES[scheme], raw, num_rows, row_len)
        assert same_bits(_native.linear.dequantize(scheme, raw, row_len), expected)
        assert same_bits(_native.linear.pack(scheme, raw, row_len).unpack(), expected)


@pytest.mark.parametrize("scheme", NAMES)
def test_any_bytes_survive_packing(scheme: str) -> None:
    """Subnormal, infinite and NaN scales too: equal where finite, not finite in the same places."""
    rng = np.random.default_rng(5)
    row_len = row_lens(scheme)[-1]
    raw = rng.integers(0, 256, (33, SCHEMES[scheme].row_bytes(row_len)), dtype=np.uint8)
    with np.errstate(all="ignore"):
        expected = dequantize(SCHEMES[scheme], raw, 33, row_len)
    unpacked = _native.linear.pack(scheme, raw, row_len).unpack()
    np.testing.assert_array_equal(unpacked, expected)


def test_packed_sizes_are_those_of_the_docs() -> None:
    bits = {
        "F32": 32, "F16": 16, "BF16": 16, "Q4_0": 4.5, "Q4_1": 5, "Q5_0": 5.5, "Q5_1": 6, "Q8_0": 8.5, "Q2_K": 2.625, "Q3_K": 6.5625,
        "Q4_K": 4.625, "Q5_K": 5.625, "Q6_K": 6.5625, "IQ4_NL": 5, "IQ4_XS": 5, "MXFP4": 5,
    }  # fmt: skip
    assert set(bits) == set(NAMES)
    for scheme, bits_per_weight in bits.items():
        raw = np.zeros((16, SCHEMES[scheme].row_bytes(256)), np.uint8)
        assert _native.linear.pack(scheme, raw, 256).num_bytes * 8 == bits_per_weight * 16 * 256, scheme


def test_wrong_input_is_named() -> None:
    with pytest.raises(ValueError, match="Q9_Z"):
        _native.linear.pack("Q9_Z", np.zeros((1, 18), np.uint8), 32)
    with pytest.raises(ValueError, match="33 is not a positive multiple of 32"):
        _native.linear.pack("Q4_0", np.zeros((1, 18), np.uint8), 33)
    with pytest.raises(ValueError, match="at most 131072"):
        _native.linear.pack("Q4_0", np.zeros((1, 18 * 5000), np.uint8), 160000)
    with pytest.raises(ValueError, match="17 bytes"):
        _native.linear.pack("Q4_0", np.zeros((1, 17), np.uint8), 32)
