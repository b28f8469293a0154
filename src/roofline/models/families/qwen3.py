"""Qwen3: llama with a norm of every query and key head before the rotary embedding, and no biases."""

from __future__ import annotations

from roofline.models import layers
from roofline.models.builder import ModelBuilder
from roofline.models.families.qwen2 import upper_layers
from roofline.models.family import Family, Traits
from roofline.models.names import GGUF, HUGGINGFACE


def build(b: ModelBuilder) -> None:
    layers.embed(b)
    for layer in range(b.config.num_layers):
        layers.norm(b, "attn_norm", layer)
        layers.attention(b, layer, qk_norm=True)
        layers.residual(b)
        layers.norm(b, "mlp_norm", layer)
        layers.mlp(b, layer)
        layers.residual(b)
    layers.head(b)


_TRAITS = Traits(defaults={"sliding_window": 4096, "head_dim": 128}, window_rule=upper_layers)

QWEN3 = Family("qwen3", build, HUGGINGFACE, GGUF, _TRAITS)
