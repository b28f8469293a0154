"""Row operations on every tier: near float64, equal to tier ref bit for bit, and within the row's own memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from roofline import _native

pw = _native.pointwise
TIERS = [
    pytest.param(t, marks=pytest.mark.skipif(bool(_native.isa_gaps(t)), reason=f"{t}: {_native.isa_gaps(t)}"))
    for t in ("ref", "avx2", "avx512")
]
FAST_TIERS = TIERS[1:]
LENS = [1, 2, 7, 15, 16, 17, 31, 32, 33, 64, 95, 576, 1000]
Floats = NDArray[np.float32]


def normal(len_: int, seed: int = 0, scale: float = 1.0) -> Floats:
    return (np.random.default_rng([seed, len_]).standard_normal(len_) * scale).astype(np.float32)


def framed(len_: int) -> tuple[Floats, Floats]:
    """An output of `len_` between guard values, and the whole array to see that they survive."""
    whole = np.full(len_ + 64, 1234.5, np.float32)
    return whole[32 : 32 + len_], whole


def frame_survives(whole: Floats, len_: int) -> bool:
    return bool((whole[:32] == 1234.5).all() and (whole[32 + len_ :] == 1234.5).all())


def rms_norm(isa: str, x: Floats, weight: Floats | None, eps: float = 1e-6, num_groups: int = 1) -> Floats:
    y = np.empty_like(x)
    pw.rms_norm(isa, x, weight, eps, num_groups, y)
    return y


def gated(isa: str, act: str, gate: Floats, up: Floats | None = None) -> Floats:
    y, whole = framed(len(gate))
    pw.gated_act(isa, gate, np.ones_like(gate) if up is None else up, act, y)
    assert frame_survives(whole, len(gate))
    return y.copy()


def softmax(isa: str, x: Floats) -> Floats:
    y, whole = framed(len(x))
    y[:] = x
    pw.softmax(isa, y)
    assert frame_survives(whole, len(x))
    return y.copy()


def soft_cap(isa: str, x: Floats, cap: float) -> Floats:
    y, whole = framed(len(x))
    y[:] = x
    pw.soft_cap(isa, y, cap)
    assert frame_survives(whole, len(x))
    return y.copy()


def quantize(isa: str, x: Floats) -> tuple[NDArray[np.int8], Floats, NDArray[np.int32]]:
    q = np.full((len(x) + 63) // 64 * 64, 99, np.int8)
    scale, sum16 = np.empty(len(x) // 32, np.float32), np.empty(len(x) // 16, np.int32)
    pw.quantize(isa, x, q, scale, sum16)
    return q, scale, sum16


def rope(isa: str, x: Floats, head_size: int, cos: Floats, sin: Floats, style: str) -> Floats:
    y, whole = framed(len(x))
    y[:] = x
    pw.rope(isa, y, head_size, cos, sin, style)
    assert frame_survives(whole, len(x))
    return y.copy()


# ---- against float64 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("isa", TIERS)
@pytest.mark.parametrize("len_", LENS)
def test_rms_norm(isa: str, len_: int) -> None:
    x, weight = normal(3 * len_), normal(len_, seed=1)
    groups = x.reshape(3, len_).astype(np.float64)
    expected = groups / np.sqrt((groups**2).mean(1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(rms_norm(isa, x, None, num_groups=3).reshape(3, len_), expected, rtol=1e-6, atol=0)
    np.testing.assert_allclose(rms_norm(isa, x, weight, num_groups=3).reshape(3, len_), expected * weight, rtol=1e-6)


@pytest.mark.parametrize("isa", TIERS)
def test_rms_norm_in_place(isa: str) -> None:
    x = normal(577)
    expected = rms_norm(isa, x, None)
    pw.rms_norm(isa, x, None, 1e-6, 1, x)
    np.testing.assert_array_equal(x, expected)


def exp_inputs() -> Floats:
    return np.concatenate([np.linspace(-87, 87.9, 40001), np.linspace(-1e-3, 1e-3, 999), [0.0, -0.0]]).astype(
        np.float32
    )


@pytest.mark.parametrize("isa", TIERS)
def test_silu_relative_error(isa: str) -> None:
    x = exp_inputs()
    exact = x.astype(np.float64) / (1 + np.exp(-x.astype(np.float64)))
    np.testing.assert_allclose(gated(isa, "silu", x), exact, rtol=3e-7, atol=0)


@pytest.mark.parametrize("isa", TIERS)
def test_gelu_error_is_proportional_to_x(isa: str) -> None:
    x = np.concatenate([np.linspace(-12, 12, 20001), [0.0, 1e-20, -3e4, 3e4]]).astype(np.float32)
    wide = x.astype(np.float64)
    exact = 0.5 * wide * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)))
    assert (np.abs(gated(isa, "gelu_tanh", x) - exact) <= 1e-6 * np.abs(wide)).all()


@pytest.mark.parametrize("isa", TIERS)
def test_exp_within_two_ulp(isa: str) -> None:
    """softmax over (x, 0) gives exp(x) / (1 + exp(x)); for x < -20 that is exp(x) to a few parts in 1e9."""
    for x in np.linspace(-87, -20, 2001).astype(np.float32):
        value = softmax(isa, np.array([x, 0.0], np.float32))[0]
        exact = np.exp(np.float64(x))
        assert abs(value - exact) <= 2 * np.spacing(np.float32(exact)) + 3e-9 * exact


@pytest.mark.parametrize("isa", TIERS)
@pytest.mark.parametrize("len_", LENS)
def test_softmax(isa: str, len_: int) -> None:
    x = normal(len_, scale=8)
    exact = np.exp((x - x.max()).astype(np.float64))  # the float32 difference is part of the definition
    np.testing.assert_allclose(softmax(isa, x), exact / exact.sum(), rtol=1e-6, atol=1e-38)


@pytest.mark.parametrize("isa", TIERS)
def test_softmax_of_minus_infinity_is_zero(isa: str) -> None:
    x = np.array([1.0, -np.inf, 1.0, -np.inf] * 5, np.float32)
    np.testing.assert_array_equal(softmax(isa, x), np.array([0.1, 0, 0.1, 0] * 5, np.float32))


@pytest.mark.parametrize("isa", TIERS)
@pytest.mark.parametrize("cap", [1.0, 30.0, 50.0])
def test_soft_cap(isa: str, cap: float) -> None:
    x = np.concatenate([np.linspace(-8 * cap, 8 * cap, 4003), [1e-6, -1e-9, 0.0, np.inf, -np.inf]]).astype(np.float32)
    np.testing.assert_allclose(soft_cap(isa, x, cap), cap * np.tanh(x.astype(np.float64) / cap), rtol=5e-7, atol=0)


@pytest.mark.parametrize("isa", TIERS)
def test_sigmoid(isa: str) -> None:
    for x in np.linspace(-87, 90, 501).astype(np.float32):
        exact = 1 / (1 + np.exp(-np.float64(x)))
        assert abs(pw.sigmoid(isa, float(x)) - exact) <= 3e-7 * exact
    assert pw.sigmoid(isa, -np.inf) == 0.0
    assert np.isnan(pw.sigmoid(isa, np.nan))


@pytest.mark.parametrize("isa", TIERS)
@pytest.mark.parametrize("len_", LENS)
def test_sums_products_and_dot(isa: str, len_: int) -> None:
    a, b = normal(len_), normal(len_, seed=1)
    y, whole = framed(len_)
    pw.add(isa, a, b, y)
    np.testing.assert_array_equal(y, a + b)
    pw.scale(isa, a, 0.3, y)
    np.testing.assert_array_equal(y, a * np.float32(0.3))
    y[:] = b
    pw.scaled_add(isa, a, 0.3, y)
    np.testing.assert_allclose(y, a.astype(np.float64) * np.float32(0.3) + b, rtol=1e-6, atol=1e-7)
    assert frame_survives(whole, len_)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert abs(pw.dot(isa, a, b) - exact) <= 1e-6 * (np.abs(a) @ np.abs(b))


@pytest.mark.parametrize("isa", TIERS)
@pytest.mark.parametrize("style", ["half", "interleaved"])
@pytest.mark.parametrize(("head_size", "rotary_len"), [(8, 8), (64, 64), (80, 32), (96, 96), (128, 128), (256, 64)])
def test_rope(isa: str, style: str, head_size: int, rotary_len: int) -> None:
    angle = np.random.default_rng(0).uniform(0, 6, rotary_len // 2)
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    x = normal(3 * head_size)
    heads = x.reshape(3, head_size).astype(np.float64)
    first = np.arange(rotary_len // 2) * (2 if style == "interleaved" else 1)
    second = first + (1 if style == "interleaved" else rotary_len // 2)
    expected = heads.copy()
    expected[:, first] = heads[:, first] * cos - heads[:, second] * sin
    expected[:, second] = heads[:, second] * cos + heads[:, first] * sin
    np.testing.assert_allclose(rope(isa, x, head_size, cos, sin, style).reshape(3, -1), expected, rtol=0, atol=1e-6)


# ---- quantize ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("isa", TIERS)
@pytest.mark.parametrize("len_", [32, 64, 96, 576, 896])
def test_quantize_is_the_definition(isa: str, len_: int) -> None:
    x = normal(len_, scale=5)
    x[:32] = np.arange(-16, 16) + np.float32(0.5)  # many ties when the largest is 127 / 8
    x[0] = 127 / 8
    q, scale, sum16 = quantize(isa, x)
    groups = x.reshape(-1, 32)
    largest = np.abs(groups).max(1)
    np.testing.assert_array_equal(scale, largest / np.float32(127))
    codes = np.rint(groups * (np.float32(127) / largest)[:, None]).astype(np.int8).ravel()
    np.testing.assert_array_equal(q[:len_], codes)
    assert not q[len_:].any()
    np.testing.assert_array_equal(sum16, codes.reshape(-1, 16).astype(np.int32).sum(1))


@pytest.mark.parametrize("isa", TIERS)
@pytest.mark.parametrize("value", [0.0, 1e-42])
def test_quantize_without_finite_inverse_is_zero(isa: str, value: float) -> None:
    q, scale, sum16 = quantize(isa, np.full(32, value, np.float32))
    assert not q.any()
    assert not scale.any()
    assert not sum16.any()


@pytest.mark.parametrize("isa", TIERS)
@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", [0, 13, 31])
def test_quantize_keeps_bad_values_visible(isa: str, value: float, where: int) -> None:
    """0 * scale is NaN in every product, so an overflow can't come out as a plausible number."""
    x = normal(64)
    x[32 + where] = value
    q, scale, _ = quantize(isa, x)
    assert np.isfinite(scale[0])
    assert not np.isfinite(scale[1])
    assert not q[32:].any()


