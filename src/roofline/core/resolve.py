"""From what the user typed to what the engine runs with: a pure function of (user, hardware, model), with a reason for each value.

Engines call it before loading; `roofline doctor` and reports print the decisions. What can't be honoured is an error, never changed.
"""

from __future__ import annotations

from typing import TypeVar, cast

from roofline.core.batch import BLOCK_LEN
from roofline.core.config import KV_DTYPES, Decision, EngineConfig, KvDtype, Numerics, UserConfig
from roofline.core.errors import ConfigError
from roofline.core.hardware import Hardware, default_threads
from roofline.core.isa import require_tier
from roofline.core.memory import MemoryPlan, ModelFacts

DEFAULT_MAX_CONTEXT = 8192
DEFAULT_MAX_SEQUENCES = 32
DEFAULT_TOKENS_PER_STEP = 512  # long enough that weights are read once for many rows, short enough to interleave decode
MIN_CONTEXT = 512  # a shorter default answers little more than a greeting: refuse instead
KV_SHARE = 0.25  # of the memory left after weights and scratch, for more than one full context

MAX_THREADS = 1024
MAX_SEQUENCES = 4096
MAX_TOKENS_PER_STEP = 65536

ASKED = "asked for"
T = TypeVar("T")


class _Decisions:
    """Decisions in the order they were made; `add` returns the value it records."""

    def __init__(self) -> None:
        self.made: list[Decision] = []

    def add(self, name: str, value: T, reason: str) -> T:
        self.made.append(Decision(name, str(value), reason))
        return value


def resolve(user: UserConfig, hardware: Hardware, model: ModelFacts) -> tuple[EngineConfig, tuple[Decision, ...]]:
    """Validate `user`, choose what it leaves open, check memory.

    Raises ConfigError naming the value and its range, and InsufficientMemoryError with weights, KV and scratch in MB and the
    largest context that fits.
    """
    decisions = _Decisions()
    num_threads, cpus = _threads(user, hardware, decisions)
    isa = _isa(user, hardware, decisions)
    kv_dtype = _kv_dtype(user, decisions)
    numerics = _numerics(user, decisions)
    max_sequences = _size(user.max_sequences, "max_sequences", MAX_SEQUENCES, DEFAULT_MAX_SEQUENCES, decisions)
    max_tokens_per_step = _size(
        user.max_tokens_per_step, "max_tokens_per_step", MAX_TOKENS_PER_STEP, DEFAULT_TOKENS_PER_STEP, decisions
    )
    plan = MemoryPlan(
        model=model.name,
        weights_bytes=model.weights_bytes,
        scratch_bytes=model.scratch_bytes(
            num_threads, max_tokens_per_step, max_sequences, _longest_context(user, model)
        ),
        block_bytes=model.block_bytes(kv_dtype),
        bound=hardware.tightest_memory,
    )
    asked_blocks = _asked_blocks(user, plan)
    max_context = _max_context(user, model, plan, asked_blocks, decisions)
    num_blocks = _num_blocks(plan, asked_blocks, max_context, max_sequences, decisions)
    decisions.add("memory", f"{plan.need_bytes(num_blocks) / 1e6:.0f} MB", plan.describe(num_blocks))
    config = EngineConfig(
        num_threads=num_threads,
        cpus=cpus,
        isa=isa,
        kv_dtype=kv_dtype,
        numerics=numerics,
        max_context=max_context,
        max_tokens_per_step=max_tokens_per_step,
        max_sequences=max_sequences,
        num_blocks=num_blocks,
    )
    return config, tuple(decisions.made)


def machine_decisions(user: UserConfig, hardware: Hardware) -> tuple[Decision, ...]:
    """The decisions that need no model, as `resolve` would make them: threads and tier."""
    decisions = _Decisions()
    _threads(user, hardware, decisions)
    _isa(user, hardware, decisions)
    return tuple(decisions.made)


