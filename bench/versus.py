#!/usr/bin/env python3
"""Roofline beside a peer on one file: interleaved trials, medians with spread, ratios pair by pair.

    python bench/versus.py MODEL.gguf --measure prefill512,decode_b1 --repeat 5 \
        --peer ".venv-peer/bin/python bench/peer_llama_cpp.py"

Each repeat runs Roofline once and the peer once, in fresh processes and never together, so a drift of the machine's speed meets both.
Prints one JSON object a measure: medians, [min, max], and the median and range of the pairwise ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
from collections import defaultdict


def trial(command: list[str]) -> dict[str, float]:
    """Tokens per second by measure, from the JSON lines that `command` prints."""
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"{shlex.join(command)}: exit {run.returncode}\n{run.stderr}")
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    return {line["measure"]: line["tokens_per_s"] for line in lines}


def spread(values: list[float]) -> dict[str, float]:
    return {"median": round(statistics.median(values), 2), "min": round(min(values), 2), "max": round(max(values), 2)}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--measure", default="prefill512,decode_b1")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--peer", required=True, help="command of the peer's trial; MODEL and flags are appended")
    parser.add_argument("--ours", default=f"{sys.executable} -m roofline.cli.main bench", help="command of our trial")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    flags = [options.model, "--measure", options.measure, "--threads", str(options.threads)]
    ours, peer = defaultdict(list), defaultdict(list)
    for repeat in range(options.repeat):
        for name, value in trial([*shlex.split(options.ours), *flags, "--repeat", "1", "--json"]).items():
            ours[name].append(value)
        for name, value in trial([*shlex.split(options.peer), *flags]).items():
            peer[name].append(value)
        print(f"repeat {repeat + 1} of {options.repeat}, load {os.getloadavg()[0]:.2f}", file=sys.stderr)
    for name in options.measure.split(","):
        ratios = [a / b for a, b in zip(ours[name], peer[name], strict=True)]
        row = {"measure": name, "roofline": spread(ours[name]), "peer": spread(peer[name]), "ratio": spread(ratios)}
        print(json.dumps({"model": os.path.basename(options.model), "threads": options.threads, **row}), flush=True)


if __name__ == "__main__":
    main()
