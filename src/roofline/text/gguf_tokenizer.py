"""Builds a Tokenizer from the `tokenizer.*` keys of a GGUF file: byte-level BPE ("gpt2") or SentencePiece ("llama").

Called by load.py with the plain key/value mapping; every key is checked before use, because the file is not trusted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from tokenizers import Tokenizer as RustTokenizer
from tokenizers import models

from roofline.core.errors import ConfigError, ModelFormatError, UnsupportedModelError
from roofline.text.byte_level import bytes_of
from roofline.text.pretokenizers import PRE_TOKENIZERS, PreTokenizer
from roofline.text.special_split import SpecialSplitter
from roofline.text.spm import SPACE_MARK, SentencePieceBpe
from roofline.text.tokenizer import Tokenizer
from roofline.text.vocabulary import END_OF_TURN_NAMES, Vocabulary

# Values of tokenizer.ggml.token_type.
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)

PREFIX = "tokenizer.ggml."


class GgufEncoder:
    """Cuts at special tokens, then gives each piece of text to the encoder of the file's kind.

    User-defined tokens are found in any text; control tokens only in rendered templates. `encode_piece` gets each piece
    that begins the text or follows a special token, which is where SentencePiece puts its space.
    """

    def __init__(
        self, encode_piece: Callable[[str], list[int]], user_defined: Mapping[str, int], control: Mapping[str, int]
    ) -> None:
        self._encode_piece = encode_piece
        self._text_splitter = SpecialSplitter(user_defined)
        self._rendered_splitter = SpecialSplitter({**user_defined, **control})

    def encode_text(self, text: str) -> list[int]:
        return self._encode(text, self._text_splitter)

    def encode_rendered(self, text: str) -> list[int]:
        return self._encode(text, self._rendered_splitter)

    def _encode(self, text: str, splitter: SpecialSplitter) -> list[int]:
        ids: list[int] = []
        for piece in splitter.split(text):
            if isinstance(piece, int):
                ids.append(piece)
            else:
                ids += self._encode_piece(piece)
        return ids


def build_gguf_tokenizer(metadata: Mapping[str, Any], *, pre_tokenizer: str | None = None) -> Tokenizer:
    """Tokenizer of a GGUF file.

    `pre_tokenizer` overrides `tokenizer.ggml.pre`. Raises UnsupportedModelError for a tokenizer kind or pre-tokenizer
    that isn't known, ModelFormatError for keys that contradict each other, ConfigError for an override in vain.
    """
    model = metadata.get(PREFIX + "model")
    tokens = _list(metadata, "tokens", str)
    types = _list(metadata, "token_type", int, default=[_NORMAL] * len(tokens))
    if len(types) != len(tokens):
        raise ModelFormatError(f"{PREFIX}token_type has {len(types)} entries for {len(tokens)} tokens")
    file = _File(metadata, tokens, types, {index: kind for index, kind in enumerate(types) if kind != _NORMAL})
    if model == "gpt2":
        return _byte_level(file, pre_tokenizer)
    if model == "llama":
        if pre_tokenizer is not None:
            raise ConfigError(f"pre_tokenizer={pre_tokenizer!r} can't apply: the file's tokenizer is SentencePiece")
        return _sentencepiece(file)
    raise UnsupportedModelError(
        f"{PREFIX}model is {model!r}; supported: 'gpt2' (byte-level BPE), 'llama' (SentencePiece)"
    )


@dataclass(frozen=True)
class _File:
    """The checked keys that both kinds need; `special` holds the type of each token that isn't plain text."""

    metadata: Mapping[str, Any]
    tokens: list[str]
    types: list[int]
    special: dict[int, int]

    def of_kind(self, *kinds: int) -> dict[str, int]:
        """Ids by text of the special tokens of these kinds."""
        return {self.tokens[token_id]: token_id for token_id, kind in self.special.items() if kind in kinds}

    def flag(self, name: str, *, default: bool) -> bool:
        value = self.metadata.get(PREFIX + name, default)
        if not isinstance(value, bool):
            raise ModelFormatError(f"{PREFIX}{name} is {value!r}; it must be true or false")
        return value

    def token_id(self, name: str) -> int | None:
        token_id = self.metadata.get(f"{PREFIX}{name}_token_id")
        if token_id is None:
            return None
        if not isinstance(token_id, int) or not 0 <= token_id < len(self.tokens):
            raise ModelFormatError(
                f"{PREFIX}{name}_token_id is {token_id!r}, outside the vocabulary of {len(self.tokens)} tokens"
            )
        return token_id


