"""What the CPU back end runs with, and the declaration of a program to a native executor under it, with errors in the user's terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from roofline._native import Executor
from roofline.backends.base import WeightTensor
from roofline.backends.cpu.emit import Emitter
from roofline.backends.cpu.lower import lower
from roofline.core.config import KvDtype
from roofline.core.errors import ConfigError, UnsupportedModelError
from roofline.program.program import Program


@dataclass(frozen=True)
class CpuSettings:
    """What the back end runs with; `core.resolve` chooses the values."""

    threads: int
    isa: str  # "ref", "avx2", "avx512" or "amx": the highest tier that kernels may use
    kv_type: KvDtype = "f16"
    max_tokens_per_step: int = 512
    max_context: int = 8192
    cpus: tuple[int, ...] = ()  # that workers stay on; empty: the affinity mask


def declare(
    program: Program, weights: Mapping[str, WeightTensor], num_blocks: int, settings: CpuSettings
) -> tuple[Executor, Emitter]:
    """An executor that knows everything about the program but holds no memory yet (`commit` takes it).

    Raises ConfigError for settings that can't be honoured, UnsupportedModelError for an operator, a size or a
    format without a kernel.
    """
    try:
        native = Executor(
            threads=settings.threads,
            isa=settings.isa,
            kv_type=settings.kv_type,
            max_tokens=settings.max_tokens_per_step,
            max_context=settings.max_context,
            num_blocks=num_blocks,
            vocab_size=program.vocab_size,
            cpus=list(settings.cpus),
        )
    except ValueError as error:
        raise ConfigError(f"the CPU back end can't run with these settings: {error}") from error
    emitter = Emitter(native, program, weights, settings.max_context)
    try:
        emitter.emit(lower(program, lambda name: not weights[name].scheme.is_quantized))
    except ValueError as error:
        raise UnsupportedModelError(f"the CPU back end can't run this model: {error}") from error
    return native, emitter
