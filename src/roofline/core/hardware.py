"""What this process may use of the machine: tiers, cores, caches, nodes, CPU quota, memory. Probed once by frontends, then passed on.

`probe` reads /proc and /sys below a root, so tests give it fake trees. `default_threads` decides how many threads serve.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from roofline.core.cgroup import CpuQuota, MemoryLimit, cpu_quota, memory_limit
from roofline.core.isa import IsaSupport, probe_isa
from roofline.core.procfs import parse_cpu_list, parse_int, parse_kib, read_fields, read_text
from roofline.core.topology import Cache, Core, online_cpus, probe_caches, probe_cores

# A core below this share of the fastest one's speed makes the others wait at every barrier: not used by default.
MIN_RELATIVE_CAPACITY = 0.6


@dataclass(frozen=True)
class MemoryBound:
    """One upper bound on the memory that this process can still take, and where it comes from."""

    source: str
    available_bytes: int


@dataclass(frozen=True)
class Hardware:
    """One machine as this process sees it. `cpus` is the affinity mask; cores, caches and nodes cover these CPUs only."""

    vendor: str
    model_name: str
    isa: IsaSupport
    cpus: tuple[int, ...]
    num_online_cpus: int
    cores: tuple[Core, ...]
    caches: tuple[Cache, ...]
    quota: CpuQuota | None
    memory_total_bytes: int
    memory_limit: MemoryLimit | None
    memory_bounds: tuple[MemoryBound, ...]
    huge_pages: str = ""
    governor: str = ""

    @property
    def nodes(self) -> tuple[int, ...]:
        """Memory nodes with usable cores."""
        return tuple(sorted({core.node for core in self.cores}))

    @property
    def has_smt(self) -> bool:
        """Whether some core shows more than one CPU."""
        return any(len(core.cpus) > 1 for core in self.cores)

    @property
    def tightest_memory(self) -> MemoryBound:
        """The bound that leaves least memory."""
        return min(self.memory_bounds, key=lambda bound: bound.available_bytes)

    def cache_bytes(self, level: int) -> int:
        """Size of one cache of `level` (the largest when they differ), 0 when there is none."""
        return max((cache.size_bytes for cache in self.caches if cache.level == level), default=0)

    def total_cache_bytes(self, level: int) -> int:
        """All caches of `level` together."""
        return sum(cache.size_bytes for cache in self.caches if cache.level == level)


@dataclass(frozen=True)
class ThreadChoice:
    """Threads to run, the CPUs they should stay on, and why, in words."""

    num_threads: int
    cpus: tuple[int, ...]
    reason: str


def probe(root: Path = Path("/"), isa: IsaSupport | None = None) -> Hardware:
    """Read the machine below `root`; `isa` stands in for this CPU's own features in tests."""
    cpuinfo = read_fields(root / "proc/cpuinfo")
    online = online_cpus(root) or tuple(range(os.cpu_count() or 1))
    cpus = _affinity(root, online)
    limit = memory_limit(root)
    total_bytes, bounds = _memory(root, limit)
    governor = read_text(root / f"sys/devices/system/cpu/cpu{cpus[0]}/cpufreq/scaling_governor")
    return Hardware(
        vendor=cpuinfo.get("vendor_id") or cpuinfo.get("CPU implementer") or "unknown",
        model_name=cpuinfo.get("model name") or platform.machine(),
        isa=isa or probe_isa(),
        cpus=cpus,
        num_online_cpus=len(online),
        cores=probe_cores(root, cpus),
        caches=probe_caches(root, cpus),
        quota=cpu_quota(root),
        memory_total_bytes=total_bytes,
        memory_limit=limit,
        memory_bounds=bounds,
        huge_pages=_bracketed(read_text(root / "sys/kernel/mm/transparent_hugepage/enabled") or ""),
        governor=governor or "",
    )


def default_threads(hardware: Hardware, *, all_nodes: bool = False) -> ThreadChoice:
    """One thread a physical core, on the fast cores of one memory node, and no more than the CPU quota pays for; at least 1.

    Hyperthreads add nothing to streaming weights, slow cores hold up every barrier, a second node reads remote memory
    (`all_nodes` takes them all), and threads above a quota are stopped for part of each period.
    """
    fast, note = _fast_cores(hardware.cores)
    cores, node_note = (fast, "") if all_nodes else _one_node(fast)
    num_threads = len(cores)
    reason = f"{_count(num_threads, 'physical core')} for {_count(len(hardware.cpus), 'CPU')} in the affinity mask"
    if hardware.quota is not None and math.floor(hardware.quota.cpus) < num_threads:
        num_threads = max(1, math.floor(hardware.quota.cpus))
        reason = f"CPU quota of {hardware.quota.cpus:g} CPUs in cgroup {hardware.quota.cgroup}, below {reason}"
    return ThreadChoice(
        num_threads, tuple(sorted(cpu for core in cores for cpu in core.cpus)), reason + note + node_note
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _fast_cores(cores: Sequence[Core]) -> tuple[list[Core], str]:
    fastest = max(core.capacity for core in cores)
    fast = [core for core in cores if core.capacity >= MIN_RELATIVE_CAPACITY * fastest]
    num_slow = len(cores) - len(fast)
    return fast, f"; {_count(num_slow, 'slower core')} left out" if num_slow else ""


def _one_node(cores: Sequence[Core]) -> tuple[list[Core], str]:
    nodes = sorted({core.node for core in cores})
    if len(nodes) == 1:
        return list(cores), ""
    chosen = max(nodes, key=lambda node: (sum(core.node == node for core in cores), -node))
    others = ", ".join(str(node) for node in nodes if node != chosen)
    return [core for core in cores if core.node == chosen], f"; memory node {chosen} only, not {others}"


def _affinity(root: Path, online: tuple[int, ...]) -> tuple[int, ...]:
    status = root / "proc/self/status"
    allowed = read_fields(status).get("Cpus_allowed_list")
    if allowed is None:
        return online
    return tuple(cpu for cpu in parse_cpu_list(allowed, status) if cpu in set(online)) or online


def _memory(root: Path, limit: MemoryLimit | None) -> tuple[int, tuple[MemoryBound, ...]]:
    path = root / "proc/meminfo"
    meminfo = read_fields(path)
    if "MemTotal" in meminfo:
        total_bytes = parse_kib(meminfo["MemTotal"], path)
        free_bytes = parse_kib(meminfo.get("MemAvailable", meminfo.get("MemFree", "0 kB")), path)
    else:
        total_bytes = free_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    bounds = [MemoryBound("free memory", free_bytes)]
    if limit is not None:
        bounds.append(MemoryBound(f"memory limit of cgroup {limit.cgroup}", limit.available_bytes))
    return total_bytes, (*bounds, *_address_space(root))


def _address_space(root: Path) -> list[MemoryBound]:
    """The bound of `ulimit -v`, if one is set."""
    path = root / "proc/self/limits"
    for line in (read_text(path) or "").splitlines():
        if line.startswith("Max address space"):
            soft = line.removeprefix("Max address space").split()[0]
            if soft != "unlimited":
                used = read_fields(root / "proc/self/status").get("VmSize", "0 kB")
                left_bytes = parse_int(soft, path) - parse_kib(used, path)
                return [MemoryBound("address space limit (ulimit -v)", max(0, left_bytes))]
    return []


def _bracketed(text: str) -> str:
    """The chosen word of a file like `always [madvise] never`."""
    return text.partition("[")[2].partition("]")[0]
