"""Properties of the scheduler over random storms: every request ends with every token, budgets hold, blocks add up."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.core.request import Request
from roofline.core.sampling import SamplingParams
from roofline.engine.blocks import BlockPool
from roofline.engine.scheduler import Scheduler, Slice

BLOCK_LEN = 4


def request(number: int, prompt_len: int, answer_len: int) -> Request:
    return Request(number, prompt_len, list(range(prompt_len)), SamplingParams(), max_len=prompt_len + answer_len)


def scheduler(num_blocks: int, *, budget: int = 16, seats: int = 8) -> Scheduler:
    return Scheduler(BlockPool(num_blocks, BLOCK_LEN), max_tokens_per_step=budget, max_sequences=seats)


def next_token(one: Request) -> int:
    """A stand-in for the model whose answer depends on all tokens, so that a lost or doubled token shows."""
    return hash(tuple(one.token_ids)) % 1000


def expected_tokens(one: Request) -> list[int]:
    alone = Request(one.id, one.prompt_len, list(range(one.prompt_len)), one.params, one.max_len)
    while alone.num_tokens < alone.max_len:
        alone.token_ids.append(next_token(alone))
    return alone.token_ids


class CacheModel:
    """What the KV cache holds: position and request of every written slot; a slice may only build on its own entries."""

    def __init__(self) -> None:
        self.slots: dict[tuple[int, int], tuple[int, int]] = {}

    def run(self, piece: Slice) -> None:
        blocks = piece.request.block_ids
        for position in range(piece.start, piece.end):
            self.slots[blocks[position // BLOCK_LEN], position % BLOCK_LEN] = (piece.request.id, position)
        for position in range(piece.end):
            slot = blocks[position // BLOCK_LEN], position % BLOCK_LEN
            assert self.slots[slot] == (piece.request.id, position)


def run_step(made: Scheduler, cache: CacheModel) -> tuple[Slice, ...]:
    """One step as the engine does it; requests at their limit are finished."""
    slices = made.schedule()
    assert sum(piece.num_tokens for piece in slices) <= made.max_tokens_per_step
    assert len({piece.request.id for piece in slices}) == len(slices)
    assert all(piece.num_tokens > 0 for piece in slices)
    for piece in slices:
        cache.run(piece)
    wanting = [piece.request for piece in slices if piece.wants_logits]
    made.commit(slices)
    for one in wanting:
        one.token_ids.append(next_token(one))
        if one.num_tokens == one.max_len:
            made.finish(one)
    made.check()
    return slices


@settings(max_examples=150, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 30)), min_size=1, max_size=12),
    spare_blocks=st.integers(0, 10),
    budget=st.integers(1, 40),
    seats=st.integers(1, 6),
    arrivals=st.lists(st.integers(0, 20), min_size=12, max_size=12),
)
def test_kv03_every_request_ends_with_its_own_tokens(
    lengths: list[tuple[int, int]], spare_blocks: int, budget: int, seats: int, arrivals: list[int]
) -> None:
    """The pool holds little more than the longest request, so most runs preempt; texts equal those of solo runs."""
    requests = [request(number, *pair) for number, pair in enumerate(lengths)]
    longest = max(-(-one.max_len // BLOCK_LEN) for one in requests)
    made = scheduler(longest + spare_blocks, budget=budget, seats=seats)
    due = sorted(zip(arrivals, requests, strict=False), key=lambda pair: (pair[0], pair[1].id))
    cache, step = CacheModel(), 0
    while due or made.has_work:
        while due and due[0][0] <= step:
            made.add(due.pop(0)[1])
        slices = run_step(made, cache)
        assert slices or not made.has_work
        step += 1
        assert step < 20_000
    for one in requests:
        assert one.token_ids == expected_tokens(one)
    assert made.pool.num_free == made.pool.num_blocks


def test_kv02_sixteen_requests_on_little_more_than_one() -> None:
    made = scheduler(int(1.2 * 75), budget=128, seats=16)
    requests = [request(number, 100, 200) for number in range(16)]
    for one in requests:
        made.add(one)
    cache = CacheModel()
    while made.has_work:
        assert run_step(made, cache)
    assert made.num_preemptions > 0
    assert all(one.token_ids == expected_tokens(one) for one in requests)


def test_a_long_prompt_is_chunked_beside_decoding_requests() -> None:
    made, cache = scheduler(64, budget=8), CacheModel()
    short, long = request(0, 3, 20), request(1, 30, 2)
    made.add(short)
    run_step(made, cache)
    made.add(long)
    sizes = [[piece.num_tokens for piece in run_step(made, cache)] for _ in range(5)]
    assert sizes == [[1, 7], [1, 7], [1, 7], [1, 7], [1, 2]]


def test_oldest_is_never_preempted_by_a_newer_one() -> None:
    made, cache = scheduler(8, budget=64), CacheModel()
    requests = [request(number, 8, 24) for number in range(3)]
    for one in requests:
        made.add(one)
    while made.has_work:
        run_step(made, cache)
    assert requests[0].num_preemptions == 0
    assert requests[2].num_preemptions > 0


def test_aborts_at_any_time_leave_no_block_behind() -> None:
    made, cache = scheduler(10, budget=16), CacheModel()
    requests = [request(number, 9, 20) for number in range(6)]
    for one in requests:
        made.add(one)
    for step, one in enumerate(requests):
        for _ in range(step):
            run_step(made, cache)
        if one in made.running or one in made.waiting:
            made.finish(one)
        made.check()
    while made.has_work:
        run_step(made, cache)
    assert made.pool.num_free == made.pool.num_blocks


def test_a_request_that_can_never_fit_is_refused_at_the_door() -> None:
    with pytest.raises(ValueError, match="may need 11 KV blocks, the pool has 10"):
        scheduler(10).add(request(0, 10, 31))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 6), max_size=60))
def test_pool_counts_add_up(commands: list[int]) -> None:
    pool, held = BlockPool(12, BLOCK_LEN), []
    for command in commands:
        if command >= 3 and command <= pool.num_free:
            held.append(pool.allocate(command))
        elif command == 2 and held:
            pool.share(held[0])
            held.append(list(held[0]))
        elif held:
            pool.release(held.pop(command % len(held)))
        pool.check(held)


def test_pool_refuses_what_is_not_there() -> None:
    pool = BlockPool(2, BLOCK_LEN)
    taken = pool.allocate(1)
    pool.release(taken)
    with pytest.raises(ValueError, match="released twice"):
        pool.release(taken)
    with pytest.raises(ValueError, match="is free"):
        pool.share(taken)
    with pytest.raises(ValueError, match="3 blocks wanted, 2 free"):
        pool.allocate(3)


def test_the_scheduler_needs_neither_numpy_nor_native_code() -> None:
    code = (
        "import sys, roofline.engine.scheduler; sys.exit(any(m in sys.modules for m in ('numpy', 'roofline._native')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
