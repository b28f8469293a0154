"""JSON that strangers wrote (headers, indexes, configs): bounded in size and depth, and no key occurs twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from roofline.core.errors import ModelFormatError, ModelNotFoundError


def parse_json_object(text: bytes, where: str) -> dict[str, Any]:
    """The object in `text`. ModelFormatError, naming `where`, for anything else, or for a key that occurs twice."""
    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=lambda pairs: _without_duplicates(pairs, where))
    except RecursionError:
        raise ModelFormatError(f"{where}: JSON is nested too deeply") from None
    except ValueError as error:  # broken JSON, broken UTF-8, or a number of thousands of digits
        raise ModelFormatError(f"{where}: not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelFormatError(f"{where}: must be a JSON object, not {type(value).__name__}")
    return value


def read_json_object(path: Path, *, max_bytes: int) -> dict[str, Any]:
    """The object in a file of at most `max_bytes`."""
    try:
        num_bytes = path.stat().st_size
        if num_bytes > max_bytes:
            raise ModelFormatError(f"{path}: {num_bytes} bytes, more than the {max_bytes} that are sane for it")
        text = path.read_bytes()
    except OSError as error:
        raise ModelNotFoundError(f"{path} can't be read: {error.strerror}") from error
    return parse_json_object(text, str(path))


def _without_duplicates(pairs: list[tuple[str, Any]], where: str) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ModelFormatError(f"{where}: key {key!r} occurs twice")
        result[key] = value
    return result
