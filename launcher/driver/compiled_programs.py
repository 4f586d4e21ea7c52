"""The newest programs that were compiled for calls in this process, by the plug-in or by a jitted function."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardc.compiler.executable import Executable
    from shardc.hlo.config import Config
    from shardc.partitioner.program import PartitionedProgram, SourceProgram

__all__ = ["CompiledPrograms", "KnownProgram", "compiled_programs"]

#: How many are kept. Their devices and memory are not: those belong to the caller.
_KEPT = 32


@dataclass(frozen=True)
class KnownProgram:
    """A compiled program without devices, and ``source``, which makes what it was compiled from again.

    Programs that have the same ``fingerprint`` are equal. ``is_small``: it may be one of the many that JAX makes of
    single operations.
    """

    executable: Executable
    config: Config
    source: Callable[[], SourceProgram | PartitionedProgram]
    fingerprint: object
    is_small: bool = False


class CompiledPrograms:
    """The newest programs, newest first, that are worth a look: for several devices, or of some size."""

    def __init__(self) -> None:
        self._kept: deque[KnownProgram] = deque(maxlen=_KEPT)
        self._watchers: list[Callable[[KnownProgram], None]] = []

    def __iter__(self) -> Iterator[KnownProgram]:
        return reversed(tuple(self._kept))

    def add(self, compiled: KnownProgram) -> None:
        """Keep it, and tell those who watch."""
        if compiled.executable.num_devices == 1 and compiled.is_small:
            return
        self._kept.append(compiled)
        for watcher in self._watchers:
            watcher(compiled)

    def watch(self, watcher: Callable[[KnownProgram], None]) -> None:
        """Call ``watcher`` with every program that is added from now on."""
        self._watchers.append(watcher)

    def find(self, name: str) -> KnownProgram | None:
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
