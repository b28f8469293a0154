"""The library's front door: one model, prompts in, completions out. Also what the command line uses."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from roofline.core.batch import Float32
from roofline.core.config import Decision, EngineConfig
from roofline.core.errors import RequestError
from roofline.core.request import Completion
from roofline.core.sampling import SamplingParams
from roofline.engine.engine import Output
from roofline.engine.loading import LoadedEngine, load_engine, user_config
from roofline.text.chat import ChatEncoder
from roofline.text.template import Message, chat_template_of
from roofline.weights.hub import Progress, no_progress

Prompt = str | Sequence[int]


class TextStream(Iterator[str]):
    """Pieces of one answer as they become certain; `completion` is there when the last one has been read.

    `close` ends the request early, as does leaving it as a context manager, or dropping the stream unread.
    """

    def __init__(self, llm: LLM, request_id: int) -> None:
        self._llm = llm
        self._request_id = request_id
        self.completion: Completion | None = None
        weakref.finalize(self, llm._abandoned.append, request_id).atexit = False

    def __next__(self) -> str:
        while self.completion is None:
            output = self._llm._next_output(self._request_id)
            self.completion = output.completion
            if output.text:
                return output.text
        raise StopIteration

    def __enter__(self) -> TextStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the request if it still runs; `completion` is then what there was, with finish_reason "abort"."""
        if self.completion is None:
            self.completion = self._llm._abort(self._request_id)


