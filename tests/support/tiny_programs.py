"""Tiny random models as programs with weights in memory: the shapes that back ends must get right, without a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from roofline.core.batch import BLOCK_LEN, StepBatch
from roofline.program import ops
from roofline.program.program import Program, build
from roofline.weights.loader import LoadedWeight
from roofline.weights.schemes import SCHEMES
from roofline.weights.tensor import Tensor
from support.random_blocks import random_blocks


@dataclass(frozen=True)
class TinyConfig:
    """Sizes and features of a tiny model. `scheme` is the type of all matrices but the router."""

    num_layers: int = 2
    num_heads: int = 4
    num_kv_heads: int = 2
    head_size: int = 16
    hidden: int = 64
    ffn: int = 96
    vocab_size: int = 131
    scheme: str = "F32"
    windows: tuple[int, ...] = (0, 0)
    soft_cap: float = 0.0
    logit_soft_cap: float = 0.0
    qk_norm: bool = False
    has_bias: bool = False
    post_norms: bool = False
    rope_style: ops.RopeStyle = "half"
    rotary_len: int = 16
    act: ops.Activation = "silu"
    num_experts: int = 0
    top_k: int = 2
    has_shared_expert: bool = False
    is_tied: bool = True
    embedding_scale: float = 1.0
    attention_scale: float = 0.25
    mixed_schemes: tuple[str, ...] = field(default=())  # cycled over the matrices in place of `scheme`


class TinyModel:
    """A program and its weights, drawn from `seed`."""

    def __init__(self, config: TinyConfig, seed: int = 0) -> None:
        self.config = config
        self.weights: dict[str, LoadedWeight] = {}
        self._rng = np.random.default_rng(seed)
        self._ops: list[ops.Op] = []
        self._specs: dict[str, ops.WeightSpec] = {}
        self.program = self._build()

    def _matrix(self, name: str, num_rows: int, row_len: int, scheme: str | None = None) -> str:
        mixed = self.config.mixed_schemes
        scheme = scheme or (mixed[len(self.weights) % len(mixed)] if mixed else self.config.scheme)
        if scheme == "F32":
            values = self._rng.standard_normal((num_rows, row_len)) / np.sqrt(row_len)
            raw = values.astype(np.float32).view(np.uint8)
        else:
            raw = random_blocks(scheme, num_rows, row_len, self._rng)
        return self._keep(name, scheme, (num_rows, row_len), raw)

    def _vector(self, name: str, size: int, center: float) -> str:
        values = (center + 0.2 * self._rng.standard_normal(size)).astype(np.float32)
        return self._keep(name, "F32", (size,), values.view(np.uint8))

    def _keep(self, name: str, scheme: str, shape: tuple[int, ...], raw: np.ndarray) -> str:
        self.weights[name] = LoadedWeight(Tensor(name, SCHEMES[scheme], shape, np.ascontiguousarray(raw).reshape(-1)))
        self._specs[name] = ops.WeightSpec(name, shape)
        return name

    def _build(self) -> Program:
        c = self.config
        self._ops.append(ops.Embed("x", self._matrix("embed", c.vocab_size, c.hidden), c.embedding_scale))
        for layer in range(c.num_layers):
            self._attention(layer)
            self._feed_forward(layer)
        self._norm("x", "n", "final_norm")
        head = "embed" if c.is_tied else self._matrix("head", c.vocab_size, c.hidden)
        self._ops.append(ops.Logits("n", "logits", head, c.logit_soft_cap))
        return build(self._ops, self._specs.values())

    def _norm(self, x: str, out: str, name: str) -> None:
        self._ops.append(ops.Norm(x, out, self._vector(name, self.config.hidden, 1.0), 1e-5, self.config.hidden))

    def _linear(self, name: str, x: str, out: str, out_width: int, in_width: int) -> None:
        weight = self._matrix(name, out_width, in_width)
        bias = self._vector(f"{name}.bias", out_width, 0.0) if self.config.has_bias else None
        self._ops.append(ops.Linear(x, out, weight, bias))

    def _attention(self, layer: int) -> None:
        c, at = self.config, f"{layer}."
        self._norm("x", "n", at + "norm")
        heads = {"q": c.num_heads, "k": c.num_kv_heads, "v": c.num_kv_heads}
        for name, num_heads in heads.items():
            self._linear(at + name, "n", name, num_heads * c.head_size, c.hidden)
        inv_freq = tuple(float(f) for f in 1 / 10000 ** (np.arange(0, c.rotary_len, 2) / c.rotary_len))
        rope = ops.RopeSpec(c.rotary_len, c.rope_style, inv_freq)
        for name in ("q", "k"):
            if c.qk_norm:
                weight = self._vector(f"{at}{name}_norm", c.head_size, 1.0)
                self._ops.append(ops.Norm(name, name, weight, 1e-6, c.head_size, heads[name]))
            self._ops.append(ops.Rope(name, heads[name], c.head_size, rope))
        self._ops.append(
            ops.Attention(
                q="q",
                k="k",
                v="v",
                out="a",
                layer=layer,
                num_heads=c.num_heads,
                num_kv_heads=c.num_kv_heads,
                head_size=c.head_size,
                scale=c.attention_scale,
                window=c.windows[layer],
                soft_cap=c.soft_cap,
            )
        )
        self._linear(at + "o", "a", "m", c.hidden, c.num_heads * c.head_size)
        self._residual(at + "post_attention_norm")

    def _residual(self, post_norm: str) -> None:
        if self.config.post_norms:
            self._norm("m", "m", post_norm)
        self._ops.append(ops.AllReduce("m"))
        self._ops.append(ops.Add("x", "m", "x"))

    def _feed_forward(self, layer: int) -> None:
        c, at = self.config, f"{layer}."
        self._norm("x", "n", at + "ffn_norm")
        if c.num_experts:
            self._moe(at)
        else:
            self._mlp(at, "n", "m")
        self._residual(at + "post_ffn_norm")

    def _mlp(self, prefix: str, x: str, out: str) -> None:
        c = self.config
        self._linear(prefix + "gate", x, "g", c.ffn, c.hidden)
        self._linear(prefix + "up", x, "u", c.ffn, c.hidden)
        self._ops.append(ops.GatedAct("g", "u", "h", c.act))
        self._linear(prefix + "down", "h", out, c.hidden, c.ffn)

    def _moe(self, at: str) -> None:
        c = self.config
        gate, up, down = (
            tuple(self._matrix(f"{at}{part}.{e}", rows, length, c.scheme) for e in range(c.num_experts))
            for part, rows, length in (("gate", c.ffn, c.hidden), ("up", c.ffn, c.hidden), ("down", c.hidden, c.ffn))
        )
        router = self._matrix(at + "router", c.num_experts, c.hidden, "F32")
        self._ops.append(ops.MoE("n", "m", router, gate, up, down, c.top_k, True, c.act))
        if c.has_shared_expert:
            self._mlp(at + "shared.", "n", "s")
            self._linear(at + "switch", "n", "w", 1, c.hidden)
            self._ops.append(ops.SigmoidGate("s", "w", "s"))
            self._ops.append(ops.Add("m", "s", "m"))


@dataclass
class Sequence:
    """A sequence on its way through a schedule: its tokens, how many are computed, its KV blocks."""

    token_ids: np.ndarray
    block_table: np.ndarray
    num_computed: int = 0


def batch_of(parts: list[tuple[Sequence, int]], *, all_logits: bool = True) -> StepBatch:
    """The next `count` tokens of each sequence as one step; logits of every row, or of each sequence's last."""
    ints = np.int32
    starts = np.cumsum([0, *(count for _, count in parts)]).astype(ints)
    spans = [(seq, seq.num_computed, seq.num_computed + count) for seq, count in parts]
    width = max(len(seq.block_table) for seq, _ in parts)
    tables = np.full((len(parts), width), -1, ints)
    for b, (seq, _, stop) in enumerate(spans):
        used = -(-stop // BLOCK_LEN)
        tables[b, :used] = seq.block_table[:used]
    return StepBatch(
        token_ids=np.concatenate([seq.token_ids[start:stop] for seq, start, stop in spans]).astype(ints),
        positions=np.concatenate([np.arange(start, stop) for _, start, stop in spans]).astype(ints),
        seq_starts=starts,
        context_lens=np.array([stop for _, _, stop in spans], ints),
        block_tables=tables,
        logit_rows=np.arange(starts[-1], dtype=ints) if all_logits else (starts[1:] - 1),
    )
