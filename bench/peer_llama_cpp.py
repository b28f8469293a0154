#!/usr/bin/env python3
"""One trial of each measure on llama.cpp, through its C API: the peer side of bench/versus.py.

    python bench/peer_llama_cpp.py MODEL.gguf --measure prefill512,decode_b1 --threads 2

Run it with an interpreter that has llama-cpp-python, built for this machine (build recipe: docs/evidence/performance.md). Random
token ids, so that no cache can help; decode starts at a context of 128 and runs 64 steps, all streams in one batch.
Prints one JSON object a measure.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import time
from collections.abc import Sequence

import llama_cpp as api

CONTEXT_LEN = 128
NUM_STEPS = 64
Item = tuple[int, int, int, bool]  # token id, position, stream, wants logits


class Peer:
    """A loaded model with a seeded source of token ids."""

    def __init__(self, path: str, threads: int) -> None:
        self.threads = threads
        self.model = api.llama_model_load_from_file(path.encode(), api.llama_model_default_params())
        self.vocab_size = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self.model))
        self.random = random.Random(0)

    def token(self) -> int:
        return self.random.randrange(1000, min(self.vocab_size, 40_000))

    def context(self, num_tokens: int, num_streams: int) -> ctypes.c_void_p:
        params = api.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = num_tokens, 2048, 512, num_streams
        params.n_threads = params.n_threads_batch = self.threads
        params.kv_unified = True
        return api.llama_init_from_model(self.model, params)

    def step(self, context: ctypes.c_void_p, items: Sequence[Item]) -> None:
        batch = api.llama_batch_init(len(items), 0, 1)
        for i, (token, position, stream, wants_logits) in enumerate(items):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, int(wants_logits)
            batch.seq_id[i][0] = stream
        batch.n_tokens = len(items)
        status = api.llama_decode(context, batch)
        api.llama_batch_free(batch)
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status}")

    def prefill(self, num_tokens: int) -> float:
        """Tokens per second of one prompt of `num_tokens`, logits of the last row only; a one-token warm-up first."""
        context = self.context(num_tokens + 64, 1)
        self.step(context, [(self.token(), 0, 0, True)])
        api.llama_memory_clear(api.llama_get_memory(context), True)
        items = [(self.token(), i, 0, i == num_tokens - 1) for i in range(num_tokens)]
        start = time.perf_counter()
        self.step(context, items)
        elapsed_s = time.perf_counter() - start
        api.llama_free(context)
        return num_tokens / elapsed_s

    def decode(self, num_streams: int) -> float:
        """Tokens per second over all streams, NUM_STEPS steps from a context of CONTEXT_LEN."""
        context = self.context(num_streams * (CONTEXT_LEN + NUM_STEPS) + 64, num_streams)
        for stream in range(num_streams):
            self.step(context, [(self.token(), i, stream, i == CONTEXT_LEN - 1) for i in range(CONTEXT_LEN)])
        start = time.perf_counter()
        for step in range(NUM_STEPS):
            self.step(context, [(self.token(), CONTEXT_LEN + step, s, True) for s in range(num_streams)])
        elapsed_s = time.perf_counter() - start
        api.llama_free(context)
        return num_streams * NUM_STEPS / elapsed_s

    def measure(self, name: str) -> float:
        if name.startswith("prefill"):
            return self.prefill(int(name.removeprefix("prefill")))
        return self.decode(int(name.removeprefix("decode_b")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--measure", default="prefill512,decode_b1")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    quiet = api.llama_log_callback(lambda _level, _text, _data: None)  # must outlive every call below
    api.llama_log_set(quiet, ctypes.c_void_p(0))
    api.llama_backend_init()
    peer = Peer(options.model, options.threads)
    for name in options.measure.split(","):
        line = {
            "engine": "llama.cpp",
            "measure": name,
            "tokens_per_s": round(peer.measure(name), 2),
            "threads": options.threads,
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
