"""The four published files are described as their authors describe them, and every tensor finds its place."""

from __future__ import annotations

import pytest

from roofline.models import load_model

# name: family, (layers, E, F, H, Hk, D, V), rotary base, window of the first layer, tied, end of turn
EXPECTED = {
    "smollm2-135m": ("llama", (30, 576, 1536, 9, 3, 64, 49152), 1e5, 0, True, 2),
    "gemma3-270m": ("gemma3", (18, 640, 2048, 4, 1, 256, 262144), 1e6, 512, True, 1),
    "qwen2.5-coder-0.5b": ("qwen2", (24, 896, 4864, 14, 2, 64, 151936), 1e6, 0, False, 151645),
    "qwen2.5-coder-1.5b": ("qwen2", (28, 1536, 8960, 12, 2, 128, 151936), 1e6, 0, False, 151645),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_published_file(model_path, name):
    loaded = load_model(model_path(name))
    config, program = loaded.model.config, loaded.model.program
    family, sizes, theta, window, tied, eos_id = EXPECTED[name]
    assert config.family == family
    assert sizes == (
        config.num_layers,
        config.hidden_size,
        config.ffn_size,
        config.num_heads,
        config.num_kv_heads,
        config.head_size,
        config.vocab_size,
    )
    assert (config.rope.theta, config.windows[0], config.tied) == (theta, window, tied)
    assert eos_id in config.eos_ids
    assert loaded.weights.keys() == program.weights.keys()
    assert len(program.kv_layers) == config.num_layers


def test_gemma3_has_five_windowed_layers_to_a_full_one(model_path):
    config = load_model(model_path("gemma3-270m")).model.config
    assert config.windows == (512, 512, 512, 512, 512, 0) * 3
    assert (config.local_rope.theta, config.rope.theta) == (1e4, 1e6)