def _byte_level(file: _File, override: str | None) -> Tokenizer:
    rule = _pre_tokenizer(file.metadata, override)
    rust = RustTokenizer(_bpe_model(file, rule))
    rust.pre_tokenizer = rule.build()
    lead = " " if file.flag("add_space_prefix", default=False) else ""

    def encode_piece(text: str) -> list[int]:
        ids: list[int] = rust.encode(text if text.startswith(" ") else lead + text, add_special_tokens=False).ids
        return ids

    def bytes_of_token(text: str, kind: int) -> bytes:
        return bytes_of(text) if kind == _NORMAL else text.encode("utf-8", "replace")

    vocabulary = _vocabulary(file, bytes_of_token, adds_bos=rule.adds_bos, strips_leading_space=False)
    return Tokenizer(_encoder(file, encode_piece), vocabulary)


def _pre_tokenizer(metadata: Mapping[str, Any], override: str | None) -> PreTokenizer:
    name = override if override is not None else metadata.get(PREFIX + "pre")
    if isinstance(name, str) and name in PRE_TOKENIZERS:
        return PRE_TOKENIZERS[name]
    what = f"the file has no {PREFIX}pre" if name is None else f"unknown pre-tokenizer {name!r}"
    raise UnsupportedModelError(
        f"{what}: how to cut text into words is not known; known names: {', '.join(sorted(PRE_TOKENIZERS))}",
        hint="if you know which of them the model was trained with: LLM(..., pre_tokenizer='NAME') or --pre-tokenizer NAME",
    )


def _bpe_model(file: _File, rule: PreTokenizer) -> models.BPE:
    pairs = [tuple(merge.split(" ")) for merge in _list(file.metadata, "merges", str)]
    if any(len(pair) != 2 for pair in pairs):
        index = next(index for index, pair in enumerate(pairs) if len(pair) != 2)
        raise ModelFormatError(f"{PREFIX}merges[{index}] is {' '.join(pairs[index])!r}, not two tokens around a space")
    ids = {text: token_id for token_id, text in enumerate(file.tokens)}
    try:
        return models.BPE(ids, pairs, ignore_merges=rule.whole_words)
    except Exception as error:  # `tokenizers` raises bare Exception for a merge of tokens that don't exist
        raise ModelFormatError(f"{PREFIX}merges don't fit {PREFIX}tokens: {error}") from error


def _sentencepiece(file: _File) -> Tokenizer:
    scores = _list(file.metadata, "scores", float)
    if len(scores) != len(file.tokens):
        raise ModelFormatError(f"{PREFIX}scores has {len(scores)} entries for {len(file.tokens)} tokens")
    if file.flag("remove_extra_whitespaces", default=False) or file.metadata.get(PREFIX + "precompiled_charsmap"):
        raise UnsupportedModelError(
            "SentencePiece with text normalization (charsmap, extra white space) isn't supported"
        )
    spm = SentencePieceBpe(_pieces(file), scores, _byte_ids(file), file.token_id("unknown"))
    lead = SPACE_MARK if file.flag("add_space_prefix", default=True) else ""

    def encode_piece(text: str) -> list[int]:
        return spm.encode(lead + text.replace(" ", SPACE_MARK))

    def bytes_of_piece(text: str, kind: int) -> bytes:
        return bytes([_byte_value(text)]) if kind == _BYTE else text.replace(SPACE_MARK, " ").encode("utf-8", "replace")

    vocabulary = _vocabulary(file, bytes_of_piece, adds_bos=True, strips_leading_space=bool(lead))
    return Tokenizer(_encoder(file, encode_piece), vocabulary)


