"""What a model is, in one form for GGUF and Hugging Face: sizes, norms, rotary tables, windows, experts.

The two readers (config_gguf, config_huggingface) make it, families build programs from it, and nothing reads raw metadata after.
"""

from __future__ import annotations

from dataclasses import dataclass

from roofline.core.errors import ModelFormatError
from roofline.models.fields import MAX_HEAD_SIZE
from roofline.models.rope import RopeConfig
from roofline.program.ops import Activation, RopeStyle
from roofline.weights.tensor import CheckpointFormat


@dataclass(frozen=True)
class MoeConfig:
    """Experts of the layers that have them: X experts of F, `top_k` a token, and a shared expert where its size is not 0."""

    num_experts: int
    top_k: int
    ffn_size: int
    shared_ffn_size: int
    renormalize: bool
    sparse_layers: tuple[bool, ...]  # per layer: experts, or a dense MLP


@dataclass(frozen=True)
class ModelConfig:
    """Everything a family needs. Soft caps of 0 mean none; `windows[layer]` of 0 means full attention."""

    family: str
    checkpoint_format: CheckpointFormat
    num_layers: int
    hidden_size: int
    ffn_size: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    vocab_size: int
    max_context_len: int
    norm_eps: float
    activation: Activation
    rope: RopeConfig
    local_rope: RopeConfig  # of layers with a window
    rope_style: RopeStyle
    windows: tuple[int, ...]
    attention_scale: float
    attention_soft_cap: float
    final_soft_cap: float
    embedding_scale: float
    qkv_bias: bool
    out_bias: bool
    mlp_bias: bool
    tied: bool
    bos_id: int | None
    eos_ids: tuple[int, ...]
    moe: MoeConfig | None

    def __post_init__(self) -> None:
        if self.head_size > MAX_HEAD_SIZE:
            raise ModelFormatError(f"head size {self.head_size} is above {MAX_HEAD_SIZE}")
        if self.num_heads % self.num_kv_heads:
            raise ModelFormatError(f"{self.num_heads} query heads do not divide among {self.num_kv_heads} KV heads")
        for rope in (self.rope, self.local_rope):
            if rope.rotary_len % 2 or not 0 < rope.rotary_len <= self.head_size:
                raise ModelFormatError(
                    f"rotary length {rope.rotary_len} must be even and at most the head size {self.head_size}"
                )
        if self.moe is not None and not 0 < self.moe.top_k <= self.moe.num_experts:
            raise ModelFormatError(f"top {self.moe.top_k} of {self.moe.num_experts} experts is impossible")
        if any(window < 0 for window in self.windows):
            raise ModelFormatError(f"a sliding window is negative: {self.windows}")


def head_size_of(hidden_size: int, num_heads: int) -> int:
    """E / H, for checkpoints that do not give the head size."""
    if hidden_size % num_heads:
        raise ModelFormatError(
            f"hidden size {hidden_size} is not a multiple of {num_heads} heads, and no head size is given"
        )
    return hidden_size // num_heads
