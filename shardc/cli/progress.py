"""The line that tells what a command does: on a terminal, from rank 0, after a second; gone when there is output."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from shardc.hlo.progress import LOGGER

__all__ = ["Line", "is_quiet", "shown_progress"]

#: Commands that draw something of their own.
_OTHERS = frozenset(("sweep", "calibrate", "demo", "serve", "mpiexec"))
#: Seconds until the line appears, and between two states of it.
_DELAY = 1.0
_TICK = 0.2


def is_quiet(arguments: Sequence[str]) -> bool:
    """Whether a command line has ``-q``, alone or among other letters, or ``--quiet``."""
    own = () if arguments[:1] == ["mpiexec"] else arguments
    return any(a == "--quiet" or (a[:1] == "-" and a[:2] != "--" and "q" in a) for a in own)


@contextmanager
def shown_progress(arguments: Sequence[str]) -> Iterator[None]:
    """Draw what is done in the block on stderr, if that is a terminal and the command's ``arguments`` do not object."""
    from shardc.cli.view import rank

    if is_quiet(arguments) or not sys.stderr.isatty() or rank() > 0 or not _OTHERS.isdisjoint(arguments[:1]):
        yield
        return
    log, line = logging.getLogger(LOGGER), Line(sys.stderr)
    level, propagates = log.level, log.propagate
    log.setLevel(logging.DEBUG)
    log.propagate = False
    log.addHandler(line)
    try:
        yield
    finally:
        log.removeHandler(line)
        log.setLevel(level)
        log.propagate = propagates
        line.close()


class Line(logging.Handler):
    """Draws stages while they are under way: ``partition: tidy, 12 s``. A stage that ends has erased its line."""

    def __init__(self, stream: TextIO, delay: float = _DELAY, tick: float = _TICK) -> None:
        super().__init__(logging.DEBUG)
        self.stream, self.delay, self.tick = stream, delay, tick
        self.start = time.monotonic()
        self.stages: list[str] = []
        self.detail = ""
        self.drawn = False
        self.done = threading.Event()
        self.thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        depth = getattr(record, "depth", 0)
        if depth > 0:
            self.stages.append(record.getMessage())
        elif depth < 0 and self.stages:
            self.stages.pop()
        self.detail = record.getMessage() if depth == 0 else ""
        if not self.stages:
            self._erase()
        elif self.thread is None:
            self.thread = threading.Thread(target=self._draw, name="shardc-progress", daemon=True)
            self.thread.start()

    def close(self) -> None:
        self.done.set()
        if self.thread is not None:
            self.thread.join()
        self._erase()
        super().close()

    def _draw(self) -> None:
        while not self.done.wait(self.tick):
            seconds = time.monotonic() - self.start
            with self.lock or threading.RLock():
                if self.stages and seconds >= self.delay:
                    said = dict.fromkeys((self.stages[0], *self.stages[-1:], *((self.detail,) if self.detail else ())))
                    self._write(f"\r\033[K{': '.join(said)}, {seconds:.0f} s"[: _width() + 4])
                    self.drawn = True

    def _erase(self) -> None:
        if self.drawn:
            self._write("\r\033[K")
            self.drawn = False

    def _write(self, text: str) -> None:
        try:
            self.stream.write(text)
            self.stream.flush()
        except (OSError, ValueError):  # the terminal is gone
            self.done.set()


def _width() -> int:
    try:
        return (os.get_terminal_size(2).columns or 80) - 1
    except OSError:
        return 79
