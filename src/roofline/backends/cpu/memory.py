"""Memory that a CPU back end takes, known from a model's header before anything is read or allocated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from roofline.backends.cpu.declare import CpuSettings, declare
from roofline.core.batch import Float32
from roofline.core.memory import ModelFacts
from roofline.program.program import Program
from roofline.weights.schemes import Scheme

_CONTEXT_STEP = 1024  # tokens; a few of the steps in which scratch grows, and short rotary tables


@dataclass(frozen=True)
class MemoryUse:
    """Bytes that a back end takes. An embedding stays in the mapped file and is counted only where it is the head too."""

    weights_bytes: int
    kv_bytes: int
    scratch_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.kv_bytes + self.scratch_bytes


def estimate(program: Program, schemes: Mapping[str, Scheme], *, num_blocks: int, settings: CpuSettings) -> MemoryUse:
    """What a CpuBackend of these settings takes, from the weights' types alone: nothing is read or allocated."""
    weights = {name: _Unread(schemes[name], spec.shape) for name, spec in program.weights.items()}
    native, _ = declare(program, weights, num_blocks, settings)
    return MemoryUse(**native.memory())


@dataclass(frozen=True)
class _Unread:
    """A weight known by its type and shape. Its zeros are untouched pages, so they take no memory."""

    scheme: Scheme
    shape: tuple[int, ...]

    @property
    def rows(self) -> NDArray[np.uint8]:
        return np.zeros((int(np.prod(self.shape[:-1])), self.scheme.row_bytes(self.shape[-1])), np.uint8)

    def dequantized(self) -> Float32:
        return np.zeros(self.shape, np.float32)

    def prefetch(self) -> None:
        """There is nothing to read."""

    def release(self, start_row: int = 0, end_row: int | None = None) -> None:
        """There is nothing to give back."""


def model_facts(name: str, program: Program, schemes: Mapping[str, Scheme], max_context: int) -> ModelFacts:
    """What `core.resolve` needs to size a back end of this model; `max_context` is the longest that the model allows.

    Scratch is linear in each setting (partial results of attention in steps of some hundred tokens), so differences give the rates.
    """
    base = CpuSettings(threads=1, isa="ref", max_tokens_per_step=1, max_context=_CONTEXT_STEP)

    def use(settings: CpuSettings) -> MemoryUse:
        return estimate(program, schemes, num_blocks=1, settings=settings)

    def growth_bytes(settings: CpuSettings, larger: CpuSettings) -> int:
        return use(larger).scratch_bytes - use(settings).scratch_bytes

    least, two_threads = use(base), replace(base, threads=2)
    per_token = use(replace(base, max_tokens_per_step=2)).scratch_bytes - least.scratch_bytes
    per_thread = growth_bytes(two_threads, replace(base, threads=3))
    # Attention splits a context only where threads and rows gain by it.
    splitting = replace(two_threads, max_tokens_per_step=64)
    per_context_token = growth_bytes(splitting, replace(splitting, max_context=2 * _CONTEXT_STEP)) // _CONTEXT_STEP
    return ModelFacts(
        name=name,
        weights_bytes=least.weights_bytes,
        kv_shapes=tuple((layer.num_kv_heads, layer.head_size) for layer in program.kv_layers),
        max_context=max_context,
        vocab_size=program.vocab_size,
        scratch_bytes_per_token=per_token,
        scratch_bytes_per_thread=per_thread,
        scratch_bytes_per_context_token=per_context_token,
        scratch_bytes_fixed=max(0, least.scratch_bytes - per_token - per_thread - per_context_token * _CONTEXT_STEP),
    )
