"""A checkpoint and its program agree tensor for tensor, or loading fails with the tensor's name."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest

pytest.importorskip("transformers")

from safetensors.numpy import load_file, save_file

from roofline.core.errors import ModelFormatError, UnsupportedModelError
from roofline.models import load_model
from support.tiny_gguf import write_gguf
from support.tiny_models import copy_with_config, random_tokens

TOKENS = random_tokens(20)


def _rewrite(folder, change) -> None:
    """Apply `change` to the dict of tensors on disk."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("has_head", [True, False])
def test_st03_tied_and_stored_heads(tiny, backend, tmp_path, caplog, tied, has_head):
    model = tiny("llama")
    folder = copy_with_config(model, tmp_path / "m", tie_word_embeddings=tied)

    def set_head(tensors):
        tensors.pop("lm_head.weight")
        if has_head:
            tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()

    _rewrite(folder, set_head)
    if not tied and not has_head:
        with pytest.raises(ModelFormatError, match=r"lm_head\.weight.*is missing[\s\S]*tie_word_embeddings"):
            load_model(folder)
        return
    logits = backend.load(folder).run(TOKENS, 64)
    tied_model = tiny("llama", tie_word_embeddings=True)
    # The same seed draws the same weights up to the head, so the tied model is the oracle of all three.
    backend.assert_close(logits, tied_model.logits(TOKENS))
    assert not caplog.records


def test_st03_tied_head_that_differs_is_ignored_loudly(tiny, tmp_path, caplog):
    folder = copy_with_config(tiny("llama"), tmp_path / "m", tie_word_embeddings=True)
    with caplog.at_level(logging.WARNING):
        loaded = load_model(folder)
    assert "lm_head.weight differs from the embedding" in caplog.text
    assert "head" not in loaded.weights


@pytest.mark.parametrize(
    "name",
    [
        "model.embed_tokens.weight",
        "model.norm.weight",
        "model.layers.1.self_attn.k_proj.weight",
        "model.layers.2.mlp.experts.5.up_proj.weight",
        "model.layers.0.self_attn.v_proj.bias",
    ],
)
def test_st01_missing_tensor_is_named(tiny, tmp_path, name):
    folder = copy_with_config(tiny("qwen2_moe"), tmp_path / "m")
    _rewrite(folder, lambda tensors: tensors.pop(name))
    with pytest.raises(ModelFormatError, match=name.replace(".", r"\.")):
        load_model(folder)


def test_wrong_shape_names_both(tiny, tmp_path):
    folder = copy_with_config(tiny("llama"), tmp_path / "m", intermediate_size=128)
    with pytest.raises(ModelFormatError, match=r"mlp\.gate_proj\.weight.*\(96, 64\).*\(128, 64\)"):
        load_model(folder)


def test_fused_tensor_with_rows_to_spare_is_refused(tiny, tmp_path):
    folder = copy_with_config(tiny("phi3"), tmp_path / "m", num_key_value_heads=1)
    with pytest.raises(ModelFormatError, match=r"qkv_proj\.weight.*128 rows.*make 96"):
        load_model(folder)


@pytest.mark.parametrize("name", ["model.layers.0.self_attn.q_proj.lora_A.weight", "model.layers.3.mlp.up_proj.weight"])
def test_leftover_tensor_is_refused(tiny, tmp_path, name):
    folder = copy_with_config(tiny("llama"), tmp_path / "m")
    _rewrite(folder, lambda tensors: tensors.update({name: np.zeros((4, 64), np.float32)}))
    with pytest.raises(ModelFormatError, match=f"1 tensors have no place in a llama model: {name}"):
        load_model(folder)


def test_leftover_gguf_tensor_is_refused(tiny, tmp_path):
    def edit(writer):
        writer.add_tensor("blk.0.attn_q_norm.weight", np.ones(16, np.float32))

    with pytest.raises(ModelFormatError, match="attn_q_norm"):
        load_model(write_gguf(tiny("llama"), tmp_path / "tiny.gguf", edit=edit))


def test_stored_rotary_frequencies_are_allowed(tiny, tmp_path):
    folder = copy_with_config(tiny("llama"), tmp_path / "m")
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    _rewrite(folder, lambda tensors: tensors.update({name: np.zeros(8, np.float32)}))
    assert name not in {source.tensor for source in load_model(folder).model.sources.values()}


