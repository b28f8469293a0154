"""Reads a Hugging Face config.json, of any generation, into a ModelConfig."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roofline.core.errors import ModelFormatError, UnsupportedModelError
from roofline.models.config import ModelConfig, MoeConfig, head_size_of
from roofline.models.family import Family
from roofline.models.fields import MAX_EXPERTS, MAX_HEAD_SIZE, MAX_LAYERS, Fields
from roofline.models.rope import RopeConfig, scaling_from_huggingface
from roofline.program.ops import Activation
from roofline.weights.strict_json import read_json_object
from roofline.weights.tensor import Checkpoint

_ACTIVATIONS: Mapping[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
}
_MAX_JSON_BYTES = 1 << 20
_LAYER_TYPES = ("full_attention", "sliding_attention")


def read_huggingface_config(checkpoint: Checkpoint, family: Family) -> ModelConfig:
    """ModelFormatError names a missing, mistyped or contradictory key; UnsupportedModelError a value not implemented."""
    values = {**family.traits.defaults, **checkpoint.metadata}
    fields = Fields(values, f"{checkpoint.path}: config.json")
    _refuse_unsupported(fields)
    hidden_size, num_heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    head_size = (
        fields.count("head_dim", limit=MAX_HEAD_SIZE)
        if fields.has("head_dim")
        else head_size_of(hidden_size, num_heads)
    )
    num_layers = fields.count("num_hidden_layers", limit=MAX_LAYERS)
    attention_bias = fields.boolean("attention_bias", default=False) or fields.boolean("qkv_bias", default=False)
    return ModelConfig(
        family=family.name,
        checkpoint_format="huggingface",
        num_layers=num_layers,
        hidden_size=hidden_size,
        ffn_size=fields.count("intermediate_size"),
        num_heads=num_heads,
        num_kv_heads=fields.count("num_key_value_heads", num_heads),
        head_size=head_size,
        vocab_size=fields.count("vocab_size"),
        max_context_len=fields.count("max_position_embeddings"),
        norm_eps=fields.positive("rms_norm_eps"),
        activation=_activation(fields),
        rope=_rope(fields, head_size, "full_attention"),
        local_rope=_rope(fields, head_size, "sliding_attention"),
        rope_style="half",
        windows=_windows(fields, family, num_layers),
        attention_scale=fields.positive("query_pre_attn_scalar", head_size) ** -0.5,
        attention_soft_cap=_optional_number(fields, "attn_logit_softcapping"),
        final_soft_cap=_optional_number(fields, "final_logit_softcapping"),
        embedding_scale=hidden_size**0.5 if family.traits.scales_embedding else 1.0,
        qkv_bias=attention_bias or family.traits.always_qkv_bias,
        out_bias=attention_bias and family.traits.output_has_bias,
        mlp_bias=fields.boolean("mlp_bias", default=False),
        tied=fields.boolean("tie_word_embeddings", default=False),
        bos_id=fields.integer("bos_token_id") if fields.has("bos_token_id") else None,
        eos_ids=_eos_ids(checkpoint, fields),
        moe=_moe(fields, family, num_layers),
    )


def _refuse_unsupported(fields: Fields) -> None:
    if fields.boolean("use_bidirectional_attention", default=False):
        raise UnsupportedModelError(f"{fields.origin}: use_bidirectional_attention is not supported")
    if fields.has("quantization_config"):
        method = fields.raw("quantization_config")
        method = method.get("quant_method") if isinstance(method, dict) else method
        raise UnsupportedModelError(
            f"{fields.origin}: quantization_config {method!r} is not supported", hint="use a GGUF file, or bf16 weights"
        )


def _activation(fields: Fields) -> Activation:
    key = "hidden_activation" if fields.has("hidden_activation") else "hidden_act"
    name = fields.text(key, "silu")
    if name not in _ACTIVATIONS:
        raise UnsupportedModelError(
            f"{fields.origin}: {key!r} {name!r} is not supported", hint=f"supported: {', '.join(_ACTIVATIONS)}"
        )
    return _ACTIVATIONS[name]


def _rope(fields: Fields, head_size: int, layer_type: str) -> RopeConfig:
    parameters, is_nested = _rope_parameters(fields, layer_type)
    has_local_base = layer_type == "sliding_attention" and fields.has("rope_local_base_freq")
    if has_local_base and not is_nested:
        parameters = {}  # the older form: the one dict belongs to the layers without a window
    theta_key = "rope_local_base_freq" if has_local_base else "rope_theta"
    inner = Fields(parameters, f"{fields.origin}: rope parameters")
    theta = inner.positive("rope_theta", fields.positive(theta_key, 1e4))
    part = inner.positive("partial_rotary_factor", fields.positive("partial_rotary_factor", 1.0))
    original_key = "original_max_position_embeddings"
    scaling = scaling_from_huggingface(
        parameters,
        context_len=fields.count("max_position_embeddings"),
        original_context_len=fields.count(original_key) if fields.has(original_key) else None,
    )
    return RopeConfig(theta, int(head_size * part), scaling)


def _rope_parameters(fields: Fields, layer_type: str) -> tuple[Mapping[str, Any], bool]:
    """The rope dict of a layer type, and whether the config holds one per type."""
    keys = [key for key in ("rope_parameters", "rope_scaling") if fields.has(key)]
    given = [fields.table(key) for key in keys]
    if len(given) == 2 and given[0] != given[1]:
        raise fields.error("rope_parameters", f"and 'rope_scaling' disagree: {given[0]} and {given[1]}")
    parameters = given[0] if given else {}
    if any(key in _LAYER_TYPES for key in parameters):
        return Fields(parameters, f"{fields.origin}: {keys[0]}").table(layer_type), True
    return parameters, False


def _windows(fields: Fields, family: Family, num_layers: int) -> tuple[int, ...]:
    """Per layer the window, or 0: what `layer_types` says, else the family's rule."""
    window = fields.integer("sliding_window", 0) if fields.has("sliding_window") else 0
    if not fields.has("layer_types"):
        rule = family.traits.window_rule
        return tuple(window if window and rule(fields, layer) else 0 for layer in range(num_layers))
    kinds = fields.raw("layer_types")
    if not isinstance(kinds, list) or len(kinds) != num_layers:
        raise fields.error("layer_types", f"does not give one type for each of {num_layers} layers")
    unknown = sorted({str(kind) for kind in kinds} - set(_LAYER_TYPES))
    if unknown:
        raise UnsupportedModelError(f"{fields.origin}: layer_types {unknown} are not supported", hint=str(_LAYER_TYPES))
    if "sliding_attention" in kinds and not window:
        raise ModelFormatError(f"{fields.origin}: layer_types has 'sliding_attention', but 'sliding_window' is missing")
    return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)


