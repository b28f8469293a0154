"""Between requests and the native sampler: the state that each request draws with, and one call that draws for a whole step.

Settings, seed and history belong to the request and never to its row, so joins and leaves change nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np

from roofline import _native
from roofline.core.batch import Float32
from roofline.core.sampling import MAX_SEED, SamplingParams


def chosen_seed(params: SamplingParams) -> int:
    """The seed that was asked for, or a random one; results report it."""
    return secrets.randbelow(MAX_SEED + 1) if params.seed is None else params.seed


def sampling_state(
    params: SamplingParams, *, prompt_ids: Sequence[int], seed: int, end_ids: frozenset[int]
) -> _native.SamplingState:
    """The native state of one request; `end_ids` are banned until `min_tokens` are generated."""
    return _native.SamplingState(
        np.array(prompt_ids, dtype=np.int32),
        temperature=0.0 if params.is_greedy else params.temperature,
        top_k=min(params.top_k, 2**31),
        top_p=params.top_p,
        min_p=params.min_p,
        repetition=params.repetition_penalty,
        presence=params.presence_penalty,
        frequency=params.frequency_penalty,
        min_tokens=min(params.min_tokens, 2**31),
        seed=seed,
        num_top=-1 if params.logprobs is None else params.logprobs,
        bias=sorted(params.logit_bias.items()),
        end_ids=sorted(end_ids),
    )


def draw(
    logits: Float32, states: Sequence[_native.SamplingState], pool: _native.ThreadPool | None
) -> list[_native.Draw]:
    """One draw for each row of logits [L, V] and its state. States move on by `observe` only, so a draw can be repeated."""
    return _native.sample(np.ascontiguousarray(logits), list(states), pool)
