"""The least time that this model's steps can take on this machine, by the program's cost and the measured ceilings.

`roofline run`, `chat` and `bench` quote what they reached as a share of it. Without a measurement there is no floor, and they say how
to get one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from roofline.core.batch import BLOCK_LEN, StepBatch
from roofline.core.ceilings import UNMEASURED, Ceilings, load_ceilings
from roofline.core.config import KV_DTYPE_BYTES
from roofline.core.request import Completion
from roofline.engine.loading import LoadedEngine
from roofline.program.cost import step_cost


@dataclass(frozen=True)
class Floor:
    """Floors of one loaded model under one measurement."""

    loaded: LoadedEngine
    ceilings: Ceilings

    def step_s(self, batch: StepBatch) -> float:
        """Least time of one step: the slower of moving its bytes and doing its products."""
        config = self.loaded.config
        cost = step_cost(
            self.loaded.backend.program,
            batch,
            weight_bytes=self.loaded.weight_bytes,
            kv_element_bytes=KV_DTYPE_BYTES[config.kv_dtype],
        )
        num_bytes = int(cost.memory_bytes)
        return self.ceilings.floor_s(
            num_bytes,
            int(cost.macs),
            working_set_bytes=num_bytes,
            num_threads=config.num_threads,
            isa=config.isa,
            kind="int8" if self.loaded.has_quantized_weights else "fp32",
        )

    def prefill_s(self, prompt_len: int) -> float:
        """Least time of a prompt alone, in steps as large as the configuration allows."""
        chunk = self.loaded.config.max_tokens_per_step
        starts = range(0, prompt_len, chunk)
        return sum(self.step_s(example_batch([start], min(chunk, prompt_len - start))) for start in starts)

    def decode_step_s(self, num_cached: int, *, num_seqs: int = 1) -> float:
        """Least time of one token for each of `num_seqs` sequences that have `num_cached` tokens in the KV cache."""
        return self.step_s(example_batch([num_cached] * num_seqs, 1))


@dataclass(frozen=True)
class Rate:
    """Tokens per second reached, and the most that the floor allows; None where nothing was measured."""

    tokens_per_s: float
    floor_tokens_per_s: float | None

    @property
    def floor_share(self) -> float | None:
        return self.tokens_per_s / self.floor_tokens_per_s if self.floor_tokens_per_s else None

    def text(self) -> str:
        share = "" if self.floor_share is None else f" ({self.floor_share:.0%} of the floor)"
        return f"{self.tokens_per_s:.1f} tokens/s{share}"


@dataclass(frozen=True)
class AnswerRates:
    """How fast one answer was, alone on its engine."""

    prefill: Rate
    decode: Rate
    num_prompt_tokens: int
    num_generated_tokens: int

    def line(self) -> str:
        """One line for people; says how to measure where no floor is known."""
        parts = [f"prefill {self.num_prompt_tokens} tokens: {self.prefill.text()}"]
        if self.num_generated_tokens > 1:  # the first token is the prefill's: one alone has no decode rate
            parts.append(f"decode {self.num_generated_tokens} tokens: {self.decode.text()}")
        if self.decode.floor_tokens_per_s is None:
            parts.append(f"floor {UNMEASURED}")
        return " · ".join(parts)


def floor_of(loaded: LoadedEngine) -> Floor | None:
    """The floor on this machine, or None where the ceilings were not measured."""
    ceilings = load_ceilings(loaded.hardware)
    return None if ceilings is None else Floor(loaded, ceilings)


def answer_rates(loaded: LoadedEngine, completion: Completion) -> AnswerRates:
    """Rates of a finished answer; the decode floor is that of its middle token."""
    timing, floor = completion.timing, floor_of(loaded)
    num_prompt, num_generated = timing.num_prompt_tokens, timing.num_generated_tokens
    prefill_floor = decode_floor = None
    if floor is not None:
        prefill_floor = num_prompt / floor.prefill_s(num_prompt)
        decode_floor = 1 / floor.decode_step_s(num_prompt + num_generated // 2)
    return AnswerRates(
        Rate(timing.prefill_tokens_per_s, prefill_floor),
        Rate(timing.decode_tokens_per_s, decode_floor),
        num_prompt,
        num_generated,
    )


def example_batch(num_cached: Sequence[int], num_new: int) -> StepBatch:
    """A step of `num_new` tokens for each sequence, with logits of each last one. Only its shape means anything."""
    num_seqs, ends = len(num_cached), np.array(num_cached, dtype=np.int32) + num_new
    blocks_each = -(-int(ends.max()) // BLOCK_LEN)
    starts = np.arange(num_seqs + 1, dtype=np.int32) * num_new
    return StepBatch(
        token_ids=np.zeros(num_seqs * num_new, dtype=np.int32),
        positions=np.concatenate([np.arange(first, first + num_new, dtype=np.int32) for first in num_cached]),
        seq_starts=starts,
        context_lens=ends,
        block_tables=np.arange(num_seqs * blocks_each, dtype=np.int32).reshape(num_seqs, blocks_each),
        logit_rows=starts[1:] - 1,
    )
