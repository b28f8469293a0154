"""Rotary embedding with its scaling schemes: from a RopeConfig to the table of frequencies that a program holds.

Config readers make RopeConfigs, families call `rope_spec`. Steps are rounded to float32 one by one, as the reference
implementations round them: at position 60 000 one last place of a frequency already is 0.004 rad.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from roofline.core.batch import Float32
from roofline.core.errors import ModelFormatError, UnsupportedModelError
from roofline.models.fields import Fields
from roofline.program.ops import RopeSpec, RopeStyle


@dataclass(frozen=True)
class LinearScaling:
    """Positions are divided by `factor` (position interpolation, arXiv 2306.15595)."""

    factor: float


@dataclass(frozen=True)
class DynamicNtk:
    """The base grows with the length once it is past `context_len`; the length is the resolved max_context."""

    factor: float
    context_len: int


@dataclass(frozen=True)
class Yarn:
    """Interpolates slow frequencies, keeps fast ones, ramps between (arXiv 2309.00071)."""

    factor: float
    context_len: int  # of pretraining
    attention_factor: float
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True


@dataclass(frozen=True)
class Llama3:
    """Divides frequencies with wavelengths past context_len / low by `factor`, with a smooth step up to context_len / high."""

    factor: float
    context_len: int  # of pretraining
    low_freq_factor: float
    high_freq_factor: float


@dataclass(frozen=True)
class LongRope:
    """One divisor per frequency, from `long` when the resolved max_context is past context_len, else from `short`
    (arXiv 2402.13753). A program has one table, so the choice is made once and not per sequence."""

    short: tuple[float, ...]
    long: tuple[float, ...]
    context_len: int  # of pretraining
    attention_factor: float


@dataclass(frozen=True)
class FrequencyFactors:
    """One divisor per frequency, whatever the length: how GGUF stores Llama 3's scaling (`rope_freqs.weight`)."""

    factors: tuple[float, ...]


RopeScaling = LinearScaling | DynamicNtk | Yarn | Llama3 | LongRope | FrequencyFactors
SCALING_TYPES = ("default", "linear", "dynamic", "yarn", "llama3", "longrope")


@dataclass(frozen=True)
class RopeConfig:
    """Base `theta`, the R elements of each head that turn, and the scaling scheme or none."""

    theta: float
    rotary_len: int
    scaling: RopeScaling | None = None

    def __post_init__(self) -> None:
        if self.theta <= 1:
            raise ModelFormatError(f"rotary base {self.theta} must be above 1")
        if isinstance(self.scaling, DynamicNtk) and self.rotary_len <= 2:
            raise ModelFormatError(f"dynamic rope scaling needs more than {self.rotary_len} rotary elements")


def rope_spec(rope: RopeConfig, style: RopeStyle, max_context_len: int) -> RopeSpec:
    """Fold theta and scaling into frequencies; `max_context_len` decides the schemes that depend on length."""
    attention_factor = rope.scaling.attention_factor if isinstance(rope.scaling, Yarn | LongRope) else 1.0
    table = inv_freq(rope, max_context_len)
    return RopeSpec(rope.rotary_len, style, tuple(float(value) for value in table), attention_factor)


def inv_freq(rope: RopeConfig, max_context_len: int) -> Float32:
    """Frequencies [R/2] in radians per position."""
    plain = _plain_inv_freq(rope.theta, rope.rotary_len)
    match rope.scaling:
        case None:
            return plain
        case LinearScaling(factor):
            return plain / np.float32(factor)
        case DynamicNtk():
            return _dynamic_inv_freq(rope, rope.scaling, max_context_len)
        case Yarn():
            return _yarn_inv_freq(rope, rope.scaling)
        case Llama3():
            return _llama3_inv_freq(plain, rope.scaling)
        case LongRope(short, long, context_len):
            return _divided(rope, long if max_context_len > context_len else short)
        case FrequencyFactors(factors):
            return _divided(rope, factors)


def _powers(theta: float, rotary_len: int) -> Float32:
    exponents = np.arange(0, rotary_len, 2, dtype=np.float32) / np.float32(rotary_len)
    return np.power(theta, exponents.astype(np.float64)).astype(np.float32)


def _plain_inv_freq(theta: float, rotary_len: int) -> Float32:
    return np.float32(1.0) / _powers(theta, rotary_len)


def _divided(rope: RopeConfig, factors: tuple[float, ...]) -> Float32:
    if len(factors) != rope.rotary_len // 2:
        raise ModelFormatError(
            f"rope scaling has {len(factors)} factors, but {rope.rotary_len} rotary elements need {rope.rotary_len // 2}"
        )
    return np.float32(1.0) / (np.asarray(factors, np.float32) * _powers(rope.theta, rope.rotary_len))


def _dynamic_inv_freq(rope: RopeConfig, scaling: DynamicNtk, max_context_len: int) -> Float32:
    length = max(max_context_len, scaling.context_len)
    growth = scaling.factor * length / scaling.context_len - (scaling.factor - 1)
    theta = rope.theta * growth ** (rope.rotary_len / (rope.rotary_len - 2))
    return _plain_inv_freq(theta, rope.rotary_len)


