"""Turns a stream of token ids into text as it grows: whole characters only, stop strings found and cut off.

One Detokenizer per generated sequence; the engine pushes each token and sends on what comes back.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from roofline.text.tokenizer import Tokenizer


class Detokenizer:
    """`push` each id, then `finish`; the joined results equal `Tokenizer.decode` of all ids, cut before the first stop.

    `continues`: the ids follow a prompt, so a SentencePiece space at the start belongs to the text. Bytes that aren't
    UTF-8 come out as U+FFFD, as `bytes.decode("utf-8", "replace")` on the whole would give.
    """

    def __init__(
        self, tokenizer: Tokenizer, stop: Sequence[str] = (), *, skip_special: bool = True, continues: bool = False
    ) -> None:
        self._tokenizer = tokenizer
        self._hidden = tokenizer.vocabulary.control_ids if skip_special else frozenset()
        self._at_start = tokenizer.vocabulary.strips_leading_space and not continues
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")
        self._matcher = StopMatcher(stop)

    @property
    def stopped(self) -> str | None:
        """The stop string that ended the text, if one did."""
        return self._matcher.matched

    def push(self, token_id: int) -> str:
        """Text that is certain now: empty while a character or a possible stop string is unfinished."""
        if token_id in self._hidden:
            return ""
        data = self._tokenizer.token_bytes(token_id)
        if self._at_start and data:
            data = data.removeprefix(b" ")
            self._at_start = False
        return self._matcher.feed(self._characters.decode(data))

    def finish(self) -> str:
        """What was held back; an unfinished character becomes one U+FFFD."""
        return self._matcher.feed(self._characters.decode(b"", final=True)) + self._matcher.release()


class StopMatcher:
    """Passes text through up to the first stop string.

    Of several stops the one that is complete first wins (of those ending together, the longest): the result depends on
    the text alone, not on how it was cut into tokens. Only a tail that is a proper prefix of a stop is held back.
    `stops` holds no empty string: SamplingParams refuses it.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.matched: str | None = None

    def feed(self, text: str) -> str:
        if self.matched is not None:
            return ""
        window = self._held + text
        found = [(start + len(stop), start, stop) for stop in self._stops if (start := window.find(stop)) >= 0]
        if found:
            _, start, self.matched = min(found)
            self._held = ""
            return window[:start]
        kept_len = max((_overlap_len(window, stop) for stop in self._stops), default=0)
        cut = len(window) - kept_len
        self._held = window[cut:]
        return window[:cut]

    def release(self) -> str:
        """The held tail: the text ended, so it can no longer become a stop string."""
        held, self._held = self._held, ""
        return held


def _overlap_len(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a proper beginning of `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
