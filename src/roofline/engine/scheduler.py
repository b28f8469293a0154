"""Which tokens run in the next step. A request has no phases: it has `num_tokens` and `num_computed`, and the scheduler closes the gap.

Prompts, chunks of prompts, single decoded tokens and recomputed sequences are slices of one token budget, so they mix in one step.
The engine calls `schedule`, runs the step, and calls `commit`; this file moves counters and block ids and touches no array.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from roofline.core.request import Request
from roofline.engine.blocks import BlockPool


@dataclass(frozen=True)
class Slice:
    """Tokens [start, start + num_tokens) of a request. It is sampled from iff the slice ends at the request's last token."""

    request: Request
    start: int
    num_tokens: int

    @property
    def end(self) -> int:
        return self.start + self.num_tokens

    @property
    def wants_logits(self) -> bool:
        return self.end == self.request.num_tokens


class Scheduler:
    """First come, first served, under a budget of tokens a step and of KV blocks.

    Requests run in order of arrival. When a running one finds no free block, the newest running one gives all of its blocks back
    and waits at the head of the queue with its tokens; it computes them again later, so nothing that was generated is lost. The
    oldest is never the victim of another, and any request fits the pool alone (`add` checks it), so the oldest always goes on:
    every request ends.
    """

    def __init__(self, pool: BlockPool, *, max_tokens_per_step: int, max_sequences: int) -> None:
        if max_tokens_per_step < 1 or max_sequences < 1:
            raise ValueError(f"nothing fits {max_tokens_per_step} tokens a step and {max_sequences} sequences")
        self.pool = pool
        self.max_tokens_per_step = max_tokens_per_step
        self.max_sequences = max_sequences
        self.running: list[Request] = []
        self.waiting: deque[Request] = deque()
        self.num_preemptions = 0

    @property
    def has_work(self) -> bool:
        return bool(self.running or self.waiting)

    def add(self, request: Request) -> None:
        """Queue a request. Its KV cache at `max_len` tokens must fit the pool, or it could never end."""
        needed = self.pool.blocks_for(request.max_len)
        if needed > self.pool.num_blocks:
            raise ValueError(f"request {request.id} may need {needed} KV blocks, the pool has {self.pool.num_blocks}")
        self.waiting.append(request)

    def schedule(self) -> tuple[Slice, ...]:
        """Slices of the next step, at most one a request, in order of arrival; empty only without work."""
        slices: list[Slice] = []
        budget = self.max_tokens_per_step
        num_before = self.num_preemptions
        index = 0
        while index < len(self.running) and budget > 0:
            request = self.running[index]
            num_tokens = min(request.num_tokens - request.num_computed, budget)
            if self._reserve(request, request.num_computed + num_tokens):
                slices.append(Slice(request, request.num_computed, num_tokens))
                budget -= num_tokens
            index += 1
        if self.num_preemptions == num_before:  # a victim that came straight back would only take the blocks again
            self._admit(slices, budget)
        return tuple(slices)

    def commit(self, done: Sequence[Slice]) -> None:
        """The step of `done` has run: their KV entries are in the cache. Sampled tokens are appended by the caller afterwards."""
        for piece in done:
            piece.request.num_computed = piece.end

    def finish(self, request: Request) -> None:
        """Take a request out, wherever it is; its blocks are free again."""
        if request in self.running:
            self.running.remove(request)
        else:
            self.waiting.remove(request)
        self._release(request)

    def check(self) -> None:
        """Raise AssertionError for counters or blocks that contradict each other."""
        self.pool.check(request.block_ids for request in self.running)
        assert len(self.running) <= self.max_sequences
        for request in self.running:
            assert 0 <= request.num_computed <= request.num_tokens
            assert len(request.block_ids) >= self.pool.blocks_for(request.num_computed)
        for request in self.waiting:
            assert request.num_computed == 0
            assert not request.block_ids

    def _admit(self, slices: list[Slice], budget: int) -> None:
        """Start waiting requests while budget, seats and blocks for all of their tokens last: a prompt never stalls half-way."""
        while self.waiting and budget > 0 and len(self.running) < self.max_sequences:
            request = self.waiting[0]
            needed = self.pool.blocks_for(request.num_tokens)
            if needed > self.pool.num_free:
                return
            request.block_ids = self.pool.allocate(needed)
            self.running.append(self.waiting.popleft())
            num_tokens = min(request.num_tokens, budget)
            slices.append(Slice(request, 0, num_tokens))
            budget -= num_tokens

    def _reserve(self, request: Request, num_tokens: int) -> bool:
        """Blocks for the first `num_tokens` tokens, taken from the newest requests if need be. False: `request` itself had to give."""
        missing = self.pool.blocks_for(num_tokens) - len(request.block_ids)
        while missing > self.pool.num_free:
            victim = self.running[-1]
            self._preempt(victim)
            if victim is request:
                return False
        request.block_ids += self.pool.allocate(max(0, missing))
        return True

    def _preempt(self, victim: Request) -> None:
        """Only requests newer than those with a slice in this step can be victims: they stand behind them in `running`."""
        self.running.remove(victim)
        self._release(victim)
        self.waiting.appendleft(victim)
        victim.num_preemptions += 1
        self.num_preemptions += 1

    def _release(self, request: Request) -> None:
        self.pool.release(request.block_ids)
        request.block_ids = []
        request.num_computed = 0
