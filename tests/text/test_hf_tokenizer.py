"""Hugging Face folders: the ids of tokenizer.json, its special tokens, and streaming by bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as RustTokenizer

from roofline.core.errors import ConfigError, ModelFormatError, UnsupportedModelError
from roofline.text.detokenize import Detokenizer
from roofline.text.load import load_tokenizer
from roofline.text.template import chat_template_of
from roofline.text.tokenizer import Tokenizer
from text.corpus import SENTENCES, corpus_lines
from text.tiny import CHATML

CONTROL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
TRAINING = [sentence for group in SENTENCES.values() for sentence in group]


def byte_level_file() -> RustTokenizer:
    rust = RustTokenizer(models.BPE())
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rust.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    rust.train_from_iterator(
        TRAINING, trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False)
    )
    return rust


def sentencepiece_file() -> RustTokenizer:
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    rust = RustTokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    rust.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    rust.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    rust.pre_tokenizer = pre_tokenizers.Split(Regex("(?<!▁)(?=▁)"), "isolated")
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=["<unk>", *bytes_], show_progress=False)
    rust.train_from_iterator(TRAINING, trainer)
    rust.pre_tokenizer = None  # type: ignore[assignment]
    state = json.loads(rust.to_str())
    state[
        "added_tokens"
    ] = []  # the trainer made the byte tokens special; in model files they are part of the vocabulary
    return RustTokenizer.from_str(json.dumps(state))


def write_folder(folder: Path, rust: RustTokenizer, **files: dict[str, Any]) -> Path:
    """A folder with control tokens that puts <s> before a text; `files` are further JSON files by stem."""
    rust.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in CONTROL])
    bos_id = rust.token_to_id("<s>")
    rust.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", bos_id)]
    )
    rust.save(str(folder / "tokenizer.json"))
    config = {"bos_token": "<s>", "eos_token": {"__type": "AddedToken", "content": "</s>"}, "chat_template": CHATML}
    for stem, content in ({"tokenizer_config": config} | files).items():
        (folder / f"{stem}.json").write_text(json.dumps(content))
    return folder


@pytest.fixture(params=["byte-level", "sentencepiece"])
def rust(request: pytest.FixtureRequest) -> RustTokenizer:
    return byte_level_file() if request.param == "byte-level" else sentencepiece_file()


@pytest.fixture
def folder(tmp_path: Path, rust: RustTokenizer) -> Path:
    return write_folder(tmp_path, rust)


def load(folder: Path) -> Tokenizer:
    return load_tokenizer("huggingface", {}, folder)


def test_ids_of_the_corpus_equal_the_file(folder: Path, rust: RustTokenizer) -> None:
    tokenizer = load(folder)
    rust.encode_special_tokens = True
    for line in corpus_lines()[::3]:
        assert tokenizer.encode(line, add_special=True) == rust.encode(line).ids
    rust.encode_special_tokens = False
    for line in corpus_lines()[::3]:
        assert tokenizer.encode_rendered(line) == rust.encode(line, add_special_tokens=False).ids


def test_decode_and_stream_equal_the_file(folder: Path, rust: RustTokenizer) -> None:
    tokenizer = load(folder)
    for line in corpus_lines()[::3]:
        ids = tokenizer.encode(line, add_special=True)
        detokenizer = Detokenizer(tokenizer)
        streamed = "".join([detokenizer.push(token_id) for token_id in ids]) + detokenizer.finish()
        assert streamed == tokenizer.decode(ids) == rust.decode(ids), ascii(line)


@pytest.mark.parametrize("text", ["▁▁", "<▁x>", "⟪é⟫"])
def test_added_tokens_decode_as_the_file_says(tmp_path: Path, rust: RustTokenizer, text: str) -> None:
    rust.add_tokens([AddedToken(text, special=False, normalized=False)])
    tokenizer = load(write_folder(tmp_path, rust))
    token_id = rust.token_to_id(text)
    assert token_id in tokenizer.encode(f"a{text}b", add_special=False)
    assert tokenizer.decode([token_id, token_id]) == rust.decode([token_id, token_id])


def test_special_tokens_and_template(folder: Path) -> None:
    tokenizer = load(folder)
    assert tokenizer.add_bos
    assert tokenizer.vocabulary.text_of(tokenizer.bos_id) == "<s>"
    assert {tokenizer.vocabulary.text_of(token_id) for token_id in tokenizer.eos_ids} == {"</s>", "<|im_end|>"}
    assert tokenizer.bos_id not in tokenizer.encode("<s>a", add_special=False)
    text = chat_template_of(tokenizer.vocabulary).render([{"role": "user", "content": "hi"}])
    assert len(set(tokenizer.encode_rendered(text)) & tokenizer.vocabulary.control_ids) == 2


def test_eos_list_of_generation_config(tmp_path: Path) -> None:
    folder = write_folder(
        tmp_path, byte_level_file(), generation_config={"eos_token_id": [7, 9]}, config={"eos_token_id": 8}
    )
    assert {7, 8, 9} < load(folder).eos_ids


@pytest.mark.parametrize("value", [True, False])
def test_add_bos_token_of_the_config_overrules_the_file(tmp_path: Path, value: bool) -> None:
    config = {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": value}
    tokenizer = load(write_folder(tmp_path, byte_level_file(), tokenizer_config=config))
    assert tokenizer.encode("a", add_special=True).count(tokenizer.bos_id) == int(value)


def test_template_files_win(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ 'from file' }}")
    assert load(folder).chat_template == "{{ 'from file' }}"


def test_named_templates(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]
    vocabulary = load(write_folder(tmp_path, byte_level_file(), tokenizer_config={"chat_template": named})).vocabulary
    message = [{"role": "user", "content": "x"}]
    assert chat_template_of(vocabulary).render(message) == "d"
    assert chat_template_of(vocabulary, with_tools=True).render(message) == "t"


def test_equals_transformers(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    oracle = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer = load(folder)
    messages = [{"role": "user", "content": "hello 温度"}, {"role": "assistant", "content": "ok"}]
    expected = oracle.apply_chat_template(messages, tokenize=True, add_generation_prompt=True, return_dict=False)
    assert tokenizer.encode_rendered(chat_template_of(tokenizer.vocabulary).render(messages)) == expected
    for line in corpus_lines()[::50]:
        assert tokenizer.encode_rendered(line) == oracle.encode(line, add_special_tokens=False)


def test_folders_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ModelFormatError, match=r"no tokenizer\.json"):
        load(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"x")
    with pytest.raises(ModelFormatError, match=r"(?s)only tokenizer\.model.*save_pretrained"):
        load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelFormatError, match="can't be read"):
        load(tmp_path)


def test_unsupported_parts_are_named(tmp_path: Path) -> None:
    rust = byte_level_file()
    rust.decoder = decoders.WordPiece()
    with pytest.raises(UnsupportedModelError, match="WordPiece"):
        load(write_folder(tmp_path, rust))
    with pytest.raises(ConfigError, match="pre_tokenizer"):
        load_tokenizer("huggingface", {}, tmp_path, pre_tokenizer="qwen2")
    with pytest.raises(UnsupportedModelError, match="'onnx'"):
        load_tokenizer("onnx", {}, tmp_path)
    with pytest.raises(ModelFormatError, match="chat_template"):
        load(write_folder(tmp_path, byte_level_file(), tokenizer_config={"chat_template": [{"name": "x"}]}))
    with pytest.raises(ModelFormatError, match="nothing"):
        load(write_folder(tmp_path, byte_level_file(), tokenizer_config={"eos_token": "nothing"}))
