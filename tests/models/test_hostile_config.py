"""Whatever a stranger writes into config.json or GGUF metadata, loading ends in a model or in an error of ours, and soon."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.core.errors import RooflineError
from roofline.models import build_model, load_weights, read_config
from roofline.weights.schemes import SCHEMES
from roofline.weights.tensor import Checkpoint, Tensor

CONFIG = {
    "architectures": ["Qwen2MoeForCausalLM"],
    "model_type": "qwen2_moe",
    "hidden_size": 16,
    "intermediate_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "vocab_size": 12,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "attention_bias": False,
    "sliding_window": 8,
    "use_sliding_window": True,
    "layer_types": ["full_attention", "sliding_attention"],
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 8,
    "shared_expert_intermediate_size": 8,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "bos_token_id": 1,
    "eos_token_id": [2],
    "rope_theta": 1e4,
    "rope_local_base_freq": 1e4,
    "partial_rotary_factor": 1.0,
    "rope_parameters": {"rope_type": "default"},
    "final_logit_softcapping": None,
    "query_pre_attn_scalar": 4,
    "quantization_config": None,
}
GGUF = {
    "general.architecture": "qwen2moe",
    "qwen2moe.block_count": 2,
    "qwen2moe.context_length": 64,
    "qwen2moe.embedding_length": 16,
    "qwen2moe.feed_forward_length": 8,
    "qwen2moe.attention.head_count": 4,
    "qwen2moe.attention.head_count_kv": [2, 2],
    "qwen2moe.attention.key_length": 4,
    "qwen2moe.attention.value_length": 4,
    "qwen2moe.attention.layer_norm_rms_epsilon": 1e-6,
    "qwen2moe.attention.scale": 0.5,
    "qwen2moe.attention.sliding_window": 8,
    "qwen2moe.attention.sliding_window_pattern": [True, False],
    "qwen2moe.rope.freq_base": 1e4,
    "qwen2moe.rope.dimension_count": 4,
    "qwen2moe.rope.scaling.type": "yarn",
    "qwen2moe.rope.scaling.factor": 2.0,
    "qwen2moe.rope.scaling.original_context_length": 32,
    "qwen2moe.vocab_size": 12,
    "qwen2moe.expert_count": 4,
    "qwen2moe.expert_used_count": 2,
    "qwen2moe.expert_feed_forward_length": 8,
    "qwen2moe.expert_weights_norm": True,
    "tokenizer.ggml.eos_token_id": 2,
}
_ROPE = {"rope_type": "llama3", "factor": 2, "low_freq_factor": 1, "high_freq_factor": 4, "rope_theta": 1e4}

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**400), 10**400),
    st.integers(-3, 300),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["full_attention", "sliding_attention", "yarn", "dynamic", "linear", "longrope"]),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from([*_ROPE, "short_factor", "long_factor", "full_attention", "x"]), inner, max_size=5
        ),
    ),
    max_leaves=8,
)


def _loads_or_refuses(path, checkpoint_format: str, metadata: dict) -> None:
    embedding = Tensor("token_embd.weight", SCHEMES["F32"], (12, 16), np.zeros(12 * 16 * 4, np.uint8))
    tensors = {embedding.name: embedding} if checkpoint_format == "gguf" else {}
    checkpoint = Checkpoint(path, checkpoint_format, metadata, tensors)
    try:
        config = read_config(checkpoint)
        model = build_model(config)
    except RooflineError:
        return
    with pytest.raises(RooflineError, match="is missing"):  # there are no weights
        load_weights(model, checkpoint)


def test_the_unchanged_metadata_is_good(tmp_path):
    """Else the tests below would only meet the first error."""
    embedding = Tensor("token_embd.weight", SCHEMES["F32"], (12, 16), np.zeros(12 * 16 * 4, np.uint8))
    for checkpoint_format, metadata in (("huggingface", CONFIG), ("gguf", GGUF)):
        checkpoint = Checkpoint(tmp_path, checkpoint_format, metadata, {embedding.name: embedding})
        assert build_model(read_config(checkpoint)).config.windows in ((0, 8), (8, 0))


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(CONFIG)), values, min_size=1, max_size=3))
def test_any_config_json(tmp_path_factory, changes):
    _loads_or_refuses(tmp_path_factory.getbasetemp(), "huggingface", CONFIG | changes)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from([*_ROPE, "short_factor", "long_factor", "mscale"]), values, max_size=4))
def test_any_rope_parameters(tmp_path_factory, changes):
    _loads_or_refuses(tmp_path_factory.getbasetemp(), "huggingface", CONFIG | {"rope_parameters": _ROPE | changes})


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(GGUF)), values, min_size=1, max_size=3))
def test_any_gguf_metadata(tmp_path_factory, changes):
    _loads_or_refuses(tmp_path_factory.getbasetemp(), "gguf", GGUF | changes)


@pytest.mark.parametrize("key", ["num_hidden_layers", "num_experts", "head_dim"])
def test_absurd_counts_are_refused_before_they_cost_memory(tmp_path, key):
    with pytest.raises(RooflineError, match=f"'{key}' is 1000000"):
        read_config(Checkpoint(tmp_path, "huggingface", CONFIG | {key: 1_000_000}, {}))


def test_a_negative_window_period_is_refused(tmp_path):
    """Python's remainder would make every layer attend to everything."""
    embedding = Tensor("token_embd.weight", SCHEMES["F32"], (12, 16), np.zeros(12 * 16 * 4, np.uint8))
    metadata = GGUF | {"qwen2moe.attention.sliding_window_pattern": -2}
    with pytest.raises(RooflineError, match="a negative period"):
        read_config(Checkpoint(tmp_path, "gguf", metadata, {embedding.name: embedding}))
