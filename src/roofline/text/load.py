"""Opens the tokenizer that belongs to a checkpoint, whatever the checkpoint's format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roofline.core.errors import ConfigError, UnsupportedModelError
from roofline.text.gguf_tokenizer import build_gguf_tokenizer
from roofline.text.hf_tokenizer import build_hf_tokenizer
from roofline.text.tokenizer import Tokenizer


def load_tokenizer(
    checkpoint_format: str, metadata: Mapping[str, Any], path: Path, *, pre_tokenizer: str | None = None
) -> Tokenizer:
    """Tokenizer of a checkpoint: "gguf" reads `metadata`, "huggingface" the files in the folder `path`.

    `pre_tokenizer` overrides the word rule that a GGUF file names (or fails to name).
    """
    if checkpoint_format == "gguf":
        return build_gguf_tokenizer(metadata, pre_tokenizer=pre_tokenizer)
    if checkpoint_format == "huggingface":
        if pre_tokenizer is not None:
            raise ConfigError(f"pre_tokenizer={pre_tokenizer!r} can't apply: tokenizer.json has its own rule")
        return build_hf_tokenizer(path)
    raise UnsupportedModelError(f"no tokenizer for checkpoint format {checkpoint_format!r}")
