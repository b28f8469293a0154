"""SentencePiece BPE by scores, exact to the order of merges; gguf_tokenizer.py builds it for Llama 2 and Gemma.

The BPE model of `tokenizers` ranks pairs; SentencePiece ranks merged pieces and breaks ties by position. Deriving pairs
from a 262k vocabulary takes seconds at start-up and still isn't exact, so the merge loop is our own: text is cut where
no piece can span the cut, and short words are cached.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

SPACE_MARK = "\u2581"
_CACHED_WORDS = 65_536
# Longer words rarely come twice; caching them would only hold memory.
_CACHED_WORD_LEN = 48


class SentencePieceBpe:
    """Encodes text whose spaces are already U+2581.

    `pieces` gives the id of every mergeable piece; `scores[id]` ranks merges, higher first, leftmost on ties (Kudo and
    Richardson 2018). Characters outside the vocabulary become the byte tokens of their UTF-8; a vocabulary without byte
    tokens gives one `unk_id` for a run of them.
    """

    def __init__(
        self, pieces: Mapping[str, int], scores: Sequence[float], byte_ids: Mapping[int, int], unk_id: int | None
    ) -> None:
        self._pieces = pieces
        self._scores = scores
        self._byte_ids = byte_ids
        self._unk_id = unk_id
        self._cut = _cut_pattern(pieces)
        self._encode_cached = lru_cache(maxsize=_CACHED_WORDS)(self._encode_word)

    def encode(self, marked_text: str) -> list[int]:
        """Ids of `marked_text`; O(n log n) in its longest word, linear in the number of words."""
        ids: list[int] = []
        for word in self._cut.split(marked_text):
            ids += self._encode_cached(word) if len(word) <= _CACHED_WORD_LEN else self._encode_word(word)
        return ids

    def _encode_word(self, word: str) -> tuple[int, ...]:
        ids: list[int] = []
        for symbol in _merge(word, self._pieces, self._scores):
            piece_id = self._pieces.get(symbol)
            if piece_id is not None:
                ids.append(piece_id)
            elif self._byte_ids:
                ids += [self._byte_ids[byte] for byte in symbol.encode()]
            elif self._unk_id is not None and ids[-1:] != [self._unk_id]:
                ids.append(self._unk_id)
        return tuple(ids)


def _merge(word: str, pieces: Mapping[str, int], scores: Sequence[float]) -> list[str]:
    """Symbols of `word` after all merges, best score first; heap entries whose symbols have changed are passed over."""
    symbols = list(word)
    following = [*range(1, len(word)), -1]
    preceding = list(range(-1, len(word) - 1))
    pairs = ((left, word[left : left + 2]) for left in range(len(word) - 1))
    candidates = [(-scores[pieces[pair]], left, pair) for left, pair in pairs if pair in pieces]
    heapq.heapify(candidates)

    def offer(left: int, right: int) -> None:
        merged = symbols[left] + symbols[right]
        if merged in pieces:
            heapq.heappush(candidates, (-scores[pieces[merged]], left, merged))

    while candidates:
        _, left, merged = heapq.heappop(candidates)
        right = following[left]
        if not symbols[left] or right < 0 or symbols[left] + symbols[right] != merged:
            continue
        symbols[left], symbols[right] = merged, ""
        following[left] = following[right]
        if following[left] >= 0:
            preceding[following[left]] = left
            offer(left, following[left])
        if preceding[left] >= 0:
            offer(preceding[left], left)
    return [symbol for symbol in symbols if symbol]


def _cut_pattern(pieces: Mapping[str, int]) -> re.Pattern[str]:
    """Matches the empty string before a space mark wherever no piece joins the character before it to the mark."""
    joined = set(re.findall(f"(.)(?={SPACE_MARK})", "\0".join(pieces), re.DOTALL)) - {"\0"}
    joined |= {"\0"} if any(f"\0{SPACE_MARK}" in piece for piece in pieces) else set()
    not_joined = f"[^{re.escape(''.join(sorted(joined)))}]" if joined else "."
    return re.compile(f"(?<={not_joined})(?={SPACE_MARK})", re.DOTALL)
