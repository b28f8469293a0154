"""Qwen2 and Qwen2.5: llama with biases on Q, K and V, and a window on the upper layers where the config turns it on."""

from __future__ import annotations

from roofline.models.families import llama
from roofline.models.family import Family, Traits
from roofline.models.fields import Fields
from roofline.models.names import GGUF, HUGGINGFACE


def upper_layers(fields: Fields, layer: int) -> bool:
    """Layers from `max_window_layers` up, where `use_sliding_window` is on."""
    return fields.boolean("use_sliding_window", default=False) and layer >= fields.integer("max_window_layers", 28)


_TRAITS = Traits(
    defaults={"sliding_window": 4096}, window_rule=upper_layers, always_qkv_bias=True, output_has_bias=False
)

QWEN2 = Family("qwen2", llama.build, HUGGINGFACE, GGUF, _TRAITS)
