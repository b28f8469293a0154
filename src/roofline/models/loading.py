"""From a path to a model with its weights: every weight filled, every shape as the program says, no tensor left over.

The engine and the command line load models through here; nothing is guessed when a checkpoint and its program disagree.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from roofline.core.errors import ModelFormatError
from roofline.models.builder import Model, WeightSource
from roofline.models.registry import build_model, read_config
from roofline.weights.checkpoint import open_checkpoint
from roofline.weights.loader import LoadedWeight, plus_one, reshape, slice_rows
from roofline.weights.tensor import Checkpoint, Tensor

_log = logging.getLogger(__name__)

# Tensors that repeat what the config says: rotary frequencies, which the config reader has read, and causal masks.
_REDUNDANT = re.compile(
    r"(.*\.rotary_emb\.inv_freq|rope_freqs\.weight|rope_factors_(long|short)\.weight|.*\.attn_rot_embd\.weight"
    r"|.*\.attn\.masked_bias)"
)
_HEAD, _EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


@dataclass(frozen=True)
class LoadedModel:
    """A model ready for a back end. The checkpoint stays open: weights are views of it until a back end has packed them."""

    model: Model
    weights: Mapping[str, LoadedWeight]
    checkpoint: Checkpoint

    def for_context(self, max_context_len: int) -> LoadedModel:
        """The same weights under a program for another longest sequence: what was resolved after the sizes were known."""
        model = build_model(self.model.config, max_context_len=max_context_len)
        return LoadedModel(model, self.weights, self.checkpoint)


def load_model(path: Path | str, *, max_context_len: int | None = None) -> LoadedModel:
    """Open, describe, build and bind a model; `max_context_len` as in build_model.

    Raises ModelNotFoundError, ModelFormatError or UnsupportedModelError.
    """
    checkpoint = open_checkpoint(path)
    model = build_model(read_config(checkpoint), max_context_len=max_context_len)
    return LoadedModel(model, load_weights(model, checkpoint), checkpoint)


def load_weights(model: Model, checkpoint: Checkpoint) -> dict[str, LoadedWeight]:
    """Bind every weight of the program to the checkpoint's bytes, without reading them.

    Raises ModelFormatError naming the tensor for one that is missing, of another shape, or not used by the program.
    """
    _check_head(model, checkpoint)
    _check_all_used(model, checkpoint)
    return {name: _bind(model, checkpoint, name, source) for name, source in model.sources.items()}


def _bind(model: Model, checkpoint: Checkpoint, name: str, source: WeightSource) -> LoadedWeight:
    shape = model.program.weights[name].shape
    tensor = checkpoint.tensors.get(source.tensor)
    if tensor is None:
        raise ModelFormatError(f"{checkpoint.path}: tensor {source.tensor!r} (weight {name!r}) is missing")
    if source.rows is None:
        if tensor.row_len != shape[-1] or int(np.prod(tensor.shape)) != int(np.prod(shape)):
            raise _shape_error(checkpoint, tensor, name, shape)
        bound = reshape(tensor, shape)
    else:
        if tensor.row_len != shape[-1] or source.rows[1] > tensor.num_rows:
            raise _shape_error(checkpoint, tensor, name, shape)
        bound = slice_rows(tensor, *source.rows, shape)
    return LoadedWeight(plus_one(bound) if source.transform == "add_one" else bound)


def _shape_error(checkpoint: Checkpoint, tensor: Tensor, name: str, shape: tuple[int, ...]) -> ModelFormatError:
    return ModelFormatError(
        f"{checkpoint.path}: tensor {tensor.name!r} has shape {tensor.shape}, but weight {name!r} of this model needs {shape}"
    )


def _check_all_used(model: Model, checkpoint: Checkpoint) -> None:
    """A tensor, or a part of one, that no weight reads would change the answer by its absence."""
    num_rows_used: dict[str, int] = defaultdict(int)
    for source in model.sources.values():
        if source.rows is not None:
            num_rows_used[source.tensor] += source.rows[1] - source.rows[0]
    for name, num_rows in num_rows_used.items():
        tensor = checkpoint.tensors.get(name)
        if tensor is not None and tensor.num_rows != num_rows:
            raise ModelFormatError(
                f"{checkpoint.path}: tensor {name!r} of shape {tensor.shape} has {tensor.num_rows} rows, "
                f"but this model's weights make {num_rows}"
            )
    used = {source.tensor for source in model.sources.values()}
    ignored = {_HEAD} if model.config.tied else set()
    left = [name for name in checkpoint.tensors if name not in used | ignored and not _REDUNDANT.fullmatch(name)]
    if left:
        raise ModelFormatError(
            f"{checkpoint.path}: {len(left)} tensors have no place in a {model.config.family} model: {', '.join(left[:8])}",
            hint="the file holds another architecture, adapters or an extra head; loading it without them would answer wrongly",
        )


def _check_head(model: Model, checkpoint: Checkpoint) -> None:
    """Tied: a stored head must equal the embedding, or it is ignored loudly. Untied: it must be there."""
    head, embedding = checkpoint.tensors.get(_HEAD), checkpoint.tensors.get(_EMBEDDING)
    if model.config.checkpoint_format != "huggingface" or embedding is None:
        return
    if not model.config.tied and head is None:
        raise ModelFormatError(
            f"{checkpoint.path}: tensor {_HEAD!r} is missing and config.json does not tie it to the embedding",
            hint='set "tie_word_embeddings": true in config.json if the head is the embedding; else fetch the model again',
        )
    if model.config.tied and head is not None and not _equal(head, embedding):
        _log.warning(
            "%s: %s differs from the embedding, but the config ties them: it is ignored", checkpoint.path, _HEAD
        )


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.scheme == b.scheme and a.shape == b.shape and np.array_equal(a.data, b.data)
