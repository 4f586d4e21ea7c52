"""Counting the warnings that shardc logs in a block."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["count_warnings"]


class _Counter(logging.Filter):
    """Counts what passes. A handler would count as well, but the line would then reach nobody without one's own."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        self.count += record.levelno >= logging.WARNING
        return True


@contextmanager
def count_warnings() -> Iterator[Callable[[], int]]:
    """Counts shardc's warnings in the block; where they are switched off nobody can know, and that counts as one.

    Example: ``with count_warnings() as count: module = read()``, then ``count()``.
    """
    log = logging.getLogger("shardc")
    counter = _Counter()
    counter.count = 0 if log.isEnabledFor(logging.WARNING) else 1
    log.addFilter(counter)
    try:
        yield lambda: counter.count
    finally:
        log.removeFilter(counter)
