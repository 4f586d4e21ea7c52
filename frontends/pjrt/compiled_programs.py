"""The newest programs that the plug-in compiled in this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import cache

from shardc.frontends.pjrt.compile import CompiledProgram

__all__ = ["CompiledPrograms", "compiled_programs"]

#: How many are kept. Their devices and memory are not: those belong to JAX.
_KEPT = 32


class CompiledPrograms:
    """The newest programs, newest first, that are worth a look: for several devices, or of some size."""

    def __init__(self) -> None:
        self._kept: deque[CompiledProgram] = deque(maxlen=_KEPT)
        self._watchers: list[Callable[[CompiledProgram], None]] = []

    def __iter__(self) -> Iterator[CompiledProgram]:
        return reversed(tuple(self._kept))

    def add(self, compiled: CompiledProgram) -> None:
        """Keep it, and tell those who watch."""
        if compiled.executable.num_devices == 1 and compiled.is_small:
            return
        self._kept.append(compiled)
        for watcher in self._watchers:
            watcher(compiled)

    def watch(self, watcher: Callable[[CompiledProgram], None]) -> None:
        """Call ``watcher`` with every program that is added from now on."""
        self._watchers.append(watcher)

    def find(self, name: str) -> CompiledProgram | None:
        """The newest of a name: JAX's (``jit_step``), the function's (``step``), or a pattern of either."""
        for compiled in self:
            known = compiled.executable.name
            if any(fnmatchcase(n, name) for n in (known, known.removeprefix("jit_"))):
                return compiled
        return None


@cache
def compiled_programs() -> CompiledPrograms:
    """Those of this process."""
    return CompiledPrograms()