# ---- argmax, NaN ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("isa", TIERS)
@pytest.mark.parametrize("len_", LENS)
def test_argmax(isa: str, len_: int) -> None:
    for seed in range(5):
        x = np.random.default_rng(seed).integers(-3, 3, len_).astype(np.float32)  # many equal maxima
        assert pw.argmax(isa, x) == int(np.argmax(x))
    assert pw.argmax(isa, np.full(len_, -np.inf, np.float32)) == 0


@pytest.mark.parametrize("isa", TIERS)
def test_argmax_refuses_nan(isa: str) -> None:
    for where in (0, 5, 16, 99):
        x = normal(100)
        x[where] = np.nan
        assert pw.argmax(isa, x) == -1
    assert pw.argmax(isa, np.empty(0, np.float32)) == -1


@pytest.mark.parametrize("isa", TIERS)
@pytest.mark.parametrize("bits", [0x7FC00000, 0xFFC00000, 0x7F800001, 0x7FC001FF])
def test_nan_in_nan_out(isa: str, bits: int) -> None:
    x = normal(40)
    x.view(np.uint32)[[3, 37]] = bits
    is_bad = np.isnan(x)
    for act in ("silu", "gelu_tanh"):
        np.testing.assert_array_equal(np.isnan(gated(isa, act, x)), is_bad)
    np.testing.assert_array_equal(np.isnan(soft_cap(isa, x, 30.0)), is_bad)
    assert np.isnan(softmax(isa, x)).all()
    assert np.isnan(rms_norm(isa, x, None)).all()


