"""The oracle: runs a Program operator by operator in NumPy, over the same paged KV cache and step batches as every back end.

Slow and obvious on purpose. Float32 is what tests of other back ends compare to; float64 shows their rounding error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.backends.base import WeightTensor
from roofline.core.batch import BLOCK_LEN, Float32, StepBatch
from roofline.program import ops
from roofline.program.program import KvLayer, Program

Float = NDArray[Any]  # of the back end's dtype


class _KvCache:
    """One layer's K and V, [N, BLOCK_LEN, Hk, D] each."""

    def __init__(self, layer: KvLayer, num_blocks: int, dtype: type[np.floating[Any]]) -> None:
        shape = (num_blocks, BLOCK_LEN, layer.num_kv_heads, layer.head_size)
        self.k, self.v = np.zeros(shape, dtype), np.zeros(shape, dtype)


class ReferenceBackend:
    """Implements `Backend`. Weights are kept as float arrays of `dtype`, so memory is 4 or 8 bytes a weight."""

    def __init__(
        self,
        program: Program,
        weights: Mapping[str, WeightTensor],
        *,
        num_blocks: int,
        dtype: type[np.floating[Any]] = np.float32,
    ) -> None:
        self._program = program
        self._num_blocks = num_blocks
        self._dtype = dtype
        self._weights = {name: weights[name].dequantized().astype(dtype, copy=False) for name in program.weights}
        self._caches = [_KvCache(layer, num_blocks, dtype) for layer in program.kv_layers]

    @property
    def program(self) -> Program:
        return self._program

    @property
    def num_blocks(self) -> int:
        return self._num_blocks

    def step(self, batch: StepBatch) -> Float32:
        """See Backend.step."""
        batch.check(vocab_size=self._program.vocab_size, num_blocks=self._num_blocks)
        values: dict[str, Float] = {}
        for op in self._program.ops:
            values[ops.writes(op)] = self._run(op, values, batch)
        return values[ops.writes(self._program.ops[-1])].astype(np.float32)

    def _run(self, op: ops.Op, values: Mapping[str, Float], batch: StepBatch) -> Float:
        weights = self._weights
        match op:
            case ops.Embed():
                return np.asarray(weights[op.weight][batch.token_ids] * self._dtype(op.scale))
            case ops.Norm():
                return rms_norm(values[op.x], weights[op.weight], op.eps, op.group_len, op.num_groups)
            case ops.Linear():
                return linear(values[op.x], weights[op.weight], None if op.bias is None else weights[op.bias])
            case ops.Rope():
                return rope(values[op.x], batch.positions, op)
            case ops.Attention():
                return self._attention(op, values, batch)
            case ops.GatedAct():
                return activation(values[op.gate], op.act) * values[op.up]
            case ops.Add():
                return values[op.a] + values[op.b]
            case ops.SigmoidGate():
                return values[op.x] * sigmoid(values[op.gate])
            case ops.MoE():
                return self._moe(op, values[op.x])
            case ops.Logits():
                logits = linear(values[op.x][batch.logit_rows], weights[op.weight], None) * self._dtype(op.scale)
                return soft_cap(logits, op.soft_cap)
            case ops.AllReduce():
                return values[op.x]

    def _attention(self, op: ops.Attention, values: Mapping[str, Float], batch: StepBatch) -> Float:
        cache = self._caches[op.layer]
        q = values[op.q].reshape(-1, op.num_heads, op.head_size)
        k, v = (values[name].reshape(-1, op.num_kv_heads, op.head_size) for name in (op.k, op.v))
        out = np.empty_like(q)
        for b in range(batch.num_seqs):
            rows = slice(batch.seq_starts[b], batch.seq_starts[b + 1])
            positions = batch.positions[rows]
            table = batch.block_tables[b]
            cache.k[table[positions // BLOCK_LEN], positions % BLOCK_LEN] = k[rows]
            cache.v[table[positions // BLOCK_LEN], positions % BLOCK_LEN] = v[rows]
            seen = np.arange(batch.context_lens[b])
            keys = cache.k[table[seen // BLOCK_LEN], seen % BLOCK_LEN]
            vals = cache.v[table[seen // BLOCK_LEN], seen % BLOCK_LEN]
            out[rows] = attend(op, q[rows], keys, vals, positions)
        return out.reshape(len(out), -1)

    def _moe(self, op: ops.MoE, x: Float) -> Float:
        experts, shares = route(linear(x, self._weights[op.router], None), op.top_k, renormalize=op.renormalize)
        out = np.zeros_like(x)
        for t in range(len(x)):
            row = x[t : t + 1]
            for expert, share in zip(experts[t], shares[t], strict=True):
                gate = activation(linear(row, self._weights[op.gate[expert]], None), op.act)
                up = linear(row, self._weights[op.up[expert]], None)
                out[t] += share * linear(gate * up, self._weights[op.down[expert]], None)[0]
        return out


def rms_norm(x: Float, weight: Float, eps: float, group_len: int, num_groups: int) -> Float:
    """[T, num_groups * group_len], each group normed on its own."""
    groups = x.reshape(-1, num_groups, group_len)
    mean_square = np.mean(groups * groups, axis=-1, keepdims=True)
    return np.asarray(groups / np.sqrt(mean_square + x.dtype.type(eps)) * weight).reshape(x.shape)


def linear(x: Float, weight: Float, bias: Float | None) -> Float:
    """x [T, K] . weight [N, K]^T + bias [N]."""
    product = x @ weight.T
    return product if bias is None else product + bias


def rope(x: Float, positions: NDArray[np.int32], op: ops.Rope) -> Float:
    """Turn the pairs of each head by position * inv_freq; the angle is rounded to the dtype, as every engine does."""
    spec, heads = op.rope, x.reshape(-1, op.num_heads, op.head_size).copy()
    angles = positions[:, None].astype(x.dtype) * np.asarray(spec.inv_freq, x.dtype)
    cos = (np.cos(angles) * x.dtype.type(spec.attention_factor))[:, None, :]
    sin = (np.sin(angles) * x.dtype.type(spec.attention_factor))[:, None, :]
    half = spec.rotary_len // 2
    if spec.style == "half":
        first, second = slice(0, half), slice(half, spec.rotary_len)
    else:
        first, second = slice(0, spec.rotary_len, 2), slice(1, spec.rotary_len, 2)
    a, b = heads[..., first].copy(), heads[..., second].copy()
    heads[..., first] = a * cos - b * sin
    heads[..., second] = b * cos + a * sin
    return heads.reshape(x.shape)


def attend(op: ops.Attention, q: Float, k: Float, v: Float, positions: NDArray[np.int32]) -> Float:
    """q [T, H, D] of one sequence at `positions` over its cached k, v [context, Hk, D] -> [T, H, D]."""
    group = op.num_heads // op.num_kv_heads
    scores = np.einsum("thd,shd->hts", q, np.repeat(k, group, axis=1)) * q.dtype.type(op.scale)
    scores = soft_cap(scores, op.soft_cap)
    age = positions[:, None] - np.arange(len(k))[None, :]
    visible = (age >= 0) if op.window == 0 else (age >= 0) & (age < op.window)
    weights = softmax(np.where(visible, scores, -np.inf))
    return np.asarray(np.einsum("hts,shd->thd", weights, np.repeat(v, group, axis=1)))


def route(logits: Float, top_k: int, *, renormalize: bool) -> tuple[NDArray[np.int64], Float]:
    """Router logits [T, X] -> experts [T, top_k] by falling probability, equal ones by index, and their shares [T, top_k]."""
    shares = softmax(logits)
    experts = np.argsort(-logits, axis=-1, kind="stable")[:, :top_k]
    chosen = np.take_along_axis(shares, experts, axis=-1)
    return experts, chosen / chosen.sum(axis=-1, keepdims=True) if renormalize else chosen


def softmax(x: Float) -> Float:
    """Over the last axis; every row has a finite entry."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def soft_cap(x: Float, cap: float) -> Float:
    """cap * tanh(x / cap), or x for a cap of 0."""
    return np.asarray(np.tanh(x / x.dtype.type(cap)) * x.dtype.type(cap)) if cap else x


def sigmoid(x: Float) -> Float:
    """Without overflow: tanh saturates."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)))


def activation(x: Float, act: ops.Activation) -> Float:
    """SiLU, or GELU by its tanh approximation."""
    if act == "silu":
        return x * sigmoid(x)
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return np.asarray(0.5 * x * (1 + np.tanh(inner)))
