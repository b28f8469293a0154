"""The thread pool under ThreadSanitizer, oversubscribed, idle and forked: runs pool_stress.cpp, built with the compiler at hand."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
CXX = shutil.which("g++") or shutil.which("clang++")
pytestmark = pytest.mark.skipif(CXX is None, reason="needs g++ or clang++")


def build(out: Path, *flags: str) -> Path:
    program = out / "pool_stress"
    runtime = REPO / "native/runtime"
    sources = [REPO / "tests/native/pool_stress.cpp", runtime / "thread_pool.cpp", runtime / "gate.cpp"]
    command = [CXX, "-std=c++20", "-pthread", f"-I{REPO / 'native'}", *flags, *sources, "-o", program]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return program


@pytest.fixture(scope="module")
def stress(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("pool"), "-O2")


def run(program: Path, mode: str) -> str:
    result = subprocess.run([program, mode], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_barriers_hold_and_shares_cover(stress: Path) -> None:
    run(stress, "correct")


def test_no_data_race(tmp_path: Path) -> None:
    try:
        program = build(tmp_path, "-O1", "-g", "-fsanitize=thread")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no ThreadSanitizer: {error.stderr.decode()[-200:]}")
    run(program, "correct")


def test_oversubscription_and_a_busy_neighbour_keep_a_quarter(stress: Path) -> None:
    """The bound is on what the pool can do: other work on the machine only lowers a run, so the best of five counts."""
    runs = [[float(word) for word in run(stress, "rates").split()] for _ in range(5)]
    _rates, oversubscribed, contended = zip(*runs, strict=True)
    assert max(oversubscribed) >= 0.25
    assert max(contended) >= 0.25


def test_cpu04_idle_pool_uses_no_cpu(stress: Path) -> None:
    assert float(run(stress, "idle")) < 0.02


def test_forked_child_starts_its_own_workers(stress: Path) -> None:
    run(stress, "fork")
