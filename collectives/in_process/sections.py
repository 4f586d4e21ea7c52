"""Sections of virtual devices' arenas: members of a group have one memory for results that all of them get.

The same pages of a file without a name are mapped into every member's arena, so a result is written once, and the
caches hold it once. In a child after ``fork`` they get pages of their own, since the parent goes on with the old ones.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.call.call import BufferRef, SharedSection
from shardc.native.memory.pages import PAGE, can_share, map_at, memory_file
from shardc.native.threads.pool import Row

__all__ = ["VirtualSections"]

#: Places that are mapped at most: systems bound how many parts an address space may have.
_MOST = 8192


@dataclass(frozen=True, slots=True)
class _Mapped:
    """``nbytes`` bytes that lie at each of ``addresses``."""

    addresses: tuple[int, ...]
    nbytes: int

    def map(self) -> tuple[int, ...]:
        """Map new pages with what is at the first address; returns where that was possible."""
        fd = memory_file(self.nbytes)
        try:
            os.pwrite(fd, ctypes.string_at(self.addresses[0], self.nbytes), 0)
            done = []
            with suppress(OSError):
                for address in self.addresses:
                    map_at(address, self.nbytes, fd, 0)
                    done.append(address)
            return tuple(done)
        finally:
            os.close(fd)


class VirtualSections:
    """``sections`` of the arenas of ``rows``, shared where the system can; the arenas are whole pages of their own.

    `followers` says who need not get a result: another device of the group has it in the same memory.
    """

    def __init__(self, rows: Iterable[Row], sections: Sequence[SharedSection], num_devices: int) -> None:
        rows = list(rows)
        possible = can_share() and len(rows) * len(sections) <= _MOST
        self._sections = [s for s in sections if s.nbytes] if possible else []
        self._mapped: list[_Mapped] = []
        self._followers: dict[int, list[int]] = {s.offset: [] for s in self._sections}
        for section in self._sections:
            group_of = {d: g for g in section.groups.expand() or (tuple(range(num_devices)),) for d in g}
            members: dict[tuple[int, ...], list[int]] = {}
            for row in rows:
                if (row.arena + section.offset) % PAGE == 0:
                    members.setdefault(group_of[row.device], []).append(row.arena)
            for arenas in members.values():
                self._share(section, arenas)
        if self._mapped:
            _after_fork().add(self)

    def _share(self, section: SharedSection, arenas: Sequence[int]) -> None:
        if len(arenas) < 2:
            return
        places = tuple(a + section.offset for a in arenas)
        mapped = _Mapped(places, -(-section.nbytes // PAGE) * PAGE)
        with suppress(OSError):
            done = mapped.map()
            self._mapped.append(_Mapped(done, mapped.nbytes))
            self._followers[section.offset] += [p - section.offset for p in done[1:]]

    def followers(self, arenas: NDArray[np.int64], ref: BufferRef) -> NDArray[np.bool_]:
        """Whether the ``ref`` of each device with one of these arenas lies in memory that an earlier device of its
        group shares."""
        found = np.zeros(len(arenas), np.bool_)
        for section in self._sections if ref.space == "arena" else ():
            if section.offset <= ref.offset < section.offset + section.nbytes:
                found |= np.isin(arenas, self._followers[section.offset])
        return found

    def part(self) -> None:
        """Leave the pages to the parent process."""
        for mapped in self._mapped:
            mapped.map()


@cache
def _after_fork() -> WeakSet[VirtualSections]:
    """The sections that this process has mapped; they part from the parent's in a child."""
    known: WeakSet[VirtualSections] = WeakSet()

    def part(sections: Iterable[VirtualSections] = known) -> None:
        for s in sections:
            s.part()

    os.register_at_fork(after_in_child=part)
    return known
