"""Builds a Tokenizer from the `tokenizer.*` keys of a GGUF file: byte-level BPE ("gpt2") or SentencePiece ("llama").

Called by load.py with the plain key/value mapping; every key is checked before use, because the file is not trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    if model == "gpt2":
        return _byte_level(metadata, tokens, types, pre_tokenizer)
    if model == "llama":
        if pre_tokenizer is not None:
            raise ConfigError(f"pre_tokenizer={pre_tokenizer!r} can't apply: the file's tokenizer is SentencePiece")
        return _sentencepiece(metadata, tokens, types)
    raise UnsupportedModelError(
        f"{PREFIX}model is {model!r}; supported: 'gpt2' (byte-level BPE), 'llama' (SentencePiece)"
    )


def _byte_level(metadata: Mapping[str, Any], tokens: list[str], types: list[int], override: str | None) -> Tokenizer:
    rule = _pre_tokenizer(metadata, override)
    rust = RustTokenizer(_bpe_model(tokens, _list(metadata, "merges", str), rule))
    rust.pre_tokenizer = rule.build(add_prefix_space=_flag(metadata, "add_space_prefix", default=False))

    def encode_piece(text: str) -> list[int]:
        ids: list[int] = rust.encode(text, add_special_tokens=False).ids
        return ids

    token_bytes = tuple(
        bytes_of(text) if kind == _NORMAL else _special_bytes(text, kind)
        for text, kind in zip(tokens, types, strict=True)
    )
    vocabulary = _vocabulary(metadata, tokens, types, token_bytes, adds_bos=rule.adds_bos, strips_leading_space=False)
    return Tokenizer(_encoder(encode_piece, tokens, types), vocabulary)


def _pre_tokenizer(metadata: Mapping[str, Any], override: str | None) -> PreTokenizer:
    name = override if override is not None else metadata.get(PREFIX + "pre")
    if name in PRE_TOKENIZERS:
        return PRE_TOKENIZERS[str(name)]
    what = f"the file has no {PREFIX}pre" if name is None else f"unknown pre-tokenizer {name!r}"
    raise UnsupportedModelError(
        f"{what}: how to cut text into words is not known; known names: {', '.join(sorted(PRE_TOKENIZERS))}",
        hint="if you know which of them the model was trained with, give pre_tokenizer='NAME'",
    )


def _bpe_model(tokens: list[str], merges: list[str], rule: PreTokenizer) -> models.BPE:
    pairs = []
    for index, merge in enumerate(merges):
        cut = merge.find(" ", 1)
        if cut < 0:
            raise ModelFormatError(f"{PREFIX}merges[{index}] is {merge!r}, not two tokens with a space between")
        pairs.append((merge[:cut], merge[cut + 1 :]))
    try:
        return models.BPE(
            {text: token_id for token_id, text in enumerate(tokens)}, pairs, ignore_merges=rule.whole_words
        )
    except Exception as error:  # `tokenizers` raises bare Exception for a merge of tokens that don't exist
        raise ModelFormatError(f"{PREFIX}merges don't fit {PREFIX}tokens: {error}") from error


def _sentencepiece(metadata: Mapping[str, Any], tokens: list[str], types: list[int]) -> Tokenizer:
    scores = _list(metadata, "scores", float)
    if len(scores) != len(tokens):
        raise ModelFormatError(f"{PREFIX}scores has {len(scores)} entries for {len(tokens)} tokens")
    if _flag(metadata, "remove_extra_whitespaces", default=False) or metadata.get(PREFIX + "precompiled_charsmap"):
        raise UnsupportedModelError(
            "SentencePiece with text normalization (charsmap, extra white space) isn't supported"
        )
    kinds = list(enumerate(zip(tokens, types, strict=True)))
    pieces = {text: token_id for token_id, (text, kind) in kinds if kind in (_NORMAL, _USER_DEFINED, _UNUSED)}
    byte_ids = {_byte_value(text): token_id for token_id, (text, kind) in kinds if kind == _BYTE}
    if byte_ids and len(byte_ids) != 256:
        raise ModelFormatError(f"{PREFIX}tokens has {len(byte_ids)} byte tokens; byte fallback needs all 256")
    spm = SentencePieceBpe(pieces, scores, byte_ids, _token_id(metadata, "unknown_token_id", len(tokens)))
    lead = SPACE_MARK if _flag(metadata, "add_space_prefix", default=True) else ""

    def encode_piece(text: str) -> list[int]:
        return spm.encode(lead + text.replace(" ", SPACE_MARK))

    token_bytes = tuple(_piece_bytes(text, kind) for text, kind in zip(tokens, types, strict=True))
    vocabulary = _vocabulary(metadata, tokens, types, token_bytes, adds_bos=True, strips_leading_space=bool(lead))
    return Tokenizer(_encoder(encode_piece, tokens, types), vocabulary)


def _byte_value(text: str) -> int:
    digits = text.removeprefix("<0x").removesuffix(">")
    if len(text) != 6 or len(digits) != 2 or not all(digit in "0123456789ABCDEFabcdef" for digit in digits):
        raise ModelFormatError(
            f"{PREFIX}tokens holds the byte token {text!r}; byte tokens are written <0x00> to <0xFF>"
        )
    return int(digits, 16)


def _piece_bytes(text: str, kind: int) -> bytes:
    if kind == _BYTE:
        return bytes([_byte_value(text)])
    return text.replace(SPACE_MARK, " ").encode("utf-8", "replace") if kind == _NORMAL else _special_bytes(text, kind)


def _special_bytes(text: str, kind: int) -> bytes:
    return b"" if kind == _UNUSED else text.encode("utf-8", "replace")


def _encoder(encode_piece: Callable[[str], list[int]], tokens: list[str], types: list[int]) -> GgufEncoder:
    kinds = list(enumerate(zip(tokens, types, strict=True)))
    user_defined = {text: token_id for token_id, (text, kind) in kinds if kind == _USER_DEFINED}
    control = {text: token_id for token_id, (text, kind) in kinds if kind in (_CONTROL, _UNKNOWN)}
    return GgufEncoder(encode_piece, user_defined, control)


def _vocabulary(
    metadata: Mapping[str, Any],
    tokens: list[str],
    types: list[int],
    token_bytes: tuple[bytes, ...],
    *,
    adds_bos: bool,
    strips_leading_space: bool,
) -> Vocabulary:
    num_tokens = len(tokens)
    declared = [_token_id(metadata, f"{name}_token_id", num_tokens) for name in ("eos", "eot", "eom")]
    folklore = [
        token_id
        for token_id, (text, kind) in enumerate(zip(tokens, types, strict=True))
        if kind in (_CONTROL, _USER_DEFINED) and text in END_OF_TURN_NAMES
    ]
    return Vocabulary(
        token_bytes=token_bytes,
        control_ids=frozenset(index for index, kind in enumerate(types) if kind in (_CONTROL, _UNKNOWN)),
        bos_id=_token_id(metadata, "bos_token_id", num_tokens),
        eos_ids=frozenset(token_id for token_id in (*declared, *folklore) if token_id is not None),
        eos_id=declared[0],
        unk_id=_token_id(metadata, "unknown_token_id", num_tokens),
        adds_bos=_flag(metadata, "add_bos_token", default=adds_bos),
        adds_eos=_flag(metadata, "add_eos_token", default=False),
        strips_leading_space=strips_leading_space,
        chat_templates=_chat_templates(metadata),
    )


def _chat_templates(metadata: Mapping[str, Any]) -> dict[str, str]:
    """The unnamed template is "default"; `tokenizer.chat_template.NAME` are further ones (such as "tool_use")."""
    stem = "tokenizer.chat_template"
    named = {key.removeprefix(stem + "."): text for key, text in metadata.items() if key.startswith(stem + ".")}
    return named | ({"default": metadata[stem]} if metadata.get(stem) else {})


def _list(metadata: Mapping[str, Any], name: str, kind: type, *, default: list[Any] | None = None) -> list[Any]:
    values = metadata.get(PREFIX + name, default)
    if values is None:
        raise ModelFormatError(f"the file has no {PREFIX}{name}, so it can't be used with text")
    values = list(values) if isinstance(values, tuple) else values
    if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
        raise ModelFormatError(f"{PREFIX}{name} must be a list of {kind.__name__}")
    return values


def _flag(metadata: Mapping[str, Any], name: str, *, default: bool) -> bool:
    return bool(metadata.get(PREFIX + name, default))


def _token_id(metadata: Mapping[str, Any], name: str, num_tokens: int) -> int | None:
    token_id = metadata.get(PREFIX + name)
    if token_id is None:
        return None
    if not isinstance(token_id, int) or not 0 <= token_id < num_tokens:
        raise ModelFormatError(f"{PREFIX}{name} is {token_id!r}, outside the vocabulary of {num_tokens} tokens")
    return token_id
