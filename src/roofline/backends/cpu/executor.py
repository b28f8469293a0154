"""The CPU back end: owns a native executor with packed weights, KV cache and threads, and gives it step batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from roofline._native import ThreadPool
from roofline.backends.base import WeightTensor
from roofline.backends.cpu.declare import CpuSettings, declare
from roofline.backends.cpu.memory import MemoryUse
from roofline.core.batch import Float32, StepBatch
from roofline.core.errors import ConfigError
from roofline.program.program import Program

__all__ = ["CpuBackend", "CpuSettings", "MemoryUse", "PhaseTime", "Progress"]

Progress = Callable[[int, int], None]
"""Called with (done_bytes, total_bytes) of the checkpoint's weights while they are packed."""

# In memory twice while a model loads; a part still keeps every thread busy for milliseconds.
_PACKED_AT_ONCE_BYTES = 16 << 20


@dataclass(frozen=True)
class PhaseTime:
    """Wall time of one phase, barrier included, summed over the traced steps."""

    phase: str
    seconds: float
    threads: int


class CpuBackend:
    """Implements `Backend` on the native executor. One step at a time; a second one in another thread is refused."""

    def __init__(
        self,
        program: Program,
        weights: Mapping[str, WeightTensor],
        *,
        num_blocks: int,
        settings: CpuSettings,
        progress: Progress | None = None,
    ) -> None:
        """Pack `weights` in parallel and give their source pages back.

        Raises ConfigError for settings that can't be honoured, UnsupportedModelError for an operator without a kernel.
        """
        self._program = program
        self._num_blocks = num_blocks
        self._settings = settings
        self._schemes = {name: weight.scheme.name for name, weight in weights.items()}
        self._native, emitter = declare(program, weights, num_blocks, settings)
        self._weight_ids = emitter.weight_ids
        try:
            self._native.commit()
        except ValueError as error:
            raise ConfigError(f"the CPU back end can't start its threads: {error}") from error
        except RuntimeError as error:
            raise ConfigError(
                f"the system refused memory or threads: {error}",
                hint="fewer threads, a shorter max_context, or a higher limit (ulimit -v, ulimit -u)",
            ) from error
        self._pack(weights, progress or (lambda done_bytes, total_bytes: None))

    def _pack(self, weights: Mapping[str, WeightTensor], progress: Progress) -> None:
        """Pack in parts, so that of no weight more than a part is in memory twice; the next weight is read meanwhile."""
        names = list(self._weight_ids)
        total_bytes = sum(weights[name].rows.nbytes for name in names)
        done_bytes = 0
        for name, following in zip_longest(names, names[1:]):
            if following is not None:
                weights[following].prefetch()
            num_bytes = weights[name].rows.nbytes
            num_parts = max(1, -(-num_bytes // _PACKED_AT_ONCE_BYTES))
            for part in range(num_parts):
                self._pack_part(name, weights[name], part, num_parts)
                progress(done_bytes + num_bytes * (part + 1) // num_parts, total_bytes)
            weights[name].release()  # also the pages that two parts shared
            done_bytes += num_bytes

    def _pack_part(self, name: str, weight: WeightTensor, part: int, num_parts: int) -> None:
        for start_row, end_row in self._native.pack(self._weight_ids[name], weight.rows, part, num_parts):
            weight.release(start_row, end_row)

    @property
    def program(self) -> Program:
        return self._program

    @property
    def num_blocks(self) -> int:
        return self._num_blocks

    @property
    def settings(self) -> CpuSettings:
        return self._settings

    def step(self, batch: StepBatch) -> Float32:
        """See Backend.step. Raises ValueError naming the field of a batch that breaks its contract or a limit."""
        logits = np.empty((len(batch.logit_rows), self._program.vocab_size), np.float32)
        self.step_into(batch, logits)
        return logits

    def step_into(self, batch: StepBatch, logits: Float32) -> None:
        """As `step`, into the caller's [L, V] array, so that a loop of steps allocates nothing."""
        self._native.step(
            batch.token_ids,
            batch.positions,
            batch.seq_starts,
            batch.context_lens,
            batch.block_tables,
            batch.logit_rows,
            logits,
        )

    def memory(self) -> MemoryUse:
        return MemoryUse(**self._native.memory())

    @property
    def thread_pool(self) -> ThreadPool:
        """The threads of the steps, for work between them."""
        return self._native.pool

    def kernel_tiers(self) -> dict[str, str]:
        """Tier that serves each kernel family."""
        return self._native.kernel_tiers()

    def describe(self, num_tokens: int = 1) -> dict[str, str]:
        """Kernel of every packed weight in a step of `num_tokens`, with the scheme it came in."""
        return {
            name: f"{self._schemes[name]}: {self._native.describe_weight(weight_id, num_tokens)}"
            for name, weight_id in self._weight_ids.items()
        }

    def start_trace(self) -> None:
        """Time every phase from now on; a clock read a phase."""
        self._native.enable_trace(True)

    def stop_trace(self) -> list[PhaseTime]:
        """Phases in order with their time since `start_trace`."""
        times = [PhaseTime(*entry) for entry in self._native.trace()]
        self._native.enable_trace(False)
        return times
