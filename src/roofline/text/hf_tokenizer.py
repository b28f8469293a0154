"""Builds a Tokenizer from a Hugging Face folder: tokenizer.json does the encoding, the files beside it name special tokens.

Called by load.py. How a token turns into bytes is read from the file's decoder, so that streaming works on bytes as it does
for GGUF.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as RustTokenizer

from roofline.core.errors import ModelFormatError, UnsupportedModelError
from roofline.text.byte_level import bytes_of
from roofline.text.spm import SPACE_MARK
from roofline.text.tokenizer import Tokenizer
from roofline.text.vocabulary import END_OF_TURN_NAMES, Vocabulary
from roofline.weights.strict_json import read_json_object

_MAX_CONFIG_BYTES = 16 << 20
_MAX_TEMPLATE_BYTES = 1 << 20


class HfEncoder:
    """The file's own pipeline. One Rust object serves both ways; the flag that tells them apart is set under a lock."""

    def __init__(self, rust: RustTokenizer) -> None:
        self._rust = rust
        self._lock = threading.Lock()

    def encode_text(self, text: str) -> list[int]:
        return self._encode(text, control_is_text=True)

    def encode_rendered(self, text: str) -> list[int]:
        return self._encode(text, control_is_text=False)

    def _encode(self, text: str, *, control_is_text: bool) -> list[int]:
        with self._lock:
            self._rust.encode_special_tokens = control_is_text
            ids: list[int] = self._rust.encode(text, add_special_tokens=False).ids
        return ids


def build_hf_tokenizer(folder: Path) -> Tokenizer:
    """Tokenizer of a Hugging Face folder.

    Raises ModelFormatError for damaged files and for a folder without tokenizer.json, UnsupportedModelError for a
    decoder or special-token rule that isn't known.
    """
    rust = _read_rust_tokenizer(folder)
    special = _SpecialTokens(folder, rust)
    decoder = _decoder_steps(rust)
    bytes_of_text, byte_fallback = _byte_rule(decoder, folder)

    @cache  # bounded by the vocabulary
    def token_bytes(token_id: int) -> bytes:
        text = rust.id_to_token(token_id)
        if text is None:
            return b""
        if byte_fallback and re.fullmatch(r"<0x[0-9A-Fa-f]{2}>", text):
            return bytes([int(text[3:5], 16)])
        return bytes_of_text(text)

    eos_id = special.id_of("eos_token")
    before, after = special.put_around()
    bos_id = special.id_of("bos_token") if not before else before[0]
    if len(before) > 1 or after not in ([], [eos_id]):
        raise UnsupportedModelError(f"{folder}: the tokenizer puts tokens {before} and {after} around a text")
    added = rust.get_added_tokens_decoder()
    vocabulary = Vocabulary(
        num_tokens=1 + max(rust.get_vocab().values(), default=-1),
        token_bytes=token_bytes,
        control_ids=frozenset(token_id for token_id, token in added.items() if token.special),
        bos_id=bos_id,
        eos_ids=special.eos_ids(eos_id, added),
        eos_id=eos_id,
        unk_id=special.id_of("unk_token"),
        adds_bos=special.overruled("add_bos_token", habit=bool(before)),
        adds_eos=special.overruled("add_eos_token", habit=bool(after)),
        strips_leading_space=any(_strips_space(step) for step in decoder),
        chat_templates=_chat_templates(folder, special.config),
    )
    return Tokenizer(HfEncoder(rust), vocabulary)


def _read_rust_tokenizer(folder: Path) -> RustTokenizer:
    path = folder / "tokenizer.json"
    if not path.is_file():
        found = "only tokenizer.model" if (folder / "tokenizer.model").is_file() else "no tokenizer.json"
        raise ModelFormatError(
            f"{folder} has {found}, so text can't be turned into tokens",
            hint="write tokenizer.json once with transformers: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)",
        )
    try:
        rust = RustTokenizer.from_file(str(path))
    except Exception as error:  # `tokenizers` raises bare Exception for JSON that it doesn't understand
        raise ModelFormatError(f"{path} can't be read: {error}") from error
    rust.no_truncation()
    rust.no_padding()
    return rust


