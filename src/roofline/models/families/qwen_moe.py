"""Qwen2-MoE and Qwen3-MoE: their dense namesakes with routed experts, some layers dense; Qwen2's add a gated shared expert."""

from __future__ import annotations

from roofline.models import layers
from roofline.models.builder import ModelBuilder
from roofline.models.family import Family, Traits
from roofline.models.fields import Fields
from roofline.models.names import GGUF, HUGGINGFACE


def _feed_forward(b: ModelBuilder, layer: int) -> None:
    assert b.config.moe is not None
    if not b.config.moe.sparse_layers[layer]:
        layers.mlp(b, layer)
        return
    layers.moe(b, layer)
    if b.config.moe.shared_ffn_size:
        layers.shared_expert(b, layer)


def _stack(b: ModelBuilder, *, qk_norm: bool) -> None:
    layers.embed(b)
    for layer in range(b.config.num_layers):
        layers.norm(b, "attn_norm", layer)
        layers.attention(b, layer, qk_norm=qk_norm)
        layers.residual(b)
        layers.norm(b, "mlp_norm", layer)
        _feed_forward(b, layer)
        layers.residual(b)
    layers.head(b)


def build_qwen2_moe(b: ModelBuilder) -> None:
    _stack(b, qk_norm=False)


def build_qwen3_moe(b: ModelBuilder) -> None:
    _stack(b, qk_norm=True)


def _lower_even_layers(fields: Fields, layer: int) -> bool:
    if not fields.boolean("use_sliding_window", default=False):
        return False
    return layer % 2 == 0 and layer < fields.integer("max_window_layers", 28)


def _where_turned_on(fields: Fields, _layer: int) -> bool:
    return fields.boolean("use_sliding_window", default=False)


QWEN2_MOE = Family(
    "qwen2_moe",
    build_qwen2_moe,
    HUGGINGFACE,
    GGUF,
    Traits(
        defaults={"sliding_window": 4096, "qkv_bias": True},
        window_rule=_lower_even_layers,
        output_has_bias=False,
        renormalize=False,
    ),
    is_moe=True,
)

QWEN3_MOE = Family(
    "qwen3_moe",
    build_qwen3_moe,
    HUGGINGFACE,
    GGUF,
    Traits(defaults={"sliding_window": 4096}, window_rule=_where_turned_on),
    is_moe=True,
)
