"""Costs of steps small enough to count by hand."""

from __future__ import annotations

import numpy as np
import pytest

from roofline.core.batch import StepBatch
from roofline.program import ops
from roofline.program.cost import step_cost, touched_experts
from roofline.program.ops import RopeSpec, WeightSpec
from roofline.program.program import Program, build

V, E, F, H, HK, D, X = 10, 8, 6, 4, 2, 4, 4
ROPE = RopeSpec(D, "half", (1.0, 0.1))


def one_layer(*, window: int = 0) -> Program:
    """Embedding, one attention layer, four experts of which two are used, logits with the tied embedding."""
    experts = [f"{part}{i}" for part in ("gate", "up", "down") for i in range(X)]
    specs = [WeightSpec("embed", (V, E)), WeightSpec("norm", (E,)), WeightSpec("router", (X, E))]
    specs += [WeightSpec("q", (H * D, E)), WeightSpec("k", (HK * D, E)), WeightSpec("v", (HK * D, E))]
    specs += [WeightSpec("out", (E, H * D))]
    specs += [WeightSpec(name, (E, F) if name.startswith("down") else (F, E)) for name in experts]
    return build(
        [
            ops.Embed("x", "embed"),
            ops.Norm("x", "n", "norm", 1e-6, E),
            *(ops.Linear("n", part, part) for part in ("q", "k", "v")),
            ops.Rope("q", H, D, ROPE),
            ops.Attention("q", "k", "v", "a", 0, H, HK, D, 0.5, window=window),
            ops.Linear("a", "m", "out"),
            ops.Add("x", "m", "x"),
            ops.MoE("x", "m", "router", *(tuple(experts[i : i + X]) for i in (0, X, 2 * X)), 2, True, "silu"),
            ops.Logits("m", "logits", "embed"),
        ],
        specs,
    )


def batch(*spans: tuple[int, int], logit_rows: tuple[int, ...]) -> StepBatch:
    """Sequences that bring tokens [first, stop) of theirs; token ids count up from 0."""
    lens = [stop - first for first, stop in spans]
    return StepBatch(
        token_ids=np.arange(sum(lens), dtype=np.int32) % V,
        positions=np.concatenate([np.arange(*span) for span in spans]).astype(np.int32),
        seq_starts=np.cumsum([0, *lens], dtype=np.int32),
        context_lens=np.array([stop for _, stop in spans], np.int32),
        block_tables=np.arange(len(spans), dtype=np.int32)[:, None],
        logit_rows=np.array(logit_rows, np.int32),
    )


def float32_bytes(program: Program) -> dict[str, int]:
    return {name: 4 * int(np.prod(spec.shape)) for name, spec in program.weights.items()}


def cost_of(program: Program, step: StepBatch):
    return step_cost(program, step, weight_bytes=float32_bytes(program), kv_element_bytes=2)


def test_decode_of_one_token_at_context_20():
    cost = cost_of(one_layer(), batch((19, 20), logit_rows=(0,)))
    projections = 16 * 8 + 8 * 8 + 8 * 8 + 8 * 16
    attention = 2 * 4 * 4 * 20  # K and V products of 4 heads of 4 over 20 tokens
    experts = 4 * 8 + 2 * 3 * 6 * 8  # router, then 2 experts of 3 matrices
    assert cost.macs == projections + attention + experts + 10 * 8
    # Row of the embedding, norm, projections, router, 2 of 4 experts, and the whole embedding as the head.
    assert cost.weight_bytes == 4 * (8 + 8 + projections + 32 + 2 * 3 * 48 + 80)
    # 2 (K, V) x 2 heads x 4 elements x 2 bytes = 32 bytes a token: 19 read, 1 written.
    assert cost.kv_read_bytes == 19 * 32
    assert cost.kv_written_bytes == 32


def test_prefill_reads_weights_once_and_no_cache():
    cost = cost_of(one_layer(), batch((0, 5), logit_rows=(4,)))
    assert cost.kv_read_bytes == 0
    assert cost.kv_written_bytes == 5 * 32
    attention = next(op for op in cost.ops if isinstance(op.op, ops.Attention))
    assert attention.macs == 2 * 4 * 4 * (1 + 2 + 3 + 4 + 5)
    query = next(op for op in cost.ops if isinstance(op.op, ops.Linear))
    assert (query.macs, query.weight_bytes) == (5 * 128, 4 * 128)
    assert query.activation_bytes == 4 * 5 * (8 + 16)


def test_window_bounds_work_and_traffic():
    cost = cost_of(one_layer(window=4), batch((18, 20), (0, 3), logit_rows=()))
    attention = next(op for op in cost.ops if isinstance(op.op, ops.Attention))
    assert attention.macs == 2 * 4 * 4 * (4 + 4 + 1 + 2 + 3)
    # Positions 18 and 19 see 15 .. 19, of which this step brings two; the new sequence reads nothing from the cache.
    assert attention.kv_read_bytes == 3 * 32
    logits = cost.ops[-1]
    assert (logits.macs, logits.weight_bytes, logits.activation_bytes) == (0, 0, 0)


def test_repeated_tokens_read_their_embedding_row_once():
    step = batch((0, 12), logit_rows=(11,))  # ids 0 .. 9, 0, 1
    assert cost_of(one_layer(), step).ops[0].weight_bytes == 10 * 8 * 4


def test_touched_experts():
    assert touched_experts(8, 2, 1) == 2
    assert touched_experts(8, 2, 2) == pytest.approx(2 + 2 * 6 / 8)
    assert touched_experts(8, 8, 5) == 8
    assert touched_experts(64, 4, 10_000) == pytest.approx(64)


def test_floor_is_the_slower_side_and_at_most_the_sum_of_operators():
    cost = cost_of(one_layer(), batch((0, 9), (30, 31), logit_rows=(8, 9)))
    assert cost.floor_s(bytes_per_s=1.0, macs_per_s=1e12) == pytest.approx(cost.memory_bytes)
    assert cost.floor_s(bytes_per_s=1e12, macs_per_s=2.0) == pytest.approx(cost.macs / 2)
    rates = {"bytes_per_s": 3.0, "macs_per_s": 5.0}
    assert cost.floor_s(**rates) <= sum(op.floor_s(**rates) for op in cost.ops)
