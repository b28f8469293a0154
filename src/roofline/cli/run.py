"""`roofline run MODEL PROMPT`: one answer, streamed to the output, and its rates on the error stream."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from roofline.cli import options
from roofline.cli.display import notes, progress_bars
from roofline.core.errors import RequestError
from roofline.core.sampling import SamplingParams
from roofline.engine.floor import answer_rates
from roofline.engine.llm import LLM, TextStream
from roofline.weights.catalog import DEFAULT_MODEL


def run(
    model: options.Model = DEFAULT_MODEL,
    prompt: Annotated[str | None, typer.Argument(help="The question; left out, it is read from the input.")] = None,
    system: Annotated[str | None, typer.Option(help="System message for chat models.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Give the prompt as it is, without the chat template.")] = False,
    threads: options.Threads = None,
    isa: options.Isa = None,
    kv_dtype: options.KvDtype = None,
    max_context: options.MaxContext = None,
    pre_tokenizer: options.PreTokenizer = None,
    max_tokens_per_step: options.MaxTokensPerStep = None,
    max_tokens: options.MaxTokens = 256,
    temperature: options.Temperature = 0.0,
    top_k: options.TopK = 0,
    top_p: options.TopP = 1.0,
    min_p: options.MinP = 0.0,
    repetition_penalty: options.RepetitionPenalty = 1.0,
    presence_penalty: options.PresencePenalty = 0.0,
    frequency_penalty: options.FrequencyPenalty = 0.0,
    seed: options.Seed = None,
    stop: options.Stop = None,
    ignore_eos: options.IgnoreEos = False,
) -> None:
    """Answer one prompt."""
    params = options.sampling_params(
        max_tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed, stop=stop,
        repetition_penalty=repetition_penalty, presence_penalty=presence_penalty, frequency_penalty=frequency_penalty,
        ignore_eos=ignore_eos,
    )  # fmt: skip
    settings = options.engine_settings(
        threads=threads, isa=isa, kv_dtype=kv_dtype, max_context=max_context, max_tokens_per_step=max_tokens_per_step,
        pre_tokenizer=pre_tokenizer,
    )  # fmt: skip
    text = prompt if prompt is not None else _piped_prompt()
    with progress_bars() as progress:
        llm = LLM(model, progress=progress, **settings)
    with llm, _stream(llm, text, system, params, raw=raw) as stream:
        for piece in stream:
            typer.echo(piece, nl=False)
        typer.echo()
        report(llm, stream)


def report(llm: LLM, stream: TextStream) -> None:
    """The rates of a finished answer; raises the error that ended it, if one did."""
    completion = stream.completion
    if completion is None:
        return
    if completion.error is not None:
        raise completion.error
    notes().print(f"[dim]{answer_rates(llm.loaded, completion).line()}[/dim]")


def _stream(llm: LLM, text: str, system: str | None, params: SamplingParams, *, raw: bool) -> TextStream:
    if raw or not llm.can_chat:
        if system is not None:
            raise RequestError("--system needs a chat template", hint="leave out --raw, or take a chat model")
        return llm.stream(text, params)
    messages = [{"role": "system", "content": system}] if system is not None else []
    return llm.stream_chat([*messages, {"role": "user", "content": text}], params)


def _piped_prompt() -> str:
    text = "" if sys.stdin.isatty() else sys.stdin.read()
    if not text:
        raise RequestError("there is no prompt", hint='roofline run MODEL "your question", or pipe one in')
    return text
