"""What the library logs as a warning, on the command line's standard error."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["shown_warnings"]


@contextmanager
def shown_warnings() -> Iterator[None]:
    """Print each warning of the block as ``warning: TEXT``."""
    log, handler = logging.getLogger("shardc"), _Warnings(logging.WARNING)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


class _Warnings(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print(f"{record.levelname.lower()}: {record.getMessage()}", file=sys.stderr, flush=True)
