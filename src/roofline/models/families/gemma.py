"""Gemma 2 and 3 (text): norms around every block, GELU, a scaled embedding, windows on most layers.

Gemma 2 caps attention scores and logits; Gemma 3 norms query and key heads instead and has a second rotary base for windowed
layers. Hugging Face stores norm weights as w - 1, GGUF as w. The reference rounds the embedding scale sqrt(E) to the type of the
embedding; here everything is float32, so it is not rounded further, which is also what llama.cpp does.
"""

from __future__ import annotations

from roofline.models import layers
from roofline.models.builder import ModelBuilder
from roofline.models.family import Family, Traits
from roofline.models.fields import Fields
from roofline.models.names import GGUF, HUGGINGFACE, Slot, with_transform

_LAYER = "model.layers.{layer}."
_NORMS = ("attn_norm", "attn_post_norm", "mlp_norm", "mlp_post_norm", "attn.q_norm", "attn.k_norm", "final_norm")
_HUGGINGFACE = with_transform(
    {
        **HUGGINGFACE,
        "attn_post_norm": Slot(_LAYER + "post_attention_layernorm.weight"),
        "mlp_norm": Slot(_LAYER + "pre_feedforward_layernorm.weight"),
        "mlp_post_norm": Slot(_LAYER + "post_feedforward_layernorm.weight"),
    },
    _NORMS,
    "add_one",
)


def _stack(b: ModelBuilder, *, qk_norm: bool) -> None:
    layers.embed(b)
    for layer in range(b.config.num_layers):
        layers.norm(b, "attn_norm", layer)
        layers.attention(b, layer, qk_norm=qk_norm)
        layers.norm(b, "attn_post_norm", layer, x="mixed", out="mixed")
        layers.residual(b)
        layers.norm(b, "mlp_norm", layer)
        layers.mlp(b, layer)
        layers.norm(b, "mlp_post_norm", layer, x="mixed", out="mixed")
        layers.residual(b)
    layers.head(b)


def build_gemma2(b: ModelBuilder) -> None:
    _stack(b, qk_norm=False)


def build_gemma3(b: ModelBuilder) -> None:
    _stack(b, qk_norm=True)


def _alternate(_fields: Fields, layer: int) -> bool:
    return layer % 2 == 0


def _all_but_each_sixth(fields: Fields, layer: int) -> bool:
    """The period is `sliding_window_pattern`, under either of the two spellings it is saved with."""
    period = fields.count("sliding_window_pattern", fields.count("_sliding_window_pattern", 6))
    return (layer + 1) % period != 0


# config.json of the published Gemma models leaves out whatever equals the defaults of the reference implementation.
_DEFAULTS = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-6,
    "sliding_window": 4096,
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
}

GEMMA2 = Family(
    "gemma2",
    build_gemma2,
    _HUGGINGFACE,
    GGUF,
    Traits(
        defaults={**_DEFAULTS, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
        window_rule=_alternate,
        gguf_window_period=2,
        gguf_wide_scale_num_layers=46,
        activation="gelu_tanh",
        scales_embedding=True,
    ),
)

GEMMA3 = Family(
    "gemma3",
    build_gemma3,
    _HUGGINGFACE,
    GGUF,
    Traits(
        defaults={
            **_DEFAULTS,
            "max_position_embeddings": 131072,
            "rope_theta": 1e6,
            "rope_local_base_freq": 1e4,
        },
        window_rule=_all_but_each_sixth,
        gguf_window_period=6,
        gguf_local_theta=1e4,
        gguf_wide_scale_num_layers=62,
        activation="gelu_tanh",
        scales_embedding=True,
    ),
)
