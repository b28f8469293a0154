"""docs/evidence/cases.md is kept true: every test it names exists, and what passes names one that carries the id."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "evidence" / "cases.md").read_text()
ROWS = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if re.match(r"\| [A-Z]+-\d\d ", line)]
STATES = ("passes", "needs a server", "needs a later feature")


def test_ids_are_there_once_with_a_known_state() -> None:
    ids = [row[0] for row in ROWS]
    assert len(ids) > 100
    assert len(set(ids)) == len(ids)
    assert [row for row in ROWS if not row[2].startswith(STATES)] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_named_tests_exist(row: list[str]) -> None:
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", row[3])
    for file, test in named:
        assert f"def {test}(" in (ROOT / "tests" / file).read_text(), f"{file} has no {test}"
    if row[2].startswith("passes"):
        tag = row[0].lower().replace("-", "")
        assert any(f"_{tag}_" in f"{test}_" for _, test in named), f"no test is named by {row[0]}"
