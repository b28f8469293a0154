"""Kernel tiers: which of ref, avx2, avx512 and amx run here, and why not the others. The native side does the probing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from roofline.core.errors import ConfigError

TIERS = ("ref", "avx2", "avx512", "amx")


@dataclass(frozen=True)
class IsaSupport:
    """Usable CPU features by /proc/cpuinfo name and, per tier, what keeps it from running (empty: it runs)."""

    features: tuple[str, ...]
    gaps: Mapping[str, tuple[str, ...]]

    @property
    def tiers(self) -> tuple[str, ...]:
        """Tiers that run here, lowest first."""
        return tuple(tier for tier in TIERS if not self.gaps[tier])

    @property
    def best(self) -> str:
        return self.tiers[-1]


def probe_isa() -> IsaSupport:
    """Ask the native extension. ConfigError when it was not built; the NumPy reference back end needs none of this."""
    try:
        from roofline import _native
    except ImportError as error:
        raise ConfigError(
            f"the native extension can't be imported: {error}",
            hint="build it with `pip install .`; without it only the NumPy reference back end works",
        ) from error
    usable = tuple(name for name, present in _native.cpu_features().items() if present)
    return IsaSupport(usable, {tier: tuple(_native.isa_gaps(tier)) for tier in TIERS})


def require_tier(isa: str, support: IsaSupport) -> str:
    """`isa` when it runs here; ConfigError when it is no tier, or naming the CPU flags that are missing."""
    if isa not in TIERS:
        raise ConfigError(f"unknown kernel tier: {isa!r}", hint=f"one of {', '.join(TIERS)}")
    if support.gaps[isa]:
        raise ConfigError(
            f"kernel tier {isa} can't run on this machine, missing: {', '.join(support.gaps[isa])}",
            hint=f"tiers that run here: {', '.join(support.tiers)}",
        )
    return isa
