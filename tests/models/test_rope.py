"""LNG-02: frequencies, attention factors, cos and sin of every scaling scheme equal transformers'; unknown ones are refused."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("transformers")

import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from roofline.core.errors import ModelFormatError, UnsupportedModelError
from roofline.models import load_model
from roofline.models.rope import RopeConfig, rope_spec, scaling_from_huggingface
from support.tiny_models import copy_with_config, random_tokens

HEAD_SIZE = 64
POSITIONS = np.array([0, 1, 100, 8191, 8192, 60000])
_FACTORS = np.linspace(1.0, 4.0, HEAD_SIZE // 2).tolist()
_LONG_FACTORS = np.linspace(2.0, 40.0, HEAD_SIZE // 2).tolist()

SCALINGS = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 8.0},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096},
    "yarn attention factor": {
        "rope_type": "yarn",
        "factor": 16.0,
        "original_max_position_embeddings": 2048,
        "attention_factor": 0.9,
        "beta_fast": 24.0,
        "beta_slow": 2.0,
        "truncate": False,
    },
    "yarn mscale": {
        "rope_type": "yarn",
        "factor": 40.0,
        "original_max_position_embeddings": 4096,
        "mscale": 0.7,
        "mscale_all_dim": 1.1,
    },
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "longrope": {
        "rope_type": "longrope",
        "short_factor": _FACTORS,
        "long_factor": _LONG_FACTORS,
        "original_max_position_embeddings": 4096,
    },
}


def _theirs(parameters: dict, theta: float, max_len: int, seq_len: int) -> tuple[np.ndarray, float]:
    config = LlamaConfig(
        hidden_size=4 * HEAD_SIZE,
        num_attention_heads=4,
        max_position_embeddings=max_len,
        rope_parameters={**parameters, "rope_theta": theta},
    )
    kind = parameters["rope_type"]
    make = LlamaRotaryEmbedding.compute_default_rope_parameters if kind == "default" else ROPE_INIT_FUNCTIONS[kind]
    table, attention_factor = make(config, device="cpu", seq_len=seq_len)
    return table.numpy(), attention_factor


@pytest.mark.parametrize("seq_len", [4000, 16384])
@pytest.mark.parametrize("theta", [1e4, 5e5])
@pytest.mark.parametrize("name", SCALINGS)
def test_lng02_tables_equal_transformers(name, theta, seq_len):
    max_len = 8192
    scaling = scaling_from_huggingface(SCALINGS[name], context_len=max_len, original_context_len=None)
    spec = rope_spec(RopeConfig(theta, HEAD_SIZE, scaling), "half", seq_len)
    theirs, attention_factor = _theirs(SCALINGS[name], theta, max_len, seq_len)
    ours = np.asarray(spec.inv_freq, np.float32)
    assert ours == pytest.approx(theirs, rel=3e-7)
    assert spec.attention_factor == pytest.approx(attention_factor, rel=1e-7)
    for function in (np.cos, np.sin):
        for position in np.float32(POSITIONS):
            # What one last place of a frequency moves at this position comes on top: float32 pow differs in it by machine.
            slack = 1e-5 + float(position) * theirs * 2.0**-23
            difference = (
                function(position * ours) * spec.attention_factor - function(position * theirs) * attention_factor
            )
            assert (np.abs(difference) <= slack).all()


def test_lng02_old_and_new_spellings_agree():
    new = SCALINGS["llama3"]
    old = {("type" if key == "rope_type" else key): value for key, value in new.items()}
    arguments = {"context_len": 131072, "original_context_len": None}
    assert scaling_from_huggingface(old, **arguments) == scaling_from_huggingface(new, **arguments)


def test_lng02_unknown_type_is_refused():
    with pytest.raises(UnsupportedModelError, match="'foo'"):
        scaling_from_huggingface({"rope_type": "foo"}, context_len=64, original_context_len=None)


@pytest.mark.parametrize("key", ["factor", "low_freq_factor", "high_freq_factor"])
def test_lng02_missing_key_is_named(key):
    parameters = {name: value for name, value in SCALINGS["llama3"].items() if name != key}
    with pytest.raises(ModelFormatError, match=key):
        scaling_from_huggingface(parameters, context_len=64, original_context_len=None)


def test_longrope_factors_must_fit_the_rotary_length():
    scaling = scaling_from_huggingface(SCALINGS["longrope"], context_len=8192, original_context_len=None)
    with pytest.raises(ModelFormatError, match="32 factors"):
        rope_spec(RopeConfig(1e4, 32, scaling), "half", 64)


_MODEL_SCALINGS = {
    "linear": {"rope_type": "linear", "factor": 3.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
    "llama3": {
        "rope_type": "llama3",
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
}


@pytest.mark.parametrize("name", _MODEL_SCALINGS)
def test_lng02_logits_with_scaling(tiny, backend, tmp_path, name):
    """Both spellings in config.json, past the pretraining length."""
    model = tiny("llama", rope_parameters={"rope_theta": 5e3, **_MODEL_SCALINGS[name]})
    tokens = random_tokens(100)
    expected = model.logits(tokens)
    backend.assert_close(backend.load(model.folder).run(tokens, 33), expected)
    old = {("type" if key == "rope_type" else key): value for key, value in _MODEL_SCALINGS[name].items()}
    folder = copy_with_config(model, tmp_path / "old", rope_parameters=..., rope_scaling=old, rope_theta=5e3)
    backend.assert_close(backend.load(folder).run(tokens, 33), expected)


@pytest.mark.parametrize("num_tokens", [30, 90])
def test_lng02_longrope_by_resolved_context(tiny, backend, num_tokens):
    """Phi-3's tables switch at 32 tokens: each length under the context that was resolved for it."""
    model = tiny(
        "phi3",
        sliding_window=None,
        original_max_position_embeddings=32,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 1e4,
            "partial_rotary_factor": 0.75,
            "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
            "long_factor": [1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
        },
    )
    tokens = random_tokens(num_tokens)
    stepper = backend.load(model.folder, max_context_len=num_tokens)
    backend.assert_close(stepper.run(tokens, 16), model.logits(tokens))
    resolved_later = backend.of(load_model(model.folder).for_context(num_tokens))
    backend.assert_close(resolved_later.run(tokens, 16), model.logits(tokens))
    if num_tokens > 32:
        wrong = backend.load(model.folder, max_context_len=32).run(tokens, 16)
        assert np.abs(wrong - model.logits(tokens)).max() > 0.01