def checked_int(name: str, value: object, low: int, high: int) -> int:
    """`value` if it is an integer from `low` to `high`, else ConfigError naming it and the range."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{name} must be an integer from {low} to {high}, got {value!r}")
    return value


def _choice(name: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise ConfigError(f"{name} must be one of {', '.join(known)}, got {value!r}")
    return value


def _size(asked: int | None, name: str, high: int, default: int, decisions: _Decisions) -> int:
    if asked is not None:
        return decisions.add(name, checked_int(name, asked, 1, high), ASKED)
    return decisions.add(name, default, "default")


def _threads(user: UserConfig, hardware: Hardware, decisions: _Decisions) -> tuple[int, tuple[int, ...]]:
    nodes = _choice("nodes", "one" if user.nodes is None else user.nodes, ("one", "all"))
    choice = default_threads(hardware, all_nodes=nodes == "all")
    if user.threads is None:
        return decisions.add("num_threads", choice.num_threads, choice.reason), choice.cpus
    asked = checked_int("threads", user.threads, 1, MAX_THREADS)
    if asked <= choice.num_threads:
        return decisions.add("num_threads", asked, ASKED), choice.cpus
    reason = f"{ASKED}; more than the {choice.num_threads} that can help ({choice.reason})"
    return decisions.add("num_threads", asked, reason), hardware.cpus


def _isa(user: UserConfig, hardware: Hardware, decisions: _Decisions) -> str:
    if user.isa is not None:
        return decisions.add("isa", require_tier(user.isa, hardware.isa), ASKED)
    best = hardware.isa.best
    above = [f"{tier} lacks {', '.join(gaps)}" for tier, gaps in hardware.isa.gaps.items() if gaps]
    return decisions.add("isa", best, "; ".join(["highest tier that runs here", *above]))


def _kv_dtype(user: UserConfig, decisions: _Decisions) -> KvDtype:
    if user.kv_dtype is not None:
        return decisions.add("kv_dtype", cast(KvDtype, _choice("kv_dtype", user.kv_dtype, KV_DTYPES)), ASKED)
    reason = "half the bytes of f32, and 11 significant bits where bf16 keeps 8"
    return decisions.add("kv_dtype", "f16", reason)


def _numerics(user: UserConfig, decisions: _Decisions) -> Numerics:
    if user.numerics is not None:
        _choice("numerics", user.numerics, ("exact",))
    reason = "the same answer, whatever the batch" if user.numerics is None else ASKED
    return decisions.add("numerics", "exact", reason)


def _blocks(num_tokens: int) -> int:
    return -(-num_tokens // BLOCK_LEN)


def _asked_blocks(user: UserConfig, plan: MemoryPlan) -> int | None:
    """KV blocks that the user asked for, directly or in bytes; None when left open."""
    if user.num_blocks is not None and user.kv_memory_bytes is not None:
        raise ConfigError("num_blocks and kv_memory_bytes are two ways to say one thing", hint="give one of them")
    if user.num_blocks is not None:
        num_blocks = checked_int("num_blocks", user.num_blocks, 1, 2**31 - 1)
    elif user.kv_memory_bytes is not None:
        asked_bytes = checked_int("kv_memory_bytes", user.kv_memory_bytes, plan.block_bytes, 2**62)
        num_blocks = min(asked_bytes // plan.block_bytes, 2**31 - 1)
    else:
        return None
    plan.require(num_blocks)
    return num_blocks


def _longest_context(user: UserConfig, model: ModelFacts) -> int:
    """What `_max_context` will choose at most; a value that it will refuse counts as left open."""
    asked = user.max_context if isinstance(user.max_context, int) else DEFAULT_MAX_CONTEXT
    return min(asked, model.max_context)


def _max_context(
    user: UserConfig, model: ModelFacts, plan: MemoryPlan, asked_blocks: int | None, decisions: _Decisions
) -> int:
    if user.max_context is not None:
        high = model.max_context if asked_blocks is None else min(model.max_context, asked_blocks * BLOCK_LEN)
        asked = checked_int("max_context", user.max_context, 1, high)
        plan.require(_blocks(asked))
        return decisions.add("max_context", asked, ASKED)
    if asked_blocks is None:
        plan.require(_blocks(min(MIN_CONTEXT, model.max_context)))
    limits = {
        "what the model was trained for": model.max_context,
        "default; a longer one must be asked for": DEFAULT_MAX_CONTEXT,
        f"what memory allows ({plan.bound.source})": plan.max_blocks * BLOCK_LEN,
    }
    if asked_blocks is not None:
        limits["what the KV cache asked for holds"] = asked_blocks * BLOCK_LEN
    reason = min(limits, key=lambda name: limits[name])
    return decisions.add("max_context", limits[reason], reason)


def _num_blocks(
    plan: MemoryPlan, asked_blocks: int | None, max_context: int, max_sequences: int, decisions: _Decisions
) -> int:
    def size(num_blocks: int) -> str:
        tokens, megabytes = num_blocks * BLOCK_LEN, num_blocks * plan.block_bytes / 1e6
        return f"{tokens} tokens, {megabytes:.0f} MB"

    if asked_blocks is not None:
        return decisions.add("num_blocks", asked_blocks, f"{ASKED}; {size(asked_blocks)}")
    one = _blocks(max_context)
    shared = int(plan.kv_room_bytes * KV_SHARE) // plan.block_bytes
    num_blocks = max(one, min(one * max_sequences, shared))
    reason = f"{num_blocks / one:.3g} full contexts within {KV_SHARE:.0%} of the memory left; {size(num_blocks)}"
    if num_blocks == one:
        reason = f"one full context; {size(num_blocks)}"
    return decisions.add("num_blocks", num_blocks, reason)
