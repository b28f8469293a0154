"""A back end small enough to reason about, over a real paged cache, and a tokenizer of single bytes.

The fake's logits depend on every token of the sequence as the cache holds it, so a wrong block table, a stale block, a lost token or a
row mixed up with another changes the text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

from roofline.core.batch import BLOCK_LEN, Float32, StepBatch
from roofline.core.config import EngineConfig
from roofline.engine.engine import Engine
from roofline.program.ops import Embed, Logits, WeightSpec
from roofline.program.program import Program, build
from roofline.text.tokenizer import Tokenizer
from roofline.text.vocabulary import Vocabulary

VOCAB_SIZE = 260
BOS, EOS, END_OF_TURN, PADDING = 256, 257, 258, 259
Logit = Callable[[list[int]], np.ndarray]


class ByteEncoder:
    """Ids are bytes."""

    def encode_text(self, text: str) -> list[int]:
        return list(text.encode())

    def encode_rendered(self, text: str) -> list[int]:
        return self.encode_text(text)


def byte_tokenizer(*, adds_bos: bool = False, chat_template: str | None = None) -> Tokenizer:
    pieces = (*(bytes([value]) for value in range(256)), b"<s>", b"</s>", b"<end>")
    vocabulary = Vocabulary(
        num_tokens=len(pieces),
        token_bytes=pieces.__getitem__,
        control_ids=frozenset({BOS, EOS, END_OF_TURN}),
        bos_id=BOS,
        eos_ids=frozenset({EOS}),
        eos_id=EOS,
        adds_bos=adds_bos,
        chat_templates={"default": chat_template} if chat_template else {},
    )
    return Tokenizer(ByteEncoder(), vocabulary)


def hashed_logits(tokens: list[int]) -> np.ndarray:
    """Logits over printable letters that look random and depend on all tokens in order."""
    seed = int.from_bytes(hashlib.blake2b(bytes(str(tokens), "ascii"), digest_size=8).digest())
    logits = np.full(VOCAB_SIZE, -30.0, dtype=np.float32)
    logits[97:123] = np.random.default_rng(seed).normal(size=26) * 2
    return logits


def scripted(text: bytes, *, then: int = EOS) -> Logit:
    """Logits that write `text` after the prompt "?" (any prompt of one token), and then `then` for ever."""

    def logits(tokens: list[int]) -> np.ndarray:
        place = len(tokens) - 1
        row = np.zeros(VOCAB_SIZE, dtype=np.float32)
        row[text[place] if place < len(text) else then] = 20.0
        return row

    return logits


class FakeBackend:
    """Implements `Backend`: the KV cache holds token ids, `logits` sees the sequence that the block table leads to."""

    def __init__(self, *, num_blocks: int = 64, logits: Logit = hashed_logits) -> None:
        self._logits = logits
        self._cache = np.full((num_blocks, BLOCK_LEN), -1, dtype=np.int64)
        self._num_blocks = num_blocks
        self.batches: list[StepBatch] = []

    @property
    def program(self) -> Program:
        spec = WeightSpec("embed", (VOCAB_SIZE, 1))
        return build([Embed("x", "embed"), Logits("x", "logits", "embed")], [spec])

    @property
    def num_blocks(self) -> int:
        return self._num_blocks

    def step(self, batch: StepBatch) -> Float32:
        batch.check(vocab_size=VOCAB_SIZE, num_blocks=self._num_blocks)
        self.batches.append(batch)
        rows: dict[int, list[int]] = {}
        for b in range(batch.num_seqs):
            table = batch.block_tables[b]
            for row in range(batch.seq_starts[b], batch.seq_starts[b + 1]):
                position = int(batch.positions[row])
                self._cache[table[position // BLOCK_LEN], position % BLOCK_LEN] = batch.token_ids[row]
                flat = self._cache[table[: position // BLOCK_LEN + 1]].reshape(-1)[: position + 1]
                if row in batch.logit_rows:
                    rows[row] = flat.tolist()
        wanted = [self._logits(rows[row]) for row in batch.logit_rows.tolist()]
        return np.array(wanted, dtype=np.float32).reshape(len(wanted), VOCAB_SIZE)


def engine_config(
    *, max_context: int = 512, max_tokens_per_step: int = 64, max_sequences: int = 8, num_blocks: int = 64
) -> EngineConfig:
    return EngineConfig(
        num_threads=1,
        cpus=(0,),
        isa="ref",
        kv_dtype="f32",
        numerics="exact",
        max_context=max_context,
        max_tokens_per_step=max_tokens_per_step,
        max_sequences=max_sequences,
        num_blocks=num_blocks,
    )


def fake_engine(
    *,
    logits: Logit = hashed_logits,
    num_blocks: int = 64,
    max_context: int = 512,
    max_tokens_per_step: int = 64,
    max_sequences: int = 8,
    tokenizer: Tokenizer | None = None,
    eos_ids: frozenset[int] = frozenset({EOS, END_OF_TURN}),
) -> Engine:
    config = engine_config(
        max_context=max_context,
        max_tokens_per_step=max_tokens_per_step,
        max_sequences=max_sequences,
        num_blocks=num_blocks,
    )
    backend = FakeBackend(num_blocks=num_blocks, logits=logits)
    return Engine(backend, tokenizer or byte_tokenizer(), config, eos_ids=eos_ids)
