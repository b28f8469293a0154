"""A tiny random Llama as one GGUF file, tokenizer and all, written with the `gguf` package alone: loads in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as QuantType

from text.tiny import byte_level_metadata

NUM_LAYERS, NUM_HEADS, NUM_KV_HEADS, HEAD_SIZE = 2, 4, 2, 16
HIDDEN, FFN, MAX_CONTEXT = 64, 96, 512

Change = Callable[[dict[str, np.ndarray]], None]


def write_tiny_llama(
    path: Path,
    *,
    metadata: Mapping[str, Any] | None = None,
    change: Change | None = None,
    quant_type: QuantType = QuantType.F32,
) -> Path:
    """`metadata` is the tokenizer's (byte-level by default); `change` may edit the float32 tensors; matrices become `quant_type`."""
    metadata = byte_level_metadata(pre="qwen2") if metadata is None else metadata
    tensors = tiny_tensors(len(metadata["tokenizer.ggml.tokens"]))
    if change is not None:
        change(tensors)
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in (_SIZES | dict(metadata)).items():
        _add_value(writer, key, value)
    for name, values in tensors.items():
        if values.ndim == 1 or quant_type == QuantType.F32:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, gguf.quants.quantize(values, quant_type), raw_dtype=quant_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


_SIZES = {
    "llama.block_count": NUM_LAYERS,
    "llama.context_length": MAX_CONTEXT,
    "llama.embedding_length": HIDDEN,
    "llama.feed_forward_length": FFN,
    "llama.attention.head_count": NUM_HEADS,
    "llama.attention.head_count_kv": NUM_KV_HEADS,
    "llama.attention.key_length": HEAD_SIZE,
    "llama.attention.value_length": HEAD_SIZE,
    "llama.rope.dimension_count": HEAD_SIZE,
    "llama.rope.freq_base": 10000.0,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
}


def tiny_tensors(vocab_size: int) -> dict[str, np.ndarray]:
    """Random float32 weights; the head is the embedding, as in a file without `output.weight`."""
    rng = np.random.default_rng(0)

    def matrix(num_rows: int, row_len: int) -> np.ndarray:
        return rng.normal(0, 1.5 / row_len**0.5, (num_rows, row_len)).astype(np.float32)

    def norm() -> np.ndarray:
        return rng.normal(1, 0.2, HIDDEN).astype(np.float32)

    tensors = {"token_embd.weight": matrix(vocab_size, HIDDEN) * 4, "output_norm.weight": norm()}
    for layer in range(NUM_LAYERS):
        tensors |= {
            f"blk.{layer}.attn_norm.weight": norm(),
            f"blk.{layer}.attn_q.weight": matrix(NUM_HEADS * HEAD_SIZE, HIDDEN),
            f"blk.{layer}.attn_k.weight": matrix(NUM_KV_HEADS * HEAD_SIZE, HIDDEN),
            f"blk.{layer}.attn_v.weight": matrix(NUM_KV_HEADS * HEAD_SIZE, HIDDEN),
            f"blk.{layer}.attn_output.weight": matrix(HIDDEN, NUM_HEADS * HEAD_SIZE),
            f"blk.{layer}.ffn_norm.weight": norm(),
            f"blk.{layer}.ffn_gate.weight": matrix(FFN, HIDDEN),
            f"blk.{layer}.ffn_up.weight": matrix(FFN, HIDDEN),
            f"blk.{layer}.ffn_down.weight": matrix(HIDDEN, FFN),
        }
    return tensors


def _add_value(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)
