"""Tiny vocabularies as GGUF metadata: byte-level BPE with a handful of merges, SentencePiece with bytes and scores."""

from __future__ import annotations

from typing import Any

from roofline.text.byte_level import CHAR_TO_BYTE
from roofline.text.gguf_tokenizer import build_gguf_tokenizer
from roofline.text.tokenizer import Tokenizer

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_level_metadata(**changes: Any) -> dict[str, Any]:
    """256 byte tokens in byte order (id = byte), then merges, then control tokens; `changes` replace keys by short name."""
    by_byte = {byte: char for char, byte in CHAR_TO_BYTE.items()}
    merges = ["h e", "l l", "he ll", "hell o", "Ġ w", "Ġ Ġ"]
    merged = [merge.replace(" ", "") for merge in merges]
    control = ["<|bos|>", "<|im_start|>", "<|im_end|>"]
    tokens = [by_byte[byte] for byte in range(256)] + merged + control + ["<tool>", "[PAD]"]
    types = [NORMAL] * (256 + len(merged)) + [CONTROL] * len(control) + [USER_DEFINED, UNUSED]
    bos_id = tokens.index("<|bos|>")
    keys: dict[str, Any] = {
        "model": "gpt2",
        "pre": "qwen2",
        "tokens": tokens,
        "token_type": types,
        "merges": merges,
        "bos_token_id": bos_id,
        "eos_token_id": bos_id + 2,
    }
    return _with_prefix(keys | changes)


def sentencepiece_metadata(words: list[str] | None = None, **changes: Any) -> dict[str, Any]:
    """Control tokens, byte tokens, single characters, then `words` with falling scores (SentencePiece writes ▁ for space)."""
    words = ["▁t", "he", "▁the", "▁a", "ab", "▁▁", "lo", "hel", "hello", "▁hello"] if words is None else words
    letters = sorted(set("▁abcdefghijklmnopqrstuvwxyzH.,'") | set("".join(words)))
    head = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]
    rows = head + [(f"<0x{byte:02X}>", BYTE) for byte in range(256)] + [(word, NORMAL) for word in words + letters]
    keys: dict[str, Any] = {
        "model": "llama",
        "tokens": [text for text, _ in rows],
        "token_type": [kind for _, kind in rows],
        "scores": [0.0] * 259 + [-float(rank) for rank in range(len(words) + len(letters))],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
    }
    return _with_prefix(keys | changes)


def byte_level(**changes: Any) -> Tokenizer:
    return build_gguf_tokenizer(byte_level_metadata(**changes))


def sentencepiece(**changes: Any) -> Tokenizer:
    return build_gguf_tokenizer(sentencepiece_metadata(**changes))


def _with_prefix(keys: dict[str, Any]) -> dict[str, Any]:
    """Short names get the GGUF prefix; a key set to None is left out."""
    named = {
        f"tokenizer.ggml.{name}" if name != "chat_template" else "tokenizer.chat_template": value
        for name, value in keys.items()
    }
    return {name: value for name, value in named.items() if value is not None}
