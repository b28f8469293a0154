"""Llama 2 and 3, SmolLM2 and everything else that calls itself llama: pre-norm layers, rotary embedding, gated SiLU MLP.

Also the layer stack of every family that differs from it in its configuration alone.
"""

from __future__ import annotations

from roofline.models import layers
from roofline.models.builder import ModelBuilder
from roofline.models.family import Family, Traits
from roofline.models.names import GGUF, HUGGINGFACE


def build(b: ModelBuilder) -> None:
    layers.embed(b)
    for layer in range(b.config.num_layers):
        layers.norm(b, "attn_norm", layer)
        layers.attention(b, layer)
        layers.residual(b)
        layers.norm(b, "mlp_norm", layer)
        layers.mlp(b, layer)
        layers.residual(b)
    layers.head(b)


# GGUF conversion reorders the rows of Q and K of this architecture so that rotary pairs are neighbours.
LLAMA = Family("llama", build, HUGGINGFACE, GGUF, Traits(gguf_rope_style="interleaved"))
