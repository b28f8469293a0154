"""One request's answer as it grows: tokens in, text pieces out, and at the end the Completion. The engine owns one per request."""

from __future__ import annotations

import time

from roofline import _native
from roofline.core.errors import NumericsError, RequestError, RooflineError
from roofline.core.request import Completion, FinishReason, PositionLogprobs, Request, Timing, TokenLogprob
from roofline.engine.sampler import chosen_seed, sampling_state
from roofline.text.detokenize import Detokenizer
from roofline.text.tokenizer import Tokenizer


class Generation:
    """`accept` takes the draws of its request in order; `finish_reason` is set when no more are wanted."""

    def __init__(self, request: Request, tokenizer: Tokenizer, eos_ids: frozenset[int]) -> None:
        params = request.params
        self.request = request
        self.seed = chosen_seed(params)
        self.finish_reason: FinishReason | None = None
        self._end_ids = frozenset(params.stop_ids) | (frozenset() if params.ignore_eos else eos_ids)
        self.state = sampling_state(params, prompt_ids=request.token_ids, seed=self.seed, end_ids=self._end_ids)
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(
            tokenizer, params.stop_strings, skip_special=params.skip_special_tokens, continues=True
        )
        self._pieces: list[str] = []
        self._logprobs: list[PositionLogprobs] = []
        self._error: RooflineError | None = None
        self._submitted_s = time.perf_counter()
        self._started_s = self._first_token_s = self._last_token_s = 0.0

    def start(self) -> None:
        """A step works on the request; the first call ends its time in the queue."""
        self._started_s = self._started_s or time.perf_counter()

    def accept(self, draw: _native.Draw) -> str:
        """Append the drawn token to the request and return the text that became certain."""
        if draw.status != "ok":
            return self._fail(draw.status)
        self._last_token_s = time.perf_counter()
        self._first_token_s = self._first_token_s or self._last_token_s
        self.request.token_ids.append(draw.token)
        self.state.observe(draw.token)
        if self.request.params.logprobs is not None:
            self._logprobs.append(self._position_logprobs(draw))
        return self._emit(self._text_of(draw.token))

    def abort(self) -> None:
        """The caller wants no more."""
        self.finish_reason = FinishReason.ABORT

    def completion(self) -> Completion:
        """The whole answer, once `finish_reason` is set."""
        if self.finish_reason is None:
            raise ValueError(f"request {self.request.id} is still running")
        request = self.request
        return Completion(
            text="".join(self._pieces),
            token_ids=tuple(request.token_ids[request.prompt_len :]),
            finish_reason=self.finish_reason,
            logprobs=None if request.params.logprobs is None else tuple(self._logprobs),
            timing=self._timing(),
            seed=self.seed,
            error=self._error,
        )

    def _text_of(self, token: int) -> str:
        """Text of one more token; decides whether the answer ends with it."""
        if token in self._end_ids:
            self.finish_reason = FinishReason.STOP
            return self._detokenizer.finish()
        text = self._detokenizer.push(token)
        if self._detokenizer.stopped is not None:
            self.finish_reason = FinishReason.STOP
        elif self.request.num_tokens >= self.request.max_len:
            text += self._detokenizer.finish()
            ended_by_stop = self._detokenizer.stopped is not None
            self.finish_reason = FinishReason.STOP if ended_by_stop else FinishReason.LENGTH
        return text

    def _emit(self, text: str) -> str:
        self._pieces.append(text)
        return text

    def _fail(self, status: str) -> str:
        place = f"at token {self.request.num_generated} of the answer"
        if status == "not_finite":
            self._error = NumericsError(
                f"the logits of this sequence became NaN or infinite {place}",
                hint="the weights may be damaged, or their values overflow; other requests are not affected",
            )
        else:
            self._error = RequestError(f"logit bias and min_tokens leave no token to choose {place}")
        self.finish_reason = FinishReason.ERROR
        return self._emit(self._detokenizer.finish())

    def _position_logprobs(self, draw: _native.Draw) -> PositionLogprobs:
        def entry(token: int, logprob: float) -> TokenLogprob:
            return TokenLogprob(token, self._tokenizer.token_bytes(token), logprob)

        return PositionLogprobs(entry(draw.token, draw.logprob), tuple(entry(*pair) for pair in draw.top))

    def _timing(self) -> Timing:
        started = self._started_s or time.perf_counter()
        first = self._first_token_s or time.perf_counter()
        return Timing(
            queue_s=started - self._submitted_s,
            prefill_s=max(0.0, first - started),
            decode_s=max(0.0, self._last_token_s - first),
            num_prompt_tokens=self.request.prompt_len,
            num_cached_tokens=0,
            num_generated_tokens=self.request.num_generated,
            num_preemptions=self.request.num_preemptions,
        )
