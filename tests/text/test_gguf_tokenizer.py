"""Tokenizers built from GGUF keys: exact encoding, special tokens, and files that are wrong."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.core.errors import ConfigError, ModelFormatError, RequestError, UnsupportedModelError
from roofline.text.gguf_tokenizer import build_gguf_tokenizer
from roofline.text.pretokenizers import PRE_TOKENIZERS
from text.corpus import SENTENCES, corpus_lines
from text.tiny import BYTE, NORMAL, byte_level, byte_level_metadata, sentencepiece, sentencepiece_metadata

BYTE_LEVEL = byte_level()
SENTENCEPIECE = sentencepiece()


def test_byte_level_merges_in_order() -> None:
    ids = BYTE_LEVEL.encode("hello w", add_special=False)
    assert [BYTE_LEVEL.token_bytes(token_id) for token_id in ids] == [b"hello", b" w"]


def test_sentencepiece_puts_one_space_before_the_text() -> None:
    ids = SENTENCEPIECE.encode("hello the", add_special=False)
    assert [SENTENCEPIECE.token_bytes(token_id) for token_id in ids] == [b" hello", b" the"]


def test_sentencepiece_ties_go_to_the_leftmost_and_scores_decide() -> None:
    def pieces(text: str, words: list[str]) -> list[bytes]:
        tokenizer = build_gguf_tokenizer(sentencepiece_metadata(words, add_space_prefix=False))
        return [tokenizer.token_bytes(token_id) for token_id in tokenizer.encode(text, add_special=False)]

    assert pieces("aaaaa", ["aa"]) == [b"aa", b"aa", b"a"]
    assert pieces("abc", ["bc", "ab"]) == [b"a", b"bc"]
    # (aa, a) and (a, aa) make the same piece: by pair ranks the right one could win, by position the left one does.
    assert pieces("aaaa", ["aa", "aaa"]) == [b"aa", b"aa"]


def test_control_tokens_in_text_are_text_and_in_templates_tokens() -> None:
    for tokenizer, name in ((BYTE_LEVEL, "<|im_end|>"), (SENTENCEPIECE, "</s>")):
        assert not tokenizer.vocabulary.control_ids & set(tokenizer.encode(f"a{name}b", add_special=False))
        assert tokenizer.vocabulary.control_ids & set(tokenizer.encode_rendered(f"a{name}b"))
        assert tokenizer.decode(tokenizer.encode(f"a{name}b", add_special=False)) == f"a{name}b"


def test_sentencepiece_never_merges_into_a_control_token() -> None:
    tokenizer = build_gguf_tokenizer(sentencepiece_metadata(["</", "s>", "</s"], add_space_prefix=False))
    assert 2 not in tokenizer.encode("</s>", add_special=False)


def test_user_defined_tokens_are_found_in_any_text() -> None:
    tool_id = byte_level_metadata()["tokenizer.ggml.tokens"].index("<tool>")
    assert BYTE_LEVEL.encode("a<tool>b", add_special=False) == [97, tool_id, 98]


def test_tok01_space_after_a_special_token() -> None:
    """As in Llama 2: each piece of text after a special token gets its own space mark."""
    ids = SENTENCEPIECE.encode_rendered("hello<s>hello</s> the")
    pieces = [SENTENCEPIECE.token_bytes(token_id) for token_id in ids]
    assert pieces == [b" hello", b"<s>", b" hello", b"</s>", b" ", b" the"]


def test_bos_and_eos_as_the_file_says() -> None:
    assert SENTENCEPIECE.encode("a", add_special=True)[0] == SENTENCEPIECE.bos_id
    assert sentencepiece(add_bos_token=False).encode("a", add_special=True)[0] != 1
    both = byte_level(add_bos_token=True, add_eos_token=True)
    assert both.encode("a", add_special=True) == [both.bos_id, 97, both.vocabulary.eos_id]
    assert byte_level(pre="llama-bpe").add_bos
    assert not BYTE_LEVEL.add_bos


def test_byte_level_prefix_space_where_the_file_asks_for_it() -> None:
    tokenizer = byte_level(add_space_prefix=True)
    assert tokenizer.decode(tokenizer.encode("a", add_special=False)) == " a"
    assert tokenizer.decode(tokenizer.encode(" a", add_special=False)) == " a"


def test_chat_templates_by_name() -> None:
    metadata = byte_level_metadata(chat_template="plain") | {"tokenizer.chat_template.tool_use": "tools"}
    vocabulary = build_gguf_tokenizer(metadata).vocabulary
    assert vocabulary.chat_template() == "plain"
    assert vocabulary.chat_template(with_tools=True) == "tools"
    with pytest.raises(ModelFormatError, match=r"chat_template \(default\) is int"):
        byte_level(chat_template=7)


def test_several_ends_of_generation() -> None:
    tokens = [*byte_level_metadata()["tokenizer.ggml.tokens"], "<|endoftext|>", "<|eot_id|>"]
    types = [*byte_level_metadata()["tokenizer.ggml.token_type"], 3, NORMAL]
    tokenizer = byte_level(tokens=tokens, token_type=types, eot_token_id=5)
    assert tokenizer.eos_ids == {tokens.index("<|im_end|>"), tokens.index("<|endoftext|>"), 5}


@pytest.mark.parametrize("pre", [None, "no-such-thing", 7])
def test_tok02_missing_or_unknown_pre_tokenizer_is_refused_with_the_override(pre: object) -> None:
    metadata = byte_level_metadata(pre=pre)
    with pytest.raises(UnsupportedModelError, match=r"(?s)llama-bpe.*qwen2.*pre_tokenizer="):
        build_gguf_tokenizer(metadata)
    assert build_gguf_tokenizer(metadata, pre_tokenizer="gpt-2").encode("a", add_special=False) == [97]
    with pytest.raises(UnsupportedModelError, match="nothing-like-it"):
        build_gguf_tokenizer(metadata, pre_tokenizer="nothing-like-it")


def test_override_that_cannot_apply_is_refused() -> None:
    with pytest.raises(ConfigError, match="SentencePiece"):
        build_gguf_tokenizer(sentencepiece_metadata(), pre_tokenizer="qwen2")


BAD_KEYS: dict[str, dict[str, Any]] = {
    "no tokens": {"tokens": None},
    "tokens of another type": {"tokens": [1, 2]},
    "type list too short": {"token_type": [1]},
    "no merges": {"merges": None},
    "merge of one token": {"merges": ["hello"]},
    "merge of unknown tokens": {"merges": ["zz qq"]},
    "eos outside": {"eos_token_id": 10**6},
    "flag is text": {"add_bos_token": "false"},
    "bos negative": {"bos_token_id": -1},
    "unknown id is text": {"unknown_token_id": "0"},
}


@pytest.mark.parametrize("name", BAD_KEYS)
def test_damaged_byte_level_keys(name: str) -> None:
    (key,) = BAD_KEYS[name]  # each error names the key
    with pytest.raises(ModelFormatError, match=key.removesuffix("_token_id")):
        byte_level(**BAD_KEYS[name])


def test_damaged_sentencepiece_keys() -> None:
    good = sentencepiece_metadata()["tokenizer.ggml.tokens"]
    with pytest.raises(ModelFormatError, match="scores"):
        sentencepiece(scores=[0.5])
    with pytest.raises(ModelFormatError, match="byte tokens"):
        sentencepiece(tokens=[*good[:3], "<0xZZ>", *good[4:]])
    with pytest.raises(ModelFormatError, match="needs all 256"):
        sentencepiece(
            token_type=[NORMAL if kind == BYTE else kind for kind in [3] * 3 + [6] + [1] * (len(good) - 4)][:3]
            + [BYTE]
            + [NORMAL] * (len(good) - 4)
        )
    with pytest.raises(UnsupportedModelError, match="'bert'"):
        sentencepiece(model="bert")
    with pytest.raises(UnsupportedModelError, match="white space"):
        sentencepiece(remove_extra_whitespaces=True)


def test_lone_surrogate_is_a_request_error() -> None:
    for tokenizer in (BYTE_LEVEL, SENTENCEPIECE):
        with pytest.raises(RequestError, match=r"U\+D800.*character 1"):
            tokenizer.encode("a\ud800", add_special=False)


def test_ids_outside_the_vocabulary_have_no_bytes() -> None:
    assert BYTE_LEVEL.token_bytes(10**6) == b""
    with pytest.raises(RequestError, match="-1"):
        BYTE_LEVEL.token_bytes(-1)


@given(st.text(max_size=60))
def test_tok04_round_trip(text: str) -> None:
    assert BYTE_LEVEL.decode(BYTE_LEVEL.encode(text, add_special=False)) == text
    plain = text.replace("▁", " ")  # U+2581 is how SentencePiece writes a space
    assert SENTENCEPIECE.decode(SENTENCEPIECE.encode(plain, add_special=False)) == plain


@pytest.mark.parametrize("pre", sorted(PRE_TOKENIZERS))
def test_tok04_every_word_rule_keeps_every_byte(pre: str) -> None:
    tokenizer = byte_level(pre=pre)
    for line in corpus_lines()[::7]:
        assert tokenizer.decode(tokenizer.encode(line, add_special=False)) == line


@pytest.mark.parametrize("unit", ["a", " ", "\n", "中", "ab ", "\t \n"])
@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, SENTENCEPIECE], ids=["bytes", "spm"])
def test_tok04_time_grows_near_linearly(tokenizer: Any, unit: str) -> None:
    """100 kB in under a second of CPU time; a quadratic merge loop would need minutes."""
    text = unit * (100_000 // len(unit.encode()))
    start_s = time.thread_time()
    ids = tokenizer.encode(text, add_special=False)
    assert time.thread_time() - start_s < 1
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize(
    ("pre", "text", "words"),
    [
        ("gpt-2", "I'll pay 1234 now\n\n  x", ["I", "'ll", " pay", " 1234", " now", "\n\n ", " x"]),
        ("smollm", "year 1234!", ["year", " ", "1", "2", "3", "4", "!"]),
        ("qwen2", "I'LL pay 12\n\n  x", ["I", "'LL", " pay", " ", "1", "2", "\n\n", " ", " x"]),
        ("llama-bpe", "no 1234567 (x);\n y", ["no", " ", "123", "456", "7", " (", "x", ");\n", " y"]),
        ("deepseek-coder", "a1 中文b\n", ["a", "1", " ", "中文", "b", "\n"]),
        ("deepseek-llm", "ab 12中文\nx", ["ab", " ", "12", "中文", "\n", "x"]),
        ("deepseek-v3", "no 1234中文 (x", ["no", " ", "123", "4", "中文", " (", "x"]),
    ],
)
def test_words_of_each_rule(pre: str, text: str, words: list[str]) -> None:
    """The cuts, with a vocabulary that has exactly these words as tokens and all merges that build them."""
    rule = PRE_TOKENIZERS[pre].build()
    pieces = [span for _, span in rule.pre_tokenize_str(text)]
    assert [text[start:end] for start, end in pieces] == words


def test_sentencepiece_equals_its_reference(tmp_path: Any) -> None:
    """A BPE model trained by the sentencepiece library on part of the corpus, compared on all of it."""
    reference = pytest.importorskip("sentencepiece")
    sentences = [sentence.replace("\n", " ") for group in SENTENCES.values() for sentence in group]
    (tmp_path / "text.txt").write_text("\n".join(sentences * 20))
    reference.SentencePieceTrainer.train(
        input=str(tmp_path / "text.txt"),
        model_prefix=str(tmp_path / "spm"),
        model_type="bpe",
        vocab_size=1200,
        byte_fallback=True,
        character_coverage=0.98,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        minloglevel=2,
    )
    model = reference.SentencePieceProcessor(model_file=str(tmp_path / "spm.model"))
    rows = range(model.get_piece_size())
    kind_of = [
        3 if model.is_control(row) else 2 if model.is_unknown(row) else 6 if model.is_byte(row) else 1 for row in rows
    ]
    tokenizer = sentencepiece(
        tokens=[model.id_to_piece(row) for row in rows],
        token_type=kind_of,
        scores=[model.get_score(row) for row in rows],
    )
    for line in corpus_lines():
        if "\0" not in line:  # the library ends its input there
            assert tokenizer.encode(line, add_special=False) == model.encode(line), ascii(line)
