"""Where the time of loading went: stages in order, for the log line of `load_engine` and for reports."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class StageTimes:
    """Seconds of each stage, in the order they began."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time what runs inside; a stage that raises is not counted."""
        started_s = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - started_s

    def line(self) -> str:
        """The total and its parts."""
        parts = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in self.seconds.items())
        return f"{sum(self.seconds.values()):.2f} s ({parts})"
