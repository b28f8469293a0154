"""Memory of a loaded model, seen from the operating system."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# Peak of a process that loads a model, answers a prompt and decodes; in a child, for a peak never goes down.
LOAD_AND_RUN = """
import json, resource, sys
import numpy as np
from roofline import _native
from roofline.backends.cpu.executor import CpuBackend, CpuSettings
from roofline.core.batch import StepBatch
from roofline.models.loading import load_model

def rss_bytes():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

def peak_bytes():  # and not ru_maxrss, which counts the process that started this one
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) * 1024

ints = lambda values: np.asarray(values, np.int32)
loaded = load_model(sys.argv[1])
before = rss_bytes()
settings = CpuSettings(2, _native.best_isa(), max_context=2048)
backend = CpuBackend(loaded.model.program, loaded.weights, num_blocks=64, settings=settings)

def step(count, context):
    table = ints([range(64)])
    backend.step(StepBatch(ints([7] * count), ints(range(context - count, context)), ints([0, count]), ints([context]), table, ints([count - 1])))

step(256, 256)
after_prompt = rss_bytes()
for context in range(257, 457):
    step(1, context)
use = backend.memory()
print(json.dumps({
    "peak": peak_bytes() - before,
    "growth": rss_bytes() - after_prompt,
    "weights": use.weights_bytes, "kv": use.kv_bytes, "scratch": use.scratch_bytes,
}))
"""


@pytest.mark.model("gemma3-270m")
def test_mem01_weights_are_held_once(model_path: Callable[[str], Path]) -> None:
    """Its tied embedding is most of the file: file pages, packed head and a second copy would be three."""
    path = model_path("gemma3-270m")
    done = subprocess.run([sys.executable, "-c", LOAD_AND_RUN, str(path)], check=True, capture_output=True, text=True)
    seen = json.loads(done.stdout)
    assert seen["peak"] < 1.25 * path.stat().st_size + seen["kv"] + 100e6
    assert seen["weights"] < 1.1 * path.stat().st_size
    # MEM-04: 200 tokens of decode leave nothing behind but the cache pages that they filled.
    assert seen["growth"] < seen["kv"] + 8e6
