"""Mixtral: mistral with eight experts a layer, two of them a token. In GGUF it is stored under the name llama."""

from __future__ import annotations

from roofline.models import layers
from roofline.models.builder import ModelBuilder
from roofline.models.family import Family, Traits, every_layer
from roofline.models.names import GGUF, HUGGINGFACE, Slot

_MOE = "model.layers.{layer}.block_sparse_moe."
_HUGGINGFACE = {
    **HUGGINGFACE,
    "moe.router": Slot(_MOE + "gate.weight"),
    "moe.gate": Slot(_MOE + "experts.{expert}.w1.weight"),
    "moe.up": Slot(_MOE + "experts.{expert}.w3.weight"),
    "moe.down": Slot(_MOE + "experts.{expert}.w2.weight"),
}


def build(b: ModelBuilder) -> None:
    layers.embed(b)
    for layer in range(b.config.num_layers):
        layers.norm(b, "attn_norm", layer)
        layers.attention(b, layer)
        layers.residual(b)
        layers.norm(b, "mlp_norm", layer)
        layers.moe(b, layer)
        layers.residual(b)
    layers.head(b)


_TRAITS = Traits(defaults={"rope_theta": 1e6}, window_rule=every_layer, gguf_rope_style="interleaved")

MIXTRAL = Family("mixtral", build, _HUGGINGFACE, GGUF, _TRAITS, is_moe=True)
