"""Typed errors: what went wrong, with the value, and the way out. All floors raise these, only frontends print them."""

from __future__ import annotations


class RooflineError(Exception):
    """Base of all errors that a user can cause. `message` names the value at fault; `hint` says what to do about it."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class ConfigError(RooflineError):
    """A setting, flag or environment variable has a value that can't be honoured."""


class RequestError(RooflineError):
    """One request is invalid (sampling parameters, prompt, messages); others go on."""


class ModelNotFoundError(RooflineError):
    """The model name, path or hub id leads to nothing that can be loaded."""


class ModelFormatError(RooflineError):
    """A model file is damaged, hostile or in a form that is not supported; the message names the file and the field."""


class UnsupportedModelError(RooflineError):
    """The file is sound, but its architecture, tensor type or feature isn't implemented; the message lists what is."""


class InsufficientMemoryError(RooflineError):
    """Weights, KV cache and scratch do not fit; the hint names the largest context that does."""


class TemplateError(RooflineError):
    """A chat template refused the messages, or broke its time, size or sandbox limit; carries the template's words."""


class NumericsError(RooflineError):
    """Logits of one sequence became NaN or infinite; that sequence stops, others go on."""
