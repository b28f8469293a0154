"""The records that a Program is lowered to: phases between barriers, as the native executor runs them.

`lower` makes a Plan, `emit` declares it to the native side. Values keep the program's names; "NAME.q" is the quantized image of NAME.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from roofline.program import ops


@dataclass(frozen=True)
class Buffer:
    """Rows of a value: `rows_per_token` of `width` elements for every row of a step."""

    width: int
    rows_per_token: int = 1


@dataclass(frozen=True)
class Gather:
    """Row `logit_rows[l]` of x becomes row l of out."""

    x: str
    out: str


@dataclass(frozen=True)
class Quantize:
    """out = int8 image of x, with scales per 32 elements."""

    x: str
    out: str


@dataclass(frozen=True)
class Append:
    """This step's k and v into the KV cache of a layer."""

    layer: int
    k: str
    v: str


@dataclass(frozen=True)
class Route:
    """Choose the experts of every row."""

    op: ops.MoE
    scores: str


@dataclass(frozen=True)
class Combine:
    """Weighted sum of the experts' rows."""

    op: ops.MoE
    slots: str


RowOp = (
    ops.Embed
    | ops.Norm
    | ops.Rope
    | ops.Add
    | ops.GatedAct
    | ops.SigmoidGate
    | Gather
    | Quantize
    | Append
    | Route
    | Combine
)


@dataclass(frozen=True)
class Rows:
    """Operators that work on one row at a time, chained; over the step's tokens or over its logit rows."""

    ops: tuple[RowOp, ...]
    space: Literal["tokens", "logit_rows"]


@dataclass(frozen=True)
class Input:
    """What products read: float rows, quantized rows, or both when their weights' formats differ."""

    floats: str | None
    quantized: str | None


@dataclass(frozen=True)
class Linears:
    """Products over one input in one phase. With `accumulate` (of a single product) out += x . weight^T + bias."""

    input: Input
    ops: tuple[ops.Linear, ...]
    accumulate: bool = False


@dataclass(frozen=True)
class Gated:
    """act(gate . x) * up . x without a barrier between, to float rows, quantized rows or both."""

    input: Input
    gate: str
    up: str
    act: ops.Activation
    out: Input


@dataclass(frozen=True)
class Attend:
    """The attention operator after its append."""

    op: ops.Attention


@dataclass(frozen=True)
class ExpertGated:
    """Gated over the experts that have rows; `out` has top_k rows a token."""

    input: Input
    op: ops.MoE
    out: Input


@dataclass(frozen=True)
class ExpertDown:
    """The experts' second product, into top_k rows a token."""

    input: Input
    op: ops.MoE
    out: str


@dataclass(frozen=True)
class Head:
    """Logits of the gathered rows."""

    input: Input
    op: ops.Logits


Phase = Rows | Linears | Gated | Attend | ExpertGated | ExpertDown | Head


@dataclass(frozen=True)
class Plan:
    """Phases in order and the buffers they name; a barrier stands between two phases."""

    phases: tuple[Phase, ...]
    floats: Mapping[str, Buffer]
    quantized: Mapping[str, Buffer]
