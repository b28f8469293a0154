"""The probe and the default thread count on fake machines: quotas, affinity, SMT, hybrid cores, memory nodes, memory limits."""

from __future__ import annotations

import pytest

from roofline.core.errors import ConfigError
from roofline.core.hardware import default_threads, probe
from roofline.core.isa import TIERS, require_tier

MIB = 1024**2


@pytest.mark.parametrize(
    ("cpu_max", "threads"),
    [("200000 100000", 2), ("max 100000", 16), ("765000 100000", 7), ("50000 100000", 1), ("150000 100000", 1)],
)
def test_cpu01_quota_v2(machine, cpu_max, threads):
    machine.cgroup_v2("/box")
    machine.write("/sys/fs/cgroup/box/cpu.max", cpu_max)
    choice = default_threads(machine.probe())
    assert choice.num_threads == threads
    assert ("CPU quota" in choice.reason) == (threads < 16)


@pytest.mark.parametrize(("quota_us", "threads"), [("-1", 16), ("400000", 4), ("50000", 1)])
def test_cpu01_quota_v1(machine, quota_us, threads):
    machine.cgroup_v1("/docker/abc")
    machine.write("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", quota_us)
    machine.write("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000")
    assert default_threads(machine.probe()).num_threads == threads


def test_cpu01_quota_on_a_parent_wins(machine):
    machine.cgroup_v2("/pods/pod1/box")
    machine.write("/sys/fs/cgroup/pods/pod1/box/cpu.max", "max 100000")
    machine.write("/sys/fs/cgroup/pods/pod1/cpu.max", "300000 100000")
    machine.write("/sys/fs/cgroup/pods/cpu.max", "800000 100000")
    hardware = machine.probe()
    assert hardware.quota is not None
    assert (hardware.quota.cpus, hardware.quota.cgroup) == (3.0, "/pods/pod1")
    assert default_threads(hardware).num_threads == 3


@pytest.mark.parametrize("own", ["/docker/abc", "/"])
def test_cpu01_container_that_sees_only_its_part_of_the_tree(machine, own):
    machine.cgroup_v2(own, mount_root=own)
    machine.write("/sys/fs/cgroup/cpu.max", "200000 100000")
    assert default_threads(machine.probe()).num_threads == 2


def test_cpu01_affinity_mask(machine):
    machine.affinity("0-3")
    choice = default_threads(machine.probe())
    assert (choice.num_threads, choice.cpus) == (4, (0, 1, 2, 3))
    assert "4 CPUs in the affinity mask" in choice.reason


def test_cpu02_hyperthreads_share_a_core(make_machine):
    hardware = make_machine(["0,4", "1,5", "2,6", "3,7"]).probe()
    assert hardware.has_smt
    assert default_threads(hardware).num_threads == 4


def test_cpu02_one_hyperthread_of_each_core_in_the_mask(make_machine):
    machine = make_machine(["0,4", "1,5", "2,6", "3,7"])
    machine.affinity("0,4,5")
    assert default_threads(machine.probe()).num_threads == 2


def test_cpu02_hybrid_x86_uses_performance_cores(make_machine):
    machine = make_machine(["0,1", "2,3", "4", "5", "6", "7"])
    machine.write("/sys/devices/cpu_core/cpus", "0-3")
    machine.write("/sys/devices/cpu_atom/cpus", "4-7")
    choice = default_threads(machine.probe())
    assert (choice.num_threads, choice.cpus) == (2, (0, 1, 2, 3))
    assert "4 slower cores left out" in choice.reason


def test_cpu02_big_little_uses_the_big_cores(make_machine):
    machine = make_machine([str(cpu) for cpu in range(8)])
    for cpu, capacity in enumerate([380, 380, 380, 380, 900, 900, 900, 1024]):
        machine.write(f"/sys/devices/system/cpu/cpu{cpu}/cpu_capacity", str(capacity))
    assert default_threads(machine.probe()).cpus == (4, 5, 6, 7)


