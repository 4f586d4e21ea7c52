"""Memory of one process that all processes of its node can address.

Each process has one heap: a file in memory without a name (``memfd_create``), as large as the machine's memory and
sparse, so that only what is used takes memory. The others of the node open it through ``/proc/<pid>/fd/<fd>`` and map
it whole. Nothing is left behind, however a process ends. Where there is no ``memfd_create`` the file has a name until
the others have opened it (``shm_open``, then ``shm_unlink``).

`SharedHeap.empty` gives NumPy arrays; their memory is free again when the last array over it is gone. Free memory is
used again from the lowest place on, and large free parts are given back to the system.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
import socket
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.call.memory import aligned_bytes
from shardc.native.memory.pages import can_share, map_at

__all__ = ["NodeHeaps", "Offer", "Other", "SharedHeap", "open_heaps"]

Bytes = NDArray[np.uint8]

T = TypeVar("T")

_ALIGNMENT = 64
#: Address space for the heaps of all processes of a node, in bytes.
_ADDRESSES = 1 << 45
#: Blocks of at least so many bytes get their pages at once, and free parts of so many are given back.
_LARGE = 1 << 20
#: Blocks of at least so many bytes begin at a page, so that parts of them can be mapped.
_PAGED = 1 << 16
#: Free bytes that are kept for the next block, beside as much as is in use.
_SPARE = 1 << 26
#: ``MADV_POPULATE_WRITE`` of Linux 5.14, not in the `mmap` module.
_POPULATE_WRITE = 23
_REMOVE: int = getattr(mmap, "MADV_REMOVE", 0)
_TOKEN_BYTES = 32
#: The first bytes of a heap: the token that tells it from others, and the process's row of the control table.
_HEADER = 8192


class Ranges:
    """Which parts of ``[0, size)`` are free: ascending, with gaps between them.

    Example: ``r = Ranges(100); r.take(10)`` is 0, ``r.take(10)`` is 10; after ``r.give(0, 10)`` a ``take(5)`` is 0.
    """

    def __init__(self, size: int) -> None:
        self._starts = [0]
        self._ends = [size]

    def take(self, size: int, alignment: int = 1) -> int | None:
        """The start, a multiple of ``alignment``, of ``size`` bytes at the lowest place that has them; None when there
        is none."""
        for k, (start, end) in enumerate(zip(self._starts, self._ends, strict=True)):
            begin = -(-start // alignment) * alignment
            if end - begin >= size:
                left = [(a, b) for a, b in ((start, begin), (begin + size, end)) if a < b]
                self._starts[k : k + 1] = [a for a, _ in left]
                self._ends[k : k + 1] = [b for _, b in left]
                return begin
        return None

    def give(self, start: int, size: int) -> tuple[int, int]:
        """Bytes that were taken are free again; returns the free range that they are a part of now."""
        k = bisect_left(self._starts, start)
        end = start + size
        if k < len(self._starts) and self._starts[k] == end:
            end = self._ends.pop(k)
            del self._starts[k]
        if k and self._ends[k - 1] == start:
            self._ends[k - 1] = end
            return self._starts[k - 1], end
        self._starts.insert(k, start)
        self._ends.insert(k, end)
        return start, end


class SharedHeap:
    """The heap of this process, ``size`` bytes.

    In a child after ``fork`` `empty` gives private memory: the file still belongs to the parent.
    """

    def __init__(self, size: int, *, named: bool = False) -> None:
        self.size = size
        self.token = secrets.token_bytes(_TOKEN_BYTES)
        self.name = f"/shardc-{secrets.token_hex(8)}" if named else ""
        self.fd = _create_named_file(self.name) if named else os.memfd_create("shardc", os.MFD_CLOEXEC)
        try:
            os.ftruncate(self.fd, size)
            self._map = _map(self.fd, size)
        except BaseException:
            self.close()
            raise
        self.bytes: Bytes = np.frombuffer(self._map, np.uint8)
        self.address = int(self.bytes.ctypes.data)
        self.bytes[:_TOKEN_BYTES] = np.frombuffer(self.token, np.uint8)
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._ranges = Ranges(size)
        self._ranges.take(_HEADER)
        self._left: deque[tuple[int, int]] = deque()
        self._waiting: list[tuple[Callable[[], bool], int, int]] = []
        self._pinned: dict[int, int] = {}
        self.used = 0
        self._dirty = 0

    def empty(self, nbytes: int) -> Bytes:
        """Uninitialised memory at a multiple of 64, from 64 KB on whole pages; free when no array over it is left."""
        if os.getpid() != self._pid:
            return aligned_bytes(nbytes)
        size = _round_up(nbytes)
        start = self.take(nbytes)
        if size >= _LARGE:
            self._advise(_POPULATE_WRITE, start, start + size)
        return np.asarray(_Lease(self, start, size))[:nbytes]

    def take(self, nbytes: int, alignment: int = _ALIGNMENT) -> int:
        """The offset of ``nbytes`` bytes that stay taken until `release`; untouched ones cost no memory."""
        size = _round_up(nbytes)
        with self._lock:
            self._collect()
            start = self._ranges.take(size, mmap.PAGESIZE if size >= _PAGED else alignment)
            if start is None:
                raise MemoryError(f"the shared memory of {self.size} bytes has no {nbytes} bytes left")
            self.used += size
            return start

    def release(self, start: int, nbytes: int, unused: Callable[[], bool] = lambda: True) -> None:
        """Bytes from `take` are free as soon as ``unused()``: other processes may still look at them."""
        with self._lock:
            self._waiting.append((unused, start, _round_up(nbytes)))
            self._collect()

    def pin(self, start: int) -> None:
        """The block around ``start`` stays taken until `unpin`, even when no array over it is left."""
        with self._lock:
            self._pinned[start] = self._pinned.get(start, 0) + 1

    def unpin(self, start: int) -> None:
        with self._lock:
            self._pinned[start] -= 1
            if not self._pinned[start]:
                del self._pinned[start]

    def remap(self, start: int, nbytes: int, other: SharedHeap | Other | None = None, at: int = 0) -> None:
        """From now on the pages of a range are those at ``at`` of a heap (this or another), or its own again.

        All are multiples of a page. Raises `OSError` when the system refuses.
        """
        if other is not None:
            self._advise(_REMOVE, start, start + nbytes)
        fd, offset = (self.fd, start) if other is None else (other.fd, at)
        map_at(self.address + start, nbytes, fd, offset)
        if other is not None:
            self._advise(_POPULATE_WRITE, start, start + nbytes)

    def offset_of(self, address: int, nbytes: int = 1) -> int | None:
        """Where in the heap ``nbytes`` bytes at ``address`` lie; None if they do not."""
        offset = address - self.address
        return offset if offset >= 0 and offset + nbytes <= self.size else None

    def drop(self, start: int, size: int) -> None:
        """The last array over a block is gone (called from wherever that happens, so it only takes a note)."""
        self._left.append((start, size))

    def unlink(self) -> None:
        """Take away the file's name, where it has one."""
        name, self.name = self.name, ""
        if name:
            with contextlib.suppress(FileNotFoundError):
                _posix().shm_unlink(name)

    def close(self) -> None:
        """Nobody can open the file any more; arrays stay valid."""
        self.unlink()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _collect(self) -> None:
        """Note what has become free; with the lock."""
        while self._left:
            start, size = self._left.popleft()
            self._waiting.append((partial(self._is_free, start, size), start, size))
        waiting, self._waiting = self._waiting, []
        for unused, start, size in waiting:
            if unused():
                self._free(start, size)
            else:
                self._waiting.append((unused, start, size))

    def _is_free(self, start: int, size: int) -> bool:
        return not any(start <= p < start + size for p in self._pinned)

    def _free(self, start: int, size: int) -> None:
        if os.getpid() != self._pid:
            return
        self.used -= size
        begin, end = self._ranges.give(start, size)
        self._dirty += size
        if self._dirty > max(_SPARE, self.used) and end - begin >= _LARGE:
            # The part above may never have been touched: giving that back would walk over all of it for nothing.
            self._advise(_REMOVE, begin, min(end, start + size))
            self._dirty = max(0, self._dirty - (start + size - begin))

    def _advise(self, option: int, begin: int, end: int) -> None:
        """Tell the system about the whole pages of a range; it need not listen."""
        page = mmap.PAGESIZE
        begin, end = -(-begin // page) * page, end // page * page
        if option and begin < end:
            with contextlib.suppress(OSError, ValueError):
                self._map.madvise(option, begin, end - begin)


@dataclass(frozen=True, slots=True)
class Other:
    """Another process's heap as it is seen from here."""

    fd: int
    bytes: Bytes


class _Lease:
    """What arrays over a block are made from; when none of them is left, the block goes back."""

    def __init__(self, heap: SharedHeap, start: int, size: int) -> None:
        self._heap = heap
        self._place = (start, size)
        view = heap.bytes[start : start + size]
        self.__array_interface__ = view.__array_interface__

    def __del__(self) -> None:
        self._heap.drop(*self._place)


@dataclass(frozen=True, slots=True)
class Offer:
    """What a process tells the others of its node of its heap."""

    pid: int
    fd: int
    name: str
    size: int
    host: str
    token: bytes


@dataclass(frozen=True)
class NodeHeaps:
    """The heaps of the processes of a node, by their position there; ``addresses`` are where this process maps them."""

    mine: SharedHeap
    offers: tuple[Offer, ...]
    addresses: tuple[int, ...]
    maps: tuple[Bytes, ...]
    others: tuple[SharedHeap | Other, ...]

    @property
    def position(self) -> int:
        """Of this process in the node."""
        return self.addresses.index(self.mine.address)

    def among(self, positions: Sequence[int]) -> NodeHeaps:
        """Those of some of the processes, this one among them."""

        def some(values: Sequence[T]) -> tuple[T, ...]:
            return tuple(values[p] for p in positions)

        return NodeHeaps(self.mine, some(self.offers), some(self.addresses), some(self.maps), some(self.others))


def open_heaps(exchange: Callable[[Any], list[Any]], processes: int, *, named: bool | None = None) -> NodeHeaps | str:
    """The heaps of a node of ``processes`` processes, or why there are none; the same kind of answer for all.

    ``exchange(value)`` gives everybody's value by position in the node; all processes call this together. ``named``
    overrides how the files are made.
    """
    named = not can_share() if named is None else named
    problem, heap = "", None
    try:
        heap = SharedHeap(_size(processes), named=named)
        offer = Offer(os.getpid(), heap.fd, heap.name, heap.size, _host(), heap.token)
    except (OSError, ValueError, ImportError) as e:
        problem, offer = f"no shared memory: {e}", Offer(os.getpid(), -1, "", 0, _host(), b"")
    offers = exchange((problem, offer))
    problem = next((p for p, _ in offers if p), "")
    maps: list[SharedHeap | Other] = []
    if heap is not None and not problem:
        try:
            maps = [heap if o.token == heap.token else _open(o) for _, o in offers]
        except (OSError, ValueError) as e:
            problem = str(e)
    problems = [p for p in exchange(problem) if p]
    if heap is not None:
        heap.unlink()
    if heap is None or problems:
        if heap is not None:
            heap.close()
        return problems[0] if problems else problem
    views = tuple(m.bytes for m in maps)
    addresses = tuple(int(v.ctypes.data) for v in views)
    return NodeHeaps(heap, tuple(o for _, o in offers), addresses, views, tuple(maps))


def _open(offer: Offer) -> Other:
    """Map another process's heap; raises `OSError` or `ValueError` when it cannot be reached or is another one."""
    who = f"process {offer.pid} on {offer.host.split(' ')[0]}"
    if offer.host != _host():
        raise ValueError(f"{who} is on another machine")
    if offer.name:
        fd = _posix().shm_open(offer.name, os.O_RDWR, mode=0o600)
    else:
        fd = os.open(f"/proc/{offer.pid}/fd/{offer.fd}", os.O_RDWR | os.O_CLOEXEC)
    try:
        # In another process namespace the number is somebody else's.
        seen = np.frombuffer(_map(fd, offer.size), np.uint8) if os.fstat(fd).st_size == offer.size else None
        if seen is None or seen[:_TOKEN_BYTES].tobytes() != offer.token:
            raise ValueError(f"{who} cannot be seen from here (another container?)")
        return Other(fd, seen)
    except BaseException:
        os.close(fd)
        raise


def _map(fd: int, size: int) -> mmap.mmap:
    flags = mmap.MAP_SHARED | getattr(mmap, "MAP_NORESERVE", 0)
    mapped = mmap.mmap(fd, size, flags, mmap.PROT_READ | mmap.PROT_WRITE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):
            mapped.madvise(mmap.MADV_HUGEPAGE)
    return mapped


def _create_named_file(name: str) -> int:
    return int(_posix().shm_open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode=0o600))


def _posix() -> Any:
    """Python's own door to named shared memory."""
    return import_module("_posixshmem")


def _size(processes: int) -> int:
    """As much as the machine has, within the address space that the node's heaps may take."""
    memory = os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE
    size = min(max(memory, 1 << 30), _ADDRESSES // max(1, processes))
    return size // (2 << 20) * (2 << 20)


def _host() -> str:
    """The machine and its run: equal names happen in containers, equal boot identities do not on two machines."""
    boot = ""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return f"{socket.gethostname()} {boot}"


def _round_up(nbytes: int) -> int:
    unit = _ALIGNMENT if nbytes < _PAGED else mmap.PAGESIZE
    return max(unit, -(-nbytes // unit) * unit)
