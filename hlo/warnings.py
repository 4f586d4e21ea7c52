"""Counting the warnings that shardc logs in a block."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["count_warnings"]


class _Counter(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1


@contextmanager
def count_warnings() -> Iterator[Callable[[], int]]:
    """Counts shardc's warnings in the block; where they are switched off nobody can know, and that counts as one.

    Example: ``with count_warnings() as count: module = read()``, then ``count()``.
    """
    log = logging.getLogger("shardc")
    counter = _Counter()
    counter.count = 0 if log.isEnabledFor(logging.WARNING) else 1
    log.addHandler(counter)
    try:
        yield lambda: counter.count
    finally:
        log.removeHandler(counter)
