"""Writes a tiny Hugging Face model as GGUF with the `gguf` package: its name map, its quantizer, and the row order of its converter."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as QuantType

from support.tiny_models import TinyModel

_ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "mistral": gguf.MODEL_ARCH.LLAMA,
    "mixtral": gguf.MODEL_ARCH.LLAMA,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "gemma2": gguf.MODEL_ARCH.GEMMA2,
    "gemma3_text": gguf.MODEL_ARCH.GEMMA3,
    "phi3": gguf.MODEL_ARCH.PHI3,
    "qwen2_moe": gguf.MODEL_ARCH.QWEN2MOE,
    "qwen3_moe": gguf.MODEL_ARCH.QWEN3MOE,
}
_EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(.*)")

Edit = Callable[[gguf.GGUFWriter], None]


def write_gguf(
    model: TinyModel, path: Path, quant_type: QuantType = QuantType.F32, *, edit: Edit | None = None
) -> Path:
    """Matrices as `quant_type`, vectors and routers as F32; `edit` adds what a test needs beside it."""
    config = model.module.config
    architecture = _ARCHITECTURES[config.model_type]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture])
    _add_metadata(writer, config)
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    for name, values in _stack_experts(_saved_tensors(model)):
        target = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert target is not None, f"the gguf package has no name for {name}"
        _add_tensor(writer, target, _converted(name, values, config), quant_type)
    if edit is not None:
        edit(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _saved_tensors(model: TinyModel) -> dict[str, np.ndarray]:
    """What is on disk, under the names of the checkpoint format."""
    from safetensors.numpy import load_file

    return load_file(model.folder / "model.safetensors")


def _stack_experts(tensors: dict[str, np.ndarray]) -> Iterable[tuple[str, np.ndarray]]:
    experts: dict[str, dict[int, np.ndarray]] = {}
    for name, values in tensors.items():
        match = _EXPERT.fullmatch(name)
        if match is None:
            yield name, values
            continue
        # The converter's name of the merged tensor of Mixtral is the one of the original release.
        prefix = re.sub(r"^model\.(layers\.\d+)\.block_sparse_moe", r"\1.feed_forward", match[1])
        experts.setdefault(f"{prefix}.{match[3]}", {})[int(match[2])] = values
    for name, by_index in experts.items():
        yield name, np.stack([by_index[index] for index in range(len(by_index))])


def _converted(name: str, values: np.ndarray, config: Any) -> np.ndarray:
    if config.model_type in ("llama", "mistral", "mixtral"):
        if name.endswith(("q_proj.weight", "q_proj.bias")):
            return _neighbouring_pairs(values, config.num_attention_heads)
        if name.endswith(("k_proj.weight", "k_proj.bias")):
            return _neighbouring_pairs(values, config.num_key_value_heads)
    if config.model_type.startswith("gemma") and name.endswith("norm.weight"):
        return values + 1
    return values


def _neighbouring_pairs(values: np.ndarray, num_heads: int) -> np.ndarray:
    """Rows (i, i + D/2) of each head become (2i, 2i + 1)."""
    heads = values.reshape(num_heads, 2, -1, *values.shape[1:])
    return np.ascontiguousarray(heads.swapaxes(1, 2)).reshape(values.shape)


def _add_tensor(writer: gguf.GGUFWriter, name: str, values: np.ndarray, quant_type: QuantType) -> None:
    values = values.astype(np.float32)
    if values.ndim == 1 or "ffn_gate_inp" in name or quant_type == QuantType.F32:
        writer.add_tensor(name, values)
    elif quant_type == QuantType.F16:
        writer.add_tensor(name, values.astype(np.float16))
    else:
        writer.add_tensor(name, gguf.quants.quantize(values, quant_type), raw_dtype=quant_type)


def _add_metadata(writer: gguf.GGUFWriter, config: Any) -> None:
    head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_size)
    writer.add_value_length(head_size)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(_theta(config))
    if config.model_type in ("llama", "mistral", "mixtral", "phi3"):
        writer.add_rope_dimension_count(head_size)
    if config.model_type.startswith("gemma2"):
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    _add_windows(writer, config)
    _add_experts(writer, config)


def _theta(config: Any) -> float:
    parameters = config.rope_parameters
    return parameters.get("full_attention", parameters)["rope_theta"]


def _add_windows(writer: gguf.GGUFWriter, config: Any) -> None:
    if not getattr(config, "sliding_window", None):
        return
    writer.add_sliding_window(config.sliding_window)
    kinds = getattr(config, "layer_types", None)
    if kinds:
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in kinds])


def _add_experts(writer: gguf.GGUFWriter, config: Any) -> None:
    num_experts = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None)
    if not num_experts:
        return
    writer.add_expert_count(num_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    if config.model_type != "mixtral":
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if config.model_type == "qwen2_moe":
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
