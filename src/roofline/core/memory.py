"""Memory that a model needs (weights, KV cache, scratch) against what this process may take. `core.resolve` decides with it."""

from __future__ import annotations

from dataclasses import dataclass

from roofline.core.batch import BLOCK_LEN
from roofline.core.config import KV_DTYPE_BYTES
from roofline.core.errors import InsufficientMemoryError
from roofline.core.hardware import MemoryBound

_MB = 1e6

# Left free for the process itself (interpreter, tokenizer, allocator slack) and for the other processes of the machine.
HEADROOM_BYTES = 64 * 1024**2
HEADROOM_SHARE = 0.05


@dataclass(frozen=True)
class ModelFacts:
    """What configuration needs to know of a model before it is loaded.

    `kv_shapes` holds (Hk, D) of each layer. Scratch is what a step holds beside weights and KV: bytes for each token of the
    step, each thread, each token of the longest context (rotary tables, partial results of attention), a fixed part, and the logits
    of each sequence (V float32 values).
    """

    name: str
    weights_bytes: int
    kv_shapes: tuple[tuple[int, int], ...]
    max_context: int
    vocab_size: int
    scratch_bytes_per_token: int = 0
    scratch_bytes_per_thread: int = 0
    scratch_bytes_per_context_token: int = 0
    scratch_bytes_fixed: int = 0

    def kv_bytes_per_token(self, kv_dtype: str) -> int:
        """K and V of one token in all layers; a head of the cache is stored with V padded to 16 values."""
        values = sum(num_kv_heads * (size + (size + 15) // 16 * 16) for num_kv_heads, size in self.kv_shapes)
        return values * KV_DTYPE_BYTES[kv_dtype]

    def block_bytes(self, kv_dtype: str) -> int:
        """One KV block: BLOCK_LEN tokens in all layers."""
        return self.kv_bytes_per_token(kv_dtype) * BLOCK_LEN

    def scratch_bytes(self, num_threads: int, max_tokens_per_step: int, max_sequences: int, max_context: int) -> int:
        """Activations of the largest step, what threads and the context length take, and one row of logits a sequence."""
        return (
            self.scratch_bytes_fixed
            + self.scratch_bytes_per_token * max_tokens_per_step
            + self.scratch_bytes_per_thread * num_threads
            + self.scratch_bytes_per_context_token * max_context
            + 4 * self.vocab_size * max_sequences
        )


@dataclass(frozen=True)
class MemoryPlan:
    """The parts of the need that do not depend on the context, and the bound they must fit."""

    model: str
    weights_bytes: int
    scratch_bytes: int
    block_bytes: int
    bound: MemoryBound

    @property
    def usable_bytes(self) -> int:
        """The bound less headroom."""
        return max(0, int(self.bound.available_bytes * (1 - HEADROOM_SHARE)) - HEADROOM_BYTES)

    @property
    def kv_room_bytes(self) -> int:
        """What is left for the KV cache; negative when weights and scratch alone do not fit."""
        return self.usable_bytes - self.weights_bytes - self.scratch_bytes

    @property
    def max_blocks(self) -> int:
        return max(0, self.kv_room_bytes // self.block_bytes)

    def need_bytes(self, num_blocks: int) -> int:
        """Weights, scratch and a KV cache of `num_blocks`."""
        return self.weights_bytes + self.scratch_bytes + num_blocks * self.block_bytes

    def describe(self, num_blocks: int) -> str:
        """Every part of the need in MB, and the bound."""
        return (
            f"weights {self.weights_bytes / _MB:.0f} MB, KV cache {num_blocks * self.block_bytes / _MB:.0f} MB "
            f"({num_blocks * BLOCK_LEN} tokens), scratch {self.scratch_bytes / _MB:.0f} MB; usable: "
            f"{self.usable_bytes / _MB:.0f} MB ({self.bound.source} {self.bound.available_bytes / _MB:.0f} MB less headroom)"
        )

    def require(self, num_blocks: int) -> None:
        """InsufficientMemoryError with every part in MB, and the largest context that fits, unless `num_blocks` fit."""
        if num_blocks <= self.max_blocks and self.kv_room_bytes >= 0:
            return
        need = f"{self.model} needs {self.need_bytes(num_blocks) / _MB:.0f} MB"
        raise InsufficientMemoryError(f"{need}: {self.describe(num_blocks)}", hint=self._way_out())

    def _way_out(self) -> str:
        if self.max_blocks == 0:
            return "no context fits: take a smaller model or quantization, or give the process more memory"
        fits = f"the largest context that fits is {self.max_blocks * BLOCK_LEN} tokens, for all sequences together"
        return f"{fits}: set max_context (--max-context) to it or less"
