"""CPUs, cores, caches and memory nodes of the machine from /sys. `core.hardware` calls this; nothing here looks at the clock or runs code.

Two CPUs are two cores only if the kernel says so: hyperthreads share one, and on hybrid machines cores differ in speed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from roofline.core.procfs import parse_int, read_cpu_list, read_int, read_size, read_text

FULL_CAPACITY = 1024


@dataclass(frozen=True)
class Core:
    """One physical core: its logical CPUs, relative speed (1024 = the fastest kind here) and memory node."""

    cpus: tuple[int, ...]
    capacity: int = FULL_CAPACITY
    node: int = 0


@dataclass(frozen=True)
class Cache:
    """One data or unified cache and the CPUs that share it."""

    level: int
    size_bytes: int
    cpus: tuple[int, ...]


def online_cpus(root: Path) -> tuple[int, ...]:
    """CPUs that the kernel runs; empty when it does not say."""
    return read_cpu_list(root / "sys/devices/system/cpu/online") or ()


def probe_cores(root: Path, cpus: tuple[int, ...]) -> tuple[Core, ...]:
    """The cores that hold `cpus`, in order of their first CPU. A CPU without topology files counts as a core."""
    node_of = {cpu: node for node, members in probe_nodes(root) for cpu in members}
    slow = _slow_kind(root)
    cores: dict[tuple[int, ...], Core] = {}
    for cpu in cpus:
        siblings = tuple(sorted({cpu, *_siblings(root, cpu)} & set(cpus)))
        if siblings not in cores:
            capacity = FULL_CAPACITY // 2 if cpu in slow else _capacity(root, cpu)
            cores[siblings] = Core(siblings, capacity, node_of.get(cpu, 0))
    return tuple(cores.values())


def _siblings(root: Path, cpu: int) -> tuple[int, ...]:
    topology = _cpu_folder(root, cpu) / "topology"
    return read_cpu_list(topology / "thread_siblings_list") or read_cpu_list(topology / "core_cpus_list") or ()


def _capacity(root: Path, cpu: int) -> int:
    return read_int(_cpu_folder(root, cpu) / "cpu_capacity") or FULL_CAPACITY


def _slow_kind(root: Path) -> frozenset[int]:
    """Efficiency cores of a hybrid x86: the kernel lists them as the performance counters' second kind of CPU."""
    devices = root / "sys/devices"
    if not read_cpu_list(devices / "cpu_core/cpus"):
        return frozenset()
    return frozenset(read_cpu_list(devices / "cpu_atom/cpus") or ())


def probe_nodes(root: Path) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """(node, its CPUs) for memory nodes with CPUs; empty when the kernel lists none."""
    nodes = []
    for folder in (root / "sys/devices/system/node").glob("node[0-9]*"):
        cpus = read_cpu_list(folder / "cpulist")
        if cpus:
            nodes.append((parse_int(folder.name.removeprefix("node"), folder), cpus))
    return tuple(sorted(nodes))


def probe_caches(root: Path, cpus: tuple[int, ...]) -> tuple[Cache, ...]:
    """Data and unified caches of `cpus`, each once, by level and first CPU."""
    found: set[Cache] = set()
    for cpu in cpus:
        for folder in (_cpu_folder(root, cpu) / "cache").glob("index[0-9]*"):
            level, size_bytes = read_int(folder / "level"), read_size(folder / "size")
            if level and size_bytes and read_text(folder / "type") != "Instruction":
                found.add(Cache(level, size_bytes, read_cpu_list(folder / "shared_cpu_list") or (cpu,)))
    return tuple(sorted(found, key=lambda cache: (cache.level, cache.cpus)))


def _cpu_folder(root: Path, cpu: int) -> Path:
    return root / f"sys/devices/system/cpu/cpu{cpu}"
