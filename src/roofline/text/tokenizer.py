"""Tokenizer: text to ids and back, the same for GGUF and Hugging Face files; made by load.py, used by the engine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from roofline.core.errors import RequestError
from roofline.text.vocabulary import Vocabulary


class Encoder(Protocol):
    """What a file format supplies: both ways of turning text into ids, without BOS or EOS around it."""

    def encode_text(self, text: str) -> list[int]:
        """Control tokens written in `text` are ordinary characters."""

    def encode_rendered(self, text: str) -> list[int]:
        """Control tokens written in `text` become their ids."""


class Tokenizer:
    """`encode` for what people write, `encode_rendered` for what a chat template wrote."""

    def __init__(self, encoder: Encoder, vocabulary: Vocabulary) -> None:
        self._encoder = encoder
        self.vocabulary = vocabulary

    @property
    def vocab_size(self) -> int:
        """Rows that the tokenizer file describes; the embedding may have more (padding)."""
        return self.vocabulary.num_tokens

    @property
    def bos_id(self) -> int | None:
        return self.vocabulary.bos_id

    @property
    def eos_ids(self) -> frozenset[int]:
        """All ids that end a generation."""
        return self.vocabulary.eos_ids

    @property
    def add_bos(self) -> bool:
        """Whether `encode(add_special=True)` puts BOS first."""
        return self.vocabulary.adds_bos

    @property
    def chat_template(self) -> str | None:
        """The template for chats without tools; None where the file has none."""
        return self.vocabulary.chat_template()

    def encode(self, text: str, *, add_special: bool) -> list[int]:
        """Ids of a user's text. `add_special` adds the BOS (and EOS) that the file asks for.

        Raises RequestError for a lone surrogate, which no UTF-8 text can hold.
        """
        ids = self._encoder.encode_text(_checked(text))
        if not add_special:
            return ids
        vocabulary = self.vocabulary
        before = [vocabulary.bos_id] if vocabulary.adds_bos and vocabulary.bos_id is not None else []
        after = [vocabulary.eos_id] if vocabulary.adds_eos and vocabulary.eos_id is not None else []
        return [*before, *ids, *after]

    def encode_rendered(self, text: str) -> list[int]:
        """Ids of a rendered chat template. The template alone decides about BOS, so none is added here."""
        return self._encoder.encode_rendered(_checked(text))

    def token_bytes(self, token_id: int) -> bytes:
        """Exact bytes of one token; empty for ids past the vocabulary (padding rows of the embedding)."""
        if token_id < 0:
            raise RequestError(f"token id {token_id} is negative")
        return self.vocabulary.token_bytes(token_id) if token_id < self.vocabulary.num_tokens else b""

    def decode(self, ids: Iterable[int], *, skip_special: bool = True, continues: bool = False) -> str:
        """Text of `ids`; bytes that aren't UTF-8 become U+FFFD.

        The one space that a SentencePiece encoder puts before a text comes off, unless the ids continue a prompt
        (`continues`). `skip_special` leaves control tokens out.
        """
        hidden = self.vocabulary.control_ids if skip_special else frozenset()
        data = b"".join(self.token_bytes(token_id) for token_id in ids if token_id not in hidden)
        if self.vocabulary.strips_leading_space and not continues:
            data = data.removeprefix(b" ")
        return data.decode("utf-8", "replace")


def _checked(text: str) -> str:
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            f"text holds a lone surrogate (U+{ord(text[error.start]):04X}) at character {error.start}",
            hint="decode the input as UTF-8 with errors='replace' first",
        ) from error
    return text
