"""A request as the engine sees it, and what comes back: two counters, no phases.

The scheduler moves the counters, the engine fills the records, frontends read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from roofline.core.errors import RooflineError
from roofline.core.sampling import SamplingParams


class FinishReason(StrEnum):
    """Why a request ended."""

    STOP = "stop"  # an end token, a stop token id or a stop string
    LENGTH = "length"  # max_tokens, or the context is full
    ABORT = "abort"  # the caller gave up
    ERROR = "error"  # logits became NaN or infinite; `Completion.error` says so


@dataclass(eq=False)
class Request:
    """One running request. `token_ids` is prompt plus answer; of these, the KV cache holds the first `num_computed`.

    The scheduler closes the gap between `num_tokens` and `num_computed`, whatever made it: a new prompt, one sampled token, a drafted
    run, or blocks lost to preemption.
    """

    id: int
    prompt_len: int
    token_ids: list[int]
    params: SamplingParams
    max_len: int  # num_tokens at which the request ends with "length"
    num_computed: int = 0
    block_ids: list[int] = field(default_factory=list)
    num_preemptions: int = 0

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_generated(self) -> int:
        return len(self.token_ids) - self.prompt_len


@dataclass(frozen=True)
class TokenLogprob:
    """A token, its bytes, and its log-probability under the model's own logits (before bias, penalties and temperature)."""

    token_id: int
    bytes: bytes
    logprob: float


@dataclass(frozen=True)
class PositionLogprobs:
    """The chosen token of one position and the likeliest ones, best first (as many as asked for; the chosen one may be among them)."""

    chosen: TokenLogprob
    top: tuple[TokenLogprob, ...]


@dataclass(frozen=True)
class Timing:
    """Where the time of one request went, in seconds, and how many tokens it stands for.

    queue_s     from submission to the first step that worked on it
    prefill_s   from there to the first token; `num_prompt_tokens` less `num_cached_tokens` were computed
    decode_s    from the first token to the last: `num_generated_tokens` - 1 steps
    """

    queue_s: float
    prefill_s: float
    decode_s: float
    num_prompt_tokens: int
    num_cached_tokens: int
    num_generated_tokens: int
    num_preemptions: int

    @property
    def prefill_tokens_per_s(self) -> float:
        """0 where nothing was timed."""
        return (self.num_prompt_tokens - self.num_cached_tokens) / self.prefill_s if self.prefill_s > 0 else 0.0

    @property
    def decode_tokens_per_s(self) -> float:
        """0 with fewer than two generated tokens."""
        return (self.num_generated_tokens - 1) / self.decode_s if self.decode_s > 0 else 0.0


@dataclass(frozen=True)
class Completion:
    """The answer to one prompt. `token_ids` are the generated ones, an end token included; `text` is without it and without stops.

    `logprobs` has one entry per generated token, or is None where none were asked for. `seed` repeats the draws. `error` is set with
    finish_reason "error" only.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    logprobs: tuple[PositionLogprobs, ...] | None
    timing: Timing
    seed: int
    error: RooflineError | None = None
