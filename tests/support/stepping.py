"""Drives a back end by hand: several sequences, their blocks scattered over the cache, any mix of chunks in a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from roofline.backends.base import Backend
from roofline.core.batch import BLOCK_LEN, StepBatch


@dataclass
class Stepper:
    """Keeps block tables and lengths of sequences by name; blocks are handed out in a random order."""

    backend: Backend
    seed: int = 0
    blocks: dict[str, list[int]] = field(default_factory=dict)
    lens: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._free = np.random.default_rng(self.seed).permutation(self.backend.num_blocks).tolist()

    def step(self, *chunks: tuple[str, Sequence[int]]) -> dict[str, np.ndarray]:
        """Run the chunks, (sequence name, its next tokens), as one batch -> logits [tokens, V] of each."""
        starts = np.cumsum([0, *(len(tokens) for _, tokens in chunks)], dtype=np.int32)
        positions = [np.arange(len(tokens)) + self._extend(name, len(tokens)) for name, tokens in chunks]
        batch = StepBatch(
            token_ids=np.concatenate([tokens for _, tokens in chunks]).astype(np.int32),
            positions=np.concatenate(positions).astype(np.int32),
            seq_starts=starts,
            context_lens=np.array([self.lens[name] for name, _ in chunks], np.int32),
            block_tables=self._tables([name for name, _ in chunks]),
            logit_rows=np.arange(starts[-1], dtype=np.int32),
        )
        logits = self.backend.step(batch)
        return {name: logits[starts[i] : starts[i + 1]] for i, (name, _) in enumerate(chunks)}

    def run(self, tokens: Sequence[int], chunk_len: int) -> np.ndarray:
        """One sequence of its own, `chunk_len` tokens a step -> logits [T, V]."""
        name = f"run {len(self.lens)}"
        chunks = [tokens[i : i + chunk_len] for i in range(0, len(tokens), chunk_len)]
        return np.concatenate([self.step((name, chunk))[name] for chunk in chunks])

    def _extend(self, name: str, num_tokens: int) -> int:
        before = self.lens.get(name, 0)
        self.lens[name] = before + num_tokens
        blocks = self.blocks.setdefault(name, [])
        while len(blocks) * BLOCK_LEN < self.lens[name]:
            blocks.append(self._free.pop())
        return before

    def _tables(self, names: Sequence[str]) -> np.ndarray:
        table = np.full((len(names), max(len(self.blocks[name]) for name in names)), -1, np.int32)
        for row, name in enumerate(names):
            table[row, : len(self.blocks[name])] = self.blocks[name]
        return table
