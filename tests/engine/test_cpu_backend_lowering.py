"""What fuses when a program is lowered: phases by kind, and what each one reads and writes."""

from __future__ import annotations

import dataclasses

from roofline.backends.cpu.emit import phase_name, rope_tables
from roofline.backends.cpu.lower import dead_after, lower
from roofline.backends.cpu.plan import Gated, Gather, Input, Linears, Plan, Quantize, Rows
from roofline.program import ops
from roofline.program.program import build
from support.tiny_programs import TinyConfig, TinyModel

ONE_LAYER = TinyConfig(num_layers=1, windows=(0,))


def plan_of(config: TinyConfig, *, floats: bool = False) -> Plan:
    return lower(TinyModel(config).program, lambda name: floats)


def kinds(plan: Plan) -> list[str]:
    return [phase_name(phase).split()[0] for phase in plan.phases]


def test_a_dense_layer_takes_nine_phases() -> None:
    plan = plan_of(ONE_LAYER)
    layer = ["linear", "rows", "attention", "rows", "linear", "rows", "gated", "linear"]
    assert kinds(plan) == ["rows", *layer, "rows", "logits"]
    two_layers = plan_of(dataclasses.replace(ONE_LAYER, num_layers=2, windows=(0, 0)))
    assert len(two_layers.phases) == len(plan.phases) + 9


def test_qkv_share_a_phase_and_one_quantized_input() -> None:
    phase = plan_of(dataclasses.replace(ONE_LAYER, qk_norm=True)).phases[1]
    assert isinstance(phase, Linears)
    assert [op.out for op in phase.ops] == ["q", "k", "v"]
    assert phase.input == Input(None, "n.q")


def test_products_accumulate_into_the_residual() -> None:
    plan = plan_of(ONE_LAYER)
    residual = [phase for phase in plan.phases if isinstance(phase, Linears) and phase.accumulate]
    assert [phase.ops[0].out for phase in residual] == ["x", "x"]
    # A norm between the product and the residual keeps them apart.
    assert not any(
        p.accumulate for p in plan_of(dataclasses.replace(ONE_LAYER, post_norms=True)).phases if isinstance(p, Linears)
    )


def test_gate_and_up_end_in_the_next_product_s_input() -> None:
    (gated,) = (phase for phase in plan_of(ONE_LAYER).phases if isinstance(phase, Gated))
    assert gated.out == Input(None, "h.q")
    (gated,) = (phase for phase in plan_of(ONE_LAYER, floats=True).phases if isinstance(phase, Gated))
    assert gated.out == Input("h", None)


def test_biases_keep_gate_and_up_as_plain_products() -> None:
    plan = plan_of(dataclasses.replace(ONE_LAYER, has_bias=True))
    assert not any(isinstance(phase, Gated) for phase in plan.phases)
    assert any(isinstance(op, ops.GatedAct) for phase in plan.phases if isinstance(phase, Rows) for op in phase.ops)


def test_only_wanted_rows_reach_the_head() -> None:
    last = plan_of(ONE_LAYER).phases[-2]
    assert isinstance(last, Rows)
    assert last.space == "logit_rows"
    assert [type(op) for op in last.ops] == [Gather, ops.Norm, Quantize]


def test_a_value_is_quantized_once_until_it_changes() -> None:
    specs = [
        ops.WeightSpec("e", (8, 32)),
        ops.WeightSpec("a", (32, 32)),
        ops.WeightSpec("b", (32, 32)),
        ops.WeightSpec("c", (32, 32)),
    ]
    program = build(
        [
            ops.Embed("x", "e"),
            ops.Linear("x", "y", "a"),
            ops.Add("y", "y", "z"),
            ops.Linear("x", "w", "b"),
            ops.Add("x", "w", "x"),
            ops.Linear("x", "v", "c"),
            ops.Logits("v", "logits", "e"),
        ],
        specs,
    )
    plan = lower(program, lambda name: False)
    quantized = [op.x for p in plan.phases if isinstance(p, Rows) for op in p.ops if isinstance(op, Quantize)]
    assert quantized == ["x", "x", "v.rows"]


def test_dead_after_looks_up_to_the_next_write() -> None:
    program_ops = [ops.Add("a", "b", "c"), ops.Add("c", "b", "d"), ops.Add("b", "b", "c"), ops.Add("c", "d", "e")]
    assert not dead_after(program_ops, 0, "c")
    assert dead_after(program_ops, 1, "c")
    assert dead_after(program_ops, 3, "d")


def test_rope_tables_match_a_float32_angle() -> None:
    import numpy as np

    inv_freq = tuple(float(f) for f in 1 / 500000 ** (np.arange(0, 64, 2) / 64))
    cos, sin = rope_tables(ops.RopeSpec(64, "half", inv_freq, 1.25), 32768)
    angles = np.arange(32768, dtype=np.float32)[:, None] * np.asarray(inv_freq, np.float32)
    np.testing.assert_allclose(cos, np.cos(angles) * np.float32(1.25), atol=1e-6)
    np.testing.assert_allclose(sin, np.sin(angles) * np.float32(1.25), atol=1e-6)
