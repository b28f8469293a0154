#!/usr/bin/env python3
"""Sizes of the house: lines per folder, the longest files and functions. `--check` fails above the budgets of CONTRIBUTING.md.

Small functions and files are how this code stays readable; the numbers are measured here and nowhere else.
"""

from __future__ import annotations

import argparse
import ast
import collections
import pathlib
import subprocess
import sys
from dataclasses import dataclass

PYTHON_FILE_LINES = 400
NATIVE_FILE_LINES = 600
FUNCTION_P95_LINES = 35
FUNCTION_MAX_LINES = 60
COUNTED = ("src", "tools", "bench", "native")


@dataclass(frozen=True)
class Function:
    """One Python function and its length in lines."""

    place: str
    num_lines: int


def tracked_files() -> list[pathlib.Path]:
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    listing = subprocess.run(command, capture_output=True, text=True, check=True)
    paths = (pathlib.Path(line) for line in listing.stdout.splitlines())
    return [p for p in paths if p.parts[0] in COUNTED and p.suffix in (".py", ".cpp", ".h") and p.exists()]


def functions_of(path: pathlib.Path) -> list[Function]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)]
    return [Function(f"{path}:{n.lineno} {n.name}", (n.end_lineno or n.lineno) - n.lineno + 1) for n in nodes]


def percentile_95(functions: list[Function]) -> int:
    lengths = sorted(f.num_lines for f in functions)
    return lengths[int(len(lengths) * 0.95)]


def over_budget(lines: dict[pathlib.Path, int], functions: list[Function]) -> list[str]:
    too_long = [f for f in functions if f.num_lines > FUNCTION_MAX_LINES]
    faults = [f"function over {FUNCTION_MAX_LINES} lines: {f.place} ({f.num_lines})" for f in too_long]
    p95 = percentile_95(functions)
    if p95 > FUNCTION_P95_LINES:
        faults.append(f"95th percentile of function length is {p95}, budget {FUNCTION_P95_LINES}")
    for path, count in lines.items():
        budget = PYTHON_FILE_LINES if path.suffix == ".py" else NATIVE_FILE_LINES
        if count > budget:
            faults.append(f"file over {budget} lines: {path} ({count})")
    return faults


def print_report(lines: dict[pathlib.Path, int], functions: list[Function]) -> None:
    folders: collections.Counter[str] = collections.Counter()
    for path, count in lines.items():
        folders["/".join(path.parts[: 3 if path.parts[0] == "src" else 2])] += count
    for folder, count in sorted(folders.items()):
        print(f"{count:7d}  {folder}")
    median = sorted(f.num_lines for f in functions)[len(functions) // 2]
    print(f"{sum(folders.values()):7d}  in all")
    print(f"{len(functions)} Python functions, median {median} lines, 95th percentile {percentile_95(functions)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit 1 if a budget is exceeded")
    options = parser.parse_args()
    lines = {path: path.read_text().count("\n") for path in tracked_files()}
    functions = [f for path in lines if path.suffix == ".py" for f in functions_of(path)]
    print_report(lines, functions)
    faults = over_budget(lines, functions)
    if faults:
        print("\n".join(faults))
    return 1 if faults and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
