"""A Hugging Face folder through the front door: a tiny llama written by hand, given as a folder and as its one weights file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from roofline import LLM, SamplingParams
from roofline.core.errors import RequestError

HIDDEN, FFN, HEADS, VOCAB_SIZE = 32, 64, 2, 258
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": HIDDEN,
    "intermediate_size": FFN,
    "num_attention_heads": HEADS,
    "num_hidden_layers": 1,
    "vocab_size": VOCAB_SIZE,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}


def tensors() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    layer = "model.layers.0."
    shapes = {
        "model.embed_tokens.weight": (VOCAB_SIZE, HIDDEN),
        **{f"{layer}self_attn.{part}_proj.weight": (HIDDEN, HIDDEN) for part in "qkvo"},
        **{f"{layer}mlp.{part}_proj.weight": (FFN, HIDDEN) for part in ("gate", "up")},
        f"{layer}mlp.down_proj.weight": (HIDDEN, FFN),
    }
    norms = ("model.norm", f"{layer}input_layernorm", f"{layer}post_attention_layernorm")
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()} | {
        f"{name}.weight": np.ones(HIDDEN, np.float32) for name in norms
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    save_file(tensors(), tmp_path / "model.safetensors")
    write_config(tmp_path)
    return tmp_path


def write_config(folder: Path, **changes: Any) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))


def answer(path: Path, **params: Any) -> tuple[int, ...]:
    with LLM(path, threads=1) as llm:
        return llm.generate("hello", SamplingParams(temperature=0, max_tokens=8, **params))[0].token_ids


def test_the_folder_and_its_weights_file_are_the_same_model(folder: Path) -> None:
    assert len(answer(folder)) == 8
    assert answer(folder / "model.safetensors") == answer(folder)


def test_an_end_token_outside_the_vocabulary_changes_nothing(folder: Path) -> None:
    expected = answer(folder)
    write_config(folder, eos_token_id=[-1, VOCAB_SIZE, 2**40])
    assert answer(folder, min_tokens=4) == expected


def test_a_stream_outlives_its_llm_with_an_error_that_says_so(folder: Path) -> None:
    llm = LLM(folder, threads=1)
    stream = llm.stream("hello", SamplingParams(max_tokens=50, ignore_eos=True))
    llm.close()
    stream.close()
    with pytest.raises(RequestError, match="closed"):
        next(stream)


def test_a_stream_whose_step_failed_says_that_it_was_dropped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LLM(folder, threads=1) as llm:
        stream = llm.stream("hello")
        with monkeypatch.context() as patch:
            patch.setattr(type(llm.loaded.backend), "step", lambda backend, batch: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                next(stream)
        stream.close()
        with pytest.raises(RequestError, match="dropped"):
            next(stream)
