"""One file per model family: from a ModelConfig to a Program and its weight names.

`load_model` is the door: a path in, a program with bound weights out.
"""

from roofline.models.builder import Model, WeightSource
from roofline.models.config import ModelConfig
from roofline.models.loading import LoadedModel, load_model, load_weights
from roofline.models.registry import build_model, family_of, read_config

__all__ = [
    "LoadedModel",
    "Model",
    "ModelConfig",
    "WeightSource",
    "build_model",
    "family_of",
    "load_model",
    "load_weights",
    "read_config",
]
