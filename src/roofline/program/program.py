"""A Program: the flat list of operators of one model, with its weights and KV layers, checked once when it is built.

Model families make programs; interpreters read them. Nothing below this file knows about families.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from roofline.program.ops import Attention, Linear, Logits, MoE, Op, WeightSpec, out_width, reads, weights, writes


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
    width that changes, KV layers out of order, and anything but one `Logits` at the end.
    """
    ops = tuple(ops)
    named = {spec.name: spec for spec in specs}
    shapes = {name: spec.shape for name, spec in named.items()}
    widths: dict[str, int] = {}
    for op in ops:
        _check(op, widths, shapes)
        width = out_width(op, widths, shapes)
        if widths.setdefault(writes(op), width) != width:
            raise ValueError(f"{op}: value {writes(op)!r} has width {widths[writes(op)]} and can't become {width}")
    unused = set(named) - {name for op in ops for name in weights(op)}
    if unused:
        raise ValueError(f"weights that no operator uses: {', '.join(sorted(unused))}")
    if not ops or not isinstance(ops[-1], Logits) or sum(isinstance(op, Logits) for op in ops) != 1:
        raise ValueError("a program ends with its one Logits operator")
    return Program(ops, widths, named, _kv_layers(ops), shapes[ops[-1].weight][0])


def _check(op: Op, widths: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]]) -> None:
    for name in reads(op):
        if name not in widths:
            raise ValueError(f"{op}: value {name!r} is read before it is written")
    for name in weights(op):
        if name not in shapes:
            raise ValueError(f"{op}: weight {name!r} is missing")
    match op:
        case Linear() | Logits() if shapes[op.weight][1] != widths[op.x]:
            raise ValueError(f"{op}: weight {shapes[op.weight]} does not fit rows of width {widths[op.x]}")
        case MoE() if not 0 < op.top_k <= len(op.gate) == len(op.up) == len(op.down) == shapes[op.router][0]:
            raise ValueError(f"{op}: {len(op.gate)} experts, top {op.top_k}, router {shapes[op.router]}")
        case Attention() if op.num_heads % op.num_kv_heads or widths[op.q] != op.num_heads * op.head_size:
            raise ValueError(
                f"{op}: query width {widths[op.q]}, {op.num_heads} heads over {op.num_kv_heads} KV heads of {op.head_size}"
            )
        case _:
            pass


def _kv_layers(ops: tuple[Op, ...]) -> tuple[KvLayer, ...]:
    attention = [op for op in ops if isinstance(op, Attention)]
    if [op.layer for op in attention] != list(range(len(attention))):
        raise ValueError(f"KV layers must count up from 0: {[op.layer for op in attention]}")
    return tuple(KvLayer(op.num_kv_heads, op.head_size, op.window) for op in attention)