class LLM:
    """A loaded model. `model` is a path, a folder, a hub id or a short name; settings are those of UserConfig.

        llm = LLM("smollm2-135m", threads=2)
        llm.generate(["One", "Two"], SamplingParams(max_tokens=8))

    Calls from several threads take turns at single steps, so their requests share batches. Errors are RooflineErrors.
    """

    def __init__(self, model: str | Path, *, progress: Progress = no_progress, **settings: Any) -> None:
        self._loaded: LoadedEngine | None = load_engine(model, user_config(settings), progress=progress)
        self._lock = threading.RLock()
        self._inbox: dict[int, deque[Output]] = {}
        # Requests whose stream is gone. A finalizer runs anywhere, so it takes no lock.
        self._abandoned: deque[int] = deque()

    @property
    def loaded(self) -> LoadedEngine:
        """Engine, tokenizer, configuration and hardware, for reports."""
        if self._loaded is None:
            raise RequestError("this LLM is closed", hint="make a new one")
        return self._loaded

    @property
    def config(self) -> EngineConfig:
        return self.loaded.config

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Why each value of `config` is what it is."""
        return self.loaded.decisions

    @property
    def can_chat(self) -> bool:
        """Whether the model brought a chat template."""
        return bool(self.loaded.tokenizer.vocabulary.chat_templates)

    def generate(
        self, prompts: Prompt | Sequence[Prompt], params: SamplingParams | Sequence[SamplingParams] | None = None
    ) -> list[Completion]:
        """Answers in the order of `prompts`, all in one batch. One prompt (text, or a list of ids) gives a list of one.

        `params` is for all, or one for each. An invalid prompt raises RequestError naming its number before anything runs; a request
        whose logits become NaN ends with `finish_reason` "error" and its `error` set, and the others go on.
        """
        many = _as_list(prompts)
        each = _params_for(many, params)
        ids = [
            self._checked_ids(prompt, one, f"prompt {number}: ")
            for number, (prompt, one) in enumerate(zip(many, each, strict=True))
        ]
        requests = [self._submit(prompt_ids, one) for prompt_ids, one in zip(ids, each, strict=True)]
        try:
            return [self._wait(request_id) for request_id in requests]
        finally:
            for request_id in requests:  # ended ones are unknown by now: only an error or an interrupt leaves some
                self._abort(request_id)

    def chat(
        self,
        messages: Sequence[Message],
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        **variables: Any,
    ) -> Completion:
        """The answer to a conversation of {"role": ..., "content": ...} messages, by the model's own template or the one given."""
        prompt = self.render_chat(messages, tools=tools, chat_template=chat_template, **variables)
        return self.generate([prompt], params)[0]

    def stream(self, prompt: Prompt, params: SamplingParams | None = None) -> TextStream:
        """The answer to one prompt, piece by piece."""
        params = params or SamplingParams()
        return TextStream(self, self._submit(self._checked_ids(prompt, params), params))

    def stream_chat(
        self, messages: Sequence[Message], params: SamplingParams | None = None, **variables: Any
    ) -> TextStream:
        """As `chat`, piece by piece."""
        return self.stream(self.render_chat(messages, **variables), params)

    def render_chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        **variables: Any,
    ) -> list[int]:
        """Token ids of a conversation, ending where the answer begins. Raises TemplateError or RequestError."""
        tokenizer = self.loaded.tokenizer
        template = chat_template_of(tokenizer.vocabulary, override=chat_template, with_tools=tools is not None)
        return ChatEncoder(tokenizer, template).encode(messages, tools, **variables)

    def encode(self, text: str) -> list[int]:
        """Token ids of a plain prompt, with the BOS that the model wants."""
        return self.loaded.tokenizer.encode(text, add_special=True)

    def prompt_logits(self, prompt: Prompt) -> Float32:
        """The model's own logits after every token of a prompt, [T, V]; see Engine.prompt_logits."""
        with self._lock:
            return self.loaded.engine.prompt_logits(self._checked_ids(prompt, SamplingParams(max_tokens=1)))

    def close(self) -> None:
        """Free weights and KV cache. Further calls raise RequestError."""
        self._loaded = None

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _checked_ids(self, prompt: Prompt, params: SamplingParams, where: str = "") -> Sequence[int]:
        """Token ids of `prompt`, known to be acceptable; errors begin with `where`."""
        if not isinstance(params, SamplingParams):
            raise RequestError(f"{where}params must be SamplingParams, not {type(params).__name__}")
        try:
            ids = self.encode(prompt) if isinstance(prompt, str) else prompt
            self.loaded.engine.checked_request(ids, params)
        except RequestError as error:
            raise RequestError(where + error.message, hint=error.hint) from error
        return ids

    def _submit(self, prompt_ids: Sequence[int], params: SamplingParams) -> int:
        with self._lock:
            self._end_abandoned()
            request_id = self.loaded.engine.submit(prompt_ids, params)
            self._inbox[request_id] = deque()
            return request_id

    def _next_output(self, request_id: int) -> Output:
        """The next output of one request; steps the engine while there is none, and keeps what others get."""
        with self._lock:
            while not (mine := self._inbox.get(request_id)):
                self._step(request_id)
            output = mine.popleft()
            if output.completion is not None:
                del self._inbox[request_id]
            return output

    def _step(self, request_id: int) -> None:
        """One step of the engine, for which the caller holds the lock; outputs go to the inbox of their request."""
        self._end_abandoned()
        if not self.loaded.engine.is_running(request_id):
            raise RequestError(f"request {request_id} was dropped when a step failed")
        for output in self.loaded.engine.step():
            self._inbox[output.request_id].append(output)

    def _end_abandoned(self) -> None:
        while self._abandoned:
            self._abort(self._abandoned.popleft())

    def _wait(self, request_id: int) -> Completion:
        while (completion := self._next_output(request_id).completion) is None:
            pass
        return completion

    def _abort(self, request_id: int) -> Completion | None:
        with self._lock:
            self._inbox.pop(request_id, None)
            return self._loaded.engine.abort(request_id) if self._loaded else None


def _as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One prompt becomes a list of one; a list whose first item is a number is one prompt of ids."""
    if isinstance(prompts, bytes) or not isinstance(prompts, Sequence):
        raise RequestError(f"prompts must be text, token ids or a list of these, not {type(prompts).__name__}")
    one = isinstance(prompts, str) or (len(prompts) > 0 and not isinstance(prompts[0], str | Sequence))
    return [cast(Prompt, prompts)] if one else list(cast(Sequence[Prompt], prompts))


def _params_for(
    prompts: Sequence[Prompt], params: SamplingParams | Sequence[SamplingParams] | None
) -> list[SamplingParams]:
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * len(prompts)
    if not isinstance(params, Sequence):
        raise RequestError(f"params must be SamplingParams or a list of them, not {type(params).__name__}")
    if len(params) != len(prompts):
        raise RequestError(
            f"{len(params)} sampling parameters for {len(prompts)} prompts", hint="give one for all, or one each"
        )
    return list(params)
