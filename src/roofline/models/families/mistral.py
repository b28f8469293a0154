"""Mistral: llama with a sliding window on every layer. In GGUF it is stored under the name llama."""

from __future__ import annotations

from roofline.models.families import llama
from roofline.models.family import Family, Traits, every_layer
from roofline.models.names import GGUF, HUGGINGFACE

_TRAITS = Traits(defaults={"sliding_window": 4096}, window_rule=every_layer, gguf_rope_style="interleaved")

MISTRAL = Family("mistral", llama.build, HUGGINGFACE, GGUF, _TRAITS)
