"""Measured ceilings: where they are kept, how they are read between the measured points, and what a floor is."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from roofline.core.ceilings import (
    Bandwidth,
    Ceilings,
    Peak,
    ceilings_path,
    fingerprint,
    load_ceilings,
    save_ceilings,
)
from roofline.core.errors import ConfigError
from roofline.core.measure import measure, working_sets
from roofline.core.paths import cache_dir

GB = 1e9


def ceilings_of(hardware):
    return Ceilings(
        fingerprint=fingerprint(hardware),
        measured_at="2026-01-01T00:00:00+00:00",
        bandwidths=(
            Bandwidth(1, 10**6, 50 * GB, 0.1),
            Bandwidth(1, 10**8, 10 * GB, 0.1),
            Bandwidth(4, 10**6, 200 * GB, 0.1),
            Bandwidth(4, 10**8, 20 * GB, 0.1),
        ),
        peaks=(Peak("avx2", "int8", 1, 100 * GB, 0.0), Peak("avx2", "int8", 4, 400 * GB, 0.0)),
        barrier_s=2e-7,
        wake_s=2e-5,
    )


def test_saved_is_what_is_loaded(machine, tmp_path):
    hardware, environ = machine.probe(), {"ROOFLINE_CACHE_DIR": str(tmp_path / "cache")}
    assert load_ceilings(hardware, environ) is None
    save_ceilings(ceilings_of(hardware), ceilings_path(hardware, environ))
    assert load_ceilings(hardware, environ) == ceilings_of(hardware)
    assert [file.suffix for file in (tmp_path / "cache").iterdir()] == [".json"]


def test_another_machine_finds_nothing(machine, tmp_path):
    hardware, environ = machine.probe(), {"ROOFLINE_CACHE_DIR": str(tmp_path / "cache")}
    save_ceilings(ceilings_of(hardware), ceilings_path(hardware, environ))
    machine.affinity("0-3")
    assert load_ceilings(machine.probe(), environ) is None
    assert load_ceilings(replace(hardware, model_name="another"), environ) is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema": 1}', '{"schema": 1, "bandwidths": [{"a": 1}], "peaks": []}']
)
def test_damaged_file_is_named(machine, tmp_path, text):
    hardware, environ = machine.probe(), {"ROOFLINE_CACHE_DIR": str(tmp_path)}
    path = ceilings_path(hardware, environ)
    path.write_text(text)
    with pytest.raises(ConfigError, match=path.name):
        load_ceilings(hardware, environ)


def test_file_of_another_schema_is_no_measurement(machine, tmp_path):
    hardware, environ = machine.probe(), {"ROOFLINE_CACHE_DIR": str(tmp_path)}
    ceilings_path(hardware, environ).write_text(json.dumps({"schema": 0}))
    assert load_ceilings(hardware, environ) is None


def test_rates_between_measured_points(machine):
    ceilings = ceilings_of(machine.probe())
    assert ceilings.bytes_per_s(10**6, 1) == 50 * GB
    assert ceilings.bytes_per_s(10**7, 1) == pytest.approx(30 * GB)
    assert ceilings.bytes_per_s(0, 1) == 50 * GB
    assert ceilings.bytes_per_s(10**12, 4) == 20 * GB
    assert ceilings.bytes_per_s(10**6, 2) == pytest.approx(100 * GB)
    assert ceilings.macs_per_s("avx2", "int8", 8) == 400 * GB
    with pytest.raises(ConfigError, match="no measured peak for int8 on tier amx"):
        ceilings.macs_per_s("amx", "int8", 1)


def test_floor_is_the_slower_of_memory_and_arithmetic(machine):
    ceilings = ceilings_of(machine.probe())
    memory_bound = ceilings.floor_s(10**8, 10**8, 10**8, num_threads=1, isa="avx2")
    compute_bound = ceilings.floor_s(10**8, 10**11, 10**8, num_threads=1, isa="avx2")
    assert memory_bound == pytest.approx(0.01)
    assert compute_bound == pytest.approx(1.0)


def test_working_sets_rise_and_leave_memory_free(machine):
    hardware = machine.probe()
    for num_threads in (1, 16):
        sizes = working_sets(hardware, num_threads)
        assert list(sizes) == sorted(set(sizes))
        assert sizes[-1] <= hardware.tightest_memory.available_bytes // 4


def test_cache_dir(tmp_path):
    assert cache_dir({}).name == "roofline"
    assert cache_dir({"ROOFLINE_CACHE_DIR": str(tmp_path)}) == tmp_path
    file = tmp_path / "file"
    file.touch()
    for bad in ("", str(file)):
        with pytest.raises(ConfigError, match="ROOFLINE_CACHE_DIR"):
            cache_dir({"ROOFLINE_CACHE_DIR": bad})


def test_measure_this_machine(monkeypatch):
    pytest.importorskip("roofline._native")
    from roofline.core import measure as module
    from roofline.core.hardware import probe

    for name, value in {"READ_S": 0.01, "PEAK_S": 0.01, "NUM_BARRIER_TRIALS": 2, "NUM_WAKE_TRIALS": 2}.items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(module, "working_sets", lambda hardware, num_threads: (2**20, 2**23))
    heard = []
    ceilings = measure(probe(), heard.append)
    assert heard
    assert all(1e8 < point.bytes_per_s < 1e13 for point in ceilings.bandwidths)
    assert all(1e8 < point.macs_per_s < 1e15 for point in ceilings.peaks)
    assert {point.isa for point in ceilings.peaks} == set(probe().isa.tiers)
    assert 0 < ceilings.barrier_s < 0.1
    assert 0 < ceilings.wake_s < 0.1


def test_a_folder_that_takes_no_file_is_an_error_with_a_way_out(machine, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="can't be written"):
        save_ceilings(ceilings_of(machine.probe()), tmp_path / "file" / "ceilings.json")
