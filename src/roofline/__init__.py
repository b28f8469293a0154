"""Roofline: an LLM inference engine that knows its floor.

`from roofline import LLM, SamplingParams` is all that most programs need. Names are imported when they are first used, so that
`import roofline` costs a few milliseconds.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roofline.core.errors import RooflineError as RooflineError
    from roofline.core.request import Completion as Completion
    from roofline.core.request import FinishReason as FinishReason
    from roofline.core.sampling import SamplingParams as SamplingParams
    from roofline.engine.llm import LLM as LLM
    from roofline.engine.llm import TextStream as TextStream

__version__ = "0.1.0"

_EXPORTS = {
    "LLM": "roofline.engine.llm",
    "TextStream": "roofline.engine.llm",
    "SamplingParams": "roofline.core.sampling",
    "Completion": "roofline.core.request",
    "FinishReason": "roofline.core.request",
    "RooflineError": "roofline.core.errors",
}

__all__ = ["LLM", "Completion", "FinishReason", "RooflineError", "SamplingParams", "TextStream", "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'roofline' has no attribute {name!r}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)
