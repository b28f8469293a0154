"""Operator records: what a model does to rows of float32 values, stated once and read by every interpreter.

Operators are semantic; fusing, packing and placement are a back end's business. Each record names the values it reads and writes
and the weights it needs; `cost` derives what it takes. Value names stand for rows [T, width]; `Logits` alone writes [L, V].

Shape letters: T tokens, L logit rows, H heads, Hk KV heads, D head size, E hidden, F FFN, V vocabulary, X experts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Activation = Literal["silu", "gelu_tanh"]
RopeStyle = Literal["half", "interleaved"]


@dataclass(frozen=True)
class WeightSpec:
    """A weight that the program names: a matrix [N, K] (rows are outputs) or a vector [N]."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class RopeSpec:
    """Rotary embedding as a table of angles: theta(position, i) = position * inv_freq[i], cos and sin times `attention_factor`.

    `rotary_len` <= D elements of each head turn, in pairs (i, i + R/2) for "half", (2i, 2i + 1) for "interleaved"; scaling schemes
    (llama3, yarn, linear, longrope) are already folded into inv_freq [R/2] by the family.
    """

    rotary_len: int
    style: RopeStyle
    inv_freq: tuple[float, ...]
    attention_factor: float = 1.0


@dataclass(frozen=True)
class Embed:
    """out[t] = weight[token_ids[t]] * scale; weight [V, E]."""

    out: str
    weight: str
    scale: float = 1.0


@dataclass(frozen=True)
class Norm:
    """RMS norm over each of `num_groups` consecutive groups of `group_len`: out = x / sqrt(mean(x^2) + eps) * weight.

    weight [group_len]. One group is the ordinary layer norm; H groups of D are the QK norm. `out` may be `x`.
    """

    x: str
    out: str
    weight: str
    eps: float
    group_len: int
    num_groups: int = 1


@dataclass(frozen=True)
class Linear:
    """out = x . weight^T + bias; weight [N, K], bias [N] or none."""

    x: str
    out: str
    weight: str
    bias: str | None = None


@dataclass(frozen=True)
class Rope:
    """Turn each head of x [T, num_heads * head_size] in place by its token's position."""

    x: str
    num_heads: int
    head_size: int
    rope: RopeSpec


@dataclass(frozen=True)
class Attention:
    """Append k, v [T, Hk * D] of this step to KV layer `layer`, then out[t] = softmax(scale * q . K) V over the tokens that t may see.

    A token sees itself and earlier tokens of its sequence; with `window` > 0 only the last `window` of them, itself included.
    `soft_cap` > 0 turns scores s into soft_cap * tanh(s / soft_cap) before the mask.
    """

    q: str
    k: str
    v: str
    out: str
    layer: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    scale: float
    window: int = 0
    soft_cap: float = 0.0


@dataclass(frozen=True)
class GatedAct:
    """out = act(gate) * up, elementwise [T, F]."""

    gate: str
    up: str
    out: str
    act: Activation


@dataclass(frozen=True)
class Add:
    """out = a + b, elementwise; `out` may be either."""

    a: str
    b: str
    out: str


@dataclass(frozen=True)
class SigmoidGate:
    """out = x * sigmoid(gate), gate [T, 1] spread over the row (the shared expert of Qwen2-MoE)."""

    x: str
    gate: str
    out: str


@dataclass(frozen=True)
class MoE:
    """out = sum over the top_k experts e of p[e] * down_e(act(gate_e x) * up_e x), in ascending rank of p.

    p is the softmax of the router's logits over all experts; `renormalize` divides the chosen ones by their sum. Equal logits rank by
    lowest expert index. router [X, E]; gate, up: X names of [F, E]; down: X names of [E, F].
    """

    x: str
    out: str
    router: str
    gate: tuple[str, ...]
    up: tuple[str, ...]
    down: tuple[str, ...]
    top_k: int
    renormalize: bool
    act: Activation


@dataclass(frozen=True)
class Logits:
    """out[l] = x[logit_rows[l]] . weight^T, times `scale`, then soft-capped as in Attention; weight [V, E]."""

    x: str
    out: str
    weight: str
    soft_cap: float = 0.0
    scale: float = 1.0


@dataclass(frozen=True)
class AllReduce:
    """Sum x over the ranks of a sharded program, in place; a single rank leaves it alone."""

    x: str


Op = Embed | Norm | Linear | Rope | Attention | GatedAct | Add | SigmoidGate | MoE | Logits | AllReduce


def reads(op: Op) -> tuple[str, ...]:
    """Names of the values that `op` reads."""
    match op:
        case Embed():
            return ()
        case Attention():
            return (op.q, op.k, op.v)
        case GatedAct():
            return (op.gate, op.up)
        case Add():
            return (op.a, op.b)
        case SigmoidGate():
            return (op.x, op.gate)
        case _:
            return (op.x,)


def writes(op: Op) -> str:
    """Name of the value that `op` writes."""
    return op.x if isinstance(op, Rope | AllReduce) else op.out


def weights(op: Op) -> tuple[str, ...]:
    """Names of the weights that `op` needs, in the order of its fields."""
    match op:
        case Embed() | Norm() | Logits():
            return (op.weight,)
        case Linear():
            return (op.weight,) if op.bias is None else (op.weight, op.bias)
        case MoE():
            return (op.router, *op.gate, *op.up, *op.down)
        case _:
            return ()


def out_width(op: Op, widths: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Width of the rows that `op` writes, given the widths so far and the weights' shapes."""
    match op:
        case Embed():
            return shapes[op.weight][1]
        case Linear() | Logits():
            return shapes[op.weight][0]
        case Attention():
            return op.num_heads * op.head_size
        case GatedAct():
            return widths[op.gate]
        case Add():
            return widths[op.a]
        case _:
            return widths[op.x]
