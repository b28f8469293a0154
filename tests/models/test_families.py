"""Logits of every family equal transformers', whatever the prompt is cut into and whoever shares the step."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("transformers")

from roofline.backends.reference import ReferenceBackend
from roofline.models import load_model
from support.stepping import Stepper
from support.tiny_models import FAMILIES, copy_with_config, random_tokens

TOKENS = random_tokens(60)
SHORT = random_tokens(21, seed=1)


@pytest.mark.parametrize("family", FAMILIES)
def test_prefill(tiny, backend, family):
    model = tiny(family)
    backend.assert_close(backend.load(model.folder).run(TOKENS, 64), model.logits(TOKENS))


@pytest.mark.parametrize("chunk_len", [1, 7, 16])
@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "llama"])
def test_lng01_windows_in_any_chunking(tiny, backend, family, chunk_len):
    """60 tokens against a window of 16: decode, chunks inside the window, of the window and across it."""
    model = tiny(family)
    backend.assert_close(backend.load(model.folder).run(TOKENS, chunk_len), model.logits(TOKENS))


@pytest.mark.parametrize("family", FAMILIES)
def test_mixed_batch(tiny, backend, family):
    """One sequence decodes while another is prefilled and a third verifies a draft."""
    model = tiny(family)
    stepper = backend.load(model.folder)
    first = stepper.step(("long", TOKENS[:40]), ("draft", SHORT[:3]))
    second = stepper.step(("long", TOKENS[40:41]), ("short", SHORT), ("draft", SHORT[3:8]))
    third = stepper.step(("draft", SHORT[8:9]), ("long", TOKENS[41:50]))
    expected, expected_short = model.logits(TOKENS), model.logits(SHORT)
    backend.assert_close(first["long"], expected[:40])
    backend.assert_close(second["long"], expected[40:41])
    backend.assert_close(third["long"], expected[41:50])
    backend.assert_close(second["short"], expected_short)
    backend.assert_close(second["draft"], expected_short[3:8])
    backend.assert_close(third["draft"], expected_short[8:9])


def test_windows_change_the_answer(tiny, backend):
    """The window tests above would pass an engine that ignores windows if these logits agreed."""
    inside = tiny("mistral").logits(TOKENS)
    whole = tiny("mistral", sliding_window=None).logits(TOKENS)
    assert abs(inside - whole)[:16].max() < 1e-4
    assert abs(inside - whole)[16:].max() > 0.1


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("family", ["llama", "gemma3", "phi3", "qwen2_moe"])
def test_half_precision_checkpoints(tiny, backend, family, dtype):
    model = tiny(family, dtype=dtype)
    backend.assert_close(backend.load(model.folder).run(TOKENS, 64), model.logits(TOKENS))


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("llama", {"attention_bias": True, "mlp_bias": True}),
        ("llama", {"num_key_value_heads": 4, "head_dim": 8}),
        ("llama", {"num_key_value_heads": 1}),
        ("qwen3", {"attention_bias": True}),
        ("gemma2", {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 1.5}),
        ("qwen2_moe", {"qkv_bias": False, "decoder_sparse_step": 2, "norm_topk_prob": True}),
        ("qwen3_moe", {"mlp_only_layers": [1]}),
        ("phi3", {"partial_rotary_factor": 0.5}),
    ],
    ids=str,
)
def test_config_variants(tiny, backend, family, changes):
    model = tiny(family, **changes)
    backend.assert_close(backend.load(model.folder).run(TOKENS, 64), model.logits(TOKENS))


def test_gemma3_in_the_older_spelling(tiny, backend, tmp_path):
    """Published Gemma 3 configs give a pattern and two bases where newer ones give layer types and nested tables."""
    model = tiny("gemma3", layer_types=None, sliding_window_pattern=2)
    folder = copy_with_config(
        model,
        tmp_path / "old",
        layer_types=...,
        _sliding_window_pattern=...,
        rope_parameters=...,
        sliding_window_pattern=2,
        rope_theta=1e6,
        rope_local_base_freq=1e4,
    )
    backend.assert_close(backend.load(folder).run(TOKENS, 64), model.logits(TOKENS))


@pytest.mark.parametrize("family", ["llama", "gemma3", "qwen2_moe"])
def test_reference_in_float64(tiny, family):
    """Float64 bounds the rounding error of the float32 oracle itself."""
    loaded = load_model(tiny(family).folder)
    single, double = (
        Stepper(ReferenceBackend(loaded.model.program, loaded.weights, num_blocks=4, dtype=dtype)).run(TOKENS, 16)
        for dtype in (np.float32, np.float64)
    )
    difference = np.abs(single - double).max()
    assert 0 < difference < 2e-5 * np.abs(double).max()
