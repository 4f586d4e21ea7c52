"""Ctrl-C also while a long native step runs: Python handles signals only between its own instructions."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["prompt_interrupts"]

#: Seconds that a program gets to come back to Python.
_GRACE = 1.0


@contextmanager
def prompt_interrupts(grace: float = _GRACE) -> Iterator[None]:
    """Within the block SIGINT ends the process with code 130 when no KeyboardInterrupt could be raised for
    ``grace`` seconds. For programs of our own: it leaves what runs in native code unfinished."""
    if threading.current_thread() is not threading.main_thread() or os.name != "posix":
        yield
        return
    noticed = threading.Event()
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:  # somebody else decides what an interrupt means
        yield
        return

    def handler(number: int, frame: FrameType | None) -> None:
        noticed.set()
        signal.default_int_handler(number, frame)

    read, write = os.pipe()
    os.set_blocking(write, False)
    other = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, handler)
    threading.Thread(target=_watch, args=(read, noticed, grace), daemon=True).start()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        signal.set_wakeup_fd(other)
        os.close(write)


def _watch(read: int, noticed: threading.Event, grace: float) -> None:
    """Read the numbers of signals until the block ends."""
    while numbers := os.read(read, 64):
        if signal.SIGINT in numbers and not noticed.wait(grace):
            print("interrupted", file=sys.stderr, flush=True)
            os._exit(130)
    os.close(read)
