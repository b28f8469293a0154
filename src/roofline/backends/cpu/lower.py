"""Lower a Program to phases: which operators run together between two barriers, and which values need an int8 image.

Pure Python, no weights: `CpuBackend` calls it once when a model is loaded. What fuses: products over one input (q, k, v); gate, up
and the activation between them; a product and the residual it is added to; everything that works row by row. None of it changes
the arithmetic of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from roofline.backends.cpu.plan import (
    Append,
    Attend,
    Buffer,
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
from roofline.core.errors import UnsupportedModelError
from roofline.program import ops
from roofline.program.program import Program

ReadsFloats = Callable[[str], bool]
"""Whether products with this weight take float rows (F32, F16, BF16) and not quantized ones."""


def lower(program: Program, reads_floats: ReadsFloats) -> Plan:
    """The phases of `program`. Raises UnsupportedModelError for an operator that the CPU back end does not know."""
    return _Lowering(program, reads_floats).run()


def dead_after(program_ops: Sequence[ops.Op], index: int, value: str) -> bool:
    """True when nothing reads `value` after operator `index` before it is written again."""
    for op in program_ops[index + 1 :]:
        if value in ops.reads(op):
            return False
        if ops.writes(op) == value:
            return True
    return True


class _Lowering:
    """One pass over the operators, collecting row operators until a phase of another kind ends the run."""

    def __init__(self, program: Program, reads_floats: ReadsFloats) -> None:
        self._program = program
        self._reads_floats = reads_floats
        # A single rank sums over itself: collectives vanish before anything is fused across them.
        self._ops = [op for op in program.ops if not isinstance(op, ops.AllReduce)]
        self._done = [False] * len(self._ops)
        self._pending: list[RowOp] = []
        self._space: Literal["tokens", "logit_rows"] = "tokens"
        self._phases: list[Phase] = []
        self._floats: dict[str, Buffer] = {}
        self._quantized: dict[str, Buffer] = {}
        self._fresh: set[str] = set()  # values whose quantized image is up to date

    def run(self) -> Plan:
        for index, op in enumerate(self._ops):
            if not self._done[index]:
                self._done[index] = True
                self._lower(index, op)
        return Plan(tuple(self._phases), self._floats, self._quantized)

    def _lower(self, index: int, op: ops.Op) -> None:
        match op:
            case ops.Norm() if self._feeds_head(index, op):
                self._head_norm(op)
            case ops.Embed() | ops.Norm() | ops.Rope() | ops.Add() | ops.GatedAct() | ops.SigmoidGate():
                self._row(op)
            case ops.Linear():
                self._linear(index, op)
            case ops.Attention():
                self._row(Append(op.layer, op.k, op.v))
                self._write(op.out, Buffer(self._program.widths[op.out]))
                self._phase(Attend(op))
            case ops.MoE():
                self._moe(op)
            case ops.Logits():
                self._logits(op)
            case _:
                raise UnsupportedModelError(f"the CPU back end has no operator {type(op).__name__}")

    # -- row operators --

    def _row(self, op: RowOp) -> None:
        if isinstance(op, ops.Embed | ops.Norm | ops.Rope | ops.Add | ops.GatedAct | ops.SigmoidGate):
            out = ops.writes(op)
            self._write(out, Buffer(self._program.widths[out]))
        self._pending.append(op)

    def _write(self, value: str, buffer: Buffer) -> None:
        self._floats[value] = buffer
        self._fresh.discard(value)

    def _flush(self) -> None:
        if self._pending:
            self._phases.append(Rows(tuple(self._pending), self._space))
            self._pending = []

    def _phase(self, phase: Phase) -> None:
        self._flush()
        self._phases.append(phase)

    def _input(self, value: str, weights: Sequence[str], width: int) -> Input:
        """What products of `value` with `weights` read; quantizes it when some weight wants that."""
        wants_floats = [self._reads_floats(weight) for weight in weights]
        quantized = None
        if not all(wants_floats):
            quantized = f"{value}.q"
            if value not in self._fresh:
                self._quantized[quantized] = Buffer(width)
                self._pending.append(Quantize(value, quantized))
                self._fresh.add(value)
        return Input(value if any(wants_floats) else None, quantized)

    # -- products --

    def _linear(self, index: int, op: ops.Linear) -> None:
        if self._lower_gated(index, op) or self._lower_residual(index, op):
            return
        group = [op, *self._take_siblings(index, op)]
        source = self._input(op.x, [linear.weight for linear in group], self._program.widths[op.x])
        for linear in group:
            self._write(linear.out, Buffer(self._program.widths[linear.out]))
        self._phase(Linears(source, tuple(group)))

    def _lower_gated(self, index: int, gate: ops.Linear) -> bool:
        """Linear, Linear, GatedAct of the two, neither read by anyone else and without biases: one phase."""
        following = self._ops[index + 1 : index + 3]
        if len(following) < 2:
            return False
        up, act = following
        if not (
            isinstance(up, ops.Linear) and isinstance(act, ops.GatedAct) and (act.gate, act.up) == (gate.out, up.out)
        ):
            return False
        if up.x != gate.x or gate.bias is not None or up.bias is not None:
            return False
        if not all(name == act.out or dead_after(self._ops, index + 2, name) for name in (gate.out, up.out)):
            return False
        source = self._input(gate.x, [gate.weight, up.weight], self._program.widths[gate.x])
        out = self._gated_out(index + 2, act.out)
        self._phase(Gated(source, gate.weight, up.weight, act.act, out))
        self._done[index + 1] = self._done[index + 2] = True
        return True

    def _gated_out(self, index: int, value: str) -> Input:
        """Float rows only if some reader wants them; the usual reader is one quantized product."""
        width = self._program.widths[value]
        readers = self._readers(index, value)
        products = [op for op in readers if isinstance(op, ops.Linear)]
        wants_floats = len(products) < len(readers) or any(self._reads_floats(op.weight) for op in products)
        wants_quantized = any(not self._reads_floats(op.weight) for op in products)
        if wants_floats:
            self._write(value, Buffer(width))
        if wants_quantized:
            self._quantized[f"{value}.q"] = Buffer(width)
            self._fresh.add(value)
        return Input(value if wants_floats else None, f"{value}.q" if wants_quantized else None)

    def _readers(self, index: int, value: str) -> list[ops.Op]:
        found: list[ops.Op] = []
        for op in self._ops[index + 1 :]:
            if value in ops.reads(op):
                found.append(op)
            if ops.writes(op) == value:
                break
        return found

    def _lower_residual(self, index: int, op: ops.Linear) -> bool:
        """Linear, then Add of its result to a value in place: the product accumulates into that value."""
        if index + 1 == len(self._ops):
            return False
        add = self._ops[index + 1]
        if not isinstance(add, ops.Add) or {op.out, add.out} != {add.a, add.b} or op.out == add.out or op.x == add.out:
            return False
        if not dead_after(self._ops, index + 1, op.out):
            return False
        source = self._input(op.x, [op.weight], self._program.widths[op.x])
        self._fresh.discard(add.out)
        self._phase(Linears(source, (ops.Linear(op.x, add.out, op.weight, op.bias),), accumulate=True))
        self._done[index + 1] = True
        return True

    def _take_siblings(self, index: int, first: ops.Linear) -> list[ops.Linear]:
        """Later products over the same input that may run beside `first`: only row operators on other values stand between."""
        siblings: list[ops.Linear] = []
        touched = {first.out}
        for later in range(index + 1, len(self._ops)):
            op = self._ops[later]
            if isinstance(op, ops.Linear) and op.x == first.x and op.out not in touched | {first.x}:
                siblings.append(op)
                self._done[later] = True
                touched.add(op.out)
            elif isinstance(op, ops.Norm | ops.Rope) and ops.writes(op) != first.x:
                touched.update((*ops.reads(op), ops.writes(op)))
            else:
                break
        return siblings

    # -- experts and head --

    def _moe(self, op: ops.MoE) -> None:
        width, expert_len = self._program.widths[op.x], self._program.weights[op.gate[0]].shape[0]
        scores, hidden, slots = f"{op.out}.scores", f"{op.out}.hidden", f"{op.out}.slots"
        self._floats[scores] = Buffer(self._program.weights[op.router].shape[0])
        self._floats[slots] = Buffer(width, op.top_k)
        self._pending.append(Route(op, scores))
        source = self._input(op.x, [*op.gate, *op.up], width)
        between = Input(hidden, None) if self._reads_floats(op.down[0]) else Input(None, f"{hidden}.q")
        if between.floats:
            self._floats[hidden] = Buffer(expert_len, op.top_k)
        else:
            self._quantized[f"{hidden}.q"] = Buffer(expert_len, op.top_k)
        self._phase(ExpertGated(source, op, between))
        self._phase(ExpertDown(between, op, slots))
        self._write(op.out, Buffer(width))
        self._pending.append(Combine(op, slots))

    def _feeds_head(self, index: int, op: ops.Norm) -> bool:
        head = self._ops[index + 1] if index + 1 < len(self._ops) else None
        return isinstance(head, ops.Logits) and head.x == op.out

    def _gather(self, value: str) -> str:
        """Rows that logits are wanted of, as a value of their own: the rest of the program sees no other row."""
        self._flush()
        self._space = "logit_rows"
        gathered = f"{value}.rows"
        self._write(gathered, Buffer(self._program.widths[value]))
        self._pending.append(Gather(value, gathered))
        return gathered

    def _head_norm(self, op: ops.Norm) -> None:
        gathered = self._gather(op.x)
        self._row(ops.Norm(gathered, op.out, op.weight, op.eps, op.group_len, op.num_groups))

    def _logits(self, op: ops.Logits) -> None:
        rows = op.x if self._space == "logit_rows" else self._gather(op.x)
        self._phase(Head(self._input(rows, [op.weight], self._program.widths[op.x]), op))
