"""From the scheduler's slices to the arrays of a StepBatch, the contract with back ends."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from roofline.core.batch import StepBatch
from roofline.engine.scheduler import Slice


def build_batch(slices: Sequence[Slice]) -> StepBatch:
    """One sequence a slice, in order; logits of the last row of each slice that reaches its request's end."""
    ends = list(accumulate(piece.num_tokens for piece in slices))
    tokens = [piece.request.token_ids[piece.start : piece.end] for piece in slices]
    return StepBatch(
        token_ids=np.concatenate([np.array(part, dtype=np.int32) for part in tokens]),
        positions=np.concatenate([np.arange(piece.start, piece.end, dtype=np.int32) for piece in slices]),
        seq_starts=np.array([0, *ends], dtype=np.int32),
        context_lens=np.array([piece.end for piece in slices], dtype=np.int32),
        block_tables=_block_tables(slices),
        logit_rows=np.array([end - 1 for end, piece in zip(ends, slices, strict=True) if piece.wants_logits], np.int32),
    )


def _block_tables(slices: Sequence[Slice]) -> np.ndarray:
    tables = [piece.request.block_ids for piece in slices]
    table = np.full((len(tables), max(len(blocks) for blocks in tables)), -1, dtype=np.int32)
    for row, blocks in zip(table, tables, strict=True):
        row[: len(blocks)] = blocks
    return table
