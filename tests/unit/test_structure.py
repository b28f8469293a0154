"""docs/structure.md is kept true: every path it names exists, and every package of the source tree is named in it."""

from __future__ import annotations

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "structure.md").read_text()
NAMED = set(re.findall(r"`((?:src|native|tests|bench|docs|tools)/[\w./-]*)`", TEXT))


def test_every_path_named_in_the_structure_page_exists() -> None:
    gone = sorted(path for path in NAMED if not (ROOT / path).exists())
    assert NAMED
    assert not gone


def test_every_package_and_kernel_family_is_named() -> None:
    packages = [p.parent for p in (ROOT / "src" / "roofline").glob("*/__init__.py")]
    families = [p for p in (ROOT / "native" / "kernels").iterdir() if p.is_dir() and any(p.glob("*.cpp"))]
    missing = [str(p.relative_to(ROOT)) + "/" for p in packages + families]
    assert not sorted(set(missing) - NAMED)


def test_the_page_is_one_page() -> None:
    assert TEXT.count("\n") <= 110