def test_lng02_gemma3_scales_full_layers_only(tiny, backend, tmp_path):
    nested = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    model = tiny("gemma3", rope_parameters=nested)
    tokens = random_tokens(60)
    expected = model.logits(tokens)
    backend.assert_close(backend.load(model.folder).run(tokens, 64), expected)
    old = {
        "rope_parameters": ...,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
    }
    folder = copy_with_config(model, tmp_path / "old", **old)
    backend.assert_close(backend.load(folder).run(tokens, 64), expected)


def test_gemma3_bases_that_nested_tables_leave_out(tiny, tmp_path):
    """Absent from the nested form too, the bases are the ones of the published models."""
    nested = {"full_attention": {"rope_type": "default"}, "sliding_attention": {"rope_type": "default"}}
    config = load_model(copy_with_config(tiny("gemma3"), tmp_path / "m", rope_parameters=nested)).model.config
    assert (config.rope.theta, config.local_rope.theta) == (1e6, 1e4)


def _add_llama3_freqs(writer, table: torch.Tensor, plain: torch.Tensor) -> None:
    writer.add_tensor("rope_freqs.weight", (plain / table).numpy().astype(np.float32))


def test_lng02_gguf_frequency_factors(tiny, backend, tmp_path):
    """GGUF holds Llama 3's scaling as one divisor per frequency."""
    from support.tiny_gguf import write_gguf

    model = tiny("llama", rope_parameters={"rope_theta": 1e4, **_MODEL_SCALINGS["llama3"]})
    config = model.module.config
    table, _ = ROPE_INIT_FUNCTIONS["llama3"](config, device="cpu")
    plain, _ = LlamaRotaryEmbedding.compute_default_rope_parameters(config)
    path = write_gguf(model, tmp_path / "tiny.gguf", edit=lambda writer: _add_llama3_freqs(writer, table, plain))
    tokens = random_tokens(100)
    backend.assert_close(backend.load(path).run(tokens, 64), model.logits(tokens))


def test_lng02_gguf_yarn(tiny, backend, tmp_path):
    import gguf

    from support.tiny_gguf import write_gguf

    def edit(writer: gguf.GGUFWriter) -> None:
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(32)

    model = tiny("qwen2", rope_parameters={"rope_theta": 1e4, **_MODEL_SCALINGS["yarn"]})
    path = write_gguf(model, tmp_path / "tiny.gguf", edit=edit)
    tokens = random_tokens(100)
    backend.assert_close(backend.load(path).run(tokens, 64), model.logits(tokens))


@pytest.mark.parametrize("num_tokens", [30, 90])
def test_lng02_gguf_longrope(tiny, backend, tmp_path, num_tokens):
    import gguf

    from support.tiny_gguf import write_gguf

    short, long = np.linspace(1, 2, 8).tolist(), np.linspace(1, 20, 8).tolist()

    def edit(writer: gguf.GGUFWriter) -> None:
        writer.add_rope_scaling_orig_ctx_len(32)
        writer.add_tensor("rope_factors_short.weight", np.float32(short))
        writer.add_tensor("rope_factors_long.weight", np.float32(long))

    parameters = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": short, "long_factor": long}
    model = tiny("phi3", sliding_window=None, original_max_position_embeddings=32, rope_parameters=parameters)
    path = write_gguf(model, tmp_path / "tiny.gguf", edit=edit)
    tokens = random_tokens(num_tokens)
    stepper = backend.load(path, max_context_len=num_tokens)
    backend.assert_close(stepper.run(tokens, 64), model.logits(tokens))


def test_phi3_rope_type_su_is_longrope():
    old = {"type": "su", "short_factor": [1.0], "long_factor": [2.0]}
    new = {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [2.0]}
    arguments = {"context_len": 64, "original_context_len": 32}
    assert scaling_from_huggingface(old, **arguments) == scaling_from_huggingface(new, **arguments)
