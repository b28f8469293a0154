"""Routing at every size, experts of equal rank, and a dense model turned into experts."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("transformers")

from safetensors.numpy import load_file, save_file

from roofline.backends.reference import route
from support.tiny_models import random_tokens

TOKENS = random_tokens(40)


def _route_by_hand(row: np.ndarray, top_k: int, renormalize: bool) -> tuple[list[int], np.ndarray]:
    """The same by sorting (logit falling, index rising) in Python and float64."""
    ranked = sorted(range(len(row)), key=lambda expert: (-row[expert], expert))[:top_k]
    shares = np.exp(row.astype(np.float64) - row.max())
    shares = shares[ranked] / (shares[ranked].sum() if renormalize else shares.sum())
    return ranked, shares


@pytest.mark.parametrize("num_experts", [4, 8, 60, 64, 128, 256])
@pytest.mark.parametrize("top_k", [1, 2, 4, 6, 8])
@pytest.mark.parametrize("num_tokens", [1, 3, 33])
def test_moe03_reference_router(num_experts, top_k, num_tokens):
    if top_k > num_experts:
        top_k = num_experts
    logits = np.random.default_rng(num_experts + top_k).normal(size=(num_tokens, num_experts)).astype(np.float32)
    logits[0] = 1.5  # every expert ties
    logits[-1, num_experts // 2 :] = logits[-1].max()  # half of them tie for the first place
    for renormalize in (True, False):
        experts, shares = route(logits, top_k, renormalize=renormalize)
        for t, row in enumerate(logits):
            expected, expected_shares = _route_by_hand(row, top_k, renormalize)
            assert experts[t].tolist() == expected
            assert shares[t] == pytest.approx(expected_shares, rel=1e-5)


@pytest.mark.parametrize(
    ("num_experts", "top_k"), [(4, 1), (4, 4), (8, 2), (60, 4), (64, 6), (64, 8), (128, 8), (256, 8)]
)
def test_moe03_logits_at_router_sizes(tiny, backend, num_experts, top_k):
    sizes = {"num_experts": num_experts, "num_experts_per_tok": top_k, "num_hidden_layers": 1}
    model = tiny("qwen3_moe", moe_intermediate_size=32, **sizes)
    for num_tokens in (1, 3, 33):
        tokens = random_tokens(num_tokens)
        backend.assert_close(backend.load(model.folder).run(tokens, 64), model.logits(tokens))


def test_moe03_ties_take_the_lowest_experts(tiny, backend, tmp_path):
    """A router of zeros ties all experts: the model must be the one that has the first `top_k` experts alone."""
    sizes = {"num_experts_per_tok": 2, "num_hidden_layers": 1, "moe_intermediate_size": 32}
    many = tiny("qwen3_moe", num_experts=8, **sizes)
    few = _rewrite(many.folder, tmp_path / "few", 2)
    tied = _rewrite(many.folder, tmp_path / "tied", 8)
    backend.assert_close(backend.load(tied).run(TOKENS, 7), backend.load(few).run(TOKENS, 64))


def _rewrite(source, target, num_experts: int):
    """A copy with the first `num_experts` experts and a router of zeros."""
    target.mkdir()
    tensors = load_file(source / "model.safetensors")
    kept = {
        name: values
        for name, values in tensors.items()
        if ".experts." not in name or int(name.split(".experts.")[1].split(".")[0]) < num_experts
    }
    router = "model.layers.0.mlp.gate.weight"
    kept[router] = np.zeros((num_experts, tensors[router].shape[1]), np.float32)
    save_file(kept, target / "model.safetensors")
    config = json.loads((source / "config.json").read_text())
    for key in ("num_experts", "num_local_experts"):
        if key in config:
            config[key] = num_experts
    (target / "config.json").write_text(json.dumps(config))
    return target


@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_upcycled_model_gives_dense_logits(tiny, backend, tmp_path, top_k):
    """Qwen3 whose MLP is copied into four identical experts answers as before, whatever the router says."""
    dense = tiny("qwen3", use_sliding_window=False, tie_word_embeddings=False)
    folder = _upcycle(dense.folder, tmp_path / "upcycled", num_experts=4, top_k=top_k)
    backend.assert_close(backend.load(folder).run(TOKENS, 16), dense.logits(TOKENS))


def _upcycle(source, target, *, num_experts: int, top_k: int):
    target.mkdir()
    rng = np.random.default_rng(0)
    tensors: dict[str, np.ndarray] = {}
    for name, values in load_file(source / "model.safetensors").items():
        if ".mlp." not in name:
            tensors[name] = values
            continue
        before, after = name.split(".mlp.")
        for expert in range(num_experts):
            tensors[f"{before}.mlp.experts.{expert}.{after}"] = values
        tensors[f"{before}.mlp.gate.weight"] = rng.normal(size=(num_experts, 64)).astype(np.float32)
    save_file(tensors, target / "model.safetensors")
    config = json.loads((source / "config.json").read_text()) | {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "num_experts": num_experts,
        "num_experts_per_tok": top_k,
        "norm_topk_prob": True,
        "moe_intermediate_size": 96,
    }
    (target / "config.json").write_text(json.dumps(config))
    return target
