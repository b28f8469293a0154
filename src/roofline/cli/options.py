"""Options that several commands share, under the names of the settings they set; None leaves a setting to the engine."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from roofline.core.sampling import SamplingParams
from roofline.weights.catalog import DEFAULT_MODEL

MODEL_HELP = (
    f"A .gguf file, a Hugging Face folder, a hub id, or a short name (see `roofline models`), e.g. {DEFAULT_MODEL}."
)

Model = Annotated[str, typer.Argument(help=MODEL_HELP)]

_ENGINE, _SAMPLING = "Engine", "Sampling"
Threads = Annotated[
    int | None, typer.Option(help="Threads; default: what affinity and quota give.", rich_help_panel=_ENGINE)
]
Isa = Annotated[str | None, typer.Option(help="Highest kernel tier: ref, avx2, avx512, amx.", rich_help_panel=_ENGINE)]
KvDtype = Annotated[str | None, typer.Option(help="KV cache: f16, bf16, f32.", rich_help_panel=_ENGINE)]
MaxContext = Annotated[int | None, typer.Option(help="Longest sequence in tokens.", rich_help_panel=_ENGINE)]
MaxTokensPerStep = Annotated[int | None, typer.Option(help="Tokens that one step may hold.", rich_help_panel=_ENGINE)]
PreTokenizer = Annotated[
    str | None, typer.Option(help="Word rule of a GGUF tokenizer whose file names none.", rich_help_panel=_ENGINE)
]

MaxTokens = Annotated[
    int, typer.Option("--max-tokens", "-n", help="Tokens to generate at most.", rich_help_panel=_SAMPLING)
]
Temperature = Annotated[float, typer.Option("--temperature", "-t", help="0 is greedy.", rich_help_panel=_SAMPLING)]
TopK = Annotated[int, typer.Option(help="Keep this many tokens; 0: all.", rich_help_panel=_SAMPLING)]
TopP = Annotated[
    float, typer.Option(help="Keep the likeliest tokens up to this probability.", rich_help_panel=_SAMPLING)
]
MinP = Annotated[
    float, typer.Option(help="Least probability relative to the likeliest token.", rich_help_panel=_SAMPLING)
]
RepetitionPenalty = Annotated[float, typer.Option(help="Above 1: fewer repeats.", rich_help_panel=_SAMPLING)]
PresencePenalty = Annotated[float, typer.Option(help="Off each generated token, once.", rich_help_panel=_SAMPLING)]
FrequencyPenalty = Annotated[
    float, typer.Option(help="Off each generated token, each time.", rich_help_panel=_SAMPLING)
]
Seed = Annotated[int | None, typer.Option(help="Repeats the draws.", rich_help_panel=_SAMPLING)]
Stop = Annotated[
    list[str] | None, typer.Option(help="Text that ends the answer; may be repeated.", rich_help_panel=_SAMPLING)
]
IgnoreEos = Annotated[bool, typer.Option("--ignore-eos", help="Go on after end tokens.", rich_help_panel=_SAMPLING)]


def engine_settings(**settings: Any) -> dict[str, Any]:
    """The settings that were typed."""
    return {name: value for name, value in settings.items() if value is not None}


def sampling_params(*, stop: list[str] | None, **settings: Any) -> SamplingParams:
    """SamplingParams of the options, with the checks and errors of the library."""
    return SamplingParams(stop=stop or (), **settings)
