"""Replays the corpus of the fuzzers and seeded mutations of it: every input is read or refused, none crashes."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from support.fuzz_targets import try_gguf, try_safetensors

CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus"
NUM_MUTATIONS = 3000
Target = Callable[[bytes, Path], bool]
TARGETS: dict[str, Target] = {"gguf": try_gguf, "safetensors": try_safetensors}
EDGES = [0, 1, 2, 7, 31, 32, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1]


def corpus_of(kind: str) -> list[Path]:
    return sorted((CORPUS / kind).iterdir())


def mutated(content: bytes, rng: random.Random) -> bytes:
    """One to four edits: a byte, a number at an edge, a cut, a repeat, a swap of two places."""
    result = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(result) + 1)
        edit = rng.randrange(5)
        if edit == 0 and at < len(result):
            result[at] ^= 1 << rng.randrange(8)
        elif edit == 1:
            width = rng.choice([4, 8])
            result[at : at + width] = (rng.choice(EDGES) % (1 << 8 * width)).to_bytes(width, "little")
        elif edit == 2:
            del result[at : at + rng.choice([1, 8, 64, len(result)])]
        elif edit == 3:
            result[at:at] = result[at : at + rng.choice([1, 8, 40])]
        else:
            source = rng.randrange(len(result) + 1)
            result[at : at + 8] = result[source : source + 8]
    return bytes(result)


@pytest.mark.parametrize("kind", TARGETS)
def test_corpus_is_read_or_refused_as_its_name_says(kind: str, tmp_path: Path) -> None:
    """A file whose name starts with `sound` must open; all others must not crash."""
    num_sound = 0
    for path in corpus_of(kind):
        accepted = TARGETS[kind](path.read_bytes(), tmp_path)
        if path.name.startswith("sound"):
            assert accepted, path.name
            num_sound += 1
    assert num_sound >= 3


@pytest.mark.parametrize("kind", TARGETS)
def test_mutations_are_read_or_refused(kind: str, tmp_path: Path) -> None:
    seeds = [path.read_bytes() for path in corpus_of(kind)]
    rng = random.Random(2024)
    outcomes = [TARGETS[kind](mutated(rng.choice(seeds), rng), tmp_path) for _ in range(NUM_MUTATIONS)]
    assert any(outcomes)
    assert not all(outcomes)