def _optional_number(fields: Fields, key: str) -> float:
    """A soft cap: null means none."""
    return fields.positive(key) if fields.has(key) else 0.0


def _eos_ids(checkpoint: Checkpoint, fields: Fields) -> tuple[int, ...]:
    """Of config.json and then of generation_config.json, which often alone names the end of a turn."""
    ids = _token_ids(fields, "eos_token_id")
    path = checkpoint.path / "generation_config.json"
    if path.is_file():
        ids += _token_ids(Fields(read_json_object(path, max_bytes=_MAX_JSON_BYTES), str(path)), "eos_token_id")
    return tuple(dict.fromkeys(ids))


def _token_ids(fields: Fields, key: str) -> list[int]:
    if not fields.has(key):
        return []
    value = fields.raw(key)
    ids = value if isinstance(value, list) else [value]
    if any(isinstance(token, bool) or not isinstance(token, int) for token in ids):
        raise fields.error(key, f"is {value!r}, not a token id or a list of them")
    return ids


def _moe(fields: Fields, family: Family, num_layers: int) -> MoeConfig | None:
    count_key = next((key for key in ("num_local_experts", "num_experts") if fields.has(key)), None)
    if not family.is_moe:
        if count_key is not None and fields.integer(count_key) > 1:
            raise UnsupportedModelError(f"{fields.origin}: {count_key!r} is given, but {family.name} has no experts")
        return None
    ffn_key = "moe_intermediate_size" if fields.has("moe_intermediate_size") else "intermediate_size"
    shared_key = "shared_expert_intermediate_size"
    return MoeConfig(
        num_experts=fields.count(count_key or "num_experts", limit=MAX_EXPERTS),
        top_k=fields.count("num_experts_per_tok"),
        ffn_size=fields.count(ffn_key),
        shared_ffn_size=fields.count(shared_key) if fields.has(shared_key) else 0,
        renormalize=fields.boolean("norm_topk_prob", default=family.traits.renormalize),
        sparse_layers=_sparse_layers(fields, num_layers),
    )


def _sparse_layers(fields: Fields, num_layers: int) -> tuple[bool, ...]:
    step = fields.count("decoder_sparse_step", 1)
    dense = fields.raw("mlp_only_layers") if fields.has("mlp_only_layers") else []
    if not isinstance(dense, list):
        raise fields.error("mlp_only_layers", f"is {dense!r}, not a list of layers")
    return tuple((layer + 1) % step == 0 and layer not in dense for layer in range(num_layers))
