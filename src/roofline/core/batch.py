"""The step batch: the one contract between the scheduler and every back end.

Prefill, decode, chunked prefill, mixed batches and speculative verification are the same thing: some sequences bring more tokens
than others. Nothing in a batch says which.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int32 = npt.NDArray[np.int32]
Float32 = npt.NDArray[np.float32]

BLOCK_LEN = 32
"""Tokens in a KV block, the unit of allocation and of prefix reuse; kBlockLen of native/include/roofline/numeric.h."""


@dataclass(frozen=True)
class StepBatch:
    """T tokens of B sequences for one pass of the engine.

    token_ids, positions   [T]     tokens in order of their sequences, and their positions inside each sequence (0-based, consecutive)
    seq_starts             [B + 1] tokens of sequence b are rows seq_starts[b] .. seq_starts[b + 1]
    context_lens           [B]     tokens of the sequence that the KV cache holds after this step; the last row's position + 1
    block_tables           [B, n]  KV block ids, enough for context_lens; unused entries are -1
    logit_rows             [L]     rows of [0, T) whose logits are wanted
    """

    token_ids: Int32
    positions: Int32
    seq_starts: Int32
    context_lens: Int32
    block_tables: Int32
    logit_rows: Int32

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_seqs(self) -> int:
        return len(self.context_lens)

    def check(self, *, vocab_size: int, num_blocks: int) -> None:
        """Raise ValueError naming the first field that breaks the contract: back ends trust a checked batch."""
        starts, lens = self.seq_starts, self.context_lens
        if (
            len(starts) != self.num_seqs + 1
            or starts[0] != 0
            or starts[-1] != self.num_tokens
            or (np.diff(starts) < 1).any()
        ):
            raise ValueError(
                f"seq_starts must rise from 0 to T={self.num_tokens} in B={self.num_seqs} steps: {starts.tolist()}"
            )
        if self.num_tokens and not (0 <= self.token_ids.min() and self.token_ids.max() < vocab_size):
            raise ValueError(
                f"token_ids must lie in [0, {vocab_size}): {self.token_ids.min()} .. {self.token_ids.max()}"
            )
        first = lens - np.diff(starts)
        wanted = np.concatenate([np.arange(f, n) for f, n in zip(first, lens, strict=True)])
        if first.min() < 0 or not np.array_equal(self.positions, wanted):
            raise ValueError("positions must run up to context_lens - 1 in each sequence")
        self._check_blocks(num_blocks)
        if len(self.logit_rows) and not (0 <= self.logit_rows.min() and self.logit_rows.max() < self.num_tokens):
            raise ValueError(f"logit_rows must lie in [0, {self.num_tokens}): {self.logit_rows.tolist()}")

    def _check_blocks(self, num_blocks: int) -> None:
        for b, context_len in enumerate(self.context_lens):
            used = self.block_tables[b, : -(-int(context_len) // BLOCK_LEN)]
            if len(used) * BLOCK_LEN < context_len or used.min() < 0 or used.max() >= num_blocks:
                raise ValueError(
                    f"block_tables[{b}] must name ceil({context_len}/{BLOCK_LEN}) blocks below {num_blocks}: {used.tolist()}"
                )
