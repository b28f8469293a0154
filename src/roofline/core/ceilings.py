"""What this machine can reach at best: memory rate by working set, arithmetic peaks by tier, cost of a barrier and of a wake-up.

Measured by `roofline doctor --measure` (core/measure.py) and kept in the cache folder under a fingerprint of the environment. Everything
that quotes a floor reads it here; without a measurement there is no floor, and callers print `UNMEASURED`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import log
from pathlib import Path
from typing import Any

from roofline import __version__
from roofline.core.errors import ConfigError
from roofline.core.hardware import Hardware, default_threads
from roofline.core.paths import cache_dir, cannot_write

UNMEASURED = "unmeasured: run roofline doctor --measure"
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Bandwidth:
    """Best read rate of `num_threads` over a working set shared by them; `spread` is (best - median) / best of the trials."""

    num_threads: int
    working_set_bytes: int
    bytes_per_s: float
    spread: float


@dataclass(frozen=True)
class Peak:
    """Best multiply-add rate of one tier and arithmetic (`int8` or `fp32`), all threads together."""

    isa: str
    kind: str
    num_threads: int
    macs_per_s: float
    spread: float


@dataclass(frozen=True)
class Ceilings:
    """One measurement of one machine."""

    fingerprint: Mapping[str, Any]
    measured_at: str
    bandwidths: tuple[Bandwidth, ...]
    peaks: tuple[Peak, ...]
    barrier_s: float
    wake_s: float

    def bytes_per_s(self, working_set_bytes: int, num_threads: int) -> float:
        """Read rate for a working set, interpolated over log(size) between the measured sizes and over the thread counts."""
        by_threads = []
        for count in sorted({point.num_threads for point in self.bandwidths}):
            points = [(log(p.working_set_bytes), p.bytes_per_s) for p in self.bandwidths if p.num_threads == count]
            by_threads.append((float(count), _interpolate(sorted(points), log(max(1, working_set_bytes)))))
        return _interpolate(by_threads, float(num_threads))

    def macs_per_s(self, isa: str, kind: str, num_threads: int) -> float:
        """Arithmetic peak, interpolated over the thread counts. ConfigError for a tier or arithmetic that was not measured."""
        points = [(float(p.num_threads), p.macs_per_s) for p in self.peaks if (p.isa, p.kind) == (isa, kind)]
        if not points:
            raise ConfigError(f"no measured peak for {kind} on tier {isa}", hint="run roofline doctor --measure again")
        return _interpolate(sorted(points), float(num_threads))

    def floor_s(
        self, num_bytes: int, macs: int, working_set_bytes: int, *, num_threads: int, isa: str, kind: str = "int8"
    ) -> float:
        """Least time for reading `num_bytes` while doing `macs`: the slower of the two, overlapped perfectly (Williams 2009)."""
        memory_s = num_bytes / self.bytes_per_s(working_set_bytes, num_threads)
        return max(memory_s, macs / self.macs_per_s(isa, kind, num_threads) if macs else 0.0)


def _interpolate(points: Sequence[tuple[float, float]], x: float) -> float:
    """Piecewise linear through `points` in order of x; constant outside."""
    if x <= points[0][0]:
        return points[0][1]
    for (x0, y0), (x1, y1) in pairwise(points):
        if x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return points[-1][1]


def fingerprint(hardware: Hardware) -> dict[str, Any]:
    """What a measurement depends on. A difference in any of it makes the measurement another machine's."""
    return {
        "version": __version__,
        "vendor": hardware.vendor,
        "model_name": hardware.model_name,
        "features": list(hardware.isa.features),
        "tiers": list(hardware.isa.tiers),
        "caches": [[cache.level, cache.size_bytes, len(cache.cpus)] for cache in hardware.caches],
        "num_cpus": len(hardware.cpus),
        "num_threads": default_threads(hardware).num_threads,
        "huge_pages": hardware.huge_pages,
    }


def ceilings_path(hardware: Hardware, environ: Mapping[str, str]) -> Path:
    """The file that holds this machine's measurement."""
    text = json.dumps(fingerprint(hardware), sort_keys=True)
    return cache_dir(environ) / f"ceilings-{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"


def save_ceilings(ceilings: Ceilings, path: Path) -> None:
    """Write in one step, so that a reader never sees half a file. ConfigError where the folder takes none."""
    partial = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps({"schema": SCHEMA_VERSION, **asdict(ceilings)}, indent=1) + "\n")
        partial.replace(path)
    except OSError as error:
        raise cannot_write(path, error) from error


def load_ceilings(hardware: Hardware, environ: Mapping[str, str] | None = None) -> Ceilings | None:
    """This machine's measurement, or None when there is none. ConfigError for a damaged file."""
    path = ceilings_path(hardware, os.environ if environ is None else environ)
    if not path.exists():
        return None
    try:
        record = json.loads(path.read_text())
        if record.pop("schema") != SCHEMA_VERSION:
            return None
        bandwidths = tuple(Bandwidth(**point) for point in record.pop("bandwidths"))
        peaks = tuple(Peak(**point) for point in record.pop("peaks"))
        return Ceilings(bandwidths=bandwidths, peaks=peaks, **record)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(f"damaged measurement: {path}", hint="run roofline doctor --measure again") from error
