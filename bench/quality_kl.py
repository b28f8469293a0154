#!/usr/bin/env python3
"""How far an engine's answers are from float32: KL divergence and top-1 agreement on held text, token by token.

    python bench/quality_kl.py logits float32   MODEL.gguf --into DIR     # transformers on torch, weights dequantized to float32
    python bench/quality_kl.py logits roofline  MODEL.gguf --into DIR
    python bench/quality_kl.py logits llama.cpp MODEL.gguf --into DIR     # with an interpreter that has llama-cpp-python
    python bench/quality_kl.py compare DIR

`logits` writes DIR/<text>.<engine>.npy, float32 [T, V], for each text of bench/heldout/, one pass over the whole text. The token
ids are made once, by whoever comes first, so every engine sees the same. `compare` prints one JSON object an engine and text:
mean KL(float32 || engine) in nats with its standard error, the 99th percentile, and the share of rows with the same best token.
The first row of a text is left out.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import pathlib
import sys
from collections.abc import Callable, Iterator

import numpy as np

HELDOUT = pathlib.Path(__file__).parent / "heldout"
ROWS_AT_ONCE = 128
FIRST_ROW = 1  # row 0 has one token of context and extreme activations: one row of KL 5.6 (llama.cpp, 1.5B) must not decide a mean
Logits = np.ndarray  # float32 [T, V]


def token_ids(model: str, into: pathlib.Path) -> dict[str, list[int]]:
    """Ids of each held text with the model's own BOS, from DIR/ids.json, or tokenized here and kept there."""
    kept = into / "ids.json"
    if not kept.exists():
        from roofline.models.loading import load_model
        from roofline.text.load import load_tokenizer

        checkpoint = load_model(model).checkpoint
        tokenizer = load_tokenizer(checkpoint.format, checkpoint.metadata, checkpoint.path)
        texts = {path.stem: path.read_text() for path in sorted(HELDOUT.glob("*.txt"))}
        kept.write_text(json.dumps({name: tokenizer.encode(text, add_special=True) for name, text in texts.items()}))
    ids: dict[str, list[int]] = json.loads(kept.read_text())
    return ids


def float32_runner(path: str) -> Callable[[list[int]], Logits]:
    import torch
    from transformers import AutoModelForCausalLM

    file = pathlib.Path(path)
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    model.eval()

    def run(ids: list[int]) -> Logits:
        with torch.no_grad():
            return np.asarray(model(torch.tensor([ids])).logits[0].numpy())

    return run


def roofline_runner(path: str) -> Callable[[list[int]], Logits]:
    from roofline import LLM

    llm = LLM(path, max_context=4096)
    return llm.prompt_logits


def llama_cpp_runner(path: str) -> Callable[[list[int]], Logits]:
    import llama_cpp as api

    quiet = api.llama_log_callback(lambda _level, _text, _data: None)
    api.llama_log_set(quiet, ctypes.c_void_p(0))
    llm = api.Llama(path, n_ctx=4096, n_batch=512, n_threads=2, n_threads_batch=2, logits_all=True, verbose=False)

    def run(ids: list[int]) -> Logits:
        llm.reset()
        llm.eval(ids)
        return np.array(llm.scores[: len(ids)], dtype=np.float32)

    return run


RUNNERS = {"float32": float32_runner, "roofline": roofline_runner, "llama.cpp": llama_cpp_runner}


def write_logits(engine: str, model: str, into: pathlib.Path) -> None:
    into.mkdir(parents=True, exist_ok=True)
    ids = token_ids(model, into)
    run = RUNNERS[engine](model)
    for name, text_ids in ids.items():
        np.save(into / f"{name}.{engine}.npy", run(text_ids))
        print(f"{engine}: {name}, {len(text_ids)} tokens", file=sys.stderr)


def log_softmax(logits: Logits) -> np.ndarray:
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))


def rows_of_kl(reference: Logits, other: Logits) -> tuple[np.ndarray, np.ndarray]:
    """Per row: KL(reference || other) in nats, and whether both have the same best token."""
    divergence, agrees = [], []
    for start in range(FIRST_ROW, len(reference), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        p, q = log_softmax(reference[rows]), log_softmax(other[rows, : reference.shape[1]])
        divergence.append((np.exp(p) * (p - q)).sum(axis=1))
        agrees.append(p.argmax(axis=1) == q.argmax(axis=1))
    return np.concatenate(divergence), np.concatenate(agrees)


def figures(name: str, engine: str, divergence: np.ndarray, agrees: np.ndarray) -> dict[str, object]:
    return {
        "text": name,
        "engine": engine,
        "num_tokens": len(divergence),
        "mean_kl": float(f"{divergence.mean():.3g}"),
        "standard_error": float(f"{divergence.std() / np.sqrt(len(divergence)):.2g}"),
        "p99_kl": float(f"{np.quantile(divergence, 0.99):.3g}"),
        "top1_agreement": round(float(agrees.mean()), 4),
    }


def compare(folder: pathlib.Path) -> Iterator[dict[str, object]]:
    for engine in ("roofline", "llama.cpp"):
        all_rows = []
        for path in sorted(folder.glob("*.float32.npy")):
            name = path.name.removesuffix(".float32.npy")
            other = np.load(folder / f"{name}.{engine}.npy", mmap_mode="r")
            rows = rows_of_kl(np.load(path, mmap_mode="r"), other)
            all_rows.append(rows)
            yield figures(name, engine, *rows)
        joined = [np.concatenate(parts) for parts in zip(*all_rows, strict=True)]
        yield figures("all", engine, *joined)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    logits = commands.add_parser("logits", help="run one engine over the held text")
    logits.add_argument("engine", choices=RUNNERS)
    logits.add_argument("model")
    logits.add_argument("--into", type=pathlib.Path, required=True)
    commands.add_parser("compare", help="print the figures").add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    if options.command == "logits":
        write_logits(options.engine, options.model, options.into)
    else:
        for row in compare(options.folder):
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
