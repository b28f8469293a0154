"""The three records of configuration: what the user typed, what the engine runs with, and why each value was chosen.

`UserConfig` is optional everywhere; `core.resolve` turns it into an `EngineConfig`, in which nothing is open, and the decisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from roofline.core.batch import BLOCK_LEN
from roofline.core.errors import ConfigError
from roofline.core.isa import TIERS

KvDtype = Literal["f16", "bf16", "f32"]
Numerics = Literal["exact"]

KV_DTYPES: tuple[str, ...] = get_args(KvDtype)
KV_DTYPE_BYTES: Mapping[str, int] = {"f16": 2, "bf16": 2, "f32": 4}


@dataclass(frozen=True)
class UserConfig:
    """What was typed; None is "choose for me", with a decision that says why. Checked by `resolve`, not here.

    `pre_tokenizer` names the word rule of a GGUF file that names none, or one that isn't known; the tokenizer's builder checks it.
    """

    threads: int | None = None
    isa: str | None = None
    nodes: str | None = None
    kv_dtype: str | None = None
    numerics: str | None = None
    max_context: int | None = None
    max_tokens_per_step: int | None = None
    max_sequences: int | None = None
    num_blocks: int | None = None
    kv_memory_bytes: int | None = None
    pre_tokenizer: str | None = None


@dataclass(frozen=True)
class EngineConfig:
    """What the engine runs with. Lengths in tokens; `cpus` is where the threads should stay."""

    num_threads: int
    cpus: tuple[int, ...]
    isa: str
    kv_dtype: KvDtype
    numerics: Numerics
    max_context: int
    max_tokens_per_step: int
    max_sequences: int
    num_blocks: int
    block_len: int = BLOCK_LEN


@dataclass(frozen=True)
class Decision:
    """One field of the engine's configuration, its value as text, and the reason in words."""

    field: str
    value: str
    reason: str


def with_environment(user: UserConfig, environ: Mapping[str, str]) -> UserConfig:
    """`user` with ROOFLINE_THREADS and ROOFLINE_ISA filled in where nothing was typed. A bad value is an error."""
    if user.threads is None and "ROOFLINE_THREADS" in environ:
        user = replace(user, threads=_threads(environ["ROOFLINE_THREADS"]))
    if user.isa is None and "ROOFLINE_ISA" in environ:
        user = replace(user, isa=_isa(environ["ROOFLINE_ISA"]))
    return user


def _isa(text: str) -> str:
    if text not in TIERS:
        raise ConfigError(
            f"ROOFLINE_ISA={text!r} is not a kernel tier", hint=f"one of {', '.join(TIERS)}, or leave it unset"
        )
    return text


def _threads(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ConfigError(
            f"ROOFLINE_THREADS={text!r} is not a number of threads", hint="an integer from 1, or leave it unset"
        )
    return int(text)
