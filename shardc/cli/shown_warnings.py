"""What the library logs as a warning, on the command line's standard error."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["shown_warnings"]


@contextmanager
def shown_warnings(quiet: bool = False) -> Iterator[None]:
    """Print each warning of the block as ``warning: TEXT``, and those that are repeated once; none where ``quiet``."""
    log, handler = logging.getLogger("shardc"), logging.NullHandler() if quiet else _Warnings()
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


class _Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._told: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = f"{record.levelname.lower()}: {record.getMessage()}"
        if text not in self._told:
            self._told.add(text)
            print(text, file=sys.stderr, flush=True)
