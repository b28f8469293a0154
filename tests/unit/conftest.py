"""A fake machine: a tree with the files of /proc and /sys that the probe reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from roofline.core.hardware import Hardware, probe
from roofline.core.isa import IsaSupport

AVX512_ONLY = IsaSupport(
    features=("avx2", "fma", "avx512f", "avx512_vnni"),
    gaps={"ref": (), "avx2": (), "avx512": (), "amx": ("amx_tile", "amx_int8")},
)


@dataclass
class FakeMachine:
    """Writes files below `root`; `probe` reads them."""

    root: Path
    isa: IsaSupport = field(default=AVX512_ONLY)

    def write(self, path: str, text: str) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")

    def cores(self, siblings: Sequence[str]) -> None:
        """One entry a core: its CPU list, e.g. `0,8`."""
        cpus = sorted(int(cpu) for core in siblings for cpu in core.split(","))
        self.write("/sys/devices/system/cpu/online", f"0-{cpus[-1]}" if len(cpus) > 1 else "0")
        for core in siblings:
            for cpu in core.split(","):
                self.write(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", core)

    def memory(self, total_mib: int, available_mib: int) -> None:
        self.write("/proc/meminfo", f"MemTotal: {total_mib * 1024} kB\nMemAvailable: {available_mib * 1024} kB")

    def affinity(self, cpus: str) -> None:
        self.write("/proc/self/status", f"VmSize:\t  1024 kB\nCpus_allowed_list:\t{cpus}")

    def cgroup_v2(self, own: str, mount_root: str = "/") -> None:
        self.write("/proc/self/cgroup", f"0::{own}")
        self.write("/proc/self/mountinfo", f"31 23 0:28 {mount_root} /sys/fs/cgroup rw - cgroup2 cgroup2 rw")

    def cgroup_v1(self, own: str, mount_root: str = "/") -> None:
        self.write("/proc/self/cgroup", f"3:memory:{own}\n2:cpu,cpuacct:{own}\n0::/")
        mount = "31 23 0:28 {root} /sys/fs/cgroup/{name} rw - cgroup cgroup rw,{name}"
        names = ("memory", "cpu,cpuacct")
        lines = [mount.format(root=mount_root, name=name) for name in names]
        self.write("/proc/self/mountinfo", "\n".join(lines))

    def probe(self) -> Hardware:
        return probe(self.root, self.isa)


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    """Sixteen cores, 32 GiB of memory with 24 GiB free, no limits."""
    fake = FakeMachine(tmp_path)
    fake.cores([str(cpu) for cpu in range(16)])
    fake.memory(32 * 1024, 24 * 1024)
    return fake


@pytest.fixture
def make_machine(tmp_path: Path) -> Callable[[Sequence[str]], FakeMachine]:
    """A machine with the given cores and nothing else."""

    def make(siblings: Sequence[str]) -> FakeMachine:
        fake = FakeMachine(tmp_path)
        fake.cores(siblings)
        fake.memory(32 * 1024, 24 * 1024)
        return fake

    return make