@dataclass(frozen=True)
class _SpecialTokens:
    """Which ids are special, gathered from the small files around tokenizer.json."""

    folder: Path
    rust: RustTokenizer

    @cached_property
    def config(self) -> dict[str, Any]:
        return _read_optional(self.folder / "tokenizer_config.json")

    def id_of(self, name: str) -> int | None:
        """Id of `bos_token`, `eos_token` or `unk_token`; None where the files don't name one."""
        named = self.config.get(name) or _read_optional(self.folder / "special_tokens_map.json").get(name)
        text = named.get("content") if isinstance(named, dict) else named
        if text is None:
            return None
        token_id: int | None = self.rust.token_to_id(text) if isinstance(text, str) else None
        if token_id is None:
            raise ModelFormatError(f"{self.folder}: {name} is {text!r}, which is not in tokenizer.json")
        return token_id

    def eos_ids(self, eos_id: int | None, added: Mapping[int, Any]) -> frozenset[int]:
        """The declared EOS, those of both configs (one id or a list) and the well-known ends of turns."""
        ids = {token_id for token_id, token in added.items() if token.content in END_OF_TURN_NAMES}
        for name in ("generation_config.json", "config.json"):
            declared = _read_optional(self.folder / name).get("eos_token_id")
            values = declared if isinstance(declared, list) else [declared]
            ids |= {value for value in values if isinstance(value, int)}
        return frozenset(ids if eos_id is None else ids | {eos_id})

    def put_around(self) -> tuple[list[int], list[int]]:
        """Ids that the file's post-processor puts before and after a text."""
        bare = self.rust.encode("a", add_special_tokens=False).ids
        full = self.rust.encode("a", add_special_tokens=True).ids
        start = next((start for start in range(len(full)) if full[start : start + len(bare)] == bare), 0)
        return full[:start], full[start + len(bare) :]

    def overruled(self, name: str, *, habit: bool) -> bool:
        """A flag of tokenizer_config.json; the post-processor's `habit` where the config doesn't say."""
        value = self.config.get(name, habit)
        if value is not None and not isinstance(value, bool):
            raise ModelFormatError(
                f"{self.folder}/tokenizer_config.json: {name} is {value!r}; it must be true or false"
            )
        return habit if value is None else value


def _decoder_steps(rust: RustTokenizer) -> list[dict[str, Any]]:
    """The decoder of tokenizer.json as a flat list of its steps."""
    if rust.decoder is None:
        return []
    state: dict[str, Any] = json.loads(rust.decoder.__getstate__())
    return list(state["decoders"]) if state.get("type") == "Sequence" else [state]


def _byte_rule(decoder: list[dict[str, Any]], folder: Path) -> tuple[Callable[[str], bytes], bool]:
    """How the text of a token becomes bytes, and whether tokens like <0x0A> stand for single bytes."""
    kinds = {step["type"] for step in decoder}
    if "ByteLevel" in kinds:
        return bytes_of, False
    if kinds & {"Metaspace", "Replace", "ByteFallback"} and kinds <= {
        *("Metaspace", "Replace", "ByteFallback", "Fuse", "Strip")
    }:
        return _bytes_of_piece, "ByteFallback" in kinds
    raise UnsupportedModelError(
        f"{folder}/tokenizer.json has the decoder {sorted(kinds) or None}; supported: ByteLevel, and SentencePiece's steps"
    )


def _bytes_of_piece(text: str) -> bytes:
    return text.replace(SPACE_MARK, " ").encode("utf-8", "replace")


def _strips_space(step: Mapping[str, Any]) -> bool:
    """Strip(" ", 1) and Metaspace take off the space that the encoder put before the text."""
    if step["type"] == "Metaspace":
        return bool(step.get("prepend_scheme", "always") != "never")
    return bool(step["type"] == "Strip" and step.get("content") == " " and step.get("start", 0) > 0)


def _chat_templates(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Templates by name; a .jinja file wins over the entry in tokenizer_config.json, as it does in transformers."""
    declared = config.get("chat_template")
    entries = (
        declared if isinstance(declared, list) else [{"name": "default", "template": declared}] if declared else []
    )
    templates = {}
    for entry in entries:
        name, template = (entry.get("name"), entry.get("template")) if isinstance(entry, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(template, str):
            raise ModelFormatError(
                f"{folder}/tokenizer_config.json: chat_template must be text, or a list of named texts"
            )
        templates[name] = template
    return templates | dict(_template_files(folder))


def _template_files(folder: Path) -> Iterator[tuple[str, str]]:
    named = [("default", folder / "chat_template.jinja")]
    named += [(path.stem, path) for path in sorted((folder / "additional_chat_templates").glob("*.jinja"))]
    for name, path in named:
        if path.is_file():
            if path.stat().st_size > _MAX_TEMPLATE_BYTES:
                raise ModelFormatError(f"{path} has {path.stat().st_size} bytes; a chat template has a few thousand")
            yield name, path.read_text(encoding="utf-8", errors="replace")


def _read_optional(path: Path) -> dict[str, Any]:
    return read_json_object(path, max_bytes=_MAX_CONFIG_BYTES) if path.is_file() else {}
