"""The library's front door on the real SmolLM2: batches, order, streams, chat, errors, cheap import."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import roofline
from roofline import LLM, FinishReason, SamplingParams
from roofline.core.errors import ConfigError, ModelNotFoundError, RequestError, TemplateError

GREEDY = SamplingParams(temperature=0, max_tokens=12)


@pytest.fixture(scope="module")
def llm(model_path: Any) -> Iterator[LLM]:
    with LLM(model_path("smollm2-135m"), threads=2, max_context=256) as made:
        yield made


def test_import_is_cheap_and_lazy() -> None:
    """Under 100 ms means that nothing heavy may come along."""
    code = (
        "import sys, time; start = time.perf_counter(); import roofline; seconds = time.perf_counter() - start;"
        "heavy = {'numpy', 'tokenizers', 'jinja2', 'typer', 'rich', 'roofline._native'} & set(sys.modules);"
        "sys.exit(f'{heavy} {seconds}' if heavy or seconds > 0.1 else 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_exports_exist() -> None:
    for name in roofline.__all__:
        assert getattr(roofline, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = roofline.Nothing


def test_the_model_knows_how_to_count(llm: LLM) -> None:
    assert llm.generate("1, 2, 3, 4, 5, 6,", GREEDY)[0].text.startswith(" 7, 8, 9")


def test_lim04_many_prompts_keep_their_order_and_equal_solo_runs(llm: LLM) -> None:
    prompts = ["A", "B " * 60, "The sun rises in the", "1, 2, 3, 4, 5, 6,"]
    together = llm.generate(prompts, GREEDY)
    alone = [llm.generate(prompt, GREEDY)[0] for prompt in prompts]
    assert [result.token_ids for result in together] == [result.token_ids for result in alone]
    assert [result.timing.num_prompt_tokens for result in together] == [len(llm.encode(prompt)) for prompt in prompts]


def test_params_may_be_one_each(llm: LLM) -> None:
    short, long = llm.generate(
        ["Once", "Once"], [SamplingParams(max_tokens=2), SamplingParams(max_tokens=5, ignore_eos=True)]
    )
    assert len(short.token_ids) <= 2
    assert len(long.token_ids) == 5
    with pytest.raises(RequestError, match="1 sampling parameters for 2 prompts"):
        llm.generate(["a", "b"], [GREEDY])
    for wrong in ({"max_tokens": 3}, 5, "g"):
        with pytest.raises(RequestError, match="must be SamplingParams"):
            llm.generate("a", wrong)  # type: ignore[arg-type]


def test_lim03_ids_equal_the_text_prompt(llm: LLM) -> None:
    text = "The sun rises in the"
    ids = llm.encode(text)
    assert llm.generate(ids, GREEDY)[0].text == llm.generate(text, GREEDY)[0].text
    assert [r.text for r in llm.generate([ids, ids[:2]], GREEDY)] == [
        llm.generate(part, GREEDY)[0].text for part in (ids, ids[:2])
    ]


def test_an_invalid_prompt_is_named_and_nothing_runs(llm: LLM) -> None:
    with pytest.raises(RequestError, match=r"^prompt 1: .*300 tokens"):
        llm.generate(["fine", [5] * 300, "fine"], GREEDY)
    assert not llm.loaded.engine.has_work


@pytest.mark.parametrize("bad", ["", [[]], [-1], [10**12], [1.5], ["a", 1], None, b"x", 7])
def test_lim02_lim03_bad_prompts(llm: LLM, bad: Any) -> None:
    with pytest.raises(RequestError):
        llm.generate(bad, GREEDY)


def test_no_prompts_give_no_answers(llm: LLM) -> None:
    assert llm.generate([], GREEDY) == []


def test_utf01_a_stream_joins_to_the_whole_answer(llm: LLM) -> None:
    prompt = "Repeat: 龘靐齉 🦊 👨‍👩‍👧‍👦 Příšerně žluťoučký. Repeat: 龘靐齉 🦊"
    params = SamplingParams(temperature=0, max_tokens=30)
    with llm.stream(prompt, params) as stream:
        pieces = list(stream)
    assert stream.completion is not None
    assert "".join(pieces) == stream.completion.text == llm.generate(prompt, params)[0].text
    assert all(pieces)


def test_two_streams_advance_together(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    first, second = llm.stream("Once upon a time", params), llm.stream("The sun rises", params)
    mixed = [next(first), next(second), next(first), next(second)]
    rest = ["".join(first), "".join(second)]
    wanted = [result.text for result in llm.generate(["Once upon a time", "The sun rises"], params)]
    assert [mixed[0] + mixed[2] + rest[0], mixed[1] + mixed[3] + rest[1]] == wanted


def test_a_closed_stream_frees_its_request(llm: LLM) -> None:
    with llm.stream("Once upon a time", SamplingParams(max_tokens=100, ignore_eos=True)) as stream:
        next(stream)
    assert stream.completion is not None
    assert stream.completion.finish_reason == FinishReason.ABORT
    assert not llm.loaded.engine.has_work
    assert list(stream) == []


def test_threads_share_batches(llm: LLM) -> None:
    prompts = ["One", "The sun rises in the", "1, 2, 3,"]
    wanted = [result.text for result in llm.generate(prompts, GREEDY)]
    seen: dict[int, str] = {}

    def ask(number: int) -> None:
        seen[number] = llm.generate(prompts[number], GREEDY)[0].text

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [seen[number] for number in range(3)] == wanted


def test_chat_uses_the_models_template(llm: LLM) -> None:
    messages = [{"role": "user", "content": "Say hello."}]
    assert "<|im_start|>user\nSay hello.<|im_end|>" in llm.loaded.tokenizer.decode(
        llm.render_chat(messages), skip_special=False
    )
    answer = llm.chat(messages, SamplingParams(temperature=0, max_tokens=40))
    assert answer.text
    with llm.stream_chat(messages, SamplingParams(temperature=0, max_tokens=40)) as stream:
        assert "".join(stream) == answer.text
    with pytest.raises(RequestError, match="role"):
        llm.chat([{"content": "x"}])
    with pytest.raises(TemplateError):
        llm.chat(messages, chat_template="{{ messages[0 }}")


def test_smp08_logprobs_do_not_depend_on_temperature(llm: LLM) -> None:
    seen = []
    for temperature, top_p in ((0.0, 1.0), (1.0, 1.0), (0.3, 0.5)):
        params = SamplingParams(max_tokens=1, logprobs=5, temperature=temperature, top_p=top_p, seed=1)
        result = llm.generate("The sun rises in the", params)[0]
        assert result.logprobs is not None
        assert all(entry.logprob <= 0 for entry in (result.logprobs[0].chosen, *result.logprobs[0].top))
        seen.append(result.logprobs[0].top)
    assert seen[0] == seen[1] == seen[2]
    assert len(seen[0]) == 5


def test_settings_that_do_not_exist_are_named(model_path: Any) -> None:
    with pytest.raises(ConfigError, match="'thread'"):
        LLM(model_path("smollm2-135m"), thread=2)
    with pytest.raises(ModelNotFoundError, match="nowhere"):
        LLM("nowhere")


def test_a_closed_llm_says_so(model_path: Any) -> None:
    made = LLM(model_path("smollm2-135m"), threads=1, max_context=64)
    made.close()
    with pytest.raises(RequestError, match="closed"):
        made.generate("x")


def test_bat02_sampling_over_the_step_threads_changes_nothing(llm: LLM) -> None:
    """Rows of a batch are sampled by several threads; alone, by one."""
    assert llm.loaded.backend.thread_pool.num_threads == 2
    prompts = ["One", "The sun rises in the", "1, 2, 3,", "Rain", "Once upon a time"]
    params = [
        SamplingParams(seed=seed, temperature=1.2, top_p=0.9, max_tokens=8, ignore_eos=True, logprobs=2)
        for seed in range(5)
    ]
    together = llm.generate(prompts, params)
    alone = [llm.generate(prompt, one)[0] for prompt, one in zip(prompts, params, strict=True)]
    assert [(r.token_ids, r.logprobs) for r in together] == [(r.token_ids, r.logprobs) for r in alone]


def test_kv03_a_small_pool_preempts_and_changes_nothing(model_path: Any, llm: LLM) -> None:
    prompts = [f"Tell me about number {number}." for number in range(4)]
    params = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)
    with LLM(model_path("smollm2-135m"), threads=2, max_context=128, num_blocks=6) as small:
        squeezed = small.generate(prompts, params)
        assert small.loaded.engine.scheduler.num_preemptions > 0
    assert [result.token_ids for result in squeezed] == [result.token_ids for result in llm.generate(prompts, params)]


def test_prompt_logits_are_those_that_generation_saw(model_path: Any, llm: LLM) -> None:
    """Over chunks of 7 tokens, and equal to the log-probabilities of a request, bit for bit in the argmax."""
    text = "The sun rises in the east and sets in the"
    with LLM(model_path("smollm2-135m"), threads=1, max_context=256, max_tokens_per_step=7) as chunked:
        logits = chunked.prompt_logits(text)
        assert chunked.loaded.engine.scheduler.pool.num_free == chunked.config.num_blocks
    assert logits.shape == (len(llm.encode(text)), llm.loaded.engine.vocab_size)
    assert np.array_equal(logits, llm.prompt_logits(text))
    result = llm.generate(text, SamplingParams(temperature=0, max_tokens=1, logprobs=0))[0]
    last = logits[-1].astype(np.float64)
    assert result.token_ids == (int(last.argmax()),)
    assert result.logprobs is not None
    exact = -np.log(np.exp(last - last.max()).sum())
    assert result.logprobs[0].chosen.logprob == pytest.approx(exact, abs=2e-5)
