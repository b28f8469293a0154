"""Sampling parameters of one request, checked when they are made: every field has its range, and nothing is read by truthiness.

Frontends make them, the sampler reads them. What each setting does to the logits, and in which order, stands in
native/kernels/sampling/contract.h.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roofline.core.errors import RequestError

MAX_LOGPROBS = 20
"""Most alternatives that a request may ask for at each token, as in the OpenAI API."""
MAX_STOP_STRINGS = 64
MAX_STOP_LEN = 1024
MAX_SEED = 2**63 - 1
GREEDY_BELOW = 1e-3
"""Temperatures under this act as 0: dividing by them only rounds the same choice."""


@dataclass(frozen=True)
class SamplingParams:
    """How the tokens of one request are chosen and when it ends. Raises RequestError naming the field, the value and the range.

    max_tokens           tokens to generate at most; None: as many as the context holds
    min_tokens           end tokens and stop_token_ids are banned until so many are generated
    temperature          [0, inf); 0, and anything below 0.001, is greedy
    top_k                tokens kept, by rank; 0 and -1: all
    top_p                (0, 1]: fewest tokens, by rank, whose probability reaches it
    min_p                [0, 1]: least probability relative to the likeliest token
    repetition_penalty   [0.01, 10]: logits of tokens in prompt or answer are divided (if > 0) or multiplied by it
    presence_penalty     [-2, 2], subtracted once for a generated token
    frequency_penalty    [-2, 2], subtracted as often as a token was generated
    logit_bias           token id -> [-100, 100], added to its logit
    seed                 [0, 2^63): the same seed gives the same draws whatever else runs; None: a random one, told in the result
    stop                 strings that end the answer and are cut from it
    stop_token_ids       token ids that end the answer, beside the model's end tokens
    ignore_eos           go on after the model's end tokens
    logprobs             None, or how many alternatives (0 .. 20) to report beside the chosen token's log-probability
    skip_special_tokens  leave special tokens out of the text
    """

    max_tokens: int | None = 256
    min_tokens: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    stop: str | Sequence[str] | None = ()
    stop_token_ids: Iterable[int] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    skip_special_tokens: bool = True

    def __post_init__(self) -> None:
        put = object.__setattr__
        for name, low, high in _INTEGERS:
            value = getattr(self, name)
            if value is not None or name not in _OPTIONAL:
                put(self, name, integer(name, value, low, high))
        for name, least, most in _NUMBERS:
            put(self, name, number(name, getattr(self, name), least, most))
        if self.top_p == 0:
            raise _out_of_range("top_p", self.top_p, "above 0 and at most 1", hint="top_k=1 keeps one token")
        for name in ("ignore_eos", "skip_special_tokens"):
            if not isinstance(getattr(self, name), bool):
                raise _out_of_range(name, getattr(self, name), "true or false")
        put(self, "stop", _stop_strings(self.stop))
        put(self, "stop_token_ids", token_ids("stop_token_ids", self.stop_token_ids))
        put(self, "logit_bias", _logit_bias(self.logit_bias))
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise _out_of_range("min_tokens", self.min_tokens, f"at most max_tokens={self.max_tokens}")

    @property
    def is_greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW or self.top_k == 1

    @property
    def stop_strings(self) -> tuple[str, ...]:
        assert isinstance(self.stop, tuple)  # __post_init__ made it one
        return self.stop

    @property
    def stop_ids(self) -> tuple[int, ...]:
        assert isinstance(self.stop_token_ids, tuple)
        return self.stop_token_ids

    def check_vocab(self, vocab_size: int) -> None:
        """Raise RequestError for a token id that the model's logits don't have."""
        for name, ids in (("logit_bias", self.logit_bias), ("stop_token_ids", self.stop_ids)):
            for token in ids:
                if token >= vocab_size:
                    raise _out_of_range(name, token, f"a token id below the vocabulary size {vocab_size}")


_INTEGERS: tuple[tuple[str, int, int | None], ...] = (
    ("max_tokens", 1, None),
    ("min_tokens", 0, None),
    ("top_k", -1, None),
    ("seed", 0, MAX_SEED),
    ("logprobs", 0, MAX_LOGPROBS),
)
_OPTIONAL = ("max_tokens", "seed", "logprobs")
_NUMBERS: tuple[tuple[str, float, float], ...] = (
    ("temperature", 0.0, math.inf),
    ("top_p", 0.0, 1.0),
    ("min_p", 0.0, 1.0),
    ("repetition_penalty", 0.01, 10.0),
    ("presence_penalty", -2.0, 2.0),
    ("frequency_penalty", -2.0, 2.0),
)


def integer(name: str, value: Any, low: int, high: int | None = None) -> int:
    """`value` as an int in [low, high], or RequestError; true, false, 1.0 and "1" are no integers."""
    wanted = f"an integer of at least {low}" if high is None else f"an integer in [{low}, {high}]"
    try:
        if isinstance(value, bool):
            raise TypeError
        result = operator.index(value)
    except TypeError:
        raise _out_of_range(name, value, wanted) from None
    if result < low or (high is not None and result > high):
        raise _out_of_range(name, value, wanted)
    return result


def number(name: str, value: Any, low: float, high: float) -> float:
    """`value` as a finite float in [low, high], or RequestError; NaN, true and "1" are none."""
    wanted = f"a finite number of at least {low:g}" if high == math.inf else f"a number in [{low:g}, {high:g}]"
    try:
        if isinstance(value, bool | str | bytes):
            raise TypeError
        result = float(value)
    except (TypeError, ValueError, OverflowError):
        raise _out_of_range(name, value, wanted) from None
    if not (math.isfinite(result) and low <= result <= high):
        raise _out_of_range(name, value, wanted)
    return result


def token_ids(name: str, values: Any) -> tuple[int, ...]:
    """`values` as a tuple of non-negative ints, or RequestError naming the first that isn't one."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise _out_of_range(name, values, "a list of token ids")
    return tuple(integer(f"{name}[{i}]", value, 0) for i, value in enumerate(values))


def _stop_strings(stop: Any) -> tuple[str, ...]:
    if stop is None:
        return ()
    strings = (stop,) if isinstance(stop, str) else tuple(stop) if isinstance(stop, list | tuple) else None
    if strings is None:
        raise _out_of_range("stop", stop, "a string or a list of strings")
    if len(strings) > MAX_STOP_STRINGS:
        raise RequestError(f"stop has {len(strings)} strings; at most {MAX_STOP_STRINGS} are allowed")
    for i, text in enumerate(strings):
        if not isinstance(text, str) or not 0 < len(text) <= MAX_STOP_LEN:
            raise _out_of_range(f"stop[{i}]", text, f"a string of 1 to {MAX_STOP_LEN} characters")
    return strings


def _logit_bias(bias: Any) -> dict[int, float]:
    if not isinstance(bias, Mapping):
        raise _out_of_range("logit_bias", bias, "a mapping from token id to number")
    return {
        integer("logit_bias key", token, 0): number(f"logit_bias[{token}]", value, -100, 100)
        for token, value in bias.items()
    }


def _out_of_range(name: str, value: object, wanted: str, *, hint: str = "") -> RequestError:
    shown = repr(value)
    return RequestError(f"{name} must be {wanted}, not {shown if len(shown) <= 80 else shown[:77] + '...'}", hint=hint)
