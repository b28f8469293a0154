"""The table of architectures: which family serves a checkpoint, and the one way to its config and model."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from roofline.core.errors import ModelFormatError, UnsupportedModelError
from roofline.models.builder import Model, ModelBuilder
from roofline.models.config import ModelConfig
from roofline.models.config_gguf import read_gguf_config
from roofline.models.config_huggingface import read_huggingface_config
from roofline.models.families.gemma import GEMMA2, GEMMA3
from roofline.models.families.llama import LLAMA
from roofline.models.families.mistral import MISTRAL
from roofline.models.families.mixtral import MIXTRAL
from roofline.models.families.phi3 import PHI3
from roofline.models.families.qwen2 import QWEN2
from roofline.models.families.qwen3 import QWEN3
from roofline.models.families.qwen_moe import QWEN2_MOE, QWEN3_MOE
from roofline.models.family import Family
from roofline.weights.tensor import Checkpoint

_ALL = (LLAMA, MISTRAL, QWEN2, QWEN3, GEMMA2, GEMMA3, PHI3, MIXTRAL, QWEN2_MOE, QWEN3_MOE)
FAMILIES: Mapping[str, Family] = MappingProxyType({family.name: family for family in _ALL})

# GGUF `general.architecture`. A llama with experts is Mixtral: see family_of.
GGUF_ARCHITECTURES: Mapping[str, Family] = MappingProxyType(
    {
        "llama": LLAMA,
        "qwen2": QWEN2,
        "qwen3": QWEN3,
        "gemma2": GEMMA2,
        "gemma3": GEMMA3,
        "phi3": PHI3,
        "qwen2moe": QWEN2_MOE,
        "qwen3moe": QWEN3_MOE,
    }
)

# config.json: `architectures` names the model class, `model_type` its family; they must agree where both are given.
HUGGINGFACE_ARCHITECTURES: Mapping[str, Family] = MappingProxyType(
    {
        "LlamaForCausalLM": LLAMA,
        "MistralForCausalLM": MISTRAL,
        "Qwen2ForCausalLM": QWEN2,
        "Qwen3ForCausalLM": QWEN3,
        "Gemma2ForCausalLM": GEMMA2,
        "Gemma3ForCausalLM": GEMMA3,
        "Phi3ForCausalLM": PHI3,
        "MixtralForCausalLM": MIXTRAL,
        "Qwen2MoeForCausalLM": QWEN2_MOE,
        "Qwen3MoeForCausalLM": QWEN3_MOE,
    }
)
HUGGINGFACE_MODEL_TYPES: Mapping[str, Family] = MappingProxyType(
    {
        "llama": LLAMA,
        "mistral": MISTRAL,
        "qwen2": QWEN2,
        "qwen3": QWEN3,
        "gemma2": GEMMA2,
        "gemma3_text": GEMMA3,
        "phi3": PHI3,
        "mixtral": MIXTRAL,
        "qwen2_moe": QWEN2_MOE,
        "qwen3_moe": QWEN3_MOE,
    }
)


def family_of(checkpoint: Checkpoint) -> Family:
    """The family that serves a checkpoint.

    Raises UnsupportedModelError, listing the known ones, for another architecture; ModelFormatError where there is none or two.
    """
    if checkpoint.format == "gguf":
        return _gguf_family(checkpoint)
    metadata = checkpoint.metadata
    named = []
    architectures = metadata.get("architectures") or []
    if not isinstance(architectures, list):
        raise ModelFormatError(f"{checkpoint.path}: 'architectures' is {architectures!r}, not a list")
    if architectures:
        named.append(_look_up(HUGGINGFACE_ARCHITECTURES, architectures[0], "architectures"))
    if metadata.get("model_type") is not None:
        named.append(_look_up(HUGGINGFACE_MODEL_TYPES, metadata["model_type"], "model_type"))
    if not named:
        raise ModelFormatError(f"{checkpoint.path}: config.json has neither 'architectures' nor 'model_type'")
    if named[0] is not named[-1]:
        raise ModelFormatError(
            f"{checkpoint.path}: 'architectures' {architectures} and 'model_type' {metadata['model_type']!r} disagree"
        )
    return named[0]


def _gguf_family(checkpoint: Checkpoint) -> Family:
    architecture = checkpoint.metadata.get("general.architecture")
    family = _look_up(GGUF_ARCHITECTURES, architecture, "general.architecture")
    if family is LLAMA and checkpoint.metadata.get("llama.expert_count"):
        return MIXTRAL
    return family


def _look_up(table: Mapping[str, Family], name: object, key: str) -> Family:
    family = table.get(name) if isinstance(name, str) else None
    if family is None:
        raise UnsupportedModelError(f"{key} {name!r} is not supported", hint=f"supported: {', '.join(sorted(table))}")
    return family


def read_config(checkpoint: Checkpoint) -> ModelConfig:
    """The checkpoint's description in normal form; ModelFormatError names the key that is missing or wrong."""
    family = family_of(checkpoint)
    if checkpoint.format == "gguf":
        return read_gguf_config(checkpoint, family)
    return read_huggingface_config(checkpoint, family)


def build_model(config: ModelConfig, *, max_context_len: int | None = None) -> Model:
    """Program and weight sources of a config.

    `max_context_len` is the longest sequence that will be run; rotary scalings that depend on length (dynamic, longrope) choose
    their one table by it. The default is the longest that the model claims.
    """
    family = FAMILIES[config.family]
    names = family.gguf if config.checkpoint_format == "gguf" else family.huggingface
    builder = ModelBuilder(config, names, max_context_len or config.max_context_len)
    family.build(builder)
    return builder.finish()
