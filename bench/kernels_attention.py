#!/usr/bin/env python3
"""Attention kernels alone, one thread: decode in GB of KV cache per second, prefill in multiply-adds per clock cycle.

    python bench/kernels_attention.py [--isa TIER] [--repeat 20]

Prints one JSON object a line with the ceiling beside it: for decode the rate at which NumPy sums 64 MB in this process, for prefill
the tier's nominal FMA rate (two units). Times are CPU time of the thread; the best of the repeats counts.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from roofline import _native

native = _native.attention
MACS_PER_CYCLE = {"avx2": 16, "avx512": 32}
# (head size, query heads per KV head): Qwen 0.5B, Qwen 1.5B, SmolLM2, Gemma 3 270M, plain multi-head
SHAPES = [(64, 7), (128, 6), (64, 3), (256, 4), (64, 1)]
DECODE_BYTES = 1 << 26


def read_bytes_per_s(repeat: int) -> float:
    words = np.ones(DECODE_BYTES // 8, np.int64)
    best = float("inf")
    for _ in range(repeat):
        start = time.thread_time()
        words.sum()
        best = min(best, time.thread_time() - start)
    return words.nbytes / best


def decode(isa: str, kv_type: str, head_size: int, ratio: int, repeat: int) -> dict[str, object]:
    context = 4096
    bytes_per_head = context // 32 * native.head_bytes(kv_type, head_size)
    num_kv_heads = DECODE_BYTES // bytes_per_head
    seconds = native.bench(
        isa,
        kv_type=kv_type,
        num_kv_heads=num_kv_heads,
        heads_per_kv=ratio,
        head_size=head_size,
        num_tokens=1,
        context=context,
        repeats=repeat,
    )
    rate = num_kv_heads * bytes_per_head / seconds
    ceiling = read_bytes_per_s(repeat)
    return {"gb_per_s": round(rate / 1e9, 2), "ns_per_kib": round(1024e9 / rate, 1), "share": round(rate / ceiling, 2)}


def prefill(isa: str, kv_type: str, head_size: int, ratio: int, repeat: int) -> dict[str, object]:
    num_tokens = 2048
    seconds = native.bench(
        isa,
        kv_type=kv_type,
        num_kv_heads=1,
        heads_per_kv=ratio,
        head_size=head_size,
        num_tokens=num_tokens,
        context=num_tokens,
        repeats=repeat,
    )
    macs = head_size * ratio * num_tokens * (num_tokens + 1)
    per_cycle = macs / seconds / native.clock_hz()
    share = round(per_cycle / MACS_PER_CYCLE[isa], 2) if isa in MACS_PER_CYCLE else None
    return {"gmac_per_s": round(macs / seconds / 1e9, 1), "mac_per_cycle": round(per_cycle, 1), "share": share}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--isa", default=_native.kernel_tiers(_native.best_isa())["attention"])
    parser.add_argument("--repeat", type=int, default=20)
    args = parser.parse_args()
    for measure in (decode, prefill):
        for head_size, ratio in SHAPES:
            for kv_type in ("f16", "bf16"):
                result = measure(args.isa, kv_type, head_size, ratio, args.repeat)
                shape = {"head_size": head_size, "heads_per_kv": ratio, "kv_type": kv_type, "isa": args.isa}
                print(json.dumps({"measure": measure.__name__, **shape, **result}))


if __name__ == "__main__":
    main()
