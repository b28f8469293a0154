"""Reported faults of sampling, limits and batches, through the front door and the CPU back end."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roofline import LLM, Completion, FinishReason, SamplingParams
from roofline.core.errors import NumericsError, RequestError
from support.tiny_file import write_tiny_llama
from text.tiny import byte_level_metadata

GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, logprobs=2)


def essence(results: list[Completion]) -> list[Any]:
    return [(result.token_ids, result.text, result.finish_reason, result.logprobs) for result in results]


def fillers(count: int) -> list[str]:
    return ["word " * (1 + 13 * number % 40) for number in range(count)]


# --- sampling -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [7, 512])
def test_smp01_the_batch_changes_nothing(tiny: LLM, tiny_path: Path, chunk: int) -> None:
    target = "Once upon a time " * 3
    alone = essence(tiny.generate(target, GREEDY))
    with LLM(tiny_path, threads=2, kv_dtype="f32", max_tokens_per_step=chunk) as llm:
        for count in (0, 1, 3, 7, 15):
            place = count // 2
            prompts = fillers(count)
            prompts.insert(place, target)
            assert essence(llm.generate(prompts, GREEDY))[place] == alone[0]


def test_smp03_a_seed_outlives_traffic_and_restarts(tiny: LLM, tiny_path: Path) -> None:
    def text(llm: LLM, seed: int | None) -> str:
        params = SamplingParams(temperature=1.5, max_tokens=40, seed=seed, ignore_eos=True)
        return llm.generate("Tell me", params)[0].text

    first = text(tiny, 42)
    assert text(tiny, 42) == first != text(tiny, 43)
    assert len({text(tiny, None) for _ in range(5)}) > 1
    busy = [SamplingParams(temperature=1.5, max_tokens=40, seed=seed, ignore_eos=True) for seed in (None, 42, None, 7)]
    assert tiny.generate(["Tell me"] * 4, busy)[1].text == first
    with LLM(tiny_path, threads=1, kv_dtype="f32") as restarted:
        assert text(restarted, 42) == first


def test_smp05_top_k_off_one_and_huge(tiny: LLM) -> None:
    def texts(top_k: int) -> set[str]:
        params = SamplingParams(temperature=1.5, top_k=top_k, max_tokens=8, ignore_eos=True)
        return {result.text for result in tiny.generate(["Tell me"] * 8, params)}

    assert all(len(texts(top_k)) > 1 for top_k in (0, -1, 10**9))
    assert len(texts(1)) == 1
    with pytest.raises(RequestError, match="top_k"):
        texts(-5)


def test_smp10_extremes_leave_neighbours_alone(tiny: LLM) -> None:
    greedy = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    tiny_temperatures = [SamplingParams(temperature=t, max_tokens=12, ignore_eos=True) for t in (1e-4, 1e-8, 5e-324)]
    hot = SamplingParams(temperature=1e6, max_tokens=12, ignore_eos=True, min_p=1.0)
    results = tiny.generate(["Tell me"] * 5, [greedy, *tiny_temperatures, hot])
    assert len({result.text for result in results[:4]}) == 1
    assert len(results[4].token_ids) == 12


def test_smp11_every_end_token_of_the_file_ends(tmp_path: Path) -> None:
    """EOS and EOT by their keys, and the end of a turn by its name alone."""
    tokens = byte_level_metadata()["tokenizer.ggml.tokens"]
    ends = {"eos": tokens.index("<|im_start|>"), "eot": tokens.index("<tool>"), "turn": tokens.index("<|im_end|>")}
    metadata = byte_level_metadata(eos_token_id=ends["eos"], eot_token_id=ends["eot"])
    with LLM(write_tiny_llama(tmp_path / "a.gguf", metadata=metadata), threads=1) as llm:
        for end in ends.values():
            params = SamplingParams(temperature=0, max_tokens=5, logit_bias={end: 100})
            result = llm.generate("x", params)[0]
            assert (result.token_ids, result.text, result.finish_reason) == ((end,), "", FinishReason.STOP)
            on = SamplingParams(temperature=0, max_tokens=5, logit_bias={end: 100}, ignore_eos=True)
            assert llm.generate("x", on)[0].finish_reason == FinishReason.LENGTH


# --- limits ---------------------------------------------------------------------------------------------------------------------------


def test_lim01_prompts_at_the_edge_of_the_context(tiny: LLM) -> None:
    limit = tiny.config.max_context
    params = SamplingParams(temperature=0, max_tokens=100, ignore_eos=True)
    for prompt in ("word " * (2 * limit), [65] * limit):
        with pytest.raises(RequestError, match=str(limit)):
            tiny.generate(prompt, params)
    result = tiny.generate([65] * (limit - 5), params)[0]
    assert (len(result.token_ids), result.finish_reason) == (5, FinishReason.LENGTH)


def test_lim05_length_of_one_and_size_of_the_pool_are_two_settings(tiny_path: Path) -> None:
    with LLM(tiny_path, threads=1, max_context=256, max_sequences=4, num_blocks=8) as llm:
        assert llm.config.max_context == 256
        assert len(llm.generate([[65] * 200], GREEDY)[0].token_ids) == 24
        assert [len(result.token_ids) for result in llm.generate([[66] * 50] * 4, GREEDY)] == [24] * 4


@pytest.mark.parametrize(
    "bad",
    [{"logprobs": 10**9}, {"logprobs": -1}, {"stop": ["x"] * 10_000}, {"stop": "x" * 10**6}, {"max_tokens": 0}],
    ids=str,
)
def test_lim07_absurd_sizes_are_refused_at_once(bad: dict[str, Any]) -> None:
    started_s = time.process_time()
    with pytest.raises(RequestError, match=next(iter(bad))):
        SamplingParams(**bad)
    assert time.process_time() - started_s < 0.5


def test_lim07_a_prompt_of_millions_of_ids_is_refused_at_once(tiny: LLM) -> None:
    started_s = time.process_time()
    with pytest.raises(RequestError, match="3000000 tokens"):
        tiny.generate([65] * 3_000_000, GREEDY)
    assert time.process_time() - started_s < 2


# --- batches and the KV cache ---------------------------------------------------------------------------------------------------------


def test_bat01_bat02_settings_belong_to_the_request(tiny: LLM) -> None:
    """Lengths from 1 to 300, every kind of setting, leaving at different times, two joining late: all as alone."""
    kinds: list[dict[str, Any]] = [
        {"temperature": 0},
        {"seed": 7},
        {"temperature": 0, "logit_bias": {88: 100}},
        {"seed": 9, "repetition_penalty": 2.0},
        {"top_k": 1, "frequency_penalty": 1.5},
        {"seed": 1, "top_p": 0.5, "presence_penalty": 1.0, "min_tokens": 5},
    ]
    limits = (3, 50, 10, 40, 20, 30)
    params = [
        SamplingParams(max_tokens=n, ignore_eos=True, logprobs=1, **kind) for n, kind in zip(limits, kinds, strict=True)
    ]
    prompts = [[65 + number] * length for number, length in enumerate((1, 9, 26, 300, 33, 64))]
    alone = [essence(tiny.generate([prompt], one))[0] for prompt, one in zip(prompts, params, strict=True)]
    assert essence(tiny.generate(prompts, params)) == alone
    streams = [tiny.stream(prompt, one) for prompt, one in zip(prompts[:4], params, strict=False)]
    next(streams[1], None)
    streams += [tiny.stream(prompt, one) for prompt, one in zip(prompts[4:], params[4:], strict=True)]
    for stream in reversed(streams):
        list(stream)
    assert essence([stream.completion for stream in streams if stream.completion is not None]) == alone


def test_bat01_after_a_failing_step_the_next_request_works(tiny_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LLM(tiny_path, threads=1) as llm:
        wanted = essence(llm.generate("x", GREEDY))
        stream = llm.stream("y", GREEDY)
        with monkeypatch.context() as patch:
            patch.setattr(llm.loaded.backend, "step", _broken)
            with pytest.raises(RuntimeError, match="broken"):
                llm.generate(["x", "z"], GREEDY)
        assert not llm.loaded.engine.has_work
        other = llm.stream("z", GREEDY)
        with pytest.raises(RequestError, match="dropped when a step failed"):
            list(stream)
        assert llm.loaded.engine.has_work  # the dropped one knew at once, without running the other to its end
        assert "".join(other) == llm.generate("z", GREEDY)[0].text
        assert essence(llm.generate("x", GREEDY)) == wanted


def _broken(batch: object) -> np.ndarray:
    raise RuntimeError("broken")


def test_kv02_a_pool_of_little_more_than_one_request(tiny: LLM, tiny_path: Path) -> None:
    params = SamplingParams(temperature=0, max_tokens=100, ignore_eos=True)
    prompts = [[65 + number] * 100 for number in range(16)]
    with LLM(tiny_path, threads=2, kv_dtype="f32", max_context=224, num_blocks=9, max_sequences=16) as small:
        squeezed = essence(small.generate(prompts, params))
        assert small.loaded.engine.scheduler.num_preemptions > 0
    assert squeezed == essence(tiny.generate(prompts, params))


def test_kv04_after_a_storm_everything_is_free(tiny_path: Path) -> None:
    rng = random.Random(0)
    with LLM(tiny_path, threads=1, max_context=128, num_blocks=6, max_sequences=4) as llm:
        scheduler = llm.loaded.engine.scheduler
        streams = []
        for _ in range(100):
            length = rng.choice((1, 5, 40, 90, 400))
            try:
                streams.append(llm.stream([65] * length, SamplingParams(max_tokens=rng.randint(1, 30))))
            except RequestError:
                assert length == 400
            if streams and rng.random() < 0.7:
                stream = streams.pop(rng.randrange(len(streams)))
                next(stream, None)
                stream.close()
            scheduler.check()
        for stream in streams:
            list(stream)
        assert (len(scheduler.running), len(scheduler.waiting)) == (0, 0)
        assert scheduler.pool.num_free == scheduler.pool.num_blocks
        assert len(llm.generate("plain", GREEDY)[0].token_ids) == 24


# --- weights --------------------------------------------------------------------------------------------------------------------------


def test_qnt04_a_nan_weight_ends_the_requests_that_touch_it(tmp_path: Path) -> None:
    def poison(tensors: dict[str, np.ndarray]) -> None:
        tensors["output.weight"] = tensors["token_embd.weight"].copy()
        tensors["token_embd.weight"][ord("!")] = np.nan

    with LLM(write_tiny_llama(tmp_path / "nan.gguf", change=poison), threads=2, kv_dtype="f32") as llm:
        params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True, logit_bias={ord("!"): -100})
        alone = essence(llm.generate(["fine", "also fine"], params))
        good, bad, also_good = llm.generate(["fine", "bad!", "also fine"], params)
        assert essence([good, also_good]) == alone
        assert (bad.finish_reason, bad.token_ids) == (FinishReason.ERROR, ())
        assert isinstance(bad.error, NumericsError)
        assert llm.loaded.engine.num_failed == 1
