"""`roofline chat MODEL`: a conversation in the terminal. Ctrl-C stops the answer, not the program."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import Annotated

import typer

from roofline.cli import options
from roofline.cli.display import notes, print_error, progress_bars
from roofline.cli.run import report
from roofline.core.errors import RequestError, RooflineError
from roofline.core.sampling import SamplingParams
from roofline.engine.llm import LLM
from roofline.weights.catalog import DEFAULT_MODEL

HELP = "/reset starts over, /exit leaves, Ctrl-C stops an answer"


def chat(
    model: options.Model = DEFAULT_MODEL,
    system: Annotated[str | None, typer.Option(help="System message.")] = None,
    threads: options.Threads = None,
    isa: options.Isa = None,
    kv_dtype: options.KvDtype = None,
    max_context: options.MaxContext = None,
    pre_tokenizer: options.PreTokenizer = None,
    max_tokens: options.MaxTokens = 1024,
    temperature: options.Temperature = 0.7,
    top_k: options.TopK = 0,
    top_p: options.TopP = 0.9,
    min_p: options.MinP = 0.0,
    repetition_penalty: options.RepetitionPenalty = 1.0,
    seed: options.Seed = None,
    stop: options.Stop = None,
) -> None:
    """Talk with a chat model."""
    params = options.sampling_params(
        max_tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed, stop=stop,
        repetition_penalty=repetition_penalty,
    )  # fmt: skip
    settings = options.engine_settings(
        threads=threads, isa=isa, kv_dtype=kv_dtype, max_context=max_context, pre_tokenizer=pre_tokenizer
    )
    with progress_bars() as progress:
        llm = LLM(model, progress=progress, **settings)
    if not llm.can_chat:
        raise RequestError(
            f"{model} has no chat template: it is a base model", hint=f'roofline run {model} "text to continue"'
        )
    notes().print(f"[dim]{HELP}[/dim]")
    with llm:
        Conversation(llm, params, system).talk()


class Conversation:
    """The turns so far. An answer that was stopped stays as far as it came; a question that failed is taken back."""

    def __init__(self, llm: LLM, params: SamplingParams, system: str | None) -> None:
        self._llm = llm
        self._params = params
        self._start = [{"role": "system", "content": system}] if system is not None else []
        self._messages = list(self._start)

    def talk(self) -> None:
        """Read and answer until /exit or the end of the input."""
        while True:
            try:
                line = input("> ").strip()
            except EOFError:
                typer.echo()  # the shell's prompt would stand behind ours
                return
            except KeyboardInterrupt:
                notes().print(f"\n[dim]{HELP}[/dim]")
                continue
            if line == "/exit":
                return
            if line == "/reset":
                self._messages = list(self._start)
            elif line.startswith("/"):
                notes().print(f"[dim]{HELP}[/dim]")
            elif line:
                self._answer(line)

    def _answer(self, question: str) -> None:
        self._messages.append({"role": "user", "content": question})
        try:
            text = self._stream()
        except RooflineError as error:
            self._messages.pop()
            print_error(error)
        else:
            self._messages.append({"role": "assistant", "content": text})

    def _stream(self) -> str:
        pieces = []
        with _interrupt_flag() as interrupted, self._llm.stream_chat(self._messages, self._params) as stream:
            for piece in stream:
                typer.echo(piece, nl=False)
                pieces.append(piece)
                if interrupted.is_set():
                    stream.close()
        typer.echo()
        report(self._llm, stream)
        return "".join(pieces)


@contextmanager
def _interrupt_flag() -> Iterator[Event]:
    """Ctrl-C sets a flag meanwhile: raised inside a step, it could leave the engine half-way through one."""
    flag = Event()
    before = signal.signal(signal.SIGINT, lambda number, frame: flag.set())
    try:
        yield flag
    finally:
        signal.signal(signal.SIGINT, before)
