"""Block sizes and decoders against the `gguf` package, bit for bit, on random, denormal, infinite and NaN scales."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from roofline.core.errors import ModelFormatError
from roofline.weights.schemes import SCHEMES, SCHEMES_BY_GGUF_ID, dequantize
from support.random_blocks import random_blocks

ALL_NAMES = sorted(SCHEMES)
FLOAT16_EDGES = np.array(
    [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x3C00], np.uint16
).view(np.float16)


def assert_same_bits(ours: np.ndarray, theirs: np.ndarray) -> None:
    """Equal in every bit, save that any NaN equals any NaN: its payload is the processor's choice."""
    nan = np.isnan(theirs)
    np.testing.assert_array_equal(np.isnan(ours), nan)
    np.testing.assert_array_equal(ours.view(np.uint32)[~nan], theirs.view(np.uint32)[~nan])


def gguf_dequantize(name: str, raw: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[name]).astype(np.float32)


@pytest.mark.parametrize("name", ALL_NAMES)
def test_sizes_and_ids_match_gguf_package(name: str) -> None:
    scheme = SCHEMES[name]
    kind = gguf.GGMLQuantizationType[name]
    assert (scheme.block_len, scheme.block_bytes) == gguf.GGML_QUANT_SIZES[kind]
    assert SCHEMES_BY_GGUF_ID[int(kind)] is scheme


@pytest.mark.parametrize("name", ALL_NAMES)
@pytest.mark.parametrize("num_rows", [1, 3, 37])
def test_dequantize_matches_gguf_package(name: str, num_rows: int) -> None:
    raw = random_blocks(name, num_rows, 768, np.random.default_rng(num_rows))
    ours = dequantize(SCHEMES[name], raw, num_rows, 768)
    assert np.isfinite(ours).all()
    assert 0.1 < np.abs(ours).max() < 8
    assert_same_bits(ours, gguf_dequantize(name, raw))


@pytest.mark.parametrize("name", ALL_NAMES)
def test_dequantize_any_bytes_matches_gguf_package(name: str) -> None:
    """All bytes random: scales take every exponent, infinities and NaN included."""
    row_bytes = SCHEMES[name].row_bytes(512)
    raw = np.random.default_rng(7).integers(0, 256, (400, row_bytes), dtype=np.uint8)
    assert_same_bits(dequantize(SCHEMES[name], raw, 400, 512), gguf_dequantize(name, raw))


@pytest.mark.parametrize("name", [name for name in ALL_NAMES if "scale" in (SCHEMES[name].layout.fields or {})])
def test_dequantize_edge_scales_match_gguf_package(name: str) -> None:
    scheme = SCHEMES[name]
    row_len = scheme.block_len * len(FLOAT16_EDGES)
    raw = random_blocks(name, len(FLOAT16_EDGES), row_len, np.random.default_rng(11))
    blocks = raw.reshape(-1).view(scheme.layout).reshape(len(FLOAT16_EDGES), -1)
    blocks["scale"] = FLOAT16_EDGES
    for field in {"minimum", "min_scale"} & set(scheme.layout.fields or {}):
        blocks[field] = FLOAT16_EDGES[:, None]
    assert_same_bits(dequantize(scheme, raw, len(FLOAT16_EDGES), row_len), gguf_dequantize(name, raw))


def test_mxfp4_every_exponent_matches_gguf_package() -> None:
    raw = random_blocks("MXFP4", 256, 32, np.random.default_rng(3))
    raw[:, 0] = np.arange(256)
    assert_same_bits(dequantize(SCHEMES["MXFP4"], raw, 256, 32), gguf_dequantize("MXFP4", raw))


@pytest.mark.parametrize("name", ["Q4_K", "Q8_0", "F32"])
def test_chunked_decoding_joins_without_a_seam(name: str) -> None:
    """More elements than one chunk (2^18), and not a whole number of chunks."""
    raw = random_blocks(name, 3, 1 << 17, np.random.default_rng(5))
    whole = dequantize(SCHEMES[name], raw, 3, 1 << 17)
    rows = np.concatenate([dequantize(SCHEMES[name], row, 1, 1 << 17) for row in raw])
    np.testing.assert_array_equal(whole, rows)


def test_quantized_then_dequantized_is_near_the_source() -> None:
    weights = np.random.default_rng(1).standard_normal((16, 256)).astype(np.float32)
    raw = gguf.quants.quantize(weights, gguf.GGMLQuantizationType.Q8_0)
    error = np.abs(dequantize(SCHEMES["Q8_0"], raw, 16, 256) - weights).max()
    assert error <= np.abs(weights).max() / 127


def test_dequantize_refuses_a_wrong_byte_count() -> None:
    with pytest.raises(ModelFormatError, match="need 36 u8 bytes"):
        dequantize(SCHEMES["Q4_0"], np.zeros(35, np.uint8), 1, 64)


def test_dequantize_refuses_a_ragged_row() -> None:
    with pytest.raises(ModelFormatError, match="multiple of 256"):
        dequantize(SCHEMES["Q4_K"], np.zeros(144, np.uint8), 1, 200)
