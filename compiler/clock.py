"""How long the stages of a compilation take, and how many threads it may use."""

from __future__ import annotations

import time

__all__ = ["Clock"]


class Clock:
    """Seconds between marks."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def mark(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = now - self._last
        self._last = now
