"""A Program: the flat list of operators of one model, with its weights and KV layers, checked once when it is built.

Model families make programs; interpreters read them. Nothing below this file knows about families.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from roofline.program.ops import (
    Add,
    AllReduce,
    Attention,
    Embed,
    GatedAct,
    Linear,
    Logits,
    MoE,
    Norm,
    Op,
    Rope,
    SigmoidGate,
    WeightSpec,
    out_width,
    reads,
    weights,
    writes,
)


@dataclass(frozen=True)
class KvLayer:
    """Shape of one layer's KV cache: Hk heads of D; `window` > 0 where attention never looks further back."""

    num_kv_heads: int
    head_size: int
    window: int


@dataclass(frozen=True)
class Program:
    """Operators in order, the width of every value, every weight's shape, and the KV layers by index."""

    ops: tuple[Op, ...]
    widths: Mapping[str, int]
    weights: Mapping[str, WeightSpec]
    kv_layers: tuple[KvLayer, ...]
    vocab_size: int


def build(ops: Iterable[Op], specs: Iterable[WeightSpec]) -> Program:
    """Check the operators against the weights and derive all widths.

    Raises ValueError, naming the operator, for a value read before it is written, a weight that is missing or of another shape, a
    width that changes or does not fit, KV layers out of order, an unused weight, and anything but one `Logits` at the end.
    """
    ops = tuple(ops)
    named = {spec.name: spec for spec in specs}
    shapes = {name: spec.shape for name, spec in named.items()}
    if not ops or not isinstance(ops[-1], Logits) or sum(isinstance(op, Logits) for op in ops) != 1:
        raise ValueError("a program ends with its one Logits operator")
    widths: dict[str, int] = {}
    for op in ops:
        _check(op, widths, shapes)
        width = out_width(op, widths, shapes)
        if widths.setdefault(writes(op), width) != width:
            raise ValueError(
                f"{_name(op)}: value {writes(op)!r} has width {widths[writes(op)]} and can't become {width}"
            )
    kv_layers = _kv_layers(ops)
    unused = set(named) - {name for op in ops for name in weights(op)}
    if unused:
        raise ValueError(f"weights that no operator uses: {', '.join(sorted(unused))}")
    return Program(ops, widths, named, kv_layers, shapes[ops[-1].weight][0])


def _name(op: Op) -> str:
    return f"{type(op).__name__} -> {writes(op)!r}"


def _check(op: Op, widths: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]]) -> None:
    for name in reads(op):
        if name not in widths:
            raise ValueError(f"{_name(op)}: value {name!r} is read before it is written")
    for name in weights(op):
        if name not in shapes:
            raise ValueError(f"{_name(op)}: weight {name!r} is missing")
    if not _fits(op, widths, shapes):
        values = {name: widths[name] for name in reads(op)}
        needed = {name: shapes[name] for name in weights(op)[:4]}
        raise ValueError(f"{_name(op)}: does not fit together: values {values}, weights {needed}")


def _fits(op: Op, widths: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]]) -> bool:
    match op:
        case Embed():
            return len(shapes[op.weight]) == 2
        case Linear():
            num_rows, row_len = shapes[op.weight]
            return row_len == widths[op.x] and (op.bias is None or shapes[op.bias] == (num_rows,))
        case Logits():
            return shapes[op.weight][1:] == (widths[op.x],)
        case Norm():
            return shapes[op.weight] == (op.group_len,) and widths[op.x] == op.num_groups * op.group_len
        case Rope():
            return widths[op.x] == op.num_heads * op.head_size and 2 * len(op.rope.inv_freq) == op.rope.rotary_len
        case Attention():
            kv_width = op.num_kv_heads * op.head_size
            is_grouped = op.num_heads % op.num_kv_heads == 0 and widths[op.q] == op.num_heads * op.head_size
            return is_grouped and widths[op.k] == widths[op.v] == kv_width
        case GatedAct():
            return widths[op.gate] == widths[op.up]
        case Add():
            return widths[op.a] == widths[op.b]
        case SigmoidGate():
            return widths[op.gate] == 1
        case MoE():
            return _experts_fit(op, widths[op.x], shapes)
        case AllReduce():
            return True


def _experts_fit(op: MoE, width: int, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    num_experts = len(op.gate)
    if not 0 < op.top_k <= num_experts == len(op.up) == len(op.down) or shapes[op.router] != (num_experts, width):
        return False
    ffn_size = shapes[op.gate[0]][0]
    wide, narrow = {shapes[name] for name in op.gate + op.up}, {shapes[name] for name in op.down}
    return wide == {(ffn_size, width)} and narrow == {(width, ffn_size)}


def _kv_layers(ops: tuple[Op, ...]) -> tuple[KvLayer, ...]:
    attention = [op for op in ops if isinstance(op, Attention)]
    if [op.layer for op in attention] != list(range(len(attention))):
        raise ValueError(f"KV layers must count up from 0: {[op.layer for op in attention]}")
    return tuple(KvLayer(op.num_kv_heads, op.head_size, op.window) for op in attention)
