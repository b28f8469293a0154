"""The CPU back end on tiny programs: equal to the reference, equal across tiers, and nothing bad gets past its border."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest

from roofline import _native
from roofline.backends.cpu.executor import CpuBackend, CpuSettings
from roofline.backends.cpu.lower import lower
from roofline.backends.cpu.memory import estimate, model_facts
from roofline.backends.reference import ReferenceBackend
from roofline.core.batch import StepBatch
from roofline.core.errors import ConfigError, UnsupportedModelError
from support.tiny_programs import Sequence, TinyConfig, TinyModel, batch_of

TIERS = [isa for isa in ("ref", "avx2", "avx512", "amx") if not _native.isa_gaps(isa)]
NUM_BLOCKS = 16

DENSE = {
    "dense": TinyConfig(),
    "one kv head": TinyConfig(num_heads=3, num_kv_heads=1, hidden=48, has_bias=True),
    "no sharing of kv heads": TinyConfig(num_heads=4, num_kv_heads=4, rope_style="interleaved"),
    "window and soft caps": TinyConfig(
        windows=(8, 0), soft_cap=5.0, logit_soft_cap=3.0, post_norms=True, act="gelu_tanh"
    ),
    "qk norm": TinyConfig(qk_norm=True, head_size=32, rotary_len=16, is_tied=False, embedding_scale=8.0),
    "ragged widths": TinyConfig(
        num_heads=2, num_kv_heads=1, head_size=18, rotary_len=18, hidden=50, ffn=70, vocab_size=17
    ),
}
MIXED = {
    "experts": TinyConfig(num_experts=4),
    "shared expert": TinyConfig(num_experts=5, top_k=3, has_shared_expert=True, has_bias=True),
}
CONFIGS = DENSE | MIXED


def make(model: TinyModel, *, threads: int = 2, isa: str = "ref", **changes: object) -> CpuBackend:
    settings = CpuSettings(threads, isa, kv_type="f32", max_tokens_per_step=64, max_context=448)
    settings = dataclasses.replace(settings, **changes)
    return CpuBackend(model.program, model.weights, num_blocks=NUM_BLOCKS, settings=settings)


def prompt(model: TinyModel, length: int, seed: int = 1) -> Sequence:
    rng = np.random.default_rng(seed)
    return Sequence(rng.integers(0, model.config.vocab_size, length), rng.permutation(NUM_BLOCKS))


def run(backend: CpuBackend | ReferenceBackend, sequence: Sequence, counts: tuple[int, ...]) -> np.ndarray:
    """Logits of all rows of the sequence, fed in chunks of `counts`."""
    sequence = dataclasses.replace(sequence, num_computed=0)
    logits = []
    for count in counts:
        logits.append(backend.step(batch_of([(sequence, count)])))
        sequence.num_computed += count
    return np.concatenate(logits)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("isa", TIERS)
def test_float_weights_equal_the_reference(name: str, isa: str) -> None:
    model = TinyModel(CONFIGS[name], seed=3)
    wanted = run(
        ReferenceBackend(model.program, model.weights, num_blocks=NUM_BLOCKS, dtype=np.float64),
        prompt(model, 41),
        (41,),
    )
    got = run(make(model, isa=isa), prompt(model, 41), (40, 1))
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


# Blocks of weights near +-1: a small attention scale keeps the softmax from turning int8 rounding into another choice of token.
SOFT = TinyConfig(attention_scale=1e-3)
LEGACY = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "F16", "BF16", "Q8_0")
K_QUANTS = ("Q4_K", "Q6_K", "Q5_K", "Q3_K", "Q2_K", "IQ4_XS")
WIDE = dataclasses.replace(SOFT, hidden=256, ffn=256, num_heads=4, head_size=64, rotary_len=64)
QUANTIZED = {
    "Q8_0": dataclasses.replace(SOFT, scheme="Q8_0"),
    "legacy types": dataclasses.replace(SOFT, mixed_schemes=LEGACY),
    "k-quants": dataclasses.replace(WIDE, mixed_schemes=K_QUANTS),
    "quantized experts": dataclasses.replace(SOFT, scheme="Q5_0", num_experts=4, has_shared_expert=True),
}


@pytest.mark.parametrize("name", QUANTIZED)
def test_quantized_weights_are_near_the_dequantized_model(name: str) -> None:
    model = TinyModel(QUANTIZED[name], seed=5)
    wanted = run(
        ReferenceBackend(model.program, model.weights, num_blocks=NUM_BLOCKS, dtype=np.float64),
        prompt(model, 24),
        (24,),
    )
    got = run(make(model), prompt(model, 24), (24,))
    cosine = np.sum(got * wanted, -1) / np.linalg.norm(got, axis=-1) / np.linalg.norm(wanted, axis=-1)
    assert cosine.min() > 0.99


@pytest.mark.parametrize("name", QUANTIZED)
def test_tiers_agree_bit_for_bit(name: str) -> None:
    model = TinyModel(QUANTIZED[name], seed=7)
    logits = {isa: run(make(model, isa=isa), prompt(model, 24), (23, 1)) for isa in TIERS}
    for isa in TIERS:
        np.testing.assert_array_equal(logits[isa], logits["ref"], err_msg=isa)


def test_identical_experts_give_the_dense_answer() -> None:
    """moe: a dense model upcycled to identical experts answers as the dense one does."""
    dense, mixed = TinyModel(TinyConfig(), seed=9), TinyModel(TinyConfig(num_experts=4, top_k=2), seed=9)
    for name in mixed.weights:
        source = name.rsplit(".", 1)[0] if name.split(".")[-1].isdigit() and name.count(".") == 2 else name
        if source in dense.weights:
            mixed.weights[name] = dense.weights[source]
    wanted, got = (run(make(model), prompt(model, 20), (20,)) for model in (dense, mixed))
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("num_experts", "top_k"), [(4, 1), (8, 2), (60, 4), (64, 6), (128, 8), (256, 8)])
@pytest.mark.parametrize("num_tokens", [1, 3, 33])
def test_moe03_router_sizes_and_ties(num_experts: int, top_k: int, num_tokens: int) -> None:
    config = TinyConfig(
        num_layers=1, windows=(0,), num_experts=num_experts, top_k=top_k, hidden=32, ffn=16, num_heads=2, num_kv_heads=1
    )
    model = TinyModel(config, seed=num_experts)
    router = model.weights["0.router"].tensor.data.view(np.float32).reshape(num_experts, -1)
    router[1::2] = router[::2]  # every even expert ties with its neighbour: the lower index must win
    backend = ReferenceBackend(model.program, model.weights, num_blocks=NUM_BLOCKS, dtype=np.float64)
    wanted = run(backend, prompt(model, num_tokens), (num_tokens,))
    got = run(make(model, isa=TIERS[-1]), prompt(model, num_tokens), (num_tokens,))
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_lng01_window_is_the_same_in_prefill_chunks_and_decode() -> None:
    model = TinyModel(TinyConfig(windows=(16, 0)), seed=11)
    sequence = prompt(model, 60)
    wanted = run(
        ReferenceBackend(model.program, model.weights, num_blocks=NUM_BLOCKS, dtype=np.float64), sequence, (60,)
    )
    for counts in ((60,), (16, 1, 15, 28), (1,) * 60):
        np.testing.assert_allclose(run(make(model), sequence, counts), wanted, rtol=1e-4, atol=1e-4)


def test_long_contexts_cross_chunks() -> None:
    """Three canonical chunks of 256 in decode, which two threads cut and merge."""
    model = TinyModel(TinyConfig(windows=(0, 300)), seed=13)
    backend = make(model, max_context=700)
    backend_blocks = 22
    settings = dataclasses.replace(backend.settings, threads=3)
    backend = CpuBackend(model.program, model.weights, num_blocks=backend_blocks, settings=settings)
    rng = np.random.default_rng(0)
    sequence = Sequence(rng.integers(0, model.config.vocab_size, 700), rng.permutation(backend_blocks))
    reference = ReferenceBackend(model.program, model.weights, num_blocks=backend_blocks, dtype=np.float64)
    counts = (64,) * 10 + (58, 1, 1)
    np.testing.assert_allclose(run(backend, sequence, counts), run(reference, sequence, (700,)), rtol=2e-4, atol=2e-4)


def test_bat01_any_mix_of_lengths_in_one_step() -> None:
    model = TinyModel(TinyConfig(), seed=15)
    rng = np.random.default_rng(2)
    blocks = rng.permutation(NUM_BLOCKS)
    lengths = (1, 9, 26, 28)
    sequences = [Sequence(rng.integers(0, 131, n), blocks[i : i + 1]) for i, n in enumerate(lengths)]
    together = make(model).step(batch_of(list(zip(sequences, lengths, strict=True))))
    alone = np.concatenate([run(make(model), s, (n,)) for s, n in zip(sequences, lengths, strict=True)])
    np.testing.assert_array_equal(together, alone)


def test_logits_of_chosen_rows_only() -> None:
    model = TinyModel(TinyConfig(), seed=17)
    sequence = prompt(model, 20)
    every = run(make(model), sequence, (20,))
    batch = dataclasses.replace(batch_of([(sequence, 20)]), logit_rows=np.array([19, 3, 3], np.int32))
    np.testing.assert_array_equal(make(model).step(batch), every[[19, 3, 3]])
    none = dataclasses.replace(batch, logit_rows=np.array([], np.int32))
    assert make(model).step(none).shape == (0, 131)


def good_batch() -> StepBatch:
    model = TinyModel(TinyConfig())
    return batch_of([(prompt(model, 40), 6), (prompt(model, 40, seed=2), 2)])


BAD_BATCHES = [
    ("token_ids", [0, 1, 2, 3, 4, 131, 6, 7], r"token_ids\[5\] is 131, not in \[0, 131\)"),
    ("token_ids", [0, 1, 2, -1, 4, 5, 6, 7], r"token_ids\[3\] is -1"),
    ("positions", [0, 1, 2, 3, 4, 6, 0, 1], r"positions\[5\] is 6"),
    ("positions", [0, 1], "positions has length 2, not 8"),
    ("seq_starts", [0, 6], "seq_starts has length 2, not 3"),
    ("seq_starts", [0, 9, 8], r"seq_starts\[1\]"),
    ("seq_starts", [0, -3, 8], r"seq_starts\[1\]"),
    ("seq_starts", [1, 6, 8], "seq_starts must run from 0"),
    ("context_lens", [6, 1], r"context_lens\[1\] is less"),
    ("context_lens", [6, 449], r"context_lens\[1\] is 449, more than the limit of 448"),
    ("context_lens", [6, -5], r"context_lens\[1\]"),
    ("block_tables", [[3], [16]], r"block_tables\[1\]\[0\] is 16, not in \[0, 16\)"),
    ("block_tables", [[-1], [0]], r"block_tables\[0\]\[0\] is -1"),
    ("block_tables", [[1]], "block_tables has length 1, not 2"),
    ("logit_rows", [8], r"logit_rows\[0\] is 8, not in \[0, 8\)"),
    ("logit_rows", [-1], r"logit_rows\[0\] is -1"),
]


@pytest.mark.parametrize(("name", "values", "message"), BAD_BATCHES)
def test_malformed_batches_are_refused_by_name(name: str, values: list[int], message: str) -> None:
    backend = make(TinyModel(TinyConfig()))
    batch = dataclasses.replace(good_batch(), **{name: np.array(values, np.int32)})
    with pytest.raises(ValueError, match=message):
        backend.step(batch)
    assert np.isfinite(backend.step(good_batch())).all()


def test_arrays_of_another_type_or_stride_are_refused() -> None:
    backend = make(TinyModel(TinyConfig()))
    batch = good_batch()
    with pytest.raises(ValueError, match="token_ids must be an int32 array of 1 dim"):
        backend.step(dataclasses.replace(batch, token_ids=batch.token_ids.astype(np.int64)))
    with pytest.raises(ValueError, match="positions must be C-contiguous"):
        backend.step(dataclasses.replace(batch, positions=np.repeat(batch.positions, 2)[::2]))
    with pytest.raises(ValueError, match="block_tables must be an int32 array of 2 dim"):
        backend.step(dataclasses.replace(batch, block_tables=batch.block_tables.reshape(-1)))
    with pytest.raises(ValueError, match="a row of logits has length 130"):
        backend.step_into(batch, np.empty((8, 130), np.float32))


def test_a_step_longer_than_its_limit_is_refused() -> None:
    model = TinyModel(TinyConfig())
    with pytest.raises(ValueError, match=r"T, the length of token_ids is 65, more than the limit of 64"):
        make(model).step(batch_of([(prompt(model, 65), 65)], all_logits=False))
    empty = batch_of([(prompt(model, 4), 4)])
    empty = dataclasses.replace(empty, **{f: getattr(empty, f)[:0] for f in ("token_ids", "positions", "logit_rows")})
    with pytest.raises(ValueError, match="token_ids is empty"):
        make(model).step(empty)


def test_settings_that_can_not_be_honoured_are_refused() -> None:
    model = TinyModel(TinyConfig())
    for changes, message in (
        ({"isa": "sse9"}, "isa sse9"),
        ({"threads": 0}, "threads is 0"),
        ({"kv_type": "q3"}, "kv_type q3"),
        ({"cpus": (9999,)}, "9999"),
    ):
        with pytest.raises(ConfigError, match=message):
            make(model, **changes)


@dataclass(frozen=True)
class Convolve:
    """An operator that no back end has."""

    x: str
    out: str


def test_an_unknown_operator_is_named() -> None:
    program = TinyModel(TinyConfig()).program
    strange = dataclasses.replace(program, ops=(*program.ops[:-1], Convolve("n", "n"), program.ops[-1]))
    with pytest.raises(UnsupportedModelError, match="no operator Convolve"):
        lower(strange, lambda name: True)


def test_rows_longer_than_the_kernels_take_are_refused_before_anything_is_packed() -> None:
    """Refused while packing, on a thread of the pool, it would end the process."""
    model = TinyModel(TinyConfig(num_layers=1, ffn=131_072 + 32))
    with pytest.raises(UnsupportedModelError, match="131104 elements; the kernels take at most 131072"):
        make(model)


def test_mem03_estimate_equals_what_is_taken() -> None:
    model = TinyModel(QUANTIZED["quantized experts"])
    backend = make(model)
    schemes = {name: weight.scheme for name, weight in model.weights.items()}
    guess = estimate(model.program, schemes, num_blocks=NUM_BLOCKS, settings=backend.settings)
    assert guess == backend.memory()
    # Two layers of Hk heads, K and V of D float32 values, BLOCK_LEN tokens a block.
    assert guess.kv_bytes == 2 * NUM_BLOCKS * 32 * 2 * (16 + 16) * 4


def test_mem03_facts_predict_the_memory_of_any_settings() -> None:
    model = TinyModel(QUANTIZED["quantized experts"])
    schemes = {name: weight.scheme for name, weight in model.weights.items()}
    facts = model_facts("tiny", model.program, schemes, max_context=448)
    for threads, max_tokens, context in ((1, 7, 448), (3, 64, 448), (16, 512, 448), (2, 64, 32768)):
        settings = CpuSettings(threads, "ref", max_tokens_per_step=max_tokens, max_context=context)
        use = estimate(model.program, schemes, num_blocks=NUM_BLOCKS, settings=settings)
        logits_bytes = 4 * 131
        guess = facts.weights_bytes + facts.scratch_bytes(threads, max_tokens, 1, context) - logits_bytes
        excess = guess - use.weights_bytes - use.scratch_bytes
        # Short contexts have no partial results of attention yet: the guess may be a little high, hardly ever low.
        assert -0.01 * guess < excess < 0.1 * guess + (256 << 10)
        assert facts.block_bytes("f16") * NUM_BLOCKS == use.kv_bytes


def test_trace_names_every_phase_and_progress_ends_at_the_total() -> None:
    model = TinyModel(TinyConfig(scheme="Q8_0"))
    calls: list[tuple[int, int]] = []
    settings = CpuSettings(1, "ref", max_tokens_per_step=64, max_context=448)
    backend = CpuBackend(
        model.program,
        model.weights,
        num_blocks=NUM_BLOCKS,
        settings=settings,
        progress=lambda *call: calls.append(call),
    )
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    assert calls[-1][0] == calls[-1][1] > 0
    backend.start_trace()
    backend.step(good_batch())
    times = backend.stop_trace()
    assert [time.phase.split()[0] for time in times[:4]] == ["rows", "linear", "rows", "attention"]
    assert all(time.seconds > 0 and time.threads == 1 for time in times)
    assert set(backend.describe()) == {name for name, w in model.weights.items() if len(w.shape) == 2}
