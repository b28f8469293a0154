"""What a step must do at least: multiply-adds and bytes of every operator for one step batch, and the time floor they make.

Reports, the profiler and `roofline run` read it. Bytes count what memory must deliver once a step: each weight once, however many
rows use it, and each sequence's visible KV entries once a layer. Activations stay in cache in a good engine: they are listed, but
are no part of the floor. Multiply-adds count the products (projections, experts, attention, logits); norms, rotary embedding and
activations are below one percent of them in any model here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofline.core.batch import StepBatch
from roofline.program import ops
from roofline.program.program import Program

_ACTIVATION_BYTES = 4  # float32 rows between operators


@dataclass(frozen=True)
class OpCost:
    """Cost of one operator in one step. Bytes are fractional where routing is random."""

    op: ops.Op
    macs: float
    weight_bytes: float
    kv_read_bytes: float
    kv_written_bytes: float
    activation_bytes: float

    @property
    def memory_bytes(self) -> float:
        """Bytes between memory and the processor: weights and KV."""
        return self.weight_bytes + self.kv_read_bytes + self.kv_written_bytes

    def floor_s(self, *, bytes_per_s: float, macs_per_s: float) -> float:
        """Least time of this operator alone: the slower of memory and arithmetic, overlapped perfectly (Williams 2009)."""
        return max(self.memory_bytes / bytes_per_s, self.macs / macs_per_s)


@dataclass(frozen=True)
class StepCost:
    """All operators of one step, in order, and their sums."""

    ops: tuple[OpCost, ...]

    @property
    def macs(self) -> float:
        return sum(op.macs for op in self.ops)

    @property
    def weight_bytes(self) -> float:
        return sum(op.weight_bytes for op in self.ops)

    @property
    def kv_read_bytes(self) -> float:
        return sum(op.kv_read_bytes for op in self.ops)

    @property
    def kv_written_bytes(self) -> float:
        return sum(op.kv_written_bytes for op in self.ops)

    @property
    def activation_bytes(self) -> float:
        return sum(op.activation_bytes for op in self.ops)

    @property
    def memory_bytes(self) -> float:
        return self.weight_bytes + self.kv_read_bytes + self.kv_written_bytes

    def floor_s(self, *, bytes_per_s: float, macs_per_s: float) -> float:
        """Least time of the step. Memory traffic of one operator may hide behind another's arithmetic, so this is not the sum of
        the operators' floors but at most that."""
        return max(self.memory_bytes / bytes_per_s, self.macs / macs_per_s)


def step_cost(
    program: Program, batch: StepBatch, *, weight_bytes: Mapping[str, int], kv_element_bytes: float = 2.0
) -> StepCost:
    """Cost of running `batch`, with `weight_bytes` of every weight as the back end holds it (packed, or as in the file).

    A mixture of experts is charged for the experts that T tokens touch if routing is uniform and independent.
    """
    counter = _Counter(program, batch, weight_bytes, kv_element_bytes)
    return StepCost(tuple(counter.cost(op) for op in program.ops))


@dataclass(frozen=True)
class _Counter:
    program: Program
    batch: StepBatch
    weight_bytes: Mapping[str, int]
    kv_element_bytes: float

    def cost(self, op: ops.Op) -> OpCost:
        kv_read, kv_written = self._kv_bytes(op) if isinstance(op, ops.Attention) else (0.0, 0.0)
        return OpCost(op, self._macs(op), self._weight_bytes(op), kv_read, kv_written, self._activation_bytes(op))

    def _macs(self, op: ops.Op) -> float:
        num_tokens = self.batch.num_tokens
        match op:
            case ops.Linear():
                return num_tokens * self._size(op.weight)
            case ops.Logits():
                return len(self.batch.logit_rows) * self._size(op.weight)
            case ops.MoE():
                expert = self._size(op.gate[0]) + self._size(op.up[0]) + self._size(op.down[0])
                return num_tokens * (self._size(op.router) + op.top_k * expert)
            case ops.Attention():
                # One product with K and one with V for every visible pair.
                return 2 * op.num_heads * op.head_size * int(_visible_lens(self.batch.positions, op.window).sum())
            case _:
                return 0

    def _weight_bytes(self, op: ops.Op) -> float:
        stored = sum(self.weight_bytes[name] for name in ops.weights(op))
        match op:
            case ops.Embed():
                num_rows = self.program.weights[op.weight].shape[0]
                return stored / num_rows * len(np.unique(self.batch.token_ids))
            case ops.Logits() if not len(self.batch.logit_rows):
                return 0
            case ops.MoE():
                router = self.weight_bytes[op.router]
                share = touched_experts(len(op.gate), op.top_k, self.batch.num_tokens) / len(op.gate)
                return router + (stored - router) * share
            case _:
                return stored

    def _kv_bytes(self, op: ops.Attention) -> tuple[float, float]:
        """(read, written): read is what the sequences' tokens see together, once each, and beyond what this step writes."""
        entry_bytes = 2 * op.num_kv_heads * op.head_size * self.kv_element_bytes
        first_positions = self.batch.positions[self.batch.seq_starts[:-1]]
        num_read = int((_visible_lens(first_positions, op.window) - 1).sum())
        return num_read * entry_bytes, self.batch.num_tokens * entry_bytes

    def _activation_bytes(self, op: ops.Op) -> float:
        """Rows read and written once each, as if every operator ran alone."""
        num_tokens, num_logit_rows = self.batch.num_tokens, len(self.batch.logit_rows)
        read_width = sum(self.program.widths[name] for name in ops.reads(op))
        written_width = self.program.widths[ops.writes(op)]
        if isinstance(op, ops.Logits):
            num_tokens = num_logit_rows
        return num_tokens * (read_width + written_width) * _ACTIVATION_BYTES

    def _size(self, weight: str) -> int:
        num_rows, row_len = self.program.weights[weight].shape
        return num_rows * row_len


def touched_experts(num_experts: int, top_k: int, num_tokens: int) -> float:
    """Expected number of different experts that `num_tokens` tokens choose, `top_k` each, uniformly: X (1 - (1 - k/X)^T)."""
    return float(num_experts * (1 - (1 - top_k / num_experts) ** num_tokens))


def _visible_lens(positions: NDArray[np.int32], window: int) -> NDArray[np.int64]:
    """Tokens that each position sees, itself included."""
    seen = positions.astype(np.int64) + 1
    return np.minimum(seen, window) if window else seen
