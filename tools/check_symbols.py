#!/usr/bin/env python3
"""Prove that no ISA leaks: every kernel object defines only its own tier's symbols, and none of them is weak.

An inline or template function that an AVX-512 object emits as a weak symbol can become the one copy that the linker keeps for the
whole module, and a machine without AVX-512 then dies in code that never asked for it. Run on a CMake build folder.
"""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys

TIERS = ("ref", "avx2", "avx512", "amx")


def defined_symbols(path: pathlib.Path) -> list[tuple[str, str]]:
    """(type letter, demangled name) of each symbol that the object defines."""
    listing = subprocess.run(["nm", "-C", "--defined-only", str(path)], capture_output=True, text=True, check=True)
    rows = (line.split(maxsplit=2) for line in listing.stdout.splitlines())
    return [(row[1], row[2]) for row in rows if len(row) == 3]


def leaks(path: pathlib.Path, tier: str) -> list[str]:
    faults = []
    for kind, name in defined_symbols(path):
        if kind in "WVuvw" and not name.startswith("DW.ref."):
            faults.append(f"{path.name}: weak symbol {name}")
        elif kind in "TDBR" and f"roofline::{tier}::" not in name:
            faults.append(f"{path.name}: exports {name}, outside roofline::{tier}")
    return faults


def kernel_objects(build: pathlib.Path) -> list[tuple[pathlib.Path, str]]:
    found = []
    for tier in TIERS:
        objects = [p for p in build.rglob("*.o") if f"roofline_{tier}.dir" in p.parts]
        found += [(p, tier) for p in sorted(objects)]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="the build folder, searched for object files")
    objects = kernel_objects(parser.parse_args().build)
    if not objects:
        print("no kernel objects found: build first (make build)")
        return 1
    faults = [fault for path, tier in objects for fault in leaks(path, tier)]
    print("\n".join(faults) if faults else f"{len(objects)} kernel objects define only their own tier's symbols")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
