"""Paged attention on every tier: near float64, and a row's bits independent of tile, split, placement and tier."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from roofline import _native

native = _native.attention
TIERS = [
    pytest.param(t, marks=pytest.mark.skipif(bool(_native.isa_gaps(t)), reason=f"{t}: {_native.isa_gaps(t)}"))
    for t in ("ref", "avx2", "avx512")
]
FAST_TIERS = TIERS[1:]
FASTEST = next(t for t in ("avx512", "avx2", "ref") if not _native.isa_gaps(t))
BLOCK_LEN, CHUNK_LEN = 32, 256
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Shape:
    """Attention of the last `num_tokens` tokens of a sequence of `context`."""

    head_size: int = 64
    num_kv_heads: int = 2
    ratio: int = 3
    context: int = 70
    num_tokens: int = 9
    window: int = 0
    soft_cap: float = 0.0
    kv_type: str = "f16"

    @property
    def num_heads(self) -> int:
        return self.num_kv_heads * self.ratio

    @property
    def scale(self) -> float:
        return float(self.head_size**-0.5)


class Problem:
    """Random queries, keys and values; the cache lies in shuffled blocks of a pool full of `stale` bytes."""

    def __init__(self, shape: Shape, seed: int = 0, *, placement: int = 0, isa: str = "ref", stale: int = 0) -> None:
        self.shape = shape
        rng = np.random.default_rng(seed)
        kv_shape = (shape.context, shape.num_kv_heads * shape.head_size)
        self.k = rng.standard_normal(kv_shape).astype(np.float32)
        self.v = rng.standard_normal(kv_shape).astype(np.float32)
        self.q = (2 * rng.standard_normal((shape.num_tokens, shape.num_heads * shape.head_size))).astype(np.float32)
        num_blocks = -(-shape.context // BLOCK_LEN)
        block_bytes = native.head_bytes(shape.kv_type, shape.head_size) * shape.num_kv_heads + 64 * placement
        self.memory = np.full((num_blocks + 3, block_bytes), stale, np.uint8)
        order = np.random.default_rng(placement).permutation(num_blocks + 3)[:num_blocks]
        self.block_table = order.astype(np.int32)
        self.cache = native.Cache(self.memory, shape.kv_type, shape.num_kv_heads, shape.head_size)
        for position in range(shape.context):
            self.append(isa, position)

    def append(self, isa: str, position: int) -> None:
        self.cache.append(isa, self.block_table, position, self.k[position], self.v[position])

    def expected(self) -> NDArray[np.float64]:
        """float64 attention over the keys and values as the cache rounds them."""
        s = self.shape
        k, v = (rounded(x, s.kv_type).reshape(s.context, s.num_kv_heads, s.head_size) for x in (self.k, self.v))
        q = self.q.astype(np.float64).reshape(s.num_tokens, s.num_kv_heads, s.ratio, s.head_size)
        scores = np.einsum("tgrd,cgd->tgrc", q, k) * s.scale
        if s.soft_cap:
            scores = s.soft_cap * np.tanh(scores / s.soft_cap)
        position = np.arange(s.context - s.num_tokens, s.context)[:, None]
        other = np.arange(s.context)[None, :]
        seen = other <= position
        if s.window:
            seen &= other > position - s.window
        scores = np.where(seen[:, None, None, :], scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return np.einsum("tgrc,cgd->tgrd", weights, v).reshape(s.num_tokens, -1)

    def first_chunk(self, position: int) -> int:
        return max(0, position - self.shape.window + 1) // CHUNK_LEN if self.shape.window else 0

    def run(self, isa: str, *, tile_tokens: int = 0, split: bool = False) -> Floats:
        """The whole step in tiles of `tile_tokens` (0: as many as the executor takes); `split`: chunk by chunk, merged."""
        s = self.shape
        out = np.full_like(self.q, np.nan)
        step = native.Step(
            self.cache, self.q, out, num_heads=s.num_heads, scale=s.scale, soft_cap=s.soft_cap, window=s.window
        )
        tile_tokens = tile_tokens or max(1, native.TILE_ROWS // s.ratio)
        for kv_head in range(s.num_kv_heads):
            for row in range(0, s.num_tokens, tile_tokens):
                self.run_tile(step, isa, kv_head, row, min(tile_tokens, s.num_tokens - row), split=split)
        return out

    def run_tile(self, step: object, isa: str, kv_head: int, row: int, num_tokens: int, *, split: bool) -> None:
        position = self.shape.context - self.shape.num_tokens + row
        tile = {"block_table": self.block_table, "kv_head": kv_head, "first_row": row, "first_position": position}
        tile["num_tokens"] = num_tokens
        begin, end = self.first_chunk(position), (position + num_tokens + CHUNK_LEN - 1) // CHUNK_LEN
        if not split:
            step.tile(isa, **tile, chunk_begin=begin, chunk_end=end)  # type: ignore[attr-defined]
            return
        floats = native.partial_floats(num_tokens * self.shape.ratio, self.shape.head_size)
        partials = np.full(floats * (end - begin), np.nan, np.float32)
        for chunk in reversed(range(begin, end)):
            part = partials[floats * (chunk - begin) :]
            step.tile(isa, **tile, chunk_begin=chunk, chunk_end=chunk + 1, partials=part)  # type: ignore[attr-defined]
        step.merge(isa, **tile, num_chunks=end - begin, partials=partials)  # type: ignore[attr-defined]


def rounded(x: Floats, kv_type: str) -> NDArray[np.float64]:
    if kv_type == "f16":
        return x.astype(np.float16).astype(np.float64)
    if kv_type == "bf16":
        bits = x.view(np.uint32).astype(np.uint64)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)
    return x.astype(np.float64)


def bits(x: Floats) -> NDArray[np.uint32]:
    return (x + np.float32(0)).view(np.uint32)  # -0 counts as 0


def assert_near(problem: Problem, out: Floats) -> None:
    np.testing.assert_allclose(out, problem.expected(), rtol=0, atol=4e-6)


# ---- against float64 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("isa", TIERS)
@pytest.mark.parametrize("kv_type", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("head_size", [8, 16, 64, 80, 96, 128, 256])
def test_head_sizes(isa: str, kv_type: str, head_size: int) -> None:
    problem = Problem(Shape(head_size=head_size, kv_type=kv_type), isa=isa)
    assert_near(problem, problem.run(isa))


@pytest.mark.parametrize("isa", TIERS)
@pytest.mark.parametrize("ratio", [1, 2, 3, 5, 6, 7, 8, 12, 14, 16, 17, 35])
def test_ratios(isa: str, ratio: int) -> None:
    problem = Problem(Shape(head_size=16, ratio=ratio, context=45, num_tokens=20), isa=isa)
    assert_near(problem, problem.run(isa))


@pytest.mark.parametrize("isa", TIERS)
@pytest.mark.parametrize("context", [1, 2, 15, 16, 17, 31, 32, 33, 255, 256, 257, 300, 511, 513, 700])
def test_contexts(isa: str, context: int) -> None:
    for num_tokens in {1, min(context, 19)}:
        problem = Problem(Shape(head_size=16, num_kv_heads=1, ratio=7, context=context, num_tokens=num_tokens), isa=isa)
        assert_near(problem, problem.run(isa))


@pytest.mark.parametrize("isa", TIERS)
@pytest.mark.parametrize("window", [1, 5, 16, 33, 256, 512])
@pytest.mark.parametrize("context", [40, 300, 700])
def test_windows(isa: str, window: int, context: int) -> None:
    problem = Problem(Shape(head_size=16, context=context, num_tokens=30, window=window), isa=isa)
    assert_near(problem, problem.run(isa))


@pytest.mark.parametrize("isa", TIERS)
@pytest.mark.parametrize("soft_cap", [0.5, 50.0])
def test_soft_cap(isa: str, soft_cap: float) -> None:
    problem = Problem(Shape(soft_cap=soft_cap, context=300, window=100), isa=isa)
    assert_near(problem, problem.run(isa))


@pytest.mark.parametrize("isa", TIERS)
def test_lng01_window_counts_the_token_itself(isa: str) -> None:
    """As in transformers, position p sees p - window + 1 .. p: alike in prefill, chunked prefill and decode."""
    shape = Shape(head_size=16, window=16, context=60, num_tokens=60)
    whole = Problem(shape, isa=isa).run(isa)
    for position in (15, 16, 17, 40, 59):
        alone = Problem(replace(shape, context=60, num_tokens=60 - position), isa=isa)
        alone.q[:] = Problem(shape, isa=isa).q[position:]
        np.testing.assert_array_equal(bits(alone.run(isa, tile_tokens=1)), bits(whole[position:]))
    problem = Problem(shape, isa=isa)
    problem.v[:] = 0
    problem.v[10] = 1  # only the positions 10 .. 25 see token 10
    for position in range(60):
        problem.append(isa, position)
    seen = np.abs(problem.run(isa)).max(1) > 0
    np.testing.assert_array_equal(np.flatnonzero(seen), np.arange(10, 26))


@pytest.mark.parametrize("isa", TIERS)
def test_window_of_one_returns_the_value(isa: str) -> None:
    problem = Problem(Shape(window=1, ratio=1, kv_type="f32", context=40, num_tokens=40), isa=isa)
    np.testing.assert_array_equal(problem.run(isa), problem.v)


# ---- the numeric contract ---------------------------------------------------------------------------------------------------

shapes = st.builds(
    Shape,
    head_size=st.sampled_from([8, 16, 40, 64]),
    num_kv_heads=st.sampled_from([1, 2]),
    ratio=st.sampled_from([1, 2, 3, 6, 7, 14]),
    context=st.integers(40, 700),
    num_tokens=st.integers(1, 40),
    window=st.sampled_from([0, 0, 1, 5, 37, 512]),
    soft_cap=st.sampled_from([0.0, 30.0]),
    kv_type=st.sampled_from(["f32", "f16", "bf16"]),
)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(shape=shapes, tile_tokens=st.integers(1, 28), split=st.booleans(), placement=st.integers(1, 3))
def test_tiles_splits_and_placement_keep_the_bits(shape: Shape, tile_tokens: int, split: bool, placement: int) -> None:
    one_by_one = Problem(shape, isa=FASTEST).run(FASTEST, tile_tokens=1)
    other = Problem(shape, placement=placement, isa=FASTEST).run(FASTEST, tile_tokens=tile_tokens, split=split)
    np.testing.assert_array_equal(bits(one_by_one), bits(other))


@pytest.mark.parametrize("isa", FAST_TIERS)
@pytest.mark.parametrize("kv_type", ["f32", "f16", "bf16"])
@pytest.mark.parametrize(("head_size", "ratio"), [(8, 1), (40, 2), (64, 7), (80, 3), (128, 6), (64, 16)])
def test_tiers_agree_bit_for_bit(isa: str, kv_type: str, head_size: int, ratio: int) -> None:
    shape = Shape(head_size=head_size, ratio=ratio, kv_type=kv_type, context=300, num_tokens=17, num_kv_heads=1)
    for variant in (shape, replace(shape, window=40, soft_cap=20.0)):
        ours, ref = Problem(variant, isa=isa), Problem(variant)
        np.testing.assert_array_equal(ours.memory, ref.memory)
        np.testing.assert_array_equal(bits(ours.run(isa)), bits(ref.run("ref")))


@pytest.mark.parametrize("isa", TIERS)
@pytest.mark.parametrize("kv_type", ["f32", "f16", "bf16"])
def test_what_an_earlier_owner_left_in_a_block_is_never_seen(isa: str, kv_type: str) -> None:
    """Stale slots hold NaN (every byte 0xff): a NaN of another request may not reach this one."""
    for context in (1, 33, 49, 300):
        shape = Shape(head_size=64, context=context, num_tokens=min(context, 9), kv_type=kv_type)
        clean, dirty = Problem(shape, isa=isa), Problem(shape, isa=isa, stale=0xFF)
        np.testing.assert_array_equal(bits(clean.run(isa)), bits(dirty.run(isa)))


# ---- the append -------------------------------------------------------------------------------------------------------------


def stored(isa: str, kv_type: str, values: Floats) -> NDArray[np.uint16]:
    """What V holds after an append of `values` as one head."""
    memory = np.zeros((1, native.head_bytes(kv_type, len(values))), np.uint8)
    cache = native.Cache(memory, kv_type, 1, len(values))
    cache.append(isa, np.zeros(1, np.int32), 0, values, values)
    halves = memory[0].view(np.uint16)
    k = halves[: 32 * len(values)].reshape(2, len(values), 16)[0, :, 0]
    v = halves[32 * len(values) :].reshape(32, -1)[0]
    np.testing.assert_array_equal(v[: len(values)], k)
    assert not v[len(values) :].any()
    return k.copy()


def rounding_cases() -> Floats:
    """Each f16 and the exact middle above it, subnormals included, and random bits of every exponent."""
    halves = np.arange(0, 0x7BFF, dtype=np.uint16).view(np.float16).astype(np.float32)
    middles = (halves[1:] + halves[:-1]) / 2
    near = np.concatenate([np.nextafter(middles, np.float32(0)), np.nextafter(middles, np.float32(np.inf))])
    random = np.random.default_rng(0).integers(0, 1 << 32, 50000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    cases = np.concatenate([halves, middles, near, random[np.isfinite(random)]])
    return np.concatenate([cases, -cases]).astype(np.float32)


@pytest.mark.parametrize("isa", TIERS)
def test_append_rounds_f16_to_nearest_even_and_saturates(isa: str) -> None:
    values = rounding_cases()
    expected = np.clip(values, -65504, 65504).astype(np.float16)
    np.testing.assert_array_equal(stored(isa, "f16", values), expected.view(np.uint16))


@pytest.mark.parametrize("isa", TIERS)
def test_append_rounds_bf16_to_nearest_even_and_saturates(isa: str) -> None:
    values = rounding_cases()
    source = values.view(np.uint32).astype(np.uint64)
    expected = np.minimum((source & 0x7FFFFFFF) + 0x7FFF + (source >> 16 & 1), 0x7F7FFFFF) >> 16 | source >> 31 << 15
    np.testing.assert_array_equal(stored(isa, "bf16", values), expected.astype(np.uint16))


@pytest.mark.parametrize("isa", TIERS)
@pytest.mark.parametrize("kv_type", ["f16", "bf16"])
def test_append_of_infinity_saturates_and_nan_stays(isa: str, kv_type: str) -> None:
    largest = {"f16": 0x7BFF, "bf16": 0x7F7F}[kv_type]
    words = stored(isa, kv_type, np.array([np.inf, -np.inf, 1e30 if kv_type == "f16" else 3.4e38, np.nan], np.float32))
    assert words[:3].tolist() == [largest, largest | 0x8000, largest]
    assert words[3] & 0x7FFF > {"f16": 0x7C00, "bf16": 0x7F80}[kv_type]


# ---- NaN, bad arguments -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("isa", TIERS)
def test_nan_reaches_the_rows_that_see_it_and_no_others(isa: str) -> None:
    problem = Problem(Shape(head_size=16, ratio=2, context=40, num_tokens=8), isa=isa)
    problem.q[3, :16] = np.nan  # head 0 of token 3
    out = problem.run(isa)
    is_bad = np.isnan(out).reshape(8, 4, 16)
    assert is_bad[3, 0].all()
    is_bad[3, 0] = False
    assert not is_bad.any()


@pytest.mark.parametrize("isa", TIERS)
def test_huge_scores_do_not_overflow(isa: str) -> None:
    problem = Problem(Shape(head_size=16, context=300, num_tokens=4, kv_type="f32"), isa=isa)
    problem.q *= 1e4
    out = problem.run(isa)
    assert np.isfinite(out).all()
    np.testing.assert_allclose(out, problem.expected(), rtol=0, atol=2e-2)


def test_bad_arguments_are_refused() -> None:
    problem = Problem(Shape())
    with pytest.raises(ValueError, match="block_table is too short"):
        problem.cache.append("ref", problem.block_table[:1], 40, problem.k[0], problem.v[0])
    with pytest.raises(ValueError, match="block number out of range"):
        problem.cache.append("ref", problem.block_table + 100, 0, problem.k[0], problem.v[0])
    with pytest.raises(ValueError, match="unknown KV type"):
        native.Cache(problem.memory, "f8", 2, 64)
    with pytest.raises(ValueError, match="fewer bytes"):
        native.Cache(problem.memory, "f32", 2, 64)
