"""`roofline doctor` and `roofline --version` as a user runs them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from roofline.cli.doctor import machine_warnings
from roofline.core.ceilings import UNMEASURED
from roofline.weights.schemes import SCHEMES

pytest.importorskip("roofline._native")


def roofline(tmp_path, *args, **environ):
    program = [sys.executable, "-c", "from roofline.cli.main import main; main()", *args]
    path = {"PYTHONPATH": ":".join(sys.path), "ROOFLINE_CACHE_DIR": str(tmp_path), "COLUMNS": "200"}
    return subprocess.run(program, capture_output=True, text=True, timeout=60, env={**path, **environ})


def test_report_for_a_person(tmp_path):
    result = roofline(tmp_path, "doctor")
    assert result.returncode == 0, result.stderr
    for word in ("CPU quota", "num_threads", "physical core", "tier avx512", UNMEASURED):
        assert word in result.stdout


def test_report_as_json(tmp_path):
    record = json.loads(roofline(tmp_path, "doctor", "--json", ROOFLINE_ISA="ref", ROOFLINE_THREADS="1").stdout)
    decided = {decision["field"]: decision["value"] for decision in record["decisions"]}
    assert decided == {"num_threads": "1", "isa": "ref"}
    assert record["ceilings"] == UNMEASURED
    kernels = {kernel["operation"]: kernel for kernel in record["kernels"]}
    assert kernels["attention"]["decode"] == "ref"
    schemes = {word for operation in kernels for word in operation.split() if operation.startswith("linear")}
    assert set(SCHEMES) <= schemes
    assert record["hardware"]["isa"]["gaps"]["ref"] == []


def test_version_names_the_kernels(tmp_path):
    output = roofline(tmp_path, "--version").stdout
    assert output.startswith("roofline ")
    assert "ref" in output


@pytest.mark.parametrize(("name", "value"), [("ROOFLINE_ISA", "sse9"), ("ROOFLINE_THREADS", "many")])
def test_cpu06_bad_environment_ends_without_a_traceback(tmp_path, name, value):
    result = roofline(tmp_path, "doctor", **{name: value})
    assert result.returncode == 2
    assert f"{name}='{value}'" in result.stderr
    assert "hint:" in result.stderr
    assert "Traceback" not in result.stderr


def test_warnings_name_the_way_out(machine):
    assert machine_warnings(machine.probe()) == []
    machine.cgroup_v2("/box")
    machine.write("/sys/fs/cgroup/box/cpu.max", "150000 100000")
    machine.write("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]")
    machine.write("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave")
    warnings = " ".join(machine_warnings(machine.probe()))
    for word in ("CPU quota of 1.5 CPUs", "transparent_hugepage", "performance"):
        assert word in warnings
