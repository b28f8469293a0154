"""`roofline doctor`: what this machine is, what Roofline decides on it and why, what it can reach, and what stands in the way.

`--measure` measures the ceilings and stores them; `--json` prints one object with everything, for bug reports.
"""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from roofline import __version__
from roofline.core.ceilings import UNMEASURED, Ceilings, ceilings_path, load_ceilings, save_ceilings
from roofline.core.config import Decision, UserConfig, with_environment
from roofline.core.hardware import Hardware, probe
from roofline.core.measure import measure
from roofline.core.resolve import machine_decisions
from roofline.weights.schemes import SCHEMES

# Trials of one point that differ more than this say that something else ran on the machine.
NOISY_SPREAD = 0.35
PREFILL_LEN = 512


@dataclass(frozen=True)
class Kernel:
    """What serves an operation in a step of one token and in one of PREFILL_LEN tokens."""

    operation: str
    decode: str
    prefill: str


@dataclass(frozen=True)
class Report:
    """All that doctor knows."""

    hardware: Hardware
    decisions: tuple[Decision, ...]
    kernels: tuple[Kernel, ...]
    ceilings: Ceilings | None
    warnings: tuple[str, ...]
    versions: dict[str, str]


def doctor(
    measure_ceilings: Annotated[
        bool, typer.Option("--measure", help="Measure memory rate and arithmetic peaks (under 20 s) and store them.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show the machine, the decisions with their reasons, and the measured ceilings."""
    hardware = probe()
    if measure_ceilings:
        _measure(hardware)
    report = make_report(hardware, load_ceilings(hardware))
    if as_json:
        typer.echo(json.dumps(as_record(report)))
    else:
        print_report(report, Console(highlight=False))


def _measure(hardware: Hardware) -> None:
    with Console(stderr=True).status("measuring") as status:
        ceilings = measure(hardware, lambda what: status.update(f"measuring {what}"))
    save_ceilings(ceilings, ceilings_path(hardware, os.environ))


def make_report(hardware: Hardware, ceilings: Ceilings | None) -> Report:
    """Decide as the engine would with nothing typed, and collect warnings."""
    decisions = machine_decisions(with_environment(UserConfig(), os.environ), hardware)
    isa = next(decision.value for decision in decisions if decision.field == "isa")
    return Report(
        hardware=hardware,
        decisions=decisions,
        kernels=chosen_kernels(isa),
        ceilings=ceilings,
        warnings=tuple(machine_warnings(hardware) + ceiling_warnings(ceilings)),
        versions={
            "roofline": __version__,
            "python": platform.python_version(),
            "numpy": version("numpy"),
            "system": platform.platform(),
        },
    )


def chosen_kernels(isa: str) -> tuple[Kernel, ...]:
    """The kernel that serves each operation under tier `isa`; weight schemes with the same kernels share a line."""
    from roofline import _native

    schemes: dict[tuple[str, str], list[str]] = {}
    for scheme in SCHEMES:
        names = _native.linear_kernel(isa, scheme, 1), _native.linear_kernel(isa, scheme, PREFILL_LEN)
        schemes.setdefault(names, []).append(scheme)
    linear = [Kernel(f"linear {' '.join(names)}", *kernels) for kernels, names in schemes.items()]
    tiers = _native.kernel_tiers(isa)
    return (*linear, *(Kernel(family, tiers[family], tiers[family]) for family in ("attention", "pointwise")))


def machine_warnings(hardware: Hardware) -> list[str]:
    """What slows this machine down, each with the way out."""
    warnings = []
    if hardware.quota is not None and hardware.quota.cpus < len(hardware.cpus):
        warnings.append(
            f"CPU quota of {hardware.quota.cpus:g} CPUs (cgroup {hardware.quota.cgroup}) on {len(hardware.cpus)} visible CPUs: "
            "more threads than the quota would be stopped part of the time"
        )
    if hardware.has_smt:
        warnings.append(f"{len(hardware.cpus)} CPUs are {len(hardware.cores)} cores: one thread a core is the default")
    if len(hardware.nodes) > 1:
        warnings.append(f"{len(hardware.nodes)} memory nodes: one is used by default, for remote memory is slower")
    if hardware.huge_pages == "never":
        warnings.append(
            "transparent huge pages are off: `echo madvise > /sys/kernel/mm/transparent_hugepage/enabled` as root"
        )
    if hardware.governor == "powersave":
        warnings.append("the clock governor is powersave: `cpupower frequency-set -g performance` as root")
    if hardware.isa.best == "ref":
        warnings.append(f"no vector kernels: avx2 lacks {', '.join(hardware.isa.gaps['avx2'])}")
    return warnings


def ceiling_warnings(ceilings: Ceilings | None) -> list[str]:
    """Whether the measurement can be trusted."""
    if ceilings is None:
        return []
    spreads = [point.spread for point in ceilings.bandwidths] + [point.spread for point in ceilings.peaks]
    num_noisy = sum(spread > NOISY_SPREAD for spread in spreads)
    if not num_noisy:
        return []
    return [
        f"{num_noisy} of {len(spreads)} measurements varied by over {NOISY_SPREAD:.0%}: measure again on a quiet machine"
    ]


def as_record(report: Report) -> dict[str, Any]:
    """The report as plain JSON values."""
    return {**asdict(report), "ceilings": UNMEASURED if report.ceilings is None else asdict(report.ceilings)}


def print_report(report: Report, console: Console) -> None:
    """Tables for a person."""
    console.print(_hardware_table(report.hardware))
    console.print(_decision_table(report.decisions))
    console.print(_kernel_table(report.kernels))
    if report.ceilings is None:
        console.print(f"Ceilings: {UNMEASURED}", markup=False)
    else:
        console.print(_bandwidth_table(report.ceilings))
        console.print(_peak_table(report.ceilings))
    for warning in report.warnings:
        console.print("[yellow]warning:[/yellow]", end=" ")
        console.print(warning, markup=False)
    console.print(", ".join(f"{name} {value}" for name, value in report.versions.items()), style="dim", markup=False)


def _hardware_table(hardware: Hardware) -> Table:
    table = Table(title="Machine", show_header=False, title_justify="left")
    table.add_row("CPU", f"{hardware.model_name} ({hardware.vendor})")
    table.add_row("features", " ".join(hardware.isa.features) or "none")
    for tier, gaps in hardware.isa.gaps.items():
        table.add_row(f"tier {tier}", f"no: {', '.join(gaps)}" if gaps else "yes")
    table.add_row("CPUs", f"{len(hardware.cpus)} of {hardware.num_online_cpus} online, {len(hardware.cores)} cores")
    table.add_row("memory nodes", ", ".join(str(node) for node in hardware.nodes))
    table.add_row("caches", _caches(hardware))
    quota = hardware.quota
    table.add_row("CPU quota", "none" if quota is None else f"{quota.cpus:g} CPUs in cgroup {quota.cgroup}")
    table.add_row("memory", f"{hardware.memory_total_bytes / 1e9:.1f} GB")
    for bound in hardware.memory_bounds:
        table.add_row("", f"{bound.source}: {bound.available_bytes / 1e9:.1f} GB left")
    table.add_row("huge pages", hardware.huge_pages or "unknown")
    table.add_row("clock governor", hardware.governor or "unknown")
    return table


def _caches(hardware: Hardware) -> str:
    kinds = sorted({(cache.level, cache.size_bytes, len(cache.cpus)) for cache in hardware.caches})
    texts = []
    for level, size_bytes, num_cpus in kinds:
        count = sum((c.level, c.size_bytes, len(c.cpus)) == (level, size_bytes, num_cpus) for c in hardware.caches)
        texts.append(f"{count} x L{level} {size_bytes / 1024:.0f} KiB for {num_cpus} CPU{'s' if num_cpus > 1 else ''}")
    return ", ".join(texts) or "unknown"


def _decision_table(decisions: tuple[Decision, ...]) -> Table:
    table = Table("field", "value", "reason", title="Decisions", title_justify="left")
    for decision in decisions:
        table.add_row(decision.field, decision.value, decision.reason)
    return table


def _kernel_table(kernels: tuple[Kernel, ...]) -> Table:
    columns = ("operation", "1 token", f"{PREFILL_LEN} tokens")
    table = Table(*columns, title="Kernels", title_justify="left")
    for kernel in kernels:
        table.add_row(kernel.operation, kernel.decode, kernel.prefill)
    return table


def _bandwidth_table(ceilings: Ceilings) -> Table:
    table = Table(
        "working set", "threads", "GB/s", "spread", title=f"Memory rate, {ceilings.measured_at}", title_justify="left"
    )
    for point in sorted(ceilings.bandwidths, key=lambda point: (point.num_threads, point.working_set_bytes)):
        size, rate = f"{point.working_set_bytes / 1e6:.4g} MB", f"{point.bytes_per_s / 1e9:.1f}"
        table.add_row(size, str(point.num_threads), rate, f"{point.spread:.0%}")
    return table


def _peak_table(ceilings: Ceilings) -> Table:
    caption = f"barrier {ceilings.barrier_s * 1e6:.2f} us, wake-up {ceilings.wake_s * 1e6:.0f} us"
    table = Table(
        "tier", "arithmetic", "threads", "GMAC/s", "spread", title="Peaks", title_justify="left", caption=caption
    )
    for point in ceilings.peaks:
        rate = f"{point.macs_per_s / 1e9:.1f}"
        table.add_row(point.isa, point.kind, str(point.num_threads), rate, f"{point.spread:.0%}")
    return table
