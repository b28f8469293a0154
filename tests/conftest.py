"""Fixtures of all tests: the real models, when they are on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

MODEL_FILES = {
    "smollm2-135m": "SmolLM2-135M-Instruct.Q4_1.gguf",
    "gemma3-270m": "gemma-3-270m.Q4_K_M.gguf",
    "qwen2.5-coder-0.5b": "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf",
    "qwen2.5-coder-1.5b": "Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf",
}


@pytest.fixture(scope="session")
def model_path() -> Callable[[str], Path]:
    """`model_path(name)` is the file of a real model; absent, the test is skipped with the command that gets it."""
    cache = Path(os.environ.get("ROOFLINE_CACHE_DIR", Path.home() / ".cache" / "roofline"))

    def find(name: str) -> Path:
        path = cache / "models" / MODEL_FILES[name]
        if not path.is_file():
            pytest.skip(f"get it with: roofline models get {name}")
        return path

    return find
