"""Tiny random models of every family, made with transformers: folders to load, and the logits they must give."""

from __future__ import annotations

import copy
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM, PreTrainedModel

WINDOW = 16
VOCAB_SIZE = 96

_SIZES: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_MIXED_LAYERS = ["sliding_attention", "full_attention", "sliding_attention"]
_QWEN_WINDOW = {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}
_QWEN_MOE = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32}

# family -> config class and what makes it differ from _SIZES. Windows are shorter than the test sequences.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "mistral": ("MistralConfig", {"sliding_window": WINDOW, "head_dim": 32}),
    "qwen2": ("Qwen2Config", dict(tie_word_embeddings=True, **_QWEN_WINDOW)),
    "qwen3": ("Qwen3Config", dict(head_dim=32, tie_word_embeddings=True, **_QWEN_WINDOW)),
    "gemma2": ("Gemma2Config", {"head_dim": 32, "sliding_window": WINDOW, "query_pre_attn_scalar": 24}),
    "gemma3": (
        "Gemma3TextConfig",
        {"head_dim": 32, "sliding_window": WINDOW, "layer_types": _MIXED_LAYERS, "query_pre_attn_scalar": 32},
    ),
    "phi3": ("Phi3Config", {"sliding_window": WINDOW, "original_max_position_embeddings": 128}),
    "mixtral": ("MixtralConfig", {"sliding_window": WINDOW, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2_moe": ("Qwen2MoeConfig", dict(shared_expert_intermediate_size=64, **_QWEN_MOE, **_QWEN_WINDOW)),
    "qwen3_moe": ("Qwen3MoeConfig", dict(head_dim=32, norm_topk_prob=True, **_QWEN_MOE)),
}


@dataclass(frozen=True)
class TinyModel:
    """A model in memory and the same weights on disk."""

    module: PreTrainedModel
    folder: Path

    def logits(self, token_ids: list[int]) -> np.ndarray:
        """[T, V] float32 of one whole sequence, by transformers."""
        with torch.no_grad():
            return self.module(torch.tensor([token_ids])).logits[0].float().numpy()


def make_config(family: str, **changes: Any) -> Any:
    name, differences = FAMILIES[family]
    return getattr(transformers, name)(**{**_SIZES, **differences, **changes})


def make_model(family: str, folder: Path, *, dtype: str = "float32", gain: float = 1.5, **changes: Any) -> TinyModel:
    """A random model of a family, saved as `dtype`; `changes` go into its config.

    `gain` scales the weights: above 1 attention is uneven and every term moves the logits, below it rounding is not amplified.
    """
    torch.manual_seed(0)
    config = make_config(family, **changes)
    module = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            _randomize(name, parameter, gain)
            parameter.copy_(parameter.to(getattr(torch, dtype)))
    # A copy, because converting a module also rounds its rotary tables.
    copy.deepcopy(module).to(getattr(torch, dtype)).save_pretrained(folder)
    return TinyModel(module, folder)


def _randomize(name: str, parameter: torch.Tensor, gain: float) -> None:
    if parameter.dim() > 1:
        parameter.normal_(0.0, gain / parameter.shape[-1] ** 0.5)
    elif name.endswith("bias"):
        parameter.normal_(0.0, 0.3)
    else:
        parameter.add_(torch.randn_like(parameter) * 0.2)


def random_tokens(num_tokens: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCAB_SIZE, num_tokens).tolist()


def copy_with_config(model: TinyModel, folder: Path, **changes: Any) -> Path:
    """The same weights in a new folder with keys of config.json changed; a value of `...` removes the key."""
    shutil.copytree(model.folder, folder)
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not ...}))
    return folder
