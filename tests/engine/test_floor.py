"""Floors: example batches hold their contract, chunks add up, more work never has a lower floor."""

from __future__ import annotations

from typing import Any

import pytest

from roofline import LLM
from roofline.core.ceilings import Bandwidth, Ceilings, Peak
from roofline.engine.floor import AnswerRates, Floor, Rate, example_batch


def slow_machine(isa: str, *, bytes_per_s: float, macs_per_s: float) -> Ceilings:
    peaks = tuple(Peak(isa, kind, 1, macs_per_s, 0.0) for kind in ("int8", "fp32"))
    return Ceilings({}, "", (Bandwidth(1, 1 << 20, bytes_per_s, 0.0),), peaks, 0.0, 0.0)


@pytest.fixture(scope="module")
def llm(model_path: Any) -> Any:
    with LLM(model_path("smollm2-135m"), threads=1, max_context=1024, max_tokens_per_step=256) as made:
        yield made


@pytest.mark.parametrize(("cached", "new"), [([0], 1), ([0, 5, 70], 1), ([32, 0], 40), ([0], 512)])
def test_example_batches_hold_the_contract(cached: list[int], new: int) -> None:
    batch = example_batch(cached, new)
    batch.check(vocab_size=1, num_blocks=batch.block_tables.max() + 1)
    assert batch.num_tokens == len(cached) * new
    assert batch.context_lens.tolist() == [count + new for count in cached]


def test_decode_is_bound_by_memory_and_prefill_by_products(llm: LLM) -> None:
    loaded = llm.loaded
    # Every matrix once, and one row of the embedding unless it is the head as well.
    weights = sum(loaded.weight_bytes.values())
    floor = Floor(loaded, slow_machine(loaded.config.isa, bytes_per_s=1e9, macs_per_s=1e15))
    assert floor.decode_step_s(0) == pytest.approx(weights / 1e9, rel=0.02)
    assert floor.decode_step_s(1000) > floor.decode_step_s(0)
    assert floor.prefill_s(512) == pytest.approx(2 * floor.prefill_s(256), rel=0.1)
    slow_products = Floor(loaded, slow_machine(loaded.config.isa, bytes_per_s=1e15, macs_per_s=1e9))
    # About 106 million weights outside the embedding are multiplied for each token, and attention adds a little.
    assert 0.1 * 512 < slow_products.prefill_s(512) < 0.14 * 512
    assert slow_products.decode_step_s(10, num_seqs=8) == pytest.approx(8 * slow_products.decode_step_s(10), rel=1e-3)


def test_rates_without_a_floor_claim_no_share() -> None:
    assert Rate(10.0, None).text() == "10.0 tokens/s"
    assert Rate(10.0, 20.0).text() == "10.0 tokens/s (50% of the floor)"


def test_one_token_has_no_decode_rate() -> None:
    line = AnswerRates(Rate(10.0, None), Rate(0.0, None), num_prompt_tokens=5, num_generated_tokens=1).line()
    assert "decode" not in line
    assert "prefill 5 tokens: 10.0 tokens/s" in line
