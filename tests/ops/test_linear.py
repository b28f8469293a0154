"""y = x . W^T on every format, tier and ragged shape: near float64, and bit-equal where the numeric contract says so."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from roofline import _native
from roofline.weights.schemes import SCHEMES, dequantize
from support.random_blocks import random_blocks

NAMES = sorted(SCHEMES)


def gaps(tier: str) -> list[str]:
    """What keeps a tier from running here. "amx-emulated" is the amx kernel over tiles in C++, for machines with avx512 only."""
    return _native.isa_gaps("avx512" if tier == "amx-emulated" else tier)


TIERS = [
    pytest.param(tier, marks=pytest.mark.skipif(bool(gaps(tier)), reason=f"{tier}: {gaps(tier)}"))
    for tier in ("ref", "avx2", "avx512", "amx", "amx-emulated")
]
FAST_TIERS = TIERS[1:]
NUM_TOKENS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 33]


def row_lens(scheme: str) -> list[int]:
    return {1: [1, 7, 64, 577], 32: [32, 64, 576, 896, 1952], 256: [256, 512, 1536]}[SCHEMES[scheme].block_len]


def quantized(x: np.ndarray) -> np.ndarray:
    """The activations that the kernels see: int8 codes times a scale per 32, in float64."""
    groups = x.reshape(len(x), -1, 32)
    largest = np.abs(groups).max(-1, keepdims=True)
    scale = largest / np.float32(127)
    inverse = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest > 0)
    return (np.rint(groups * inverse).astype(np.float64) * scale.astype(np.float64)).reshape(x.shape)


class Case:
    """One weight matrix with activations; `num_rows` is rarely a multiple of sixteen."""

    def __init__(self, scheme: str, num_rows: int, row_len: int, num_tokens: int) -> None:
        rng = np.random.default_rng(zlib.crc32(f"{scheme} {num_rows} {row_len}".encode()))
        raw = random_blocks(scheme, num_rows, row_len, rng)
        self.weight = _native.linear.pack(scheme, raw, row_len)
        self.dense = dequantize(SCHEMES[scheme], raw, num_rows, row_len).astype(np.float64)
        self.x = rng.standard_normal((num_tokens, row_len)).astype(np.float32)
        self.x[:, : row_len // 4] *= 30  # outlier groups
        if num_tokens > 2 and row_len >= 64:
            self.x[2, 32:64] = 0  # an all-zero group
        self.seen = quantized(self.x) if SCHEMES[scheme].is_quantized else self.x.astype(np.float64)

    def expected(self) -> np.ndarray:
        return self.seen @ self.dense.T

    def error(self, y: np.ndarray) -> float:
        """Largest error relative to the norms of the row of weights and of the token."""
        norms = np.linalg.norm(self.seen, axis=1)[:, None] * np.linalg.norm(self.dense, axis=1)[None, :]
        return float((np.abs(y - self.expected()) / np.maximum(norms, 1e-30)).max())


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and np.array_equal(a.view(np.uint32), b.view(np.uint32))


@pytest.mark.parametrize("scheme", NAMES)
def test_ref_is_near_float64(scheme: str) -> None:
    for row_len in row_lens(scheme):
        case = Case(scheme, 37, row_len, 5)
        assert case.error(_native.linear.matmul("ref", case.weight, case.x)) < 1e-6


@pytest.mark.parametrize("scheme", NAMES)
@pytest.mark.parametrize("tier", FAST_TIERS)
def test_tiers_equal_ref_bit_for_bit(tier: str, scheme: str) -> None:
    for row_len in row_lens(scheme):
        case = Case(scheme, 37, row_len, max(NUM_TOKENS))
        expected = _native.linear.matmul("ref", case.weight, case.x)
        for num_tokens in NUM_TOKENS:
            y = _native.linear.matmul(tier, case.weight, case.x[:num_tokens])
            assert same_bits(y, expected[:num_tokens]), (row_len, num_tokens)


@pytest.mark.parametrize("scheme", NAMES)
@pytest.mark.parametrize("tier", FAST_TIERS)
def test_every_number_of_row_blocks(tier: str, scheme: str) -> None:
    """1 to 19 row blocks: all ways in which streams and pairs of blocks run out."""
    case = Case(scheme, 19 * 16 - 3, 256, 9)
    expected = {m: _native.linear.matmul("ref", case.weight, case.x[:m]) for m in (1, 3, 9)}
    for begin, end in [(0, n) for n in range(1, 20)] + [(5, 6), (7, 19), (18, 19)]:
        columns = slice(begin * 16, end * 16)
        for num_tokens, whole in expected.items():
            y = _native.linear.matmul(tier, case.weight, case.x[:num_tokens], block_begin=begin, block_end=end)
            assert same_bits(np.ascontiguousarray(y[:, columns]), np.ascontiguousarray(whole[:, columns]))
            outside = np.delete(y, np.arange(len(case.dense))[columns], axis=1)
            assert not outside.any(), "columns of other row blocks were written"


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("scheme", ["F32", "F16", "BF16", "Q4_1", "Q5_0", "Q8_0", "Q2_K", "Q4_K", "Q6_K", "IQ4_XS"])
def test_a_row_is_the_same_whatever_is_beside_it(tier: str, scheme: str) -> None:
    case = Case(scheme, 50, 512, 33)
    whole = _native.linear.matmul(tier, case.weight, case.x)
    for m in (0, 1, 2, 8, 15, 32):
        assert same_bits(_native.linear.matmul(tier, case.weight, case.x[m : m + 1])[0], whole[m])


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("num_tokens", [1, 3, 7, 12, 21])
@pytest.mark.parametrize("scheme", ["F16", "Q5_0", "Q4_K", "Q2_K"])
def test_bias_residual_and_gather(tier: str, num_tokens: int, scheme: str) -> None:
    """y = y_old + (acc + bias) in that order, for rows of x in any order and more than once."""
    case = Case(scheme, 37, 2048, 8)
    rng = np.random.default_rng(num_tokens)
    ids = rng.integers(0, 8, num_tokens, dtype=np.int32)
    bias = rng.standard_normal(37).astype(np.float32)
    y_old = rng.standard_normal((num_tokens, 37)).astype(np.float32)
    acc = _native.linear.matmul("ref", case.weight, case.x)[ids]
    args = (tier, case.weight, case.x)
    assert same_bits(_native.linear.matmul(*args, row_ids=ids), acc)
    assert same_bits(_native.linear.matmul(*args, bias=bias, row_ids=ids), acc + bias)
    assert same_bits(_native.linear.matmul(*args, y_in=y_old, row_ids=ids), y_old + acc)
    assert same_bits(_native.linear.matmul(*args, bias=bias, y_in=y_old, row_ids=ids), y_old + (acc + bias))


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("scheme", ["Q4_0", "Q4_1", "Q8_0", "Q5_K", "Q6_K", "Q2_K", "IQ4_NL"])
def test_extreme_codes_and_activations_do_not_saturate(tier: str, scheme: str) -> None:
    """Every code at its largest against activations of one sign, the sum that would overflow 16 bits."""
    spec, row_len = SCHEMES[scheme], 512
    for fill in (0x00, 0x80, 0xFF):
        blocks = np.full(20 * row_len // spec.block_len * spec.block_bytes, fill, np.uint8).view(spec.layout)
        blocks["scale"] = -0.5
        for field in ("minimum", "min_scale"):
            if field in spec.layout.fields:
                blocks[field] = 0.25
        raw = blocks.view(np.uint8).reshape(20, -1)
        weight = _native.linear.pack(scheme, raw, row_len)
        dense = dequantize(spec, raw, 20, row_len).astype(np.float64)
        for sign in (1, -1):
            x = np.full((13, row_len), sign * 127, np.float32)
            y, expected = _native.linear.matmul(tier, weight, x), x.astype(np.float64) @ dense.T
            np.testing.assert_allclose(y, expected, rtol=1e-6, atol=1e-3)
            assert same_bits(y[0], _native.linear.matmul(tier, weight, x[:1])[0])


@pytest.mark.parametrize("tier", TIERS)
def test_zero_and_subnormal_scales(tier: str) -> None:
    raw = random_blocks("Q5_0", 32, 64, np.random.default_rng(1))
    blocks = raw.view(SCHEMES["Q5_0"].layout)
    blocks["scale"][::3] = 0
    blocks["scale"].view(np.uint16)[1::3] = 3  # a subnormal half
    weight = _native.linear.pack("Q5_0", raw, 64)
    dense = dequantize(SCHEMES["Q5_0"], raw, 32, 64).astype(np.float64)
    x = np.random.default_rng(2).standard_normal((11, 64)).astype(np.float32)
    x[3] *= 1e-30
    x[4] = 0
    y = _native.linear.matmul(tier, weight, x)
    expected = quantized(x) @ dense.T
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=np.abs(expected).max(1).max() * 1e-6)
    assert not y[4].any()
    assert np.abs(y[3]).max() > 0


@pytest.mark.parametrize("tier", TIERS)
def test_more_tokens_than_one_pass_of_scratch_holds(tier: str) -> None:
    case = Case("Q5_0", 33, 960, 1100)
    y = _native.linear.matmul(tier, case.weight, case.x)
    assert case.error(y) < 1e-6
    assert same_bits(y[1050:], _native.linear.matmul(tier, case.weight, case.x[1050:]))


@pytest.mark.parametrize("tier", TIERS)
def test_every_tier_names_its_kernel(tier: str) -> None:
    for scheme in NAMES:
        for num_tokens in (1, 4, 64):
            name = _native.linear.describe(tier, scheme, num_tokens)
            assert name.startswith(tier) or (tier.startswith("amx") and name.startswith(("amx", "avx512")))


def test_wrong_shapes_are_refused() -> None:
    weight = _native.linear.pack("F32", np.zeros((4, 32), np.uint8), 8)
    with pytest.raises(ValueError, match="row length"):
        _native.linear.matmul("ref", weight, np.zeros((1, 9), np.float32))
    with pytest.raises(ValueError, match="row id out of range"):
        _native.linear.matmul("ref", weight, np.zeros((1, 8), np.float32), row_ids=np.array([1], np.int32))
    with pytest.raises(ValueError, match="unknown tier"):
        _native.linear.matmul("sse9", weight, np.zeros((1, 8), np.float32))
    for blocks in ((0, 2), (-1, 1), (1, 0)):
        with pytest.raises(ValueError, match="not among the weight's 1"):
            _native.linear.matmul(
                "ref", weight, np.zeros((1, 8), np.float32), block_begin=blocks[0], block_end=blocks[1]
            )
    with pytest.raises(ValueError, match="takes weights"):
        _native.linear.bench("ref", [], 1, 0.1)
