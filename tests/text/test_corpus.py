"""Token for token what llama.cpp makes of the corpus, for each of the four model files (golden digests)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from roofline.text.load import load_tokenizer
from roofline.text.tokenizer import Tokenizer
from roofline.weights.checkpoint import open_checkpoint
from text.corpus import corpus_lines, digest_of_ids, digest_of_lines, rendered_lines

MODELS = ["smollm2-135m", "gemma3-270m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"]
# llama.cpp makes every "</s>" a control token. In Gemma's file it is an HTML tag (user-defined), in Qwen's ordinary text,
# and transformers follows the files; so do we. These are the only lines that differ.
STRIKE = "</s>"


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, model_path: Callable[[str], Path]) -> tuple[Tokenizer, dict[str, Any]]:
    checkpoint = open_checkpoint(model_path(request.param))
    golden = json.loads((Path(__file__).parent / "golden" / f"{request.param}.json").read_text())
    return load_tokenizer(checkpoint.format, checkpoint.metadata, checkpoint.path), golden


def lines_with_strike(lines: list[str]) -> list[str]:
    return [line for line in lines if STRIKE in line]


def test_golden_files_belong_to_this_corpus() -> None:
    lines = corpus_lines()
    assert len(lines) >= 2000
    for name in MODELS:
        golden = json.loads((Path(__file__).parent / "golden" / f"{name}.json").read_text())
        assert golden["corpus"] == digest_of_lines(lines + rendered_lines()), name


def test_tok01_text_equals_llama_cpp(model: tuple[Tokenizer, dict[str, Any]]) -> None:
    tokenizer, golden = model
    pairs = zip(corpus_lines(), golden["text"], strict=True)
    different = [line for line, digest in pairs if digest_of_ids(tokenizer.encode(line, add_special=False)) != digest]
    assert different == (lines_with_strike(corpus_lines()) if golden["file"].startswith("gemma") else [])


def test_rendered_templates_equal_llama_cpp(model: tuple[Tokenizer, dict[str, Any]]) -> None:
    tokenizer, golden = model
    pairs = zip(rendered_lines(), golden["rendered"], strict=True)
    different = [line for line, digest in pairs if digest_of_ids(tokenizer.encode_rendered(line)) != digest]
    assert different == (lines_with_strike(rendered_lines()) if golden["file"].startswith("Qwen") else [])


def test_user_defined_strike_tag_is_one_token_in_gemma(model_path: Callable[[str], Path]) -> None:
    checkpoint = open_checkpoint(model_path("gemma3-270m"))
    tokenizer = load_tokenizer(checkpoint.format, checkpoint.metadata, checkpoint.path)
    strike_id = checkpoint.metadata["tokenizer.ggml.tokens"].index(STRIKE)
    ids = tokenizer.encode(f"old{STRIKE} new", add_special=False)
    assert ids.count(strike_id) == 1
    assert strike_id not in tokenizer.eos_ids


@pytest.mark.parametrize("unit", ["a", " ", "\n", "中文", "word "])
def test_tok04_long_runs_take_linear_time(model: tuple[Tokenizer, dict[str, Any]], unit: str) -> None:
    """100 kB in under a second of CPU time; a quadratic merge loop would need minutes."""
    tokenizer, _ = model
    text = unit * (100_000 // len(unit.encode()))
    start_s = time.thread_time()
    ids = tokenizer.encode(text, add_special=False)
    assert time.thread_time() - start_s < 1
    assert tokenizer.decode(ids) == text


def test_tok04_round_trip_of_the_corpus(model: tuple[Tokenizer, dict[str, Any]]) -> None:
    """Byte for byte, but for what a vocabulary can't hold: SmolLM2 lacks 21 bytes, Gemma's U+2581 means a space."""
    tokenizer, _ = model
    known = {bytes_ for token_id in range(tokenizer.vocab_size) if len(bytes_ := tokenizer.token_bytes(token_id)) == 1}
    for line in corpus_lines():
        expected = bytes(byte for byte in line.encode() if bytes([byte]) in known).decode("utf-8", "replace")
        if tokenizer.encode("▁", add_special=False) == tokenizer.encode(" ", add_special=False):
            expected = expected.replace("▁", " ")
        assert tokenizer.decode(tokenizer.encode(line, add_special=False)) == expected
