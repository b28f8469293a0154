"""Reads GGUF metadata, and what only the tensors say, into a ModelConfig."""

from __future__ import annotations

from roofline.core.errors import ModelFormatError, UnsupportedModelError
from roofline.models.config import ModelConfig, MoeConfig, head_size_of
from roofline.models.family import Family
from roofline.models.fields import MAX_EXPERTS, MAX_HEAD_SIZE, MAX_LAYERS, Fields
from roofline.models.rope import (
    FrequencyFactors,
    LinearScaling,
    LongRope,
    RopeConfig,
    RopeScaling,
    Yarn,
    longrope_attention_factor,
    yarn_attention_factor,
)
from roofline.weights.tensor import Checkpoint

_SCALING_TYPES = ("none", "linear", "yarn", "longrope")
_EOS_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


def read_gguf_config(checkpoint: Checkpoint, family: Family) -> ModelConfig:
    """ModelFormatError names a missing, mistyped or contradictory key; UnsupportedModelError a value not implemented."""
    metadata = {key: _uniform(value) for key, value in checkpoint.metadata.items()}
    fields = Fields(metadata, str(checkpoint.path), f"{metadata['general.architecture']}.")
    hidden_size, num_heads = fields.count("embedding_length"), fields.count("attention.head_count")
    num_layers = fields.count("block_count", limit=MAX_LAYERS)
    head_size = _head_size(fields, hidden_size, num_heads)
    rope = _rope(checkpoint, fields, head_size)
    moe = _moe(checkpoint, fields, family, num_layers)
    return ModelConfig(
        family=family.name,
        checkpoint_format="gguf",
        num_layers=num_layers,
        hidden_size=hidden_size,
        ffn_size=fields.count("feed_forward_length", moe.ffn_size if moe else None),
        num_heads=num_heads,
        num_kv_heads=fields.count("attention.head_count_kv", num_heads),
        head_size=head_size,
        vocab_size=_vocab_size(checkpoint, fields),
        max_context_len=fields.count("context_length"),
        norm_eps=fields.positive("attention.layer_norm_rms_epsilon"),
        activation=family.traits.activation,
        rope=rope,
        local_rope=_local_rope(fields, family, rope),
        rope_style=family.traits.gguf_rope_style,
        windows=_windows(checkpoint, fields, family, num_layers),
        attention_scale=_attention_scale(fields, family, hidden_size, num_heads, head_size),
        attention_soft_cap=_soft_cap(fields, family, "attn_logit_softcapping"),
        final_soft_cap=_soft_cap(fields, family, "final_logit_softcapping"),
        embedding_scale=hidden_size**0.5 if family.traits.scales_embedding else 1.0,
        qkv_bias="blk.0.attn_q.bias" in checkpoint.tensors,
        out_bias="blk.0.attn_output.bias" in checkpoint.tensors,
        mlp_bias="blk.0.ffn_down.bias" in checkpoint.tensors,
        tied="output.weight" not in checkpoint.tensors,
        bos_id=_token_id(checkpoint, "bos_token_id"),
        eos_ids=tuple(token for key in _EOS_KEYS if (token := _token_id(checkpoint, key)) is not None),
        moe=moe,
    )


def _uniform(value: object) -> object:
    """Some converters write one value per layer: an equal run stands for its value."""
    if isinstance(value, list) and 0 < len(value) <= 4096 and all(type(item) is int for item in value):
        return value[0] if len(set(value)) == 1 else value
    return value


def _token_id(checkpoint: Checkpoint, key: str) -> int | None:
    fields = Fields(checkpoint.metadata, str(checkpoint.path), "tokenizer.ggml.")
    return fields.integer(key) if fields.has(key) else None


def _head_size(fields: Fields, hidden_size: int, num_heads: int) -> int:
    key = "attention.key_length"
    head_size = fields.count(key, limit=MAX_HEAD_SIZE) if fields.has(key) else head_size_of(hidden_size, num_heads)
    value_len = fields.count("attention.value_length", head_size)
    if value_len != head_size:
        raise UnsupportedModelError(f"{fields.origin}: key length {head_size} and value length {value_len} differ")
    return head_size


def _vocab_size(checkpoint: Checkpoint, fields: Fields) -> int:
    embedding = checkpoint.tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelFormatError(f"{fields.origin}: tensor 'token_embd.weight' is missing")
    vocab_size = embedding.shape[0]
    if fields.count("vocab_size", vocab_size) != vocab_size:
        raise fields.error(
            "vocab_size", f"is {fields.count('vocab_size')}, but token_embd.weight has {vocab_size} rows"
        )
    return vocab_size


def _rope(checkpoint: Checkpoint, fields: Fields, head_size: int) -> RopeConfig:
    theta = fields.positive("rope.freq_base", 1e4)
    rotary_len = fields.count("rope.dimension_count", head_size)
    return RopeConfig(theta, rotary_len, _scaling(checkpoint, fields))


