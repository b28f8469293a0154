"""Features, tiers, pool and probes through the extension module."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from roofline.core.errors import ConfigError
from roofline.core.isa import TIERS, probe_isa

native = pytest.importorskip("roofline._native")
CPUINFO = Path("/proc/cpuinfo")


@pytest.mark.skipif(not CPUINFO.exists(), reason="needs Linux")
def test_features_are_those_the_kernel_lists():
    listed = {word for line in CPUINFO.read_text().splitlines() if line.startswith("flags") for word in line.split()}
    features = native.cpu_features()
    assert {name for name, usable in features.items() if usable} == listed & set(features)


def test_best_tier_is_the_highest_without_gaps():
    runnable = [tier for tier in TIERS if not native.isa_gaps(tier)]
    assert native.best_isa() == runnable[-1]
    assert native.allowed_isa("ref") == "ref"


def test_cpu06_tier_that_cannot_run_is_refused_with_the_reason():
    for tier in TIERS:
        gaps = native.isa_gaps(tier)
        if gaps:
            with pytest.raises(ValueError, match=", ".join(gaps)):
                native.allowed_isa(tier)
    with pytest.raises(ValueError, match="unknown tier: mmx"):
        native.allowed_isa("mmx")


def test_cpu07_without_the_extension_the_error_says_what_to_do(monkeypatch):
    import roofline

    monkeypatch.delattr(roofline, "_native")
    monkeypatch.setitem(sys.modules, "roofline._native", None)
    with pytest.raises(ConfigError, match="native extension") as caught:
        probe_isa()
    assert "reference back end" in caught.value.hint


@pytest.mark.parametrize(("num_threads", "cpus"), [(0, []), (-1, []), (2, [100_000]), (2, [-1])])
def test_pool_refuses(num_threads, cpus):
    with pytest.raises(ValueError, match=str((*cpus, num_threads)[0])):
        native.ThreadPool(num_threads, cpus)


def test_measurements_refuse_what_they_cannot_do():
    pool = native.ThreadPool(1)
    with pytest.raises(ValueError, match="working set too small: 4096"):
        native.measure_read_bytes_per_s(pool, "ref", 4096, 0.01)
    with pytest.raises(ValueError, match="unknown arithmetic: fp64"):
        native.measure_macs_per_s(pool, "ref", "fp64", 0.01)
    with pytest.raises(ValueError, match="unknown tier: sse"):
        native.measure_macs_per_s(pool, "sse", "int8", 0.01)


@pytest.mark.parametrize("tier", [tier for tier in TIERS if tier != "ref" and not native.isa_gaps(tier)])
def test_a_vector_tier_beats_plain_code(tier):
    pool = native.ThreadPool(1)
    best = {isa: max(native.measure_macs_per_s(pool, isa, "int8", 0.1)) for isa in ("ref", tier)}
    assert best[tier] > 2 * best["ref"]
