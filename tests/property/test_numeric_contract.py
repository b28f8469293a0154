"""The numeric contract: a row's logits have the same bits whatever the schedule, on every tier the machine has.

Each trial draws a schedule: how prompts are cut, which sequences share a step, where their KV blocks lie, how many threads run.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roofline import _native
from roofline.backends.cpu.executor import CpuBackend, CpuSettings
from support.tiny_programs import Sequence, TinyConfig, TinyModel, batch_of

TIERS = [isa for isa in ("ref", "avx2", "avx512", "amx") if not _native.isa_gaps(isa)]
MAX_TOKENS = 48
LENGTHS = (300, 70, 33, 5)  # the first crosses an attention chunk
NUM_BLOCKS = 20

MODELS = {
    "quantized": TinyConfig(
        mixed_schemes=("Q4_0", "Q5_0", "Q8_0", "Q4_1", "F16"),
        num_heads=6,
        num_kv_heads=2,
        windows=(40, 0),
        soft_cap=8.0,
        attention_scale=1e-3,
    ),
    "k-quants": TinyConfig(
        mixed_schemes=("Q4_K", "Q6_K", "Q5_K"),
        hidden=256,
        ffn=256,
        head_size=64,
        rotary_len=64,
        qk_norm=True,
        attention_scale=0.1,
    ),
    "experts": TinyConfig(scheme="Q8_0", num_experts=6, top_k=2, has_shared_expert=True, attention_scale=1e-3),
    "floats": TinyConfig(mixed_schemes=("F32", "BF16", "F16"), rope_style="interleaved", has_bias=True),
}


def sequences(rng: np.random.Generator, config: TinyConfig) -> list[Sequence]:
    """The same tokens every time, in blocks placed by `rng`."""
    blocks = rng.permutation(NUM_BLOCKS)
    tokens = np.random.default_rng(0)
    made, first = [], 0
    for length in LENGTHS:
        count = -(-length // 32)
        made.append(Sequence(tokens.integers(0, config.vocab_size, length), blocks[first : first + count]))
        first += count
    return made


def backend(model: TinyModel, isa: str, threads: int) -> CpuBackend:
    chosen = CpuSettings(threads, isa, kv_type="f16", max_tokens_per_step=MAX_TOKENS, max_context=320)
    return CpuBackend(model.program, model.weights, num_blocks=NUM_BLOCKS, settings=chosen)


def token_by_token(model: TinyModel, isa: str) -> list[np.ndarray]:
    """Logits [length, V] of each sequence, run alone and one token a step."""
    native = backend(model, isa, threads=1)
    results = []
    for sequence in sequences(np.random.default_rng(1), model.config):
        rows = []
        for _ in sequence.token_ids:
            rows.append(native.step(batch_of([(sequence, 1)])))
            sequence.num_computed += 1
        results.append(np.concatenate(rows))
    return results


def run_schedule(native: CpuBackend, config: TinyConfig, rng: np.random.Generator) -> list[np.ndarray]:
    """Logits of each sequence under random chunks and random company."""
    running = sequences(rng, config)
    rows: list[list[np.ndarray]] = [[] for _ in running]
    longest = int(rng.choice([1, 4, 17, MAX_TOKENS]))
    while waiting := [i for i, s in enumerate(running) if s.num_computed < len(s.token_ids)]:
        chosen = rng.permutation(waiting)[: rng.integers(1, len(waiting) + 1)]
        counts, room = {}, MAX_TOKENS
        for i in chosen:
            left = len(running[i].token_ids) - running[i].num_computed
            counts[i] = min(left, room, int(rng.integers(1, longest + 1)))
            room -= counts[i]
            if room == 0:
                break
        logits = native.step(batch_of([(running[i], n) for i, n in counts.items()]))
        starts = np.cumsum([0, *counts.values()])
        for at, (i, count) in enumerate(counts.items()):
            rows[i].append(logits[starts[at] : starts[at + 1]])
            running[i].num_computed += count
    return [np.concatenate(parts) for parts in rows]


@pytest.fixture(scope="module", params=[(name, isa) for name in MODELS for isa in TIERS], ids="-".join)
def case(request: pytest.FixtureRequest) -> tuple[TinyModel, list[np.ndarray], dict[int, CpuBackend]]:
    name, isa = request.param
    model = TinyModel(MODELS[name], seed=21)
    return model, token_by_token(model, isa), {threads: backend(model, isa, threads) for threads in (1, 2, 3, 4)}


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(threads=st.integers(1, 4), seed=st.integers(0, 2**32 - 1))
def test_rows_do_not_depend_on_the_schedule(
    case: tuple[TinyModel, list[np.ndarray], dict[int, CpuBackend]], threads: int, seed: int
) -> None:
    model, wanted, backends = case
    got = run_schedule(backends[threads], model.config, np.random.default_rng(seed))
    for alone, together in zip(wanted, got, strict=True):
        assert np.isfinite(alone).all()
        np.testing.assert_array_equal(together, alone)
