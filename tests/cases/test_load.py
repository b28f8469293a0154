"""Reported faults of loading and memory, seen from the operating system: each real model is loaded once, in a process of its own."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from roofline import LLM, SamplingParams

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to see memory")
MODELS = ["smollm2-135m", "gemma3-270m", "qwen2.5-coder-0.5b"]

LOAD_AND_ANSWER = """
import json, logging, sys
from roofline import LLM, SamplingParams
import roofline.engine.llm, roofline.text.load

def kib(name):
    return int(next(line for line in open("/proc/self/status") if line.startswith(name)).split()[1])

log = []
logging.getLogger("roofline").setLevel(logging.INFO)
logging.getLogger("roofline").addHandler(handler := logging.Handler())
handler.emit = lambda record: log.append(record.getMessage())
before, events = kib("VmRSS"), []
llm = LLM(sys.argv[1], threads=2, max_context=512, max_sequences=1, progress=lambda *event: events.append(event))
greedy = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)
prefill_s = [llm.generate([11, 12, 13, 14], greedy)[0].timing.prefill_s for _ in range(3)]
llm.generate([5] * 500, greedy)  # touches all of the KV cache
use = llm.loaded.backend.memory()
print(json.dumps({
    "peak": kib("VmHWM") * 1024, "grown": (kib("VmRSS") - before) * 1024, "log": log,
    "events": [event for event in events if event[0] == "packing weights"], "stages": dict(llm.loaded.load_s),
    "prefill_s": prefill_s, "kv": use.kv_bytes, "weights": use.weights_bytes,
    "estimate": next(d.reason for d in llm.decisions if d.field == "memory"),
}))
"""


@cache
def seen(path: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", LOAD_AND_ANSWER, str(path)], check=True, capture_output=True, text=True
    )
    return dict(json.loads(done.stdout))


@pytest.fixture(params=MODELS)
def load(request: pytest.FixtureRequest, model_path: Callable[[str], Path]) -> tuple[Path, dict[str, Any]]:
    path = model_path(request.param)
    return path, seen(path)


def test_mem01_peak_of_the_whole_process(load: tuple[Path, dict[str, Any]]) -> None:
    """Packed weights only: neither the file's pages nor a second copy stay, not even while loading."""
    path, run = load
    assert run["peak"] < 1.25 * path.stat().st_size + run["kv"] + 100e6


def test_mem02_progress_stages_and_a_warm_first_answer(load: tuple[Path, dict[str, Any]]) -> None:
    _, run = load
    done = [event[1] for event in run["events"]]
    assert done == sorted(done)
    assert run["events"][-1][1] == run["events"][-1][2] > 0
    assert list(run["stages"]) == ["open", "tokenizer", "read and pack", "warm-up"]
    assert any(
        re.search(r"loaded in .* s \(open .* s, tokenizer .* s, read and pack .* s, warm-up", line)
        for line in run["log"]
    )
    first, *later = run["prefill_s"]
    assert first < 2 * max(later) + 0.1  # the allowance is for neighbours on this machine


def test_mem03_estimate_is_near_what_the_system_counts(load: tuple[Path, dict[str, Any]]) -> None:
    _, run = load
    parts = {
        name: float(size) * 1e6 for name, size in re.findall(r"(weights|KV cache|scratch) (\d+) MB", run["estimate"])
    }
    assert abs(run["grown"] - sum(parts.values())) < 0.1 * sum(parts.values()) + 50e6


def test_mem03_too_little_memory_is_an_error_before_loading(model_path: Callable[[str], Path]) -> None:
    """An address space that can't hold the model: exit status 2 and a reason, not a signal."""
    path = model_path("qwen2.5-coder-0.5b")
    limit = 900 << 20  # the file is mapped, 470 MiB; weights would come on top
    done = subprocess.run(
        [sys.executable, "-c", "from roofline.cli.main import main; main()", "run", str(path), "x", "--threads", "1"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert re.search(r"needs \d+ MB", done.stderr)
    assert "Traceback" not in done.stderr


def process_state() -> tuple[int, int, int]:
    """Private memory in bytes (swapped included), open files, threads."""
    status = Path("/proc/self/status").read_text()
    kib = sum(int(status.split(name)[1].split()[0]) for name in ("RssAnon:", "VmSwap:"))
    return kib * 1024, len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def many_requests(llm: LLM, count: int) -> None:
    """Batches, streams read and dropped, stops, logprobs, refused ones."""
    params = [
        SamplingParams(max_tokens=3, seed=number, logprobs=number % 4 or None, stop=["zq"], ignore_eos=True)
        for number in range(8)
    ]
    for number in range(0, count, 10):
        llm.generate([f"request {number} {one.seed}" for one in params], params)
        with llm.stream("left early", params[0]) as stream:
            next(stream, None)
        llm.stream("never read", params[1])
    llm.generate("the end", params[0])


def test_mem04_memory_stays_flat(tiny: LLM) -> None:
    many_requests(tiny, 100)
    before = process_state()
    many_requests(tiny, 1000)
    after = process_state()
    assert after[0] - before[0] < 20e6
    assert after[1:] == before[1:]
    assert not tiny._inbox
    assert tiny.loaded.engine.scheduler.pool.num_free == tiny.config.num_blocks


def test_mem04_a_stream_dropped_unread_ends_its_request(tiny: LLM) -> None:
    stream = tiny.stream("x", SamplingParams(max_tokens=400, ignore_eos=True))
    next(stream, None)
    assert tiny.loaded.engine.has_work
    del stream
    tiny.generate("y", SamplingParams(max_tokens=1))
    assert not tiny.loaded.engine.has_work


def test_mem04_close_gives_everything_back(model_path: Callable[[str], Path]) -> None:
    path = model_path("smollm2-135m")
    for _ in range(2):  # the first time, what stays is imported code
        before = process_state()
        with LLM(path, threads=2, max_context=256) as llm:
            llm.generate("x", SamplingParams(max_tokens=2))
            weights_bytes = llm.loaded.backend.memory().weights_bytes
            opened = process_state()
        after = process_state()
    assert opened[0] - after[0] > 0.9 * weights_bytes
    assert after[0] - before[0] < 0.3 * weights_bytes
    assert after[1:] == before[1:]


def test_cpu04_a_loaded_model_at_rest_uses_no_cpu(tiny: LLM) -> None:
    """Before, and after a request: the threads spin a moment, then sleep."""
    for _ in range(2):
        tiny.generate("x", SamplingParams(max_tokens=2))
        time.sleep(0.1)
        started_s = time.process_time()
        time.sleep(2)
        assert time.process_time() - started_s < 0.04