def _yarn_inv_freq(rope: RopeConfig, scaling: Yarn) -> Float32:
    def dimension_of(num_rotations: float) -> float:
        """The pair that turns `num_rotations` times over the pretraining context."""
        turns = scaling.context_len / (num_rotations * 2 * math.pi)
        return rope.rotary_len * math.log(turns) / (2 * math.log(rope.theta))

    low, high = dimension_of(scaling.beta_fast), dimension_of(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.rotary_len - 1)
    pairs = np.arange(rope.rotary_len // 2, dtype=np.float32)
    # A width of zero would divide by zero; the smallest ramp keeps the step between two neighbours.
    ramp = np.clip((pairs - np.float32(low)) / np.float32((high - low) or 0.001), 0, 1).astype(np.float32)
    powers = _powers(rope.theta, rope.rotary_len)
    interpolated = np.float32(1.0) / (np.float32(scaling.factor) * powers)
    keep = np.float32(1.0) - ramp
    return np.asarray(interpolated * (np.float32(1.0) - keep) + np.float32(1.0) / powers * keep, np.float32)


def _llama3_inv_freq(plain: Float32, scaling: Llama3) -> Float32:
    factor = np.float32(scaling.factor)
    wavelength = np.float32(2 * math.pi) / plain
    low = np.float32(scaling.context_len / scaling.low_freq_factor)
    high = np.float32(scaling.context_len / scaling.high_freq_factor)
    smooth = (np.float32(scaling.context_len) / wavelength - np.float32(scaling.low_freq_factor)) / np.float32(
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    blended = (np.float32(1.0) - smooth) * plain / factor + smooth * plain
    scaled = np.where(wavelength > low, plain / factor, blended)
    return np.where(wavelength < high, plain, scaled).astype(np.float32)


def yarn_attention_factor(factor: float, mscale: float = 1.0) -> float:
    """Growth of cos and sin that YaRN pairs with `factor`."""
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def longrope_attention_factor(factor: float, context_len: int) -> float:
    """Growth of cos and sin that LongRoPE pairs with `factor` = new over old context length."""
    return 1.0 if factor <= 1 or context_len <= 1 else math.sqrt(1 + math.log(factor) / math.log(context_len))


def scaling_from_huggingface(
    parameters: Mapping[str, Any], *, context_len: int, original_context_len: int | None
) -> RopeScaling | None:
    """Scaling of a `rope_scaling` / `rope_parameters` dict of either generation ("type", or "rope_type").

    `original_context_len` is the top-level `original_max_position_embeddings`, which wins over the dict's own.
    Raises UnsupportedModelError for an unknown type, ModelFormatError for a missing key.
    """
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    fields = Fields(parameters, f"rope scaling {kind!r}")
    old_len = original_context_len or fields.count("original_max_position_embeddings", context_len)
    match kind:
        case None | "default":
            return None
        case "linear":
            return LinearScaling(fields.positive("factor"))
        case "dynamic":
            return DynamicNtk(fields.positive("factor"), context_len)
        case "yarn" if not fields.has("short_factor"):
            return _yarn_from_huggingface(fields, context_len, old_len)
        case "llama3":
            return _llama3_from_huggingface(fields, old_len)
        case "longrope" | "su" | "yarn":  # the older names that Phi-3 was published with
            return _longrope_from_huggingface(fields, context_len, old_len)
    raise UnsupportedModelError(f"rope scaling type {kind!r} is unknown", hint=f"known: {', '.join(SCALING_TYPES)}")


def _llama3_from_huggingface(fields: Fields, old_len: int) -> Llama3:
    low, high = fields.positive("low_freq_factor"), fields.positive("high_freq_factor")
    if high <= low:
        raise fields.error("high_freq_factor", f"is {high}, not above low_freq_factor {low}")
    return Llama3(fields.positive("factor"), old_len, low, high)


def _yarn_from_huggingface(fields: Fields, context_len: int, old_len: int) -> Yarn:
    factor = fields.positive("factor", context_len / old_len)
    mscale, mscale_all = fields.number("mscale", 0.0), fields.number("mscale_all_dim", 0.0)
    if mscale and mscale_all:
        default = yarn_attention_factor(factor, mscale) / yarn_attention_factor(factor, mscale_all)
    else:
        default = yarn_attention_factor(factor)
    return Yarn(
        factor=factor,
        context_len=old_len,
        attention_factor=fields.positive("attention_factor", default),
        beta_fast=fields.positive("beta_fast", 32.0),
        beta_slow=fields.positive("beta_slow", 1.0),
        truncate=fields.boolean("truncate", default=True),
    )


def _longrope_from_huggingface(fields: Fields, context_len: int, old_len: int) -> LongRope:
    factor = fields.positive("factor", context_len / old_len)
    return LongRope(
        short=fields.numbers("short_factor"),
        long=fields.numbers("long_factor"),
        context_len=old_len,
        attention_factor=fields.positive("attention_factor", longrope_attention_factor(factor, old_len)),
    )
