"""The step loop: admit, schedule, run the program, sample, commit. One thread drives it; LLM and the server stand above."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from roofline import _native
from roofline.backends.base import Backend
from roofline.core.batch import Float32, StepBatch
from roofline.core.config import EngineConfig
from roofline.core.errors import RequestError
from roofline.core.request import Completion, Request
from roofline.core.sampling import SamplingParams, token_ids
from roofline.engine.blocks import BlockPool
from roofline.engine.generation import Generation
from roofline.engine.sampler import draw
from roofline.engine.scheduler import Scheduler, Slice
from roofline.engine.step_batch import build_batch
from roofline.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Output:
    """What one step gave one request: text that became certain (perhaps none), and the completion when it has ended."""

    request_id: int
    text: str
    completion: Completion | None


class Engine:
    """Runs requests over one back end. `eos_ids` are the model's own end tokens, `thread_pool` is the one that sampling shares."""

    def __init__(
        self,
        backend: Backend,
        tokenizer: Tokenizer,
        config: EngineConfig,
        *,
        eos_ids: frozenset[int],
        thread_pool: _native.ThreadPool | None = None,
    ) -> None:
        self.config = config
        self.scheduler = Scheduler(
            BlockPool(backend.num_blocks, config.block_len),
            max_tokens_per_step=config.max_tokens_per_step,
            max_sequences=config.max_sequences,
        )
        self.num_failed = 0  # requests that ended with "error"
        self._backend = backend
        self._tokenizer = tokenizer
        # Files name end tokens that the model has no logits of (-1, padding): they can't be drawn, and the sampler indexes by id.
        self._eos_ids = frozenset(token for token in eos_ids if 0 <= token < self.vocab_size)
        self._thread_pool = thread_pool
        self._generations: dict[int, Generation] = {}
        self._next_id = 0

    @property
    def has_work(self) -> bool:
        return self.scheduler.has_work

    def is_running(self, request_id: int) -> bool:
        """Whether the request is queued or running; not one that ended, or was dropped with a step that failed."""
        return request_id in self._generations

    @property
    def vocab_size(self) -> int:
        """Width of the logits; prompt ids lie below it."""
        return self._backend.program.vocab_size

    def submit(self, prompt_ids: Sequence[int], params: SamplingParams) -> int:
        """Queue a prompt and return the request's id. Raises RequestError for a prompt or parameters that the model can't take."""
        request = self.checked_request(prompt_ids, params)
        generation = Generation(request, self._tokenizer, self._eos_ids)
        self.scheduler.add(request)
        self._next_id += 1
        self._generations[request.id] = generation
        return request.id

    def checked_request(self, prompt_ids: Iterable[int], params: SamplingParams) -> Request:
        """The request that `submit` would queue, without queueing it."""
        vocab_size = self.vocab_size
        params.check_vocab(vocab_size)
        if not isinstance(prompt_ids, Sequence):
            prompt_ids = token_ids("prompt", prompt_ids)
        max_len = self._max_len(len(prompt_ids), params)  # first: a prompt of millions costs no look at its ids
        prompt = token_ids("prompt", prompt_ids)
        for i, token in enumerate(prompt):
            if token >= vocab_size:
                raise RequestError(f"prompt[{i}]={token} is out of vocabulary: ids lie in [0, {vocab_size})")
        return Request(self._next_id, len(prompt), list(prompt), params, max_len)

    def abort(self, request_id: int) -> Completion | None:
        """End a request now; its partial answer, or None if it had ended already."""
        generation = self._generations.pop(request_id, None)
        if generation is None:
            return None
        generation.abort()
        self.scheduler.finish(generation.request)
        return generation.completion()

    def step(self) -> list[Output]:
        """One pass over the model. When the back end raises, the requests of this step are dropped and the error goes on."""
        slices = self.scheduler.schedule()
        if not slices:
            return []
        for piece in slices:
            self._generations[piece.request.id].start()
        try:
            logits = self._backend.step(build_batch(slices))
        except BaseException:
            for piece in slices:
                self.abort(piece.request.id)
            raise
        sampled = [self._generations[piece.request.id] for piece in slices if piece.wants_logits]
        draws = draw(logits, [generation.state for generation in sampled], self._thread_pool)
        self.scheduler.commit(slices)
        return [self._advance(generation, one) for generation, one in zip(sampled, draws, strict=True)]

    def prompt_logits(self, prompt_ids: Sequence[int]) -> Float32:
        """The model's own logits after every token of a prompt, [T, V]: for scoring text and for measuring quality.

        The prompt runs by itself, in chunks, on blocks that are given back. Raises RequestError where requests hold too many.
        """
        request = self.checked_request(prompt_ids, SamplingParams(max_tokens=1))
        pool, chunk = self.scheduler.pool, self.config.max_tokens_per_step
        needed = pool.blocks_for(request.num_tokens)
        if needed > pool.num_free:
            raise RequestError(
                f"{needed} KV blocks are needed and {pool.num_free} are free", hint="wait until requests end"
            )
        request.block_ids = pool.allocate(needed)
        try:
            starts = range(0, request.num_tokens, chunk)
            pieces = [Slice(request, start, min(chunk, request.num_tokens - start)) for start in starts]
            return np.concatenate([self._backend.step(_with_all_logits(piece)) for piece in pieces])
        finally:
            pool.release(request.block_ids)

    def _advance(self, generation: Generation, one: _native.Draw) -> Output:
        text = generation.accept(one)
        request = generation.request
        if generation.finish_reason is None:
            return Output(request.id, text, None)
        completion = generation.completion()
        self.num_failed += completion.error is not None
        del self._generations[request.id]
        self.scheduler.finish(request)
        return Output(request.id, text, completion)

    def _max_len(self, prompt_len: int, params: SamplingParams) -> int:
        limit = self.config.max_context
        if prompt_len == 0:
            raise RequestError("the prompt is empty", hint="this model has no BOS token to start from: give some text")
        if prompt_len >= limit:
            raise RequestError(
                f"the prompt has {prompt_len} tokens, and the context holds {limit} with at least one of the answer",
                hint="shorten the prompt, or load the model with a larger max_context",
            )
        return limit if params.max_tokens is None else min(limit, prompt_len + params.max_tokens)


def _with_all_logits(piece: Slice) -> StepBatch:
    return replace(build_batch([piece]), logit_rows=np.arange(piece.num_tokens, dtype=np.int32))
