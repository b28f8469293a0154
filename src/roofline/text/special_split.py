"""Cuts text at special tokens, leftmost first, the longest of those that start there; runs before either encoder."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping


class SpecialSplitter:
    """Yields the pieces of a text: `str` between special tokens, `int` for each special token found.

    Candidates are found by a regex of first-two-character prefixes and settled by dictionary: one alternation of
    Gemma's 6,400 special tokens would take longer to compile than the rest of the tokenizer takes to load.
    """

    def __init__(self, token_ids: Mapping[str, int]) -> None:
        self._token_ids = {text: token_id for text, token_id in token_ids.items() if text}
        self._lens_by_prefix = _lens_by_prefix(self._token_ids)
        self._candidate = _candidate_pattern(self._lens_by_prefix)

    def split(self, text: str) -> Iterator[str | int]:
        start = position = 0
        while match := self._candidate.search(text, position):
            position = match.start()
            token_len = self._token_len_at(text, position)
            if token_len == 0:
                position += 1
                continue
            if position > start:
                yield text[start:position]
            yield self._token_ids[text[position : position + token_len]]
            start = position = position + token_len
        if start < len(text):
            yield text[start:]

    def _token_len_at(self, text: str, position: int) -> int:
        for prefix_len in (2, 1):
            for token_len in self._lens_by_prefix.get(text[position : position + prefix_len], ()):
                if text[position : position + token_len] in self._token_ids:
                    return token_len
        return 0


def _lens_by_prefix(token_ids: Mapping[str, int]) -> dict[str, list[int]]:
    """Lengths of the tokens under each prefix of two characters (one for tokens of one), longest first."""
    lens: defaultdict[str, set[int]] = defaultdict(set)
    for text in token_ids:
        lens[text[:2]].add(len(text))
    return {prefix: sorted(values, reverse=True) for prefix, values in lens.items()}


def _candidate_pattern(prefixes: Mapping[str, list[int]]) -> re.Pattern[str]:
    if not prefixes:
        return re.compile(r"(?!)")
    return re.compile("|".join(re.escape(prefix) for prefix in sorted(prefixes, reverse=True)))
