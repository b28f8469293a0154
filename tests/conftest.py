"""Fixtures of all tests: the real models, when they are on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from roofline.weights.catalog import CATALOG


@pytest.fixture(scope="session")
def model_path() -> Callable[[str], Path]:
    """`model_path(name)` is the file of a real model; absent, the test is skipped with the command that gets it."""
    cache = Path(os.environ.get("ROOFLINE_CACHE_DIR", Path.home() / ".cache" / "roofline"))

    def find(name: str) -> Path:
        path = cache / "models" / CATALOG[name].file_name
        if not path.is_file():
            pytest.skip(f"get it with: roofline models get {name}")
        return path

    return find
