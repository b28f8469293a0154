"""Every test of this folder that takes `backend` runs once for each back end that is built."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pytest

from roofline.backends.base import Backend, WeightTensor
from roofline.backends.reference import ReferenceBackend
from roofline.core.isa import probe_isa
from roofline.models import LoadedModel, load_model
from roofline.program.program import Program
from support.stepping import Stepper


class BackendFactory(Protocol):
    """How a test makes its back end."""

    def __call__(self, program: Program, weights: Mapping[str, WeightTensor], *, num_blocks: int) -> Backend: ...


@dataclass(frozen=True)
class BackendUnderTest:
    """A back end and how far its logits may lie from transformers', as a share of the largest logit."""

    name: str
    make: BackendFactory
    tolerance: float

    def load(self, path: Path, *, num_blocks: int = 32, max_context_len: int | None = None) -> Stepper:
        return self.of(load_model(path, max_context_len=max_context_len), num_blocks=num_blocks)

    def of(self, loaded: LoadedModel, *, num_blocks: int = 32) -> Stepper:
        return Stepper(self.make(loaded.model.program, loaded.weights, num_blocks=num_blocks))

    def assert_close(self, logits: np.ndarray, expected: np.ndarray) -> None:
        worst = np.abs(logits - expected).max() / np.abs(expected).max()
        assert worst <= self.tolerance, f"{self.name}: off by {worst:.2e} of the largest logit"


def _make_cpu(program: Program, weights: Mapping[str, WeightTensor], *, num_blocks: int) -> Backend:
    """On the best tier that the machine has, or the one that ROOFLINE_ISA caps it to."""
    from roofline.backends.cpu.executor import CpuBackend, CpuSettings

    isa = os.environ.get("ROOFLINE_ISA", probe_isa().best)
    settings = CpuSettings(threads=2, isa=isa, kv_type="f32", max_tokens_per_step=64, max_context=128)
    return CpuBackend(program, weights, num_blocks=num_blocks, settings=settings)


@pytest.fixture(params=["reference", "cpu"])
def backend(request: pytest.FixtureRequest) -> BackendUnderTest:
    if request.param == "reference":
        return BackendUnderTest("reference", ReferenceBackend, 1e-4)
    pytest.importorskip("roofline._native", reason="the native extension is not built")
    return BackendUnderTest("cpu", _make_cpu, 1e-4)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., object]:
    """`tiny(family, **config changes)`: a tiny random model, made once a session; skipped without transformers."""
    pytest.importorskip("transformers")
    from support.tiny_models import make_model

    made: dict[str, object] = {}

    def make(family: str, **changes: object) -> object:
        key = f"{family} {sorted(changes.items())}"
        if key not in made:
            made[key] = make_model(family, tmp_path_factory.mktemp(family), **changes)
        return made[key]

    return make