def _pieces(file: _File) -> dict[str, int]:
    """Tokens that merging may produce: text, never control or byte tokens that happen to be spelled out."""
    pieces = {text: token_id for token_id, text in enumerate(file.tokens)}
    for text, token_id in file.of_kind(_CONTROL, _UNKNOWN, _BYTE).items():
        if pieces[text] == token_id:
            del pieces[text]
    return pieces


def _byte_ids(file: _File) -> dict[int, int]:
    byte_ids = {_byte_value(text): token_id for text, token_id in file.of_kind(_BYTE).items()}
    if byte_ids and len(byte_ids) != 256:
        raise ModelFormatError(f"{PREFIX}tokens has {len(byte_ids)} byte tokens; byte fallback needs all 256")
    return byte_ids


def _byte_value(text: str) -> int:
    if not re.fullmatch(r"<0x[0-9A-Fa-f]{2}>", text):
        raise ModelFormatError(
            f"{PREFIX}tokens holds the byte token {text!r}; byte tokens are written <0x00> to <0xFF>"
        )
    return int(text[3:5], 16)


def _encoder(file: _File, encode_piece: Callable[[str], list[int]]) -> GgufEncoder:
    return GgufEncoder(encode_piece, file.of_kind(_USER_DEFINED), file.of_kind(_CONTROL, _UNKNOWN))


def _vocabulary(
    file: _File, bytes_of_token: Callable[[str, int], bytes], *, adds_bos: bool, strips_leading_space: bool
) -> Vocabulary:
    # And not `file`: it would keep merges and scores for as long as the model lives.
    texts, kinds = file.tokens, file.types

    @cache  # bounded by the vocabulary; most runs need a few hundred of its tokens
    def token_bytes(token_id: int) -> bytes:
        text, kind = texts[token_id], kinds[token_id]
        return b"" if kind == _UNUSED else bytes_of_token(text, kind)

    named_ends = [
        token_id for text, token_id in file.of_kind(_CONTROL, _USER_DEFINED).items() if text in END_OF_TURN_NAMES
    ]
    declared = [file.token_id(name) for name in ("eos", "eot", "eom")]
    return Vocabulary(
        num_tokens=len(file.tokens),
        token_bytes=token_bytes,
        control_ids=frozenset(file.of_kind(_CONTROL, _UNKNOWN).values()),
        bos_id=file.token_id("bos"),
        eos_ids=frozenset(token_id for token_id in (*declared, *named_ends) if token_id is not None),
        eos_id=declared[0],
        unk_id=file.token_id("unknown"),
        adds_bos=file.flag("add_bos_token", default=adds_bos),
        adds_eos=file.flag("add_eos_token", default=False),
        strips_leading_space=strips_leading_space,
        chat_templates=_chat_templates(file.metadata),
    )


def _chat_templates(metadata: Mapping[str, Any]) -> dict[str, str]:
    """The unnamed template is "default"; `tokenizer.chat_template.NAME` are further ones (such as "tool_use")."""
    stem = "tokenizer.chat_template"
    named = {key.removeprefix(stem + "."): text for key, text in metadata.items() if key.startswith(stem + ".")}
    templates = named | ({"default": metadata[stem]} if metadata.get(stem) else {})
    for name, text in templates.items():
        if not isinstance(text, str):
            raise ModelFormatError(f"{stem} ({name}) is {type(text).__name__}, not text")
    return templates


def _list(metadata: Mapping[str, Any], name: str, kind: type, *, default: list[Any] | None = None) -> list[Any]:
    values = metadata.get(PREFIX + name, default)
    if values is None:
        raise ModelFormatError(f"the file has no {PREFIX}{name}, so it can't be used with text")
    if not isinstance(values, (list, tuple)) or not set(map(type, values)) <= {kind}:
        raise ModelFormatError(f"{PREFIX}{name} must be a list of {kind.__name__}")
    return list(values)
