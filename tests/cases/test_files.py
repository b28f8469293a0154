"""Reported faults of model files, tokenizers, templates and kernel tiers, through LLM and the commands."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType as QuantType
from typer.testing import CliRunner

from roofline import LLM, SamplingParams, _native
from roofline.cli.main import app
from roofline.core.batch import StepBatch
from roofline.core.errors import ConfigError, ModelFormatError, RooflineError, TemplateError, UnsupportedModelError
from support.gguf_bytes import TensorInfo, gguf_bytes
from support.tiny_file import write_tiny_llama
from text.tiny import CHATML, byte_level_metadata, sentencepiece_metadata

TIERS = [isa for isa in ("ref", "avx2", "avx512", "amx") if not _native.isa_gaps(isa)]
GREEDY = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True, logprobs=1)
HELLO = [{"role": "user", "content": "hi"}]


def run_command(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["run", *arguments, "--threads", "1", "-n", "3"])


# --- damaged files --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.9, 0.5, 0.1, 0.01, 0.0])
def test_gguf03_a_cut_file_is_an_error_of_the_command(tiny_path: Path, tmp_path: Path, share: float) -> None:
    whole = tiny_path.read_bytes()
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(whole[: int(len(whole) * share)])
    result = run_command(str(cut), "x")
    assert result.exit_code == 2
    assert "cut.gguf" in result.stderr
    assert "Traceback" not in result.output


def test_gguf01_gguf02_a_hostile_file_is_an_error_of_the_command(tmp_path: Path) -> None:
    hostile = {
        "huge": gguf_bytes(tensors=[TensorInfo(dims=(2**42 + 1,))]),
        "wrapping": gguf_bytes(tensors=[TensorInfo(dims=(2**63, 2))]),
        "tensors": gguf_bytes(num_tensors=2**62),
        "keys": gguf_bytes(num_key_values=2**62),
    }
    for name, content in hostile.items():
        path = tmp_path / f"{name}.gguf"
        path.write_bytes(content)
        result = run_command(str(path), "x")
        assert (result.exit_code, f"{name}.gguf" in result.stderr) == (2, True)
        with pytest.raises(ModelFormatError, match=name):
            LLM(path)


def test_st03_a_file_without_a_head_is_tied(tiny: LLM, tmp_path: Path) -> None:
    def store_head(tensors: dict[str, np.ndarray]) -> None:
        tensors["output.weight"] = tensors["token_embd.weight"]

    with LLM(write_tiny_llama(tmp_path / "head.gguf", change=store_head), threads=2, kv_dtype="f32") as llm:
        assert llm.generate("x", GREEDY)[0].token_ids == tiny.generate("x", GREEDY)[0].token_ids


# --- tokenizers -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pre", [None, "no-such-thing"])
def test_tok02_the_override_reaches_library_and_command(tiny: LLM, tmp_path: Path, pre: str | None) -> None:
    path = write_tiny_llama(tmp_path / "a.gguf", metadata=byte_level_metadata(pre=pre))
    with pytest.raises(UnsupportedModelError, match="pre_tokenizer='NAME'"):
        LLM(path)
    refused = run_command(str(path), "x")
    assert refused.exit_code == 2
    assert "--pre-tokenizer NAME" in refused.stderr.replace("\n", " ")
    with LLM(path, threads=1, pre_tokenizer="qwen2") as llm:
        assert llm.encode("hello  world 123") == tiny.encode("hello  world 123")
    accepted = run_command(str(path), "x", "--pre-tokenizer", "qwen2")
    assert accepted.exit_code == 0, accepted.stderr


def test_tok02_an_override_in_vain_is_an_error(tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "spm.gguf", metadata=sentencepiece_metadata())
    with pytest.raises(ConfigError, match="SentencePiece"):
        LLM(path, pre_tokenizer="qwen2")


def test_settings_with_a_typing_error_are_refused(tiny_path: Path) -> None:
    for name in ("thread", "max_ctx", "pretokenizer", "kv_type"):
        with pytest.raises(ConfigError, match=name):
            LLM(tiny_path, **{name: 1})


@pytest.mark.parametrize("text", ["Hello  world", " a  b", "\n\n  x", "don't  stop", "x\ty", "。 你 好"])
def test_utf06_a_sentencepiece_stream_joins_to_the_whole(tmp_path: Path, text: str) -> None:
    path = write_tiny_llama(tmp_path / "spm.gguf", metadata=sentencepiece_metadata())
    with LLM(path, threads=1) as llm:
        params = SamplingParams(temperature=1.0, seed=3, max_tokens=30, ignore_eos=True)
        with llm.stream(text, params) as stream:
            joined = "".join(stream)
        whole = llm.generate(text, params)[0]
        assert joined == whole.text == llm.loaded.tokenizer.decode(whole.token_ids, continues=True)


# --- chat templates -------------------------------------------------------------------------------------------------------------------


def with_template(folder: Path, template: str, **changes: Any) -> LLM:
    metadata = byte_level_metadata(chat_template=template, **changes)
    return LLM(write_tiny_llama(folder / "chat.gguf", metadata=metadata), threads=1)


def test_tpl01_bos_comes_once(tmp_path: Path) -> None:
    template = "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    with with_template(tmp_path, template, add_bos_token=True) as llm:
        bos_id = llm.loaded.tokenizer.bos_id
        prompt = llm.render_chat(HELLO)
        assert prompt.count(bos_id) == 1
        assert llm.chat(HELLO, SamplingParams(max_tokens=1)).timing.num_prompt_tokens == len(prompt)


def test_tpl01_no_bos_where_nothing_asks_for_one(tmp_path: Path) -> None:
    with with_template(tmp_path, "{% for m in messages %}{{ m.content }}{% endfor %}", add_bos_token=False) as llm:
        assert llm.render_chat(HELLO).count(llm.loaded.tokenizer.bos_id) == 0


def test_tpl02_the_templates_own_words_reach_the_caller(tmp_path: Path) -> None:
    template = (
        "{% for m in messages %}{% if m.role == 'system' or (not loop.first and loop.previtem.role == m.role) %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}{{ m.content }}{% endfor %}"
    )
    with with_template(tmp_path, template) as llm:
        for first in ("user", "system"):
            with pytest.raises(TemplateError, match="roles must alternate"):
                llm.chat([{"role": first, "content": "a"}, {"role": "user", "content": "b"}])
        assert llm.chat(HELLO, SamplingParams(max_tokens=1)).token_ids


def test_tpl03_a_template_that_can_not_be_parsed_is_no_chatml(tmp_path: Path) -> None:
    with with_template(tmp_path, "{% for m in messages %}{{ m.content }}") as llm:
        with pytest.raises(TemplateError, match="can't be parsed"):
            llm.chat(HELLO)
        assert llm.chat(HELLO, SamplingParams(max_tokens=1), chat_template=CHATML).token_ids
    result = run_command(str(tmp_path / "chat.gguf"), "hi")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "can't be parsed" in result.stderr


@pytest.mark.parametrize(
    "template",
    [
        "{{ cycler.__init__.__globals__.os.system('touch canary') }}",
        "{% for i in range(10**6) %}{% for j in range(10**6) %}x{% endfor %}{% endfor %}",
        "{{ 'x' * 10**9 }}",
    ],
)
def test_tpl07_a_hostile_template_ends_cleanly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, template: str) -> None:
    monkeypatch.chdir(tmp_path)
    with with_template(tmp_path, template) as llm:
        with pytest.raises(RooflineError):
            llm.chat(HELLO)
        assert not (tmp_path / "canary").exists()
        assert llm.generate("x", SamplingParams(max_tokens=1))


def test_tpl06_an_answer_is_continued_where_it_ended(tmp_path: Path) -> None:
    messages = [*HELLO, {"role": "assistant", "content": "red,"}]
    with with_template(tmp_path, CHATML) as llm:
        prompt = llm.render_chat(messages, continue_final_message=True)
        assert llm.loaded.tokenizer.decode(prompt, skip_special=False).endswith("red,")


# --- kernels --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quant_type", [QuantType.F32, QuantType.F16, QuantType.Q8_0, QuantType.Q4_0], ids=str)
def test_qnt07_cpu06_every_tier_gives_the_same_answer(tmp_path: Path, quant_type: QuantType) -> None:
    path = write_tiny_llama(tmp_path / "a.gguf", quant_type=quant_type)
    answers = []
    for isa in TIERS:
        with LLM(path, threads=2, isa=isa) as llm:
            assert set(llm.loaded.backend.kernel_tiers().values()) == {isa}
            assert len(llm.loaded.backend.describe()) == 15  # a kernel by name for each packed weight
            answers.append(llm.generate(["x", "Once upon a time " * 4], GREEDY))
    assert all([one.token_ids for one in answer] == [one.token_ids for one in answers[0]] for answer in answers)


@pytest.mark.model("smollm2-135m")
def test_qnt06_half_precision_caches_keep_the_perplexity(model_path: Callable[[str], Path]) -> None:
    path, text = model_path("smollm2-135m"), Path(__file__).read_text()[:2000]

    def perplexity(kv_dtype: str) -> float:
        with LLM(path, threads=2, max_context=1024, max_tokens_per_step=1024, num_blocks=32, kv_dtype=kv_dtype) as llm:
            return _perplexity(llm, llm.encode(text))

    exact = perplexity("f32")
    assert 1.5 < exact < 50
    for kv_dtype in ("f16", "bf16"):
        assert perplexity(kv_dtype) == pytest.approx(exact, rel=0.01)
    with pytest.raises(ConfigError, match="kv_dtype must be one of f16, bf16, f32"):
        LLM(path, kv_dtype="int8")


def _perplexity(llm: LLM, ids: list[int]) -> float:
    """Over one prompt in one step, straight from the back end's logits."""
    num_tokens, num_blocks = len(ids), -(-len(ids) // 32)
    every = np.arange(num_tokens, dtype=np.int32)
    starts, lens = np.array([0, num_tokens], np.int32), np.array([num_tokens], np.int32)
    table = np.arange(num_blocks, dtype=np.int32).reshape(1, -1)
    logits = llm.loaded.backend.step(StepBatch(np.array(ids, np.int32), every, starts, lens, table, every))
    wide = logits[:-1].astype(np.float64)
    peak = wide.max(axis=1)
    losses = peak + np.log(np.exp(wide - peak[:, None]).sum(axis=1)) - wide[every[:-1], ids[1:]]
    return math.exp(float(losses.mean()))
