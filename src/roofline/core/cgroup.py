"""Limits that a container or service manager sets: CPU quota and memory, cgroup v1 and v2, up the parent chain.

A limit may sit on any ancestor and is not inherited in the files, so every level from this process to the mount point is read and
the tightest wins. `core.hardware` calls this.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from roofline.core.errors import ConfigError
from roofline.core.procfs import parse_int, read_int, read_text


@dataclass(frozen=True)
class CpuQuota:
    """CPU time allowed, in CPUs (1.5 = 150 ms each 100 ms), and the cgroup that sets it."""

    cpus: float
    cgroup: str


@dataclass(frozen=True)
class MemoryLimit:
    """Memory allowed and in use by a cgroup. `used_bytes` leaves out file pages that the kernel drops when asked for memory."""

    limit_bytes: int
    used_bytes: int
    cgroup: str

    @property
    def available_bytes(self) -> int:
        return max(0, self.limit_bytes - self.used_bytes)


@dataclass(frozen=True)
class _Level:
    folder: Path
    name: str
    version: int


def cpu_quota(root: Path) -> CpuQuota | None:
    """The tightest CPU quota of this process, or None when there is none."""
    quotas = [quota for level in _levels(root, "cpu") if (quota := _level_quota(level)) is not None]
    return min(quotas, key=lambda quota: quota.cpus, default=None)


def memory_limit(root: Path) -> MemoryLimit | None:
    """The cgroup limit with the least memory left, or None when there is none."""
    limits = [limit for level in _levels(root, "memory") if (limit := _level_memory(level)) is not None]
    return min(limits, key=lambda limit: limit.available_bytes, default=None)


def _level_quota(level: _Level) -> CpuQuota | None:
    if level.version == 2:
        quota_us, period_us = _cpu_max(level.folder / "cpu.max")
    else:
        quota_us = read_int(level.folder / "cpu.cfs_quota_us")
        period_us = read_int(level.folder / "cpu.cfs_period_us")
    if quota_us is None or period_us is None or quota_us < 0:
        return None
    if period_us <= 0:
        raise ConfigError(f"{level.folder}: CPU quota with a period of {period_us} us")
    return CpuQuota(quota_us / period_us, level.name)


def _cpu_max(path: Path) -> tuple[int | None, int | None]:
    """`200000 100000` or `max 100000` (cgroup v2) as quota and period in microseconds."""
    text = read_text(path)
    if not text:
        return None, None
    quota, _, period = text.partition(" ")
    return None if quota == "max" else parse_int(quota, path), parse_int(period or "100000", path)


# v1 has no word for "no limit": it shows the largest page-aligned number. No machine has this much memory.
_NO_LIMIT_BYTES = 1 << 60


def _level_memory(level: _Level) -> MemoryLimit | None:
    limit_file, used_file, cache_key = {
        1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        2: ("memory.max", "memory.current", "inactive_file"),
    }[level.version]
    if read_text(level.folder / limit_file) in (None, "", "max"):
        return None
    limit_bytes = read_int(level.folder / limit_file)
    if limit_bytes is None or limit_bytes >= _NO_LIMIT_BYTES:
        return None
    used_bytes = read_int(level.folder / used_file) or 0
    droppable_bytes = _stat(level.folder / "memory.stat", cache_key)
    return MemoryLimit(limit_bytes, max(0, used_bytes - droppable_bytes), level.name)


def _stat(path: Path, key: str) -> int:
    for line in (read_text(path) or "").splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return parse_int(value, path)
    return 0


def _levels(root: Path, controller: str) -> Iterator[_Level]:
    """Cgroups of this process that may limit `controller`, from its own up to the mount points."""
    for version, mount_root, mount_point in _mounts(root, controller):
        path = _own_path(root, version, controller)
        if path is None:
            continue
        # Inside a container without its own cgroup namespace, the path names the host's tree and the mount shows part of it.
        inside = path.relative_to(mount_root) if path.is_relative_to(mount_root) else PurePosixPath()
        top = root / mount_point.lstrip("/")
        for depth in range(len(inside.parts), -1, -1):
            below = PurePosixPath(*inside.parts[:depth])
            yield _Level(top / below, f"/{below}" if depth else "/", version)


def _mounts(root: Path, controller: str) -> Iterator[tuple[int, PurePosixPath, str]]:
    """(version, root inside the hierarchy, mount point) of each cgroup mount that carries `controller`."""
    for line in (read_text(root / "proc/self/mountinfo") or "").splitlines():
        head, _, tail = line.partition(" - ")
        fields, kind, options = head.split(), tail.split()[:1], tail.split()[2:]
        if kind == ["cgroup2"]:
            yield 2, PurePosixPath(fields[3]), fields[4]
        elif kind == ["cgroup"] and any(controller in words.split(",") for words in options):
            yield 1, PurePosixPath(fields[3]), fields[4]


def _own_path(root: Path, version: int, controller: str) -> PurePosixPath | None:
    """This process's cgroup from /proc/self/cgroup: `0::/a/b` in v2, `4:cpu,cpuacct:/a/b` in v1."""
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        hierarchy, controllers, path = line.split(":", 2)
        if (version == 2 and hierarchy == "0") or (version == 1 and controller in controllers.split(",")):
            return PurePosixPath(path)
    return None