# ---- tiers agree ------------------------------------------------------------------------------------------------------------


def wild(len_: int, seed: int) -> Floats:
    """Random magnitudes over the whole float range, with zeros of both signs."""
    rng = np.random.default_rng([seed, len_])
    x = (rng.standard_normal(len_) * 10.0 ** rng.uniform(-30, 12, len_)).astype(np.float32)
    x[rng.random(len_) < 0.1] = 0.0
    x[rng.random(len_) < 0.1] = -0.0
    return x


OPERATIONS: dict[str, Callable[[str, Floats], Floats]] = {
    "rms_norm": lambda isa, x: rms_norm(isa, x, x),
    "silu": lambda isa, x: gated(isa, "silu", x, x[::-1].copy()),
    "gelu_tanh": lambda isa, x: gated(isa, "gelu_tanh", x),
    "softmax": softmax,
    "soft_cap": lambda isa, x: soft_cap(isa, x, 30.0),
    "sigmoid": lambda isa, x: np.array([pw.sigmoid(isa, float(v)) for v in x], np.float32),
    "dot": lambda isa, x: np.array([pw.dot(isa, x, x)], np.float32),
    "rope half": lambda isa, x: rope(isa, np.resize(x, 96), 48, x[:1], x[-1:], "half"),
    "rope interleaved": lambda isa, x: rope(isa, np.resize(x, 96), 48, x[:1], x[-1:], "interleaved"),
    "quantize": lambda isa, x: np.concatenate([a.astype(np.float32) for a in quantize(isa, np.resize(x, 96))]),
}


@pytest.mark.parametrize("isa", FAST_TIERS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_tiers_agree_bit_for_bit(isa: str, operation: str) -> None:
    for len_ in LENS:
        for x in (normal(len_), normal(len_, scale=30), wild(len_, 1)):
            ours, ref = OPERATIONS[operation](isa, x), OPERATIONS[operation]("ref", x)
            np.testing.assert_array_equal(np.isnan(ours), np.isnan(ref))
            same = (ours.view(np.uint32) == ref.view(np.uint32)) | np.isnan(ref)
            assert same.all(), (len_, x[: len(same)][~same[: len(x)]][:4])


def test_bad_arguments_are_refused() -> None:
    x = normal(33)
    with pytest.raises(ValueError, match="multiple of 32"):
        quantize("ref", x)
    with pytest.raises(ValueError, match="unknown tier"):
        pw.argmax("sse9", x)
    with pytest.raises(ValueError, match="whole number of heads"):
        pw.rope("ref", x, 16, x[:4], x[:4], "half")
