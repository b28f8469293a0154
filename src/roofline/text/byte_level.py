"""The printable alphabet of byte-level BPE (GPT-2), one character per byte; both tokenizer builders invert it."""

from __future__ import annotations


def _alphabet() -> dict[str, int]:
    """Printable Latin-1 characters stand for themselves; the other 68 bytes take the code points from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in printable]
    shifted = {chr(0x100 + index): byte for index, byte in enumerate(rest)}
    return {chr(byte): byte for byte in printable} | shifted


CHAR_TO_BYTE = _alphabet()


def bytes_of(token: str) -> bytes:
    """Bytes of a byte-level token; one with characters outside the alphabet was added later and is its UTF-8."""
    try:
        return bytes([CHAR_TO_BYTE[char] for char in token])
    except KeyError:
        return token.encode("utf-8", "replace")
