"""Every field of SamplingParams has its range, and errors name the field and the value."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from roofline.core.errors import RequestError
from roofline.core.sampling import SamplingParams

BAD: list[tuple[str, Any]] = [
    *(("max_tokens", v) for v in (0, -1, 1.5, "8", True, math.nan)),
    *(("min_tokens", v) for v in (-1, True, None)),
    *(("temperature", v) for v in (-0.1, math.nan, math.inf, "1", None, True)),
    *(("top_k", v) for v in (-5, -2, 1.0, True, None)),
    *(("top_p", v) for v in (0, 0.0, -1, 1.1, math.nan, None)),
    *(("min_p", v) for v in (-1, 2, math.nan)),
    *(("repetition_penalty", v) for v in (0, -1, 11, math.inf)),
    *(("presence_penalty", v) for v in (-2.1, 2.1, math.nan)),
    *(("frequency_penalty", v) for v in (-2.1, 2.1, "0")),
    *(("seed", v) for v in (-1, 2**63, 1.0, True, "7")),
    *(("logprobs", v) for v in (-1, 21, 10**9, True)),
    *(("stop", v) for v in ("", [""], 5, [1], ["x"] * 10_000, {"a": 1})),
    *(("stop_token_ids", v) for v in ([-1], "12", [1.5], [True], 7)),
    *(("logit_bias", v) for v in ({-1: 5}, {"abc": 5}, {5: 101}, {5: "NaN"}, {5: math.nan}, [(1, 2)])),
    *(("ignore_eos", v) for v in (1, "true", None)),
    *(("skip_special_tokens", v) for v in (0, None)),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_smp10_values_out_of_range_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(RequestError, match=name) as caught:
        SamplingParams(**{name: value})
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", ["temperature", "seed", "frequency_penalty", "logprobs", "top_k", "min_p"])
def test_smp06_zero_is_a_value_and_not_unset(name: str) -> None:
    assert getattr(SamplingParams(**{name: 0}), name) == 0


def test_smp03_seeds_over_the_whole_range_are_kept() -> None:
    assert [SamplingParams(seed=seed).seed for seed in (0, 2**31, 2**63 - 1)] == [0, 2**31, 2**63 - 1]
    assert SamplingParams(seed=None).seed is None


def test_numpy_numbers_are_numbers() -> None:
    params = SamplingParams(max_tokens=np.int64(5), temperature=np.float32(0.5), stop_token_ids=np.array([1, 2]))  # type: ignore[arg-type]
    assert (params.max_tokens, params.temperature, params.stop_ids) == (5, 0.5, (1, 2))
    assert type(params.max_tokens) is int


def test_stop05_forms_of_stop() -> None:
    assert SamplingParams(stop=None).stop_strings == SamplingParams(stop=[]).stop_strings == ()
    assert SamplingParams(stop="X").stop_strings == SamplingParams(stop=["X"]).stop_strings == ("X",)


def test_smp09_ids_beyond_the_vocabulary_are_refused_by_id() -> None:
    for params in (SamplingParams(logit_bias={99_999_999: 5}), SamplingParams(stop_token_ids=[99_999_999])):
        with pytest.raises(RequestError, match="99999999"):
            params.check_vocab(49_152)
    SamplingParams(logit_bias={49_151: 5}, stop_token_ids=[0]).check_vocab(49_152)


def test_min_tokens_above_max_tokens_is_refused() -> None:
    with pytest.raises(RequestError, match="min_tokens"):
        SamplingParams(max_tokens=4, min_tokens=5)


@pytest.mark.parametrize("temperature", [0, 5e-324, 1e-8, 1e-4])
def test_smp10_tiny_temperatures_are_greedy(temperature: float) -> None:
    assert SamplingParams(temperature=temperature).is_greedy