def _scaling(checkpoint: Checkpoint, fields: Fields) -> RopeScaling | None:
    """Scaling from `rope.scaling.*`, from the tensors that hold divisors, or from the old `rope.scale_linear`."""
    kind = fields.text("rope.scaling.type", "none")
    if kind not in _SCALING_TYPES:
        raise UnsupportedModelError(
            f"{fields.origin}: rope.scaling.type {kind!r} is unknown", hint=f"known: {', '.join(_SCALING_TYPES)}"
        )
    if "rope_factors_long.weight" in checkpoint.tensors:
        return _longrope(checkpoint, fields)
    if "rope_freqs.weight" in checkpoint.tensors:
        if kind not in ("none", "linear") or fields.positive("rope.scaling.factor", 1.0) != 1.0:
            raise UnsupportedModelError(f"{fields.origin}: rope_freqs.weight together with rope.scaling.type {kind!r}")
        return FrequencyFactors(_factors(checkpoint, "rope_freqs.weight"))
    if kind == "yarn":
        return _yarn(fields)
    if kind == "longrope":
        raise ModelFormatError(
            f"{fields.origin}: rope.scaling.type is longrope, but 'rope_factors_long.weight' is missing"
        )
    factor = fields.positive("rope.scaling.factor", fields.positive("rope.scale_linear", 1.0))
    return LinearScaling(factor) if kind == "linear" or fields.has("rope.scale_linear") else None


def _factors(checkpoint: Checkpoint, name: str) -> tuple[float, ...]:
    tensor = checkpoint.tensors.get(name)
    if tensor is None:
        raise ModelFormatError(f"{checkpoint.path}: tensor {name!r} is missing")
    values = {name: [float(value) for value in tensor.dequantized().ravel()]}
    return Fields(values, str(checkpoint.path)).numbers(name)


def _longrope(checkpoint: Checkpoint, fields: Fields) -> LongRope:
    max_len = fields.count("context_length")
    old_len = fields.count("rope.scaling.original_context_length", max_len)
    default = longrope_attention_factor(max_len / old_len, old_len)
    return LongRope(
        short=_factors(checkpoint, "rope_factors_short.weight"),
        long=_factors(checkpoint, "rope_factors_long.weight"),
        context_len=old_len,
        attention_factor=fields.positive("rope.scaling.attn_factor", default),
    )


def _yarn(fields: Fields) -> Yarn:
    factor = fields.positive("rope.scaling.factor")
    return Yarn(
        factor=factor,
        context_len=fields.count("rope.scaling.original_context_length", fields.count("context_length")),
        # GGUF's attn_factor multiplies what YaRN derives from the factor.
        attention_factor=fields.positive("rope.scaling.attn_factor", 1.0) * yarn_attention_factor(factor),
        beta_fast=fields.positive("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=fields.positive("rope.scaling.yarn_beta_slow", 1.0),
    )


def _local_rope(fields: Fields, family: Family, rope: RopeConfig) -> RopeConfig:
    """Windowed layers with their own base are not scaled: their angles stay inside the window."""
    default = family.traits.gguf_local_theta
    if default is None and not fields.has("rope.freq_base_swa"):
        return rope
    return RopeConfig(fields.positive("rope.freq_base_swa", default), rope.rotary_len)


def _windows(checkpoint: Checkpoint, fields: Fields, family: Family, num_layers: int) -> tuple[int, ...]:
    key, pattern_key = "attention.sliding_window", "attention.sliding_window_pattern"
    window = fields.integer(key) if fields.has(key) else 0
    # Read unreduced: a list of equal flags is a pattern, not a period.
    pattern = checkpoint.metadata.get(fields.prefix + pattern_key)
    if isinstance(pattern, list):
        if len(pattern) != num_layers:
            raise fields.error(pattern_key, f"has {len(pattern)} entries for {num_layers} layers")
        return tuple(window if flag else 0 for flag in pattern)
    period = fields.integer(pattern_key, family.traits.gguf_window_period)
    if period < 0:
        raise fields.error(pattern_key, f"is {period}, a negative period")
    return tuple(window if period == 0 or layer % period < period - 1 else 0 for layer in range(num_layers))


def _attention_scale(fields: Fields, family: Family, hidden_size: int, num_heads: int, head_size: int) -> float:
    if fields.has("attention.scale"):
        return fields.positive("attention.scale")
    is_wide = fields.count("block_count") == family.traits.gguf_wide_scale_num_layers
    return float((hidden_size // num_heads if is_wide else head_size) ** -0.5)


def _soft_cap(fields: Fields, family: Family, key: str) -> float:
    if fields.has(key):
        return fields.positive(key)
    default = family.traits.defaults.get(key, 0.0)
    return float(default)


def _moe(checkpoint: Checkpoint, fields: Fields, family: Family, num_layers: int) -> MoeConfig | None:
    num_experts = fields.integer("expert_count", 0)
    if not family.is_moe:
        if num_experts:
            raise UnsupportedModelError(f"{fields.origin}: {num_experts} experts, but {family.name} has none")
        return None
    sparse_layers = tuple(f"blk.{layer}.ffn_gate_inp.weight" in checkpoint.tensors for layer in range(num_layers))
    return MoeConfig(
        num_experts=fields.count("expert_count", limit=MAX_EXPERTS),
        top_k=fields.count("expert_used_count"),
        ffn_size=_expert_ffn_size(checkpoint, fields, "expert_feed_forward_length", "ffn_gate_exps"),
        shared_ffn_size=_expert_ffn_size(checkpoint, fields, "expert_shared_feed_forward_length", "ffn_gate_shexp"),
        renormalize=fields.boolean("expert_weights_norm", default=family.traits.renormalize),
        sparse_layers=sparse_layers,
    )


def _expert_ffn_size(checkpoint: Checkpoint, fields: Fields, key: str, tensor_name: str) -> int:
    """F of the experts: from the metadata, or where it is silent from the first tensor [.., F, E]; 0 if there is none."""
    tensor = next((t for name, t in checkpoint.tensors.items() if name.endswith(f".{tensor_name}.weight")), None)
    if tensor is None or len(tensor.shape) < 2:
        return 0
    return fields.count(key, tensor.shape[-2])
