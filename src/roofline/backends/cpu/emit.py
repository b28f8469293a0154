"""Declare a Plan to the native executor: buffers, weights, tables and phases, names turned into ids. `CpuBackend` calls it at load."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from roofline._native import Executor
from roofline.backends.base import WeightTensor
from roofline.backends.cpu.plan import (
    Append,
    Attend,
    Combine,
    ExpertDown,
    ExpertGated,
    Gated,
    Gather,
    Head,
    Input,
    Linears,
    Phase,
    Plan,
    Quantize,
    Route,
    RowOp,
    Rows,
)
from roofline.core.batch import Float32
from roofline.program import ops
from roofline.program.program import Program

NO_ID = -1


def rope_tables(rope: ops.RopeSpec, num_positions: int) -> tuple[Float32, Float32]:
    """cos and sin [num_positions, R/2]: the angle is a float32 product, as in the checkpoints' own code, its cosine is exact."""
    positions = np.arange(num_positions, dtype=np.float32)
    angles = np.outer(positions, np.asarray(rope.inv_freq, np.float32)).astype(np.float64)
    factor = np.float32(rope.attention_factor)
    return np.cos(angles).astype(np.float32) * factor, np.sin(angles).astype(np.float32) * factor


class Emitter:
    """Declares everything of one plan. `weight_ids` then maps the packed weights' names to the executor's ids."""

    def __init__(
        self, native: Executor, program: Program, weights: Mapping[str, WeightTensor], max_context: int
    ) -> None:
        self.weight_ids: dict[str, int] = {}
        self.embedding_names: set[str] = set()
        self._native = native
        self._program = program
        self._weights = weights
        self._max_context = max_context
        self._floats: dict[str, int] = {}
        self._quantized: dict[str, int] = {}
        self._vectors: dict[str, int] = {}
        self._ropes: dict[ops.RopeSpec, int] = {}
        self._moes: dict[tuple[int, int, int, int], int] = {}

    def emit(self, plan: Plan) -> None:
        """Declare `plan`; the native side checks that all sizes fit together."""
        for name, buffer in plan.floats.items():
            self._floats[name] = self._native.add_floats(buffer.width, buffer.rows_per_token)
        for name, buffer in plan.quantized.items():
            self._quantized[name] = self._native.add_quantized(buffer.width, buffer.rows_per_token)
        for layer in self._program.kv_layers:
            self._native.add_kv_layer(layer.num_kv_heads, layer.head_size)
        for phase in plan.phases:
            self._phase(phase)

    # -- ids --

    def _pair(self, pair: Input) -> tuple[int, int]:
        floats = NO_ID if pair.floats is None else self._floats[pair.floats]
        return floats, NO_ID if pair.quantized is None else self._quantized[pair.quantized]

    def _weight(self, name: str) -> int:
        if name not in self.weight_ids:
            num_rows, row_len = self._weights[name].shape
            self.weight_ids[name] = self._native.add_weight(self._weights[name].scheme.name, num_rows, row_len)
        return self.weight_ids[name]

    def _vector(self, name: str | None) -> int:
        if name is None:
            return NO_ID
        if name not in self._vectors:
            values = np.ascontiguousarray(self._weights[name].dequantized(), np.float32)
            self._vectors[name] = self._native.add_vector(values.reshape(-1))
            self._weights[name].release()
        return self._vectors[name]

    def _rope(self, rope: ops.RopeSpec) -> int:
        if rope not in self._ropes:
            cos, sin = rope_tables(rope, self._max_context)
            self._ropes[rope] = self._native.add_rope(cos, sin, rope.style)
        return self._ropes[rope]

    def _moe(self, op: ops.MoE) -> int:
        expert_len, width = self._program.weights[op.gate[0]].shape
        shape = (len(op.gate), op.top_k, expert_len, width)
        if shape not in self._moes:
            self._moes[shape] = self._native.add_moe(*shape)
        return self._moes[shape]

    def _embedding(self, name: str) -> int:
        weight = self._weights[name]
        self.embedding_names.add(name)
        return self._native.add_embedding(weight.scheme.name, weight.rows, *weight.shape)

    # -- phases --

    def _phase(self, phase: Phase) -> None:
        native, name = self._native, phase_name(phase)
        match phase:
            case Rows():
                native.begin_rows(name, phase.space)
                for op in phase.ops:
                    self._row(op)
            case Linears():
                items = [
                    (self._weight(op.weight), self._vector(op.bias), self._floats[op.out], phase.accumulate)
                    for op in phase.ops
                ]
                native.add_linears(name, self._pair(phase.input), items)
            case Gated():
                gate, up = self._weight(phase.gate), self._weight(phase.up)
                native.add_gated(name, self._pair(phase.input), gate, up, phase.act, self._pair(phase.out))
            case Attend():
                self._attend(name, phase.op)
            case ExpertGated():
                gates, ups = [self._weight(w) for w in phase.op.gate], [self._weight(w) for w in phase.op.up]
                source, out = self._pair(phase.input), self._pair(phase.out)
                native.add_expert_gated(name, self._moe(phase.op), source, gates, ups, phase.op.act, out)
            case ExpertDown():
                downs = [self._weight(w) for w in phase.op.down]
                out_id = self._floats[phase.out]
                native.add_expert_down(name, self._moe(phase.op), self._pair(phase.input), downs, out_id)
            case Head():
                head = self._weight(phase.op.weight)
                native.add_logits(name, self._pair(phase.input), head, phase.op.scale, phase.op.soft_cap)

    def _attend(self, name: str, op: ops.Attention) -> None:
        self._native.add_attention(
            name,
            q=self._floats[op.q],
            out=self._floats[op.out],
            layer=op.layer,
            num_heads=op.num_heads,
            num_kv_heads=op.num_kv_heads,
            head_size=op.head_size,
            window=op.window,
            scale=op.scale,
            soft_cap=op.soft_cap,
        )

    def _row(self, op: RowOp) -> None:
        native, floats = self._native, self._floats
        match op:
            case ops.Embed():
                native.row_embed(self._embedding(op.weight), floats[op.out], op.scale)
            case ops.Norm():
                weight = self._vector(op.weight)
                native.row_norm(floats[op.x], floats[op.out], weight, op.eps, op.num_groups, op.group_len)
            case ops.Rope():
                native.row_rope(floats[op.x], self._rope(op.rope), op.num_heads, op.head_size)
            case ops.Add():
                native.row_add(floats[op.a], floats[op.b], floats[op.out])
            case ops.GatedAct():
                native.row_gated_act(floats[op.gate], floats[op.up], floats[op.out], op.act)
            case ops.SigmoidGate():
                native.row_sigmoid_gate(floats[op.x], floats[op.gate], floats[op.out])
            case Gather():
                native.row_gather(floats[op.x], floats[op.out])
            case Quantize():
                native.row_quantize(floats[op.x], self._quantized[op.out])
            case Append():
                native.row_append(op.layer, floats[op.k], floats[op.v])
            case Route():
                router = self._vector(op.op.router)
                native.row_route(self._moe(op.op), floats[op.op.x], router, floats[op.scores], op.op.renormalize)
            case Combine():
                native.row_combine(self._moe(op.op), floats[op.slots], floats[op.op.out])


def phase_name(phase: Phase) -> str:
    """Its kind, then what it works on: "linear layers.0.attn.q+layers.0.attn.k". Traces group by the first word."""
    match phase:
        case Rows():
            return "rows " + "+".join(type(op).__name__.lower() for op in phase.ops)
        case Linears():
            return "linear " + "+".join(op.weight for op in phase.ops)
        case Gated():
            return f"gated {phase.gate}+{phase.up}"
        case Attend():
            return f"attention {phase.op.layer}"
        case ExpertGated():
            return f"experts {phase.op.router} gate+up"
        case ExpertDown():
            return f"experts {phase.op.router} down"
        case Head():
            return f"logits {phase.op.weight}"
