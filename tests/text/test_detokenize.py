"""Streaming text: whole characters only, joined stream equal to the full decode, stop strings found and cut off."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.text.detokenize import Detokenizer, StopMatcher
from roofline.text.load import load_tokenizer
from roofline.text.tokenizer import Tokenizer
from roofline.weights.checkpoint import open_checkpoint
from text.tiny import byte_level, sentencepiece

BYTE_LEVEL = byte_level()
SENTENCEPIECE = sentencepiece()
NO_PREFIX = sentencepiece(add_space_prefix=False)


def stream(tokenizer: Tokenizer, ids: Sequence[int], **options: object) -> list[str]:
    """What `push` returned for each id, then what `finish` returned."""
    detokenizer = Detokenizer(tokenizer, **options)  # type: ignore[arg-type]
    return [detokenizer.push(token_id) for token_id in ids] + [detokenizer.finish()]


def matched(stops: Sequence[str], pieces: Sequence[str]) -> tuple[str, str | None]:
    matcher = StopMatcher(stops)
    text = "".join([matcher.feed(piece) for piece in pieces]) + matcher.release()
    return text, matcher.matched


def test_utf01_character_over_four_tokens_comes_whole() -> None:
    assert stream(BYTE_LEVEL, list(b"\xf0\x9f\xa6\x8a")) == ["", "", "", "🦊", ""]


@pytest.mark.parametrize("num_bytes", range(1, 25))
def test_utf02_cut_inside_a_character_gives_one_replacement_mark(num_bytes: int) -> None:
    data = "🦊🦊🦊🦊 继续: 🦊🦊".encode()[:num_bytes]
    text = "".join(stream(BYTE_LEVEL, list(data)))
    assert text == data.decode("utf-8", "replace")
    assert text.count("\ufffd") == (0 if text.encode() == data else 1)


@pytest.mark.parametrize(
    "data", [b"\x41\xc0\x80\x42", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x80", b"a\xe4\xbdb", b"\xf0\x9f"]
)
def test_utf03_illegal_bytes_become_replacement_marks(data: bytes) -> None:
    text = "".join(stream(BYTE_LEVEL, list(data)))
    assert text == data.decode("utf-8", "replace")
    assert [char for char in text if char != "\ufffd"] == [chr(byte) for byte in data if byte < 0x80]


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, SENTENCEPIECE])
def test_utf05_token_bytes_join_to_the_text(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("麒麟 hello", add_special=False)
    assert b"".join(map(tokenizer.token_bytes, ids)).removeprefix(b" ").decode() == "麒麟 hello"


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, SENTENCEPIECE, NO_PREFIX], ids=["bytes", "spm", "spm-no-prefix"])
@pytest.mark.parametrize(
    "text", ["Hello  world", " a  b", "\n\n  x", "don't  stop", "x\ty", "。 你 好", "", " ", "the hello ab"]
)
def test_utf06_stream_equals_decode_and_text(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text, add_special=False)
    assert "".join(stream(tokenizer, ids)) == tokenizer.decode(ids) == text


def test_utf06_continued_text_keeps_its_space() -> None:
    ids = SENTENCEPIECE.encode("hello", add_special=False)
    assert SENTENCEPIECE.decode(ids, continues=True) == " hello"
    assert "".join(stream(SENTENCEPIECE, ids, continues=True)) == " hello"


@given(st.lists(st.integers(0, 300), max_size=40))
def test_any_tokens_stream_as_they_decode(ids: list[int]) -> None:
    for tokenizer, skip_special in itertools.product([BYTE_LEVEL, SENTENCEPIECE, NO_PREFIX], [True, False]):
        pieces = stream(tokenizer, ids, skip_special=skip_special)
        assert "".join(pieces) == tokenizer.decode(ids, skip_special=skip_special)


@pytest.fixture(scope="module", params=["smollm2-135m", "gemma3-270m", "qwen2.5-coder-0.5b"])
def real_tokenizer(request: pytest.FixtureRequest, model_path: Callable[[str], Path]) -> Tokenizer:
    checkpoint = open_checkpoint(model_path(request.param))
    return load_tokenizer(checkpoint.format, checkpoint.metadata, checkpoint.path)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_random_tokens_of_real_vocabularies_stream_as_they_decode(
    real_tokenizer: Tokenizer, data: st.DataObject
) -> None:
    ids = data.draw(st.lists(st.integers(0, real_tokenizer.vocab_size - 1), max_size=30))
    assert "".join(stream(real_tokenizer, ids)) == real_tokenizer.decode(ids)


def test_stop01_stop_over_several_tokens_never_shows() -> None:
    matcher = StopMatcher(["bcdefg"])
    assert [matcher.feed(piece) for piece in ["ab", "cd", "ef", "gh"]] == ["a", "", "", ""]
    assert matcher.matched == "bcdefg"


def test_stop01_failed_match_is_released() -> None:
    matcher = StopMatcher(["bcdefg"])
    assert [matcher.feed(piece) for piece in ["ab", "cd", "eX"]] == ["a", "", "bcdeX"]


def test_stop01_stop_through_the_detokenizer() -> None:
    detokenizer = Detokenizer(BYTE_LEVEL, ["狐狸"])
    ids = BYTE_LEVEL.encode("一只狐狸跑", add_special=False)
    assert "".join(detokenizer.push(token_id) for token_id in ids) + detokenizer.finish() == "一只"
    assert detokenizer.stopped == "狐狸"


def test_stop02_stop_inside_a_token() -> None:
    assert matched(["CD"], ["A", "BCDEF", "G"]) == ("AB", "CD")


def test_stop02_earliest_in_the_text_wins() -> None:
    assert matched(["F", "CD"], ["A", "BCDEF", "G"]) == ("AB", "CD")


def test_stop04_only_possible_beginnings_are_held() -> None:
    matcher = StopMatcher(["a very long stop string that never occurs"])
    assert [matcher.feed(piece) for piece in ["One", ", two", ", a", " bird"]] == ["One", ", two", ", ", "a bird"]


@given(
    text=st.text("abc", max_size=30),
    stops=st.lists(st.text("abc", min_size=1, max_size=4), max_size=3),
    cuts=st.lists(st.integers(0, 30), max_size=8),
)
def test_result_depends_on_the_text_not_on_its_cutting(text: str, stops: list[str], cuts: list[int]) -> None:
    """Against the definition: the shortest beginning of the text that ends with a stop decides."""
    ends = [end for end in range(len(text) + 1) if any(text[:end].endswith(stop) for stop in stops)]
    longest = max((stop for stop in stops if ends and text[: ends[0]].endswith(stop)), key=len, default=None)
    expected = text if longest is None else text[: ends[0] - len(longest)]
    bounds = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    pieces = [text[start:end] for start, end in itertools.pairwise(bounds)]
    assert matched(stops, pieces) == (expected, longest)
