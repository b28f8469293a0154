"""A tiny model in a file, loaded through the front door as users load theirs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from roofline import LLM
from support.tiny_file import write_tiny_llama


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(scope="module")
def tiny(tiny_path: Path) -> Iterator[LLM]:
    with LLM(tiny_path, threads=2, kv_dtype="f32", max_context=512, num_blocks=64) as llm:
        yield llm