def test_weights_are_views_of_the_checkpoint(tiny, tmp_path):
    """Rows of fused and stacked tensors are not copied; only weights whose values change are."""
    loaded = load_model(write_gguf(tiny("mixtral"), tmp_path / "tiny.gguf"))
    for name, weight in loaded.weights.items():
        tensor = loaded.checkpoint.tensors[loaded.model.sources[name].tensor]
        assert np.shares_memory(weight.rows, tensor.data)
        assert weight.rows.shape == (1 if len(weight.shape) == 1 else weight.shape[0], weight.shape[-1] * 4)
    last = loaded.weights["layers.2.moe.down.3"]
    stacked = loaded.checkpoint.tensors["blk.2.ffn_down_exps.weight"]
    assert np.array_equal(last.dequantized(), stacked.dequantized()[3])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": ...}, "'hidden_size' is missing"),
        ({"rms_norm_eps": ...}, "'rms_norm_eps' is missing"),
        ({"num_hidden_layers": "3"}, "'num_hidden_layers' is '3', not an integer"),
        ({"num_hidden_layers": 0}, "'num_hidden_layers' is 0"),
        ({"vocab_size": True}, "'vocab_size' is True"),
        ({"rms_norm_eps": 0}, "'rms_norm_eps' is 0.0, not above 0"),
        ({"num_key_value_heads": 3}, "4 query heads do not divide among 3 KV heads"),
        ({"head_dim": 15}, "rotary length 15 must be even"),
        ({"head_dim": None, "num_attention_heads": 6}, "64 is not a multiple of 6 heads"),
        ({"layer_types": ["full_attention"]}, "'layer_types' does not give one type"),
        ({"layer_types": ["sliding_attention"] * 3}, "'sliding_window' is missing"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "'rope_parameters' and 'rope_scaling' disagree"),
        ({"model_type": "qwen2"}, "'architectures' .* and 'model_type' 'qwen2' disagree"),
        ({"model_type": ..., "architectures": ...}, "neither 'architectures' nor 'model_type'"),
        ({"eos_token_id": "</s>"}, "'eos_token_id' is '</s>'"),
    ],
    ids=str,
)
def test_bad_config_is_named(tiny, tmp_path, changes, message):
    folder = copy_with_config(tiny("llama"), tmp_path / "m", **changes)
    with pytest.raises(ModelFormatError, match=message):
        load_model(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["MambaForCausalLM"]}, r"'MambaForCausalLM'[\s\S]*LlamaForCausalLM"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "LlamaForSequenceClassification"),
        ({"architectures": ..., "model_type": "mamba"}, r"model_type 'mamba'[\s\S]*qwen3_moe"),
        ({"hidden_act": "relu"}, r"'relu'[\s\S]*silu"),
        ({"quantization_config": {"quant_method": "gptq"}}, "gptq"),
        ({"layer_types": ["chunked_attention"] * 3}, "chunked_attention"),
        ({"num_local_experts": 8}, "llama has no experts"),
        ({"rope_parameters": {"rope_type": "foo"}}, "'foo'"),
    ],
    ids=str,
)
def test_unsupported_config_is_named(tiny, tmp_path, changes, message):
    folder = copy_with_config(tiny("llama"), tmp_path / "m", **changes)
    with pytest.raises(UnsupportedModelError, match=message):
        load_model(folder)


def test_several_eos_ids(tiny, tmp_path):
    """config.json and generation_config.json both count; the latter often names the end of a turn alone."""
    folder = copy_with_config(tiny("llama"), tmp_path / "m", eos_token_id=[2, 5])
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 2]}))
    assert load_model(folder).model.config.eos_ids == (2, 5, 7)


def test_unknown_gguf_architecture_lists_the_known(tiny, tmp_path):
    path = write_gguf(tiny("llama"), tmp_path / "tiny.gguf")
    damaged = path.read_bytes().replace(b"llama", b"mamba")
    path.write_bytes(damaged)
    with pytest.raises(UnsupportedModelError, match=r"'mamba'[\s\S]*gemma3, llama, phi3"):
        load_model(path)


@pytest.mark.parametrize("family", ["gemma2", "gemma3"])
def test_the_widest_gemma_takes_its_query_scale_from_the_width(tiny, tmp_path, family):
    """GGUF lacks query_pre_attn_scalar, and the 27B models of both generations use E / H instead of the head size."""
    num_layers = {"gemma2": 46, "gemma3": 62}[family]
    kinds = ["full_attention"] * num_layers
    model = tiny(family, num_hidden_layers=num_layers, query_pre_attn_scalar=16, layer_types=kinds)
    config = load_model(write_gguf(model, tmp_path / "tiny.gguf")).model.config
    assert config.attention_scale == pytest.approx(16**-0.5)
