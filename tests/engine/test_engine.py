"""The engine over a fake back end: texts, ends, limits, seeds, batches, pressure, failures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from roofline.core.errors import NumericsError, RequestError
from roofline.core.request import Completion, FinishReason
from roofline.core.sampling import SamplingParams
from roofline.engine.engine import Engine
from support.fake_model import END_OF_TURN, EOS, VOCAB_SIZE, FakeBackend, fake_engine, hashed_logits, scripted

Submission = tuple[list[int], SamplingParams]


def finish(engine: Engine, ids: list[int], late: Sequence[Submission] = ()) -> list[Completion]:
    """Completions in the order of `ids`, then of `late`, which join one a step; the joined pieces must be the text."""
    ids, joining = list(ids), list(late)
    pieces: dict[int, str] = defaultdict(str)
    done: dict[int, Completion] = {}
    while engine.has_work or joining:
        if joining:
            ids.append(engine.submit(*joining.pop(0)))
        for output in engine.step():
            pieces[output.request_id] += output.text
            if output.completion is not None:
                done[output.request_id] = output.completion
        engine.scheduler.check()
    assert all(done[i].text == pieces[i] for i in ids)
    assert engine.scheduler.pool.num_free == engine.scheduler.pool.num_blocks
    return [done[i] for i in ids]


def one(engine: Engine, prompt: list[int], **params: Any) -> Completion:
    return finish(engine, [engine.submit(prompt, SamplingParams(**params))])[0]


def answer(text: bytes, *, then: int = EOS, **params: Any) -> Completion:
    """What comes out when the model wants to say `text`."""
    return one(fake_engine(logits=scripted(text, then=then)), [63], temperature=0, **params)


# --- ends ----------------------------------------------------------------------------------------------------------------------------


def test_an_end_token_ends_and_is_not_text() -> None:
    result = answer(b"hello")
    assert (result.text, result.finish_reason) == ("hello", FinishReason.STOP)
    assert result.token_ids == (*b"hello", EOS)


@pytest.mark.parametrize("end", [EOS, END_OF_TURN])
def test_smp11_every_end_token_of_the_model_ends(end: int) -> None:
    result = answer(b"", then=end)
    assert (result.text, result.token_ids, result.finish_reason) == ("", (end,), FinishReason.STOP)


def test_smp11_ignore_eos_runs_to_max_tokens() -> None:
    result = answer(b"a", ignore_eos=True, max_tokens=7)
    assert (len(result.token_ids), result.finish_reason) == (7, FinishReason.LENGTH)


@pytest.mark.parametrize("eos_id", [-1, VOCAB_SIZE, 2**31 - 1, 10**12])
def test_end_tokens_without_a_logit_change_nothing(eos_id: int) -> None:
    """Files name such ids; the ban that min_tokens asks for must not write beside the row."""
    ends = frozenset({EOS, END_OF_TURN})
    plain, odd = fake_engine(eos_ids=ends), fake_engine(eos_ids=ends | {eos_id})
    params = {"min_tokens": 4, "max_tokens": 9, "temperature": 0}
    assert one(odd, [65, 66], **params).token_ids == one(plain, [65, 66], **params).token_ids


def test_min_tokens_bans_the_end() -> None:
    result = answer(b"", min_tokens=3, max_tokens=9)
    assert result.token_ids[3:] == (EOS,)
    assert EOS not in result.token_ids[:3]


def test_stop_token_ids_end() -> None:
    result = answer(b"ab!cd", stop_token_ids=[ord("!")])
    assert (result.text, result.finish_reason) == ("ab", FinishReason.STOP)


def test_stop01_stop_string_over_several_tokens_is_cut() -> None:
    result = answer(b"abcdefgh", stop=["cdef"])
    assert (result.text, result.finish_reason) == ("ab", FinishReason.STOP)
    assert answer(b"abcd", stop=["de"]).text == "abcd"


def test_max_tokens_ends_with_length() -> None:
    result = answer(b"abcdefgh", max_tokens=3)
    assert (result.text, result.finish_reason) == ("abc", FinishReason.LENGTH)


@pytest.mark.parametrize("max_tokens", range(1, 9))
def test_utf02_limit_inside_a_character(max_tokens: int) -> None:
    fox = "🦊🦊".encode()
    result = answer(fox, max_tokens=max_tokens)
    assert result.text == fox[:max_tokens].decode("utf-8", "replace")
    assert result.finish_reason == FinishReason.LENGTH


@pytest.mark.parametrize("data", [b"A\xc0\x80B", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x80"])
def test_utf03_bytes_that_are_no_text(data: bytes) -> None:
    assert answer(data).text == data.decode("utf-8", "replace")


def test_utf05_logprobs_carry_the_bytes_of_their_tokens() -> None:
    text = "麒麟"
    result = answer(text.encode(), logprobs=2)
    assert result.logprobs is not None
    assert b"".join(entry.chosen.bytes for entry in result.logprobs[:-1]).decode() == text
    assert all(len(entry.top) == 2 and entry.top[0] == entry.chosen for entry in result.logprobs)


# --- limits --------------------------------------------------------------------------------------------------------------------------


def test_lim01_prompt_beyond_the_context_is_refused_with_both_numbers() -> None:
    engine = fake_engine(max_context=64)
    for length in (64, 128):
        with pytest.raises(RequestError, match=rf"{length} tokens.*64"):
            engine.submit([65] * length, SamplingParams())
    assert not engine.has_work


def test_lim01_the_answer_ends_where_the_context_does() -> None:
    result = one(fake_engine(max_context=64), [65] * 59, max_tokens=100, ignore_eos=True)
    assert (len(result.token_ids), result.finish_reason) == (5, FinishReason.LENGTH)
    unlimited = one(fake_engine(max_context=64), [65] * 59, max_tokens=None, ignore_eos=True)
    assert len(unlimited.token_ids) == 5


def test_lim02_empty_prompt_is_refused() -> None:
    with pytest.raises(RequestError, match="empty"):
        fake_engine().submit([], SamplingParams())


@pytest.mark.parametrize("bad", [[-1], [10**12], [1.5], ["a", 1], "abc", [True], [VOCAB_SIZE]])
def test_lim03_ids_out_of_vocabulary(bad: Any) -> None:
    engine = fake_engine()
    with pytest.raises(RequestError):
        engine.submit(bad, SamplingParams())
    assert not engine.has_work


def test_smp09_ids_of_parameters_are_checked_against_the_logits() -> None:
    with pytest.raises(RequestError, match="stop_token_ids"):
        fake_engine().submit([1], SamplingParams(stop_token_ids=[VOCAB_SIZE]))


# --- batches -------------------------------------------------------------------------------------------------------------------------


def requests_of_all_kinds() -> list[Submission]:
    return [
        ([65] * 1, SamplingParams(temperature=0, max_tokens=30)),
        ([66] * 90, SamplingParams(seed=7, max_tokens=40)),
        ([67] * 26, SamplingParams(temperature=0, logit_bias={120: 100}, max_tokens=3)),
        ([68] * 9, SamplingParams(temperature=1.5, top_p=0.8, seed=42, max_tokens=25, repetition_penalty=2.0)),
        ([69] * 64, SamplingParams(top_k=1, max_tokens=10)),
        ([70] * 5, SamplingParams(seed=1, max_tokens=20, frequency_penalty=1.0, logprobs=3)),
    ]


def test_bat02_smp01_every_result_equals_its_solo_run() -> None:
    """Requests of all kinds join at different steps, leave at different times, over chunks of several sizes."""
    alone = [finish(engine := fake_engine(), [engine.submit(*pair)])[0] for pair in requests_of_all_kinds()]
    for max_tokens_per_step in (3, 16, 64):
        together = finish(fake_engine(max_tokens_per_step=max_tokens_per_step), [], late=requests_of_all_kinds())
        for wanted, seen in zip(alone, together, strict=True):
            assert (seen.token_ids, seen.text, seen.logprobs) == (wanted.token_ids, wanted.text, wanted.logprobs)


def test_kv02_pressure_changes_no_text() -> None:
    params = SamplingParams(temperature=0, max_tokens=200, ignore_eos=True)
    prompts = [[65 + i] * 100 for i in range(16)]
    alone = [finish(engine := fake_engine(), [engine.submit(prompt, params)])[0].text for prompt in prompts]
    engine = fake_engine(num_blocks=12, max_sequences=16)
    together = finish(engine, [engine.submit(prompt, params) for prompt in prompts])
    assert engine.scheduler.num_preemptions > 0
    assert [result.text for result in together] == alone
    assert sum(result.timing.num_preemptions for result in together) == engine.scheduler.num_preemptions


def test_smp03_seeds() -> None:
    def text(seed: int | None) -> str:
        return one(fake_engine(), [65] * 5, temperature=1.5, max_tokens=40, seed=seed).text

    assert text(42) == text(42) != text(43)
    assert len({text(None) for _ in range(5)}) > 1


def test_smp03_a_random_seed_is_told_and_repeats() -> None:
    first = one(fake_engine(), [65], temperature=1.2, max_tokens=30)
    assert one(fake_engine(), [65], temperature=1.2, max_tokens=30, seed=first.seed).text == first.text


# --- failures ------------------------------------------------------------------------------------------------------------------------


def test_qnt04_bad_logits_end_one_request_and_no_other() -> None:
    def logits(tokens: list[int]) -> np.ndarray:
        row = hashed_logits(tokens)
        if tokens[0] == 66 and len(tokens) >= 4:
            row[5] = np.nan
        return row

    params = SamplingParams(temperature=0, max_tokens=10)
    engine = fake_engine(logits=logits)
    good, bad, also_good = finish(engine, [engine.submit([first], params) for first in (65, 66, 67)])
    assert bad.finish_reason == FinishReason.ERROR
    assert isinstance(bad.error, NumericsError)
    assert len(bad.token_ids) == 3
    assert engine.num_failed == 1
    assert good.finish_reason == also_good.finish_reason == FinishReason.LENGTH
    assert good.error is None


def test_bat01_a_failing_step_drops_its_requests_and_the_engine_goes_on() -> None:
    engine = fake_engine()
    backend = engine._backend
    assert isinstance(backend, FakeBackend)
    whole, backend.step = backend.step, _raise  # type: ignore[method-assign]
    engine.submit([65], SamplingParams())
    with pytest.raises(RuntimeError, match="broken"):
        engine.step()
    assert not engine.has_work
    backend.step = whole  # type: ignore[method-assign]
    assert one(engine, [65], max_tokens=4).finish_reason == FinishReason.LENGTH


def _raise(batch: object) -> np.ndarray:
    raise RuntimeError("broken")


def test_abort_returns_what_there_is_and_frees_the_blocks() -> None:
    engine = fake_engine(logits=scripted(b"abcdefgh"))
    request_id = engine.submit([63], SamplingParams(temperature=0))
    for _ in range(3):
        engine.step()
    result = engine.abort(request_id)
    assert result is not None
    assert (result.text, result.finish_reason) == ("abc", FinishReason.ABORT)
    assert not engine.has_work
    assert engine.scheduler.pool.num_free == engine.scheduler.pool.num_blocks
    assert engine.abort(request_id) is None


def test_timing_counts_tokens() -> None:
    timing = one(fake_engine(), [65] * 20, max_tokens=5).timing
    assert (timing.num_prompt_tokens, timing.num_cached_tokens, timing.num_generated_tokens) == (20, 0, 5)
    assert min(timing.queue_s, timing.prefill_s, timing.decode_s) >= 0
    assert timing.prefill_s > 0
