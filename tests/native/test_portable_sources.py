"""BLD-03: without the x86 tiers, the sources are standard C++ that another processor's compiler takes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "native"
CLANG = next((path for name in ("clang++", "clang++-19", "clang++-18") if (path := shutil.which(name))), None)
# The host's C library headers serve for a syntax check, once they no longer guess the word size from x86 macros.
STUBS = {"bits/wordsize.h": "#define __WORDSIZE 64\n", "gnu/stubs.h": ""}


def plain_sources() -> list[Path]:
    """What native/CMakeLists.txt builds on a processor that isn't x86."""
    patterns = ("kernels/*/ref.cpp", "kernels/*.cpp", "kernels/*/plain_*.cpp", "runtime/*.cpp", "executor/*.cpp")
    return sorted(path for pattern in patterns for path in NATIVE.glob(pattern))


def host_include_folders(compiler: str) -> list[str]:
    shown = subprocess.run(
        [compiler, "-E", "-x", "c++", "-v", "/dev/null"], capture_output=True, text=True, check=True
    ).stderr
    listed = re.search(r"search starts here:\n(.*?)End of search list", shown, re.DOTALL)
    assert listed is not None
    return [line.strip() for line in listed[1].splitlines() if line.startswith(" ")]


@pytest.mark.skipif(CLANG is None, reason="needs clang++, which compiles for other processors")
def test_bld03_plain_sources_compile_for_arm_without_extensions(tmp_path: Path) -> None:
    assert CLANG is not None
    for name, text in STUBS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    folders = [f"-isystem{folder}" for folder in (tmp_path, *host_include_folders(CLANG))]
    flags = ["--target=aarch64-linux-gnu", "-std=c++20", "-pedantic-errors", "-fsyntax-only", "-nostdinc++"]
    sources = plain_sources()
    assert len(sources) > 10
    done = subprocess.run(
        [CLANG, *flags, f"-I{NATIVE / 'include'}", f"-I{NATIVE}", "-DROOFLINE_HAS_REF=1", *folders, *map(str, sources)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