def test_cpu03_one_memory_node_unless_told_otherwise(machine):
    machine.write("/sys/devices/system/node/node0/cpulist", "0-7")
    machine.write("/sys/devices/system/node/node1/cpulist", "8-15")
    hardware = machine.probe()
    choice = default_threads(hardware)
    assert choice.cpus == tuple(range(8))
    assert "memory node 0 only, not 1" in choice.reason
    assert default_threads(hardware, all_nodes=True).num_threads == 16


def test_caches_are_counted_once(make_machine):
    machine = make_machine(["0", "1"])
    for cpu in (0, 1):
        folder = f"/sys/devices/system/cpu/cpu{cpu}/cache"
        for index, (level, kind, size, shared) in enumerate(
            [(1, "Data", "48K", str(cpu)), (1, "Instruction", "32K", str(cpu)), (3, "Unified", "48M", "0-1")]
        ):
            machine.write(f"{folder}/index{index}/level", str(level))
            machine.write(f"{folder}/index{index}/type", kind)
            machine.write(f"{folder}/index{index}/size", size)
            machine.write(f"{folder}/index{index}/shared_cpu_list", shared)
    hardware = machine.probe()
    assert hardware.total_cache_bytes(1) == 2 * 48 * 1024
    assert hardware.total_cache_bytes(3) == hardware.cache_bytes(3) == 48 * MIB
    assert hardware.cache_bytes(2) == 0


def test_memory_limit_counts_use_without_droppable_pages(machine):
    machine.cgroup_v2("/box/inner")
    machine.write("/sys/fs/cgroup/box/memory.max", str(4096 * MIB))
    machine.write("/sys/fs/cgroup/box/memory.current", str(3000 * MIB))
    machine.write("/sys/fs/cgroup/box/memory.stat", f"anon 5\ninactive_file {2000 * MIB}")
    machine.write("/sys/fs/cgroup/box/inner/memory.max", "max")
    tightest = machine.probe().tightest_memory
    assert tightest.available_bytes == 3096 * MIB
    assert "cgroup /box" in tightest.source


def test_memory_limit_v1_and_its_word_for_no_limit(machine):
    machine.cgroup_v1("/docker/abc")
    machine.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712")
    assert machine.probe().memory_limit is None
    machine.write("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", str(512 * MIB))
    machine.write("/sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", str(100 * MIB))
    assert machine.probe().tightest_memory.available_bytes == 412 * MIB


def test_mem03_address_space_limit_is_a_bound(machine):
    machine.affinity("0-15")
    machine.write("/proc/self/limits", f"Limit  Soft  Hard  Units\nMax address space  {1024 * MIB}  unlimited  bytes")
    assert machine.probe().tightest_memory.available_bytes == 1023 * MIB


def test_damaged_file_is_named(machine):
    machine.cgroup_v2("/box")
    machine.write("/sys/fs/cgroup/box/cpu.max", "lots 100000")
    with pytest.raises(ConfigError, match=r"box/cpu\.max: not a number: 'lots'"):
        machine.probe()


def test_cpu06_tier_the_machine_lacks_names_the_flags(machine):
    support = machine.probe().isa
    assert require_tier("avx2", support) == "avx2"
    with pytest.raises(ConfigError, match="amx can't run on this machine, missing: amx_tile, amx_int8"):
        require_tier("amx", support)
    with pytest.raises(ConfigError, match="unknown kernel tier: 'sse'"):
        require_tier("sse", support)


def test_this_machine():
    native = pytest.importorskip("roofline._native")
    hardware = probe()
    assert hardware.isa.best == native.best_isa()
    assert set(hardware.isa.tiers) <= set(TIERS)
    assert 1 <= default_threads(hardware).num_threads <= len(hardware.cpus)
    assert 0 < hardware.tightest_memory.available_bytes <= hardware.memory_total_bytes
