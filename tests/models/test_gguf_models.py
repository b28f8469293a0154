"""The GGUF of a model gives the logits of its Hugging Face folder: names, row orders, norms, experts and windows."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("transformers")

from gguf import GGMLQuantizationType as QuantType

from roofline.models import load_model
from support.tiny_gguf import write_gguf
from support.tiny_models import FAMILIES, random_tokens

TOKENS = random_tokens(60)

# GGUF does not store Gemma's query scale: these models take it from the head size, as all but the widest do.
_SAME_IN_GGUF = {"gemma2": {"query_pre_attn_scalar": 32}}


@pytest.mark.parametrize("family", FAMILIES)
def test_gguf_equals_huggingface(tiny, backend, tmp_path, family):
    model = tiny(family, **_SAME_IN_GGUF.get(family, {}))
    path = write_gguf(model, tmp_path / "tiny.gguf")
    backend.assert_close(backend.load(path).run(TOKENS, 17), model.logits(TOKENS))


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma3"])
def test_gguf_config_equals_huggingface(tiny, tmp_path, family):
    """One description for both formats, but for where the rows of Q and K lie."""
    model = tiny(family)
    ours = load_model(model.folder).model.config
    theirs = load_model(write_gguf(model, tmp_path / "tiny.gguf")).model.config
    differing = {key for key, value in vars(ours).items() if not _equal(value, vars(theirs)[key])}
    expected = {"checkpoint_format", "bos_id", "eos_ids"} | ({"rope_style"} if family == "llama" else set())
    assert differing == expected


def _equal(a: object, b: object) -> bool:
    return a == pytest.approx(b) if isinstance(a, float) else a == b


@pytest.mark.parametrize("family", ["mixtral", "qwen2_moe", "qwen3_moe"])
def test_moe02_greedy_tokens_from_f16_experts(tiny, backend, tmp_path, family):
    """The same 32 tokens from the folder and from a GGUF with stacked experts, both holding F16 values."""
    model = tiny(family, dtype="float16")
    path = write_gguf(model, tmp_path / "tiny.gguf", QuantType.F16)
    assert _greedy(backend.load(path), 32) == _greedy(backend.load(model.folder), 32)


@pytest.mark.parametrize("family", ["mixtral", "qwen2_moe", "qwen3_moe"])
def test_moe02_quantized_experts(tiny, backend, tmp_path, family):
    model = tiny(family, gain=0.7)
    path = write_gguf(model, tmp_path / "tiny.gguf", QuantType.Q8_0)
    logits, expected = backend.load(path).run(TOKENS, 64), model.logits(TOKENS)
    norms = np.linalg.norm(logits, axis=-1) * np.linalg.norm(expected, axis=-1)
    # The median: a token whose last two experts nearly tie may take the other one, which is no fault of the reader.
    assert np.median(np.sum(logits * expected, axis=-1) / norms) > 0.999
    for name, weight in load_model(path).weights.items():
        if ".moe.gate." in name:
            original = load_model(model.folder).weights[name].dequantized()
            assert np.abs(weight.dequantized() - original).max() <= np.abs(original).max() / 127


def _greedy(stepper, num_tokens: int) -> list[int]:
    token_ids = list(TOKENS[:5])
    logits = stepper.step(("s", token_ids))["s"]
    for _ in range(num_tokens):
        token_ids.append(int(logits[-1].argmax()))
        logits = stepper.step(("s", token_ids[-1:]))["s"]
    return token_ids[5:]
