"""The record of one model family: how its program is built, what its tensors are called, and what files leave unsaid.

Each file in families/ makes one or two; the registry lists them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from roofline.models.builder import ModelBuilder
from roofline.models.fields import Fields
from roofline.models.names import NameTable
from roofline.program.ops import Activation, RopeStyle

WindowRule = Callable[[Fields, int], bool]
"""Whether a layer has the window, given config.json, when `layer_types` does not say."""


def every_layer(_fields: Fields, _layer: int) -> bool:
    return True


def no_layer(_fields: Fields, _layer: int) -> bool:
    return False


@dataclass(frozen=True)
class Traits:
    """What the config readers must know of a family because its files don't say it."""

    # Keys that published config.json files of the family leave out, with the values that the reference then takes.
    defaults: Mapping[str, Any] = field(default_factory=dict)
    window_rule: WindowRule = no_layer
    # GGUF: of each `period` layers the last attends to everything; 0 gives every layer the window.
    gguf_window_period: int = 0
    gguf_rope_style: RopeStyle = "half"
    gguf_local_theta: float | None = None  # base of windowed layers where the file gives none
    # GGUF does not store Gemma's query scale; the largest model of each generation, known by its depth, takes E / H.
    gguf_wide_scale_num_layers: int = 0
    activation: Activation = "silu"
    scales_embedding: bool = False
    always_qkv_bias: bool = False
    output_has_bias: bool = True  # attention_bias covers the output projection too
    renormalize: bool = True  # of expert weights, where the file does not say


@dataclass(frozen=True)
class Family:
    """One row of the registry."""

    name: str
    build: Callable[[ModelBuilder], None]
    huggingface: NameTable
    gguf: NameTable
    traits: Traits = Traits()
    is_moe: bool = False
