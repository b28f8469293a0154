"""From a model's name and what the user typed to a running engine: find, open, resolve, pack. LLM and the server start here."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from roofline.backends.cpu.declare import CpuSettings
from roofline.backends.cpu.executor import CpuBackend
from roofline.backends.cpu.memory import model_facts
from roofline.core.batch import StepBatch
from roofline.core.config import Decision, EngineConfig, UserConfig, with_environment
from roofline.core.errors import ConfigError
from roofline.core.hardware import Hardware, probe
from roofline.core.memory import ModelFacts
from roofline.core.resolve import resolve
from roofline.engine.engine import Engine
from roofline.engine.stages import StageTimes
from roofline.models import LoadedModel, ModelConfig, load_model
from roofline.text.load import load_tokenizer
from roofline.text.tokenizer import Tokenizer
from roofline.weights.hub import Progress, find_model, no_progress

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadedEngine:
    """A model that is ready to answer, and everything a report wants to know about how it was set up."""

    path: Path
    engine: Engine
    backend: CpuBackend
    tokenizer: Tokenizer
    model_config: ModelConfig
    config: EngineConfig
    decisions: tuple[Decision, ...]
    hardware: Hardware
    weight_bytes: Mapping[str, int]  # of every weight of the program, as stored
    has_quantized_weights: bool
    load_s: Mapping[str, float]  # seconds of each stage of loading


def user_config(settings: Mapping[str, Any]) -> UserConfig:
    """UserConfig of keyword settings. Raises ConfigError for a name that there is no setting of."""
    known = [field.name for field in fields(UserConfig)]
    for name in settings:
        if name not in known:
            raise ConfigError(f"there is no setting {name!r}", hint=f"settings: {', '.join(known)}")
    return UserConfig(**settings)


def load_engine(model: str | Path, user: UserConfig, *, progress: Progress = no_progress) -> LoadedEngine:
    """Find and load `model`. Raises a RooflineError of the kind that fits: not found, format, unsupported, config, memory."""
    path = find_model(model, progress=progress)
    times = StageTimes()
    progress(f"opening {path.name}", 0, 0)
    with times.stage("open"):
        loaded = load_model(path)
    hardware = probe()
    config, decisions = resolve(with_environment(user, os.environ), hardware, _facts(path, loaded))
    loaded = loaded.for_context(config.max_context)  # some rotary scalings depend on it
    checkpoint = loaded.checkpoint
    with times.stage("tokenizer"):
        tokenizer = load_tokenizer(
            checkpoint.format, checkpoint.metadata, checkpoint.path, pre_tokenizer=user.pre_tokenizer
        )
    with times.stage("read and pack"):
        backend = _make_backend(loaded, config, progress)
    with times.stage("warm-up"):
        _warm_up(backend)
    _log.info("%s: loaded in %s", path.name, times.line())
    engine = Engine(
        backend,
        tokenizer,
        config,
        eos_ids=frozenset(loaded.model.config.eos_ids) | tokenizer.eos_ids,
        thread_pool=backend.thread_pool,
    )
    return LoadedEngine(
        path=path,
        engine=engine,
        backend=backend,
        tokenizer=tokenizer,
        model_config=loaded.model.config,
        config=config,
        decisions=decisions,
        hardware=hardware,
        weight_bytes={name: weight.rows.nbytes for name, weight in loaded.weights.items()},
        has_quantized_weights=any(weight.scheme.is_quantized for weight in loaded.weights.values()),
        load_s=times.seconds,
    )


def _warm_up(backend: CpuBackend) -> None:
    """One step of one token, so that the first request doesn't pay for the first touch of weights and scratch.

    It leaves an entry in KV block 0, which no request reads before it has written its own.
    """
    one, zero = np.ones(1, np.int32), np.zeros(1, np.int32)
    starts = np.array([0, 1], np.int32)
    backend.step(StepBatch(zero, zero, starts, one, zero.reshape(1, 1), zero))


def _facts(path: Path, loaded: LoadedModel) -> ModelFacts:
    """What memory the model takes, known from its header: nothing is read yet."""
    schemes = {name: weight.scheme for name, weight in loaded.weights.items()}
    return model_facts(path.name, loaded.model.program, schemes, loaded.model.config.max_context_len)


def _make_backend(loaded: LoadedModel, config: EngineConfig, progress: Progress) -> CpuBackend:
    settings = CpuSettings(
        threads=config.num_threads,
        isa=config.isa,
        kv_type=config.kv_dtype,
        max_tokens_per_step=config.max_tokens_per_step,
        max_context=config.max_context,
        cpus=config.cpus,
    )
    return CpuBackend(
        loaded.model.program,
        loaded.weights,
        num_blocks=config.num_blocks,
        settings=settings,
        progress=lambda done_bytes, total_bytes: progress("packing weights", done_bytes, total_bytes),
    )
