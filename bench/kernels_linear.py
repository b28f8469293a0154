"""Micro-benchmark of the linear kernels on one thread: GB/s of weights for one token, MAC per cycle for many.

    PYTHONPATH=src python bench/kernels_linear.py --tier avx512 --tokens 1,8,512 --rows 1024 --row-len 1536 --ghz 2.8

One JSON object a line. `--megabytes` sets the working set: a few stay in L2 or L3, several hundred come from DRAM.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from roofline import _native
from roofline.weights.schemes import SCHEMES
from support.random_blocks import random_blocks


def weights_of(scheme: str, num_rows: int, row_len: int, megabytes: float) -> list[Any]:
    """Copies of one random matrix until they fill the working set."""
    raw = random_blocks(scheme, num_rows, row_len, np.random.default_rng(0))
    first = _native.linear.pack(scheme, raw, row_len)
    count = max(1, round(megabytes * 1e6 / first.num_bytes))
    return [first, *(_native.linear.pack(scheme, raw, row_len) for _ in range(count - 1))]


def trial(args: argparse.Namespace, scheme: str, num_tokens: int) -> dict[str, object]:
    weights = weights_of(scheme, args.rows, args.row_len, args.megabytes)
    pass_s = _native.linear.bench(args.tier, weights, num_tokens, args.seconds)
    num_bytes = sum(w.num_bytes for w in weights)
    macs = len(weights) * args.rows * args.row_len * num_tokens
    return {
        "kernel": _native.linear.describe(args.tier, scheme, num_tokens),
        "scheme": scheme,
        "tokens": num_tokens,
        "shape": f"{args.rows}x{args.row_len}",
        "megabytes": round(num_bytes / 1e6, 2),
        "gb_per_s": round(num_bytes / pass_s / 1e9, 2),
        "gmac_per_s": round(macs / pass_s / 1e9, 2),
        "mac_per_cycle": round(macs / pass_s / args.ghz / 1e9, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tier", default=_native.best_isa())
    parser.add_argument("--schemes", default="Q4_0,Q4_1,Q5_0,Q8_0,Q4_K,Q6_K,Q2_K,IQ4_NL,F16")
    parser.add_argument("--tokens", default="1,2,4,8,512")
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--row-len", type=int, default=1536)
    parser.add_argument("--megabytes", type=float, default=0.5)
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--ghz", type=float, default=2.8, help="clock that cycles are counted in")
    args = parser.parse_args()
    for scheme in args.schemes.split(","):
        if scheme not in SCHEMES:
            parser.error(f"unknown scheme {scheme}; known: {' '.join(SCHEMES)}")
        for num_tokens in args.tokens.split(","):
            print(json.dumps(trial(args, scheme, int(num_tokens))), flush=True)


if __name__ == "__main__":
    main()
