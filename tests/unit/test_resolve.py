"""Resolving configuration on fake machines: every default has a reason, every bad value an error, memory is checked before loading."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roofline.core.config import EngineConfig, UserConfig, with_environment
from roofline.core.errors import ConfigError, InsufficientMemoryError
from roofline.core.hardware import MemoryBound
from roofline.core.memory import ModelFacts
from roofline.core.resolve import resolve

MIB = 1024**2

# 24 layers of 2 KV heads of 64: 24 * 2 * 128 * 2 bytes = 12 288 bytes a token in f16.
MODEL = ModelFacts(
    name="half-billion",
    weights_bytes=400 * MIB,
    kv_shapes=((2, 64),) * 24,
    max_context=32768,
    vocab_size=150_000,
    scratch_bytes_per_token=50_000,
    scratch_bytes_per_thread=MIB,
)


def with_memory(hardware, available_mib):
    return replace(hardware, memory_bounds=(MemoryBound("free memory", available_mib * MIB),))


def reasons(decisions):
    return {decision.field: decision.reason for decision in decisions}


def test_defaults_leave_nothing_open_and_say_why(machine):
    config, decisions = resolve(UserConfig(), machine.probe(), MODEL)
    assert all(getattr(config, field.name) not in (None, "auto") for field in fields(EngineConfig))
    assert config.max_context == 8192
    assert config.num_blocks * config.block_len >= config.max_context
    decided = {decision.field for decision in decisions}
    assert decided >= {field.name for field in fields(EngineConfig)} - {"cpus", "block_len"}
    assert all(decision.reason for decision in decisions)
    assert "amx lacks amx_tile" in reasons(decisions)["isa"]


def test_kv_bytes_of_a_token():
    assert MODEL.kv_bytes_per_token("f16") == 12_288
    assert MODEL.kv_bytes_per_token("f32") == 24_576
    assert replace(MODEL, kv_shapes=((1, 36),)).kv_bytes_per_token("bf16") == 2 * (36 + 48)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("threads", 0),
        ("threads", 1025),
        ("threads", True),
        ("max_context", 0),
        ("max_context", 32769),
        ("max_tokens_per_step", 0),
        ("max_sequences", -1),
        ("num_blocks", 0),
        ("kv_memory_bytes", 1000),
        ("kv_dtype", "int8"),
        ("numerics", "loose"),
        ("nodes", "two"),
        ("isa", "amx"),
    ],
)
def test_bad_value_is_named(machine, name, value):
    with pytest.raises(ConfigError, match=str(value)):
        resolve(UserConfig(**{name: value}), machine.probe(), MODEL)


def test_two_sizes_for_one_cache(machine):
    with pytest.raises(ConfigError, match="num_blocks and kv_memory_bytes"):
        resolve(UserConfig(num_blocks=10, kv_memory_bytes=10**9), machine.probe(), MODEL)


def test_context_longer_than_the_cache_that_was_asked_for(machine):
    with pytest.raises(ConfigError, match="max_context must be an integer from 1 to 320, got 321"):
        resolve(UserConfig(num_blocks=10, max_context=321), machine.probe(), MODEL)


def test_asked_cache_bounds_the_context(machine):
    config, decisions = resolve(UserConfig(kv_memory_bytes=12_288 * 32 * 10), machine.probe(), MODEL)
    assert (config.num_blocks, config.max_context) == (10, 320)
    assert "KV cache asked for" in reasons(decisions)["max_context"]


def test_mem03_context_shrinks_to_memory_with_a_reason(machine):
    config, decisions = resolve(UserConfig(), with_memory(machine.probe(), 650), MODEL)
    assert 512 <= config.max_context < 8192
    assert reasons(decisions)["max_context"] == "what memory allows (free memory)"
    resolve(UserConfig(max_context=config.max_context), with_memory(machine.probe(), 650), MODEL)


def test_mem03_refusal_names_each_part_and_the_largest_context(machine):
    hardware = with_memory(machine.probe(), 650)
    with pytest.raises(InsufficientMemoryError) as caught:
        resolve(UserConfig(max_context=32768), hardware, MODEL)
    error = caught.value
    for part in ("weights 419 MB", "KV cache 403 MB (32768 tokens)", "scratch 62 MB", "free memory 682 MB"):
        assert part in error.message
    assert "--max-context" in error.hint
    fits = int(error.hint.split(" tokens")[0].rsplit(" ", 1)[1])
    config, _ = resolve(UserConfig(max_context=fits), hardware, MODEL)
    assert config.max_context == fits
    with pytest.raises(InsufficientMemoryError):
        resolve(UserConfig(max_context=fits + 1), hardware, MODEL)


def test_mem03_weights_alone_do_not_fit(machine):
    with pytest.raises(InsufficientMemoryError, match="no context fits"):
        resolve(UserConfig(), with_memory(machine.probe(), 300), MODEL)


def test_mem03_cgroup_limit_binds(machine):
    machine.cgroup_v2("/box")
    machine.write("/sys/fs/cgroup/box/memory.max", str(300 * MIB))
    machine.write("/sys/fs/cgroup/box/memory.current", "0")
    with pytest.raises(InsufficientMemoryError, match="memory limit of cgroup /box"):
        resolve(UserConfig(), machine.probe(), MODEL)


@pytest.mark.parametrize("name", ["nodes", "kv_dtype", "numerics", "isa"])
def test_an_empty_text_is_no_choice(machine, name):
    with pytest.raises(ConfigError, match="''"):
        resolve(UserConfig(**{name: ""}), machine.probe(), MODEL)


def test_more_threads_than_help_are_granted_and_noted(machine):
    machine.affinity("0-1")
    config, decisions = resolve(UserConfig(threads=4), machine.probe(), MODEL)
    assert config.num_threads == 4
    assert "more than the 2 that can help" in reasons(decisions)["num_threads"]


def test_environment_fills_what_was_not_typed():
    environ = {"ROOFLINE_THREADS": "3", "ROOFLINE_ISA": "avx2"}
    assert with_environment(UserConfig(), environ) == UserConfig(threads=3, isa="avx2")
    assert with_environment(UserConfig(threads=1, isa="ref"), environ) == UserConfig(threads=1, isa="ref")
    assert with_environment(UserConfig(), {}) == UserConfig()


@pytest.mark.parametrize("value", ["", "0", "-1", "two", "1.5", "²"])
def test_cpu06_bad_environment_is_an_error(value):
    with pytest.raises(ConfigError, match="ROOFLINE_THREADS="):
        with_environment(UserConfig(), {"ROOFLINE_THREADS": value})
    with pytest.raises(ConfigError, match="ROOFLINE_ISA="):
        with_environment(UserConfig(), {"ROOFLINE_ISA": value})


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    available_mib=st.integers(100, 40_000), max_sequences=st.integers(1, 64), asked=st.none() | st.integers(1, 32768)
)
def test_resolved_need_always_fits(machine, available_mib, max_sequences, asked):
    hardware = with_memory(machine.probe(), available_mib)
    user = UserConfig(max_sequences=max_sequences, max_context=asked)
    try:
        config, _ = resolve(user, hardware, MODEL)
    except InsufficientMemoryError:
        return
    need_bytes = MODEL.weights_bytes + config.num_blocks * MODEL.block_bytes("f16")
    assert need_bytes < available_mib * MIB
    assert config.num_blocks * config.block_len >= config.max_context
    assert asked is None or config.max_context == asked
