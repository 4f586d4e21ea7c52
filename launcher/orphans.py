"""Processes that end with the one that started them, so that no rank outlives its job."""

from __future__ import annotations

import ctypes
import signal
import sys
from collections.abc import Callable

__all__ = ["end_with_parent"]

_SET_PARENT_DEATH_SIGNAL = 1


def end_with_parent(number: int = signal.SIGTERM) -> Callable[[], None] | None:
    """A function that makes the process which calls it receive signal ``number`` when its parent dies (Linux; None
    elsewhere). Made beforehand because it runs between fork and exec, where nothing may be imported."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_SET_PARENT_DEATH_SIGNAL, int(number), 0, 0, 0) and None
