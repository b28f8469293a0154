"""Measures this machine's ceilings with the native probes, in under twenty seconds. Called by `roofline doctor --measure`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from roofline.core.ceilings import Bandwidth, Ceilings, Peak, fingerprint
from roofline.core.hardware import Hardware, default_threads

if TYPE_CHECKING:  # core must import without the extension
    from roofline import _native

READ_S, PEAK_S = 0.35, 0.2  # time for all trials of one point
NUM_BARRIER_TRIALS, NUM_WAKE_TRIALS = 21, 100
KINDS = ("int8", "fp32")

_MIB = 1024**2
_MIN_DRAM_BYTES, _MAX_DRAM_BYTES = 256 * _MIB, 1024 * _MIB


def measure(hardware: Hardware, progress: Callable[[str], None]) -> Ceilings:
    """Run every probe with one thread and with the default number; `progress` hears what is being measured."""
    from roofline._native import ThreadPool, measure_barrier_s, measure_wake_s

    counts = sorted({1, default_threads(hardware).num_threads})
    bandwidths: list[Bandwidth] = []
    peaks: list[Peak] = []
    for num_threads in counts:
        pool = ThreadPool(num_threads)
        bandwidths += _bandwidths(hardware, pool, progress)
        peaks += _peaks(hardware, pool, progress)
    progress("barrier and wake-up")
    return Ceilings(
        fingerprint=fingerprint(hardware),
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        bandwidths=tuple(bandwidths),
        peaks=tuple(peaks),
        barrier_s=min(measure_barrier_s(pool, NUM_BARRIER_TRIALS)),
        wake_s=statistics.median(measure_wake_s(pool, NUM_WAKE_TRIALS)),
    )


def working_sets(hardware: Hardware, num_threads: int) -> tuple[int, ...]:
    """Sizes in bytes, for all threads together: half of L2, around L3, and far beyond it for DRAM."""
    l2_bytes = hardware.cache_bytes(2) or 512 * 1024
    l3_bytes = hardware.cache_bytes(3) if num_threads == 1 else hardware.total_cache_bytes(3)
    room_bytes = hardware.tightest_memory.available_bytes // 4
    dram_bytes = min(max(4 * l3_bytes, _MIN_DRAM_BYTES), _MAX_DRAM_BYTES, room_bytes)
    sizes = [l2_bytes * num_threads // 2, l3_bytes // 2, l3_bytes, 2 * l3_bytes]
    return (*sorted({size for size in sizes if 0 < size < dram_bytes}), dram_bytes)


def _bandwidths(hardware: Hardware, pool: _native.ThreadPool, progress: Callable[[str], None]) -> Iterator[Bandwidth]:
    from roofline._native import measure_read_bytes_per_s

    fastest = 0.0
    # From large to small: what a smaller set adds to the rate is real, what it loses is noise of a shared machine.
    for size_bytes in reversed(working_sets(hardware, pool.num_threads)):
        progress(f"memory rate, {size_bytes / 1e6:.3g} MB, {pool.num_threads} threads")
        trials = measure_read_bytes_per_s(pool, hardware.isa.best, size_bytes, READ_S)
        fastest = max(fastest, *trials)
        yield Bandwidth(pool.num_threads, size_bytes, fastest, _spread(trials))


def _peaks(hardware: Hardware, pool: _native.ThreadPool, progress: Callable[[str], None]) -> Iterator[Peak]:
    from roofline._native import measure_macs_per_s

    for isa in hardware.isa.tiers:
        for kind in KINDS:
            progress(f"{kind} peak, {isa}, {pool.num_threads} threads")
            trials = measure_macs_per_s(pool, isa, kind, PEAK_S)
            yield Peak(isa, kind, pool.num_threads, max(trials), _spread(trials))


def _spread(trials: Sequence[float]) -> float:
    best = max(trials)
    return (best - statistics.median(trials)) / best
