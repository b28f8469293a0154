"""Byte layout of every quantized block, and what its bytes mean as float32.

`schemes` lists these as records; the decoders are the oracle that all native kernels are tested against, so they are
written for reading. Arithmetic is float32, one rounding per operation, in the order that GGUF writers assume:
sub-block scale first, then times the code, then minus the minimum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Blocks = NDArray[Any]  # [num_blocks] in the scheme's layout
Floats = NDArray[np.float32]
Codes = NDArray[np.uint8]
Decoder = Callable[[Blocks], Floats]  # [num_blocks] -> [num_blocks, block_len]

Number = TypeVar("Number", np.float32, np.uint8)

Q4_0_LAYOUT = np.dtype([("scale", "<f2"), ("codes", "u1", 16)])
Q4_1_LAYOUT = np.dtype([("scale", "<f2"), ("minimum", "<f2"), ("codes", "u1", 16)])
Q5_0_LAYOUT = np.dtype([("scale", "<f2"), ("fifth_bits", "u1", 4), ("codes", "u1", 16)])
Q5_1_LAYOUT = np.dtype([("scale", "<f2"), ("minimum", "<f2"), ("fifth_bits", "u1", 4), ("codes", "u1", 16)])
Q8_0_LAYOUT = np.dtype([("scale", "<f2"), ("codes", "i1", 32)])
MXFP4_LAYOUT = np.dtype([("exponent", "u1"), ("codes", "u1", 16)])
IQ4_NL_LAYOUT = Q4_0_LAYOUT

# Super-blocks of 256. A two-dimensional field is [group of bytes, byte]: the bit fields of one group are consecutive
# runs of elements, lowest bits first.
Q2_K_LAYOUT = np.dtype([("sub_scales", "u1", 16), ("codes", "u1", (2, 32)), ("scale", "<f2"), ("min_scale", "<f2")])
Q3_K_LAYOUT = np.dtype(
    [
        ("third_bits", "u1", 32),
        ("codes", "u1", (2, 32)),
        ("sub_scales_low", "u1", 8),
        ("sub_scales_high", "u1", 4),
        ("scale", "<f2"),
    ]
)
Q4_K_LAYOUT = np.dtype([("scale", "<f2"), ("min_scale", "<f2"), ("sub_scales", "u1", (3, 4)), ("codes", "u1", (4, 32))])
Q5_K_LAYOUT = np.dtype(
    [
        ("scale", "<f2"),
        ("min_scale", "<f2"),
        ("sub_scales", "u1", (3, 4)),
        ("fifth_bits", "u1", 32),
        ("codes", "u1", (4, 32)),
    ]
)
Q6_K_LAYOUT = np.dtype(
    [("codes_low", "u1", (2, 64)), ("codes_high", "u1", (2, 32)), ("sub_scales", "i1", 16), ("scale", "<f2")]
)
IQ4_XS_LAYOUT = np.dtype(
    [("scale", "<f2"), ("sub_scales_high", "<u2"), ("sub_scales_low", "u1", 4), ("codes", "u1", (8, 16))]
)

# The 16 levels of the non-linear 4-bit code, denser near zero, times the block's scale.
IQ4_LEVELS: Floats = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
# E2M1 values times two, so that they are whole numbers; the scale is halved to match (OCP Microscaling 1.0, 5.3.3).
MXFP4_LEVELS: Floats = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)


def bit_fields(packed: Codes, width: int) -> Codes:
    """Fields of `width` bits of each byte, lowest first: [..., n] -> [..., 8 / width, n]."""
    shifts = np.arange(0, 8, width, dtype=np.uint8)[:, None]
    return (packed[..., None, :] >> shifts) & np.uint8((1 << width) - 1)


def _f32(values: NDArray[Any]) -> Floats:
    return values.astype(np.float32)


def _look_up(levels: Floats, codes: Codes) -> Floats:
    values: Floats = levels[codes]
    return values


def _per_sub_block(values: NDArray[Number], num_sub_blocks: int) -> NDArray[Number]:
    return values.reshape(len(values), num_sub_blocks, -1)


def _scaled(blocks: Blocks, sub_scales: NDArray[Any], field: str = "scale") -> Floats:
    """Float scale of each sub-block, shaped to multiply [num_blocks, num_sub_blocks, sub_block_len]."""
    return (_f32(blocks[field])[:, None] * _f32(sub_scales))[:, :, None]


def decode_f32(blocks: Blocks) -> Floats:
    return blocks[:, None]


def decode_f16(blocks: Blocks) -> Floats:
    return _f32(blocks)[:, None]


def decode_bf16(blocks: Blocks) -> Floats:
    return (blocks.astype(np.uint32) << np.uint32(16)).view(np.float32)[:, None]


def _codes_4bit(blocks: Blocks) -> Codes:
    """Elements 0..15 are the low nibbles of the 16 bytes and 16..31 the high ones."""
    return bit_fields(blocks["codes"], 4).reshape(len(blocks), 32)


def _codes_5bit(blocks: Blocks) -> Codes:
    fifth = np.unpackbits(blocks["fifth_bits"], axis=-1, bitorder="little")
    return _codes_4bit(blocks) | (fifth << np.uint8(4))


def decode_q4_0(blocks: Blocks) -> Floats:
    return _f32(blocks["scale"])[:, None] * (_f32(_codes_4bit(blocks)) - np.float32(8))


def decode_q4_1(blocks: Blocks) -> Floats:
    return _f32(blocks["scale"])[:, None] * _f32(_codes_4bit(blocks)) + _f32(blocks["minimum"])[:, None]


def decode_q5_0(blocks: Blocks) -> Floats:
    return _f32(blocks["scale"])[:, None] * (_f32(_codes_5bit(blocks)) - np.float32(16))


def decode_q5_1(blocks: Blocks) -> Floats:
    return _f32(blocks["scale"])[:, None] * _f32(_codes_5bit(blocks)) + _f32(blocks["minimum"])[:, None]


def decode_q8_0(blocks: Blocks) -> Floats:
    return _f32(blocks["scale"])[:, None] * _f32(blocks["codes"])


def decode_iq4_nl(blocks: Blocks) -> Floats:
    return _f32(blocks["scale"])[:, None] * _look_up(IQ4_LEVELS, _codes_4bit(blocks))


def _half_of_e8m0(exponent: Codes) -> Floats:
    """2^(e - 128). The two smallest are float32 denormals, so their bit is shifted inside the mantissa instead."""
    wide = exponent.astype(np.uint32)
    normal = (wide - np.uint32(1)) << np.uint32(23)
    denormal = np.uint32(0x0020_0000) << wide
    halved: Floats = np.where(wide < 2, denormal, normal).view(np.float32)
    return halved


def decode_mxfp4(blocks: Blocks) -> Floats:
    return _half_of_e8m0(blocks["exponent"])[:, None] * _look_up(MXFP4_LEVELS, _codes_4bit(blocks))


def decode_q2_k(blocks: Blocks) -> Floats:
    codes = _per_sub_block(_f32(bit_fields(blocks["codes"], 2)), 16)
    scales = _scaled(blocks, blocks["sub_scales"] & np.uint8(15))
    minimums = _scaled(blocks, blocks["sub_scales"] >> np.uint8(4), "min_scale")
    return scales * codes - minimums


def decode_q3_k(blocks: Blocks) -> Floats:
    low = _per_sub_block(bit_fields(blocks["codes"], 2), 16)
    third = _per_sub_block(bit_fields(blocks["third_bits"], 1), 16)
    codes = _f32(low | (third << np.uint8(2))) - np.float32(4)
    scales_low = bit_fields(blocks["sub_scales_low"], 4).reshape(-1, 16)
    scales_high = bit_fields(blocks["sub_scales_high"], 2).reshape(-1, 16)
    sub_scales = _f32(scales_low | (scales_high << np.uint8(4))) - np.float32(32)
    return _scaled(blocks, sub_scales) * codes


def _q4_k_sub_scales(packed: Codes) -> tuple[Codes, Codes]:
    """[num_blocks, 3, 4] bytes -> 6-bit scales and minimums, [num_blocks, 8] each.

    Sub-blocks 0..3 have their scale in the low six bits of row 0 and their minimum in those of row 1. Sub-blocks 4..7
    have their low four bits in row 2 (scale low, minimum high) and their top two bits above the six of rows 0 and 1.
    """
    first, second, third = packed[:, 0], packed[:, 1], packed[:, 2]
    top_of_scale = (first >> np.uint8(6)) << np.uint8(4)
    top_of_minimum = (second >> np.uint8(6)) << np.uint8(4)
    scales = np.concatenate([first & np.uint8(63), (third & np.uint8(15)) | top_of_scale], axis=1)
    minimums = np.concatenate([second & np.uint8(63), (third >> np.uint8(4)) | top_of_minimum], axis=1)
    return scales, minimums


def _decode_affine_k(blocks: Blocks, codes: Codes) -> Floats:
    sub_scales, sub_minimums = _q4_k_sub_scales(blocks["sub_scales"])
    scaled = _scaled(blocks, sub_scales) * _f32(codes)
    return scaled - _scaled(blocks, sub_minimums, "min_scale")


def decode_q4_k(blocks: Blocks) -> Floats:
    return _decode_affine_k(blocks, _per_sub_block(bit_fields(blocks["codes"], 4), 8))


def decode_q5_k(blocks: Blocks) -> Floats:
    low = _per_sub_block(bit_fields(blocks["codes"], 4), 8)
    fifth = _per_sub_block(bit_fields(blocks["fifth_bits"], 1), 8)
    return _decode_affine_k(blocks, low | (fifth << np.uint8(4)))


def decode_q6_k(blocks: Blocks) -> Floats:
    low = _per_sub_block(bit_fields(blocks["codes_low"], 4), 16)
    high = _per_sub_block(bit_fields(blocks["codes_high"], 2), 16)
    codes = _f32(low | (high << np.uint8(4))) - np.float32(32)
    return _scaled(blocks, blocks["sub_scales"]) * codes


def decode_iq4_xs(blocks: Blocks) -> Floats:
    # The nibbles of one byte are the scales of two neighbours, so the field axis goes last.
    low = np.swapaxes(bit_fields(blocks["sub_scales_low"], 4), -1, -2).reshape(-1, 8)
    high = (blocks["sub_scales_high"][:, None] >> np.arange(0, 16, 2, dtype=np.uint16)) & np.uint16(3)
    sub_scales = _f32(low | (high << np.uint16(4))) - np.float32(32)
    levels = _look_up(IQ4_LEVELS, bit_fields(blocks["codes"], 4))
    return _scaled(blocks, sub_scales) * _per_sub_block(levels, 8)
