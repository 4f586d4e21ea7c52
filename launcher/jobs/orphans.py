"""Processes that end with the one that started them, so that no rank outlives its job.

As a script, ``python orphans.py PARENT COMMAND...`` becomes the command, and receives SIGTERM when process PARENT dies.
That a process says this of itself spares the parent a ``fork``, which JAX's threads do not go well with.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["end_with_parent", "ending_with"]

_SET_PARENT_DEATH_SIGNAL = 1


def end_with_parent(number: int) -> None:
    """This process receives signal ``number`` when its parent dies (on Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, int(number), 0, 0, 0)


def ending_with(parent: int, command: Sequence[str]) -> list[str]:
    """``command`` so that it receives SIGTERM when process ``parent``, which starts it, dies (on Linux)."""
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", str(Path(__file__).resolve()), str(parent), *command]


def _become(parent: int, command: Sequence[str]) -> None:
    end_with_parent(signal.SIGTERM)
    if os.getppid() == parent:  # else it is dead already
        os.execvp(command[0], list(command))


if __name__ == "__main__":
    _become(int(sys.argv[1]), sys.argv[2:])
