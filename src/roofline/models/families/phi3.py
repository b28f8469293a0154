"""Phi-3 and Phi-4-mini: llama whose Q, K, V and whose gate, up lie in one tensor each, with LongRoPE and partial rotation."""

from __future__ import annotations

from roofline.models.families import llama
from roofline.models.family import Family, Traits, every_layer
from roofline.models.names import GGUF, HUGGINGFACE, fused

_QKV, _MLP = ("attn.q", "attn.k", "attn.v"), ("mlp.gate", "mlp.up")
_HUGGINGFACE = {
    **HUGGINGFACE,
    **fused("model.layers.{layer}.self_attn.qkv_proj.weight", *_QKV),
    **fused("model.layers.{layer}.mlp.gate_up_proj.weight", *_MLP),
}
_GGUF = {**GGUF, **fused("blk.{layer}.attn_qkv.weight", *_QKV), **fused("blk.{layer}.ffn_up.weight", *_MLP)}

PHI3 = Family("phi3", llama.build, _HUGGINGFACE, _GGUF, Traits(window_rule=every_layer))
