"""Reported faults of streamed text and stop strings, tried through LLM.generate and LLM.stream on a tiny model."""

from __future__ import annotations

import pytest

from roofline import LLM, Completion, FinishReason, SamplingParams

PROMPT = "Count from 1 to 10"


def streamed(llm: LLM, prompt: str, params: SamplingParams) -> tuple[list[str], Completion]:
    with llm.stream(prompt, params) as stream:
        pieces = list(stream)
    assert stream.completion is not None
    return pieces, stream.completion


def greedy(max_tokens: int, **changes: object) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("max_tokens", range(1, 25))
def test_utf02_any_limit_gives_valid_text_both_ways(tiny: LLM, max_tokens: int) -> None:
    """The tiny model writes single bytes of any value, so most limits fall inside a broken or unfinished character."""
    prompt = "🦊🦊🦊🦊 继续: 🦊🦊"
    whole = tiny.generate(prompt, greedy(max_tokens))[0]
    pieces, completion = streamed(tiny, prompt, greedy(max_tokens))
    assert "".join(pieces) == completion.text == whole.text
    assert whole.finish_reason == FinishReason.LENGTH
    assert len(whole.token_ids) == max_tokens
    assert whole.text.encode().decode() == whole.text == tiny.loaded.tokenizer.decode(whole.token_ids, continues=True)


def test_utf03_a_lone_continuation_byte_is_one_mark_each(tiny: LLM) -> None:
    """Token 0x80 is byte 0x80, forced by a bias that only a prompt's logits far apart could outvote."""
    params = SamplingParams(temperature=0, max_tokens=4, logit_bias={0x80: 100})
    pieces, completion = streamed(tiny, "x", params)
    assert completion.token_ids == (0x80,) * 4
    assert "".join(pieces) == completion.text == "\ufffd" * 4


def test_utf05_bytes_of_logprobs_join_to_the_text(tiny: LLM) -> None:
    whole = tiny.generate("只回答两个字: 麒麟", greedy(30, logprobs=2, skip_special_tokens=False))[0]
    assert whole.logprobs is not None
    joined = b"".join(position.chosen.bytes for position in whole.logprobs)
    assert joined.decode("utf-8", "replace") == whole.text
    assert all(len(position.top) == 2 for position in whole.logprobs)


def token_starts(llm: LLM, completion: Completion) -> list[int]:
    """Where in the text each token's text begins."""
    decode = llm.loaded.tokenizer.decode
    return [len(decode(completion.token_ids[:count], continues=True)) for count in range(len(completion.token_ids))]


@pytest.fixture(scope="module")
def words(tiny: LLM) -> Completion:
    """A long answer of letters: every token but the lower-case letters is biased away."""
    return tiny.generate(PROMPT, greedy(30, logit_bias=LETTERS))[0]


LETTERS = dict.fromkeys(range(ord("a"), ord("z") + 1), 40.0)


def test_stop01_a_stop_over_several_tokens_never_shows(tiny: LLM, words: Completion) -> None:
    starts = token_starts(tiny, words)
    stop = words.text[starts[3] : starts[6] + 1]
    expected = words.text[: words.text.index(stop)]
    params = greedy(30, logit_bias=LETTERS, stop=stop)
    pieces, completion = streamed(tiny, PROMPT, params)
    assert "".join(pieces) == completion.text == tiny.generate(PROMPT, params)[0].text == expected
    assert completion.finish_reason == FinishReason.STOP
    assert len(completion.token_ids) < len(words.token_ids)


def test_stop02_the_earliest_stop_in_the_text_wins(tiny: LLM, words: Completion) -> None:
    late, early = words.text[9:11], words.text[4:6]
    expected = words.text[: min(words.text.index(late), words.text.index(early))]
    pieces, completion = streamed(tiny, PROMPT, greedy(30, logit_bias=LETTERS, stop=[late, early]))
    assert "".join(pieces) == completion.text == expected
    assert completion.finish_reason == FinishReason.STOP


def test_stop04_text_is_held_only_while_it_may_be_a_stop(tiny: LLM, words: Completion) -> None:
    params = greedy(30, logit_bias=LETTERS, stop=["A very long stop string that never occurs in lower-case text"])
    pieces, completion = streamed(tiny, PROMPT, params)
    assert completion.text == words.text
    assert all(pieces)
    assert len(pieces) == len(words.token_ids)  # nothing was held back: a piece for every token


@pytest.mark.parametrize("stop", [None, [], ()])
def test_stop05_no_stop_changes_nothing(tiny: LLM, words: Completion, stop: object) -> None:
    assert tiny.generate(PROMPT, greedy(30, logit_bias=LETTERS, stop=stop))[0].text == words.text


def test_stop05_a_string_is_a_list_of_one(tiny: LLM, words: Completion) -> None:
    stop = words.text[5:7]
    one, many = (tiny.generate(PROMPT, greedy(30, logit_bias=LETTERS, stop=form))[0] for form in (stop, [stop]))
    assert one.text == many.text == words.text[: words.text.index(stop)]
