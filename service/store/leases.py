"""Leases: no server on the same store evicts what another one is using.

A lease is an empty file in the store, ``leases/KEY.SERVER.NUMBER.EXPIRY`` (milliseconds). Who evicts first puts up a
warning, ``evicting/KEY``, and looks *afterwards* for leases; who takes a lease looks *afterwards* for warnings, and
waits while there is one. So one of the two sees the other: nothing that is leased goes, and what was there when its
lease was taken is there until it ends. Both end by themselves some time after their server has died.
"""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from shardc.hlo.errors import EnvironmentProblem
from shardc.service.store.storage_backend import StorageBackend

__all__ = ["Leases"]

#: Seconds that a lease lasts; it is renewed when half of them are left. Clocks of servers may differ by
#: some seconds.
_SECONDS = 60.0

#: Seconds that a warning lasts, and between two looks whether it is gone.
_WARNING, _POLL = 30.0, 0.02

#: Seconds that a lease stays after its last use where storage is far, so that a burst of requests costs one.
_LINGER = 5.0


@dataclass(slots=True)
class _HeldLease:
    """``count`` users in this process; the file ``name`` ends at ``expiry`` (`time.time`). ``since`` and ``idle`` are
    `time.monotonic`: from when on without a gap, and when the last user left."""

    name: str
    expiry: float
    since: float
    count: int = 0
    idle: float = 0.0


class Leases:
    """The leases of one server. Safe to use from several threads."""

    def __init__(self, backend: StorageBackend) -> None:
        self._backend = backend
        self._server = secrets.token_hex(8)
        self._numbers = itertools.count()
        self._held: dict[str, _HeldLease] = {}
        self._lock = threading.Lock()

    def take(self, key: str) -> None:
        """Hold ``key`` until `give_back`; counts."""
        with self._lock:
            held = self._held.get(key)
            if held and held.expiry - time.time() > _SECONDS / 4:
                held.count += 1
                return
        fresh = self._publish(key)
        with self._lock:
            held = self._held.setdefault(key, fresh)
            held.count += 1
            extra = _extend(held, fresh) if held is not fresh else ""
        if extra:
            self._remove([extra])

    def give_back(self, key: str) -> None:
        with self._lock:
            held = self._held[key]
            held.count -= 1
            held.idle = time.monotonic()
            over = [self._held.pop(key).name] if not held.count and self._backend.near else []
        self._remove(over)

    def since(self, key: str) -> float | None:
        """Since when (`time.monotonic`) nobody may evict ``key``; None: somebody may."""
        with self._lock:
            held = self._held.get(key)
            return held.since if held and held.count and held.expiry > time.time() else None

    @contextmanager
    def announce_eviction(self, wanted: Collection[str]) -> Iterator[Callable[[str], bool]]:
        """Warn that ``wanted`` are about to go. Gives a function that says of each whether it may go now: nobody uses
        it, and nobody begins to before the block ends."""
        until = time.time() + _WARNING
        warned = {key for key in wanted if self._put_warning(key, until)}
        try:
            free = warned - self.in_use(warned, end=True)
            yield lambda key: key in free and time.time() < until - _WARNING / 4
        finally:
            for key in warned:
                self._backend.remove(f"evicting/{key}")

    def in_use(self, wanted: Collection[str], *, end: bool = False) -> set[str]:
        """Those of ``wanted`` that some server uses. With ``end`` this server's next use of the others begins a new
        lease, also where the last one lingers."""
        others: set[str] = set()
        expired = []
        now = time.time()
        for name in self._backend.names("leases"):
            key, server, expiry = _parse(name)
            if now > expiry + _SECONDS:
                expired.append(name)
            elif now < expiry and server != self._server:
                others.add(key)
        with self._lock:
            mine = {key for key in wanted if key in self._held and self._held[key].count}
            over = [key for key in wanted if key in self._held and key not in mine] if end else []
            idle = [self._held.pop(key).name for key in over]
        self._remove(idle + expired)
        return mine | (others & set(wanted))

    def count(self) -> int:
        """How many keys this server uses."""
        with self._lock:
            return sum(held.count > 0 for held in self._held.values())

    def renew(self) -> None:
        """Renew what is used, drop what is no longer; to be called every few seconds."""
        with self._lock:
            late = [k for k, h in self._held.items() if h.count and h.expiry - time.time() < _SECONDS / 2]
            idle = [k for k, h in self._held.items() if not h.count and time.monotonic() - h.idle > _LINGER]
            over = [self._held.pop(key).name for key in idle]
        for key in late:
            fresh = self._publish(key)
            with self._lock:
                held = self._held.get(key)
                over.append(_extend(held, fresh) if held else fresh.name)
        self._remove(over)

    def close(self) -> None:
        with self._lock:
            names = [held.name for held in self._held.values()]
            self._held.clear()
        self._remove(names)

    def _publish(self, key: str) -> _HeldLease:
        expiry = time.time() + _SECONDS
        name = f"{key}.{self._server}.{next(self._numbers)}.{int(1000 * expiry)}"
        self._backend.mark(f"leases/{name}")
        while self._has_warning(key):
            time.sleep(_POLL)
        return _HeldLease(name, expiry, time.monotonic())

    def _put_warning(self, key: str, until: float) -> bool:
        """Put up a warning; False where another server's stands. One of a dead server is replaced."""
        path, text = f"evicting/{key}", str(int(1000 * until)).encode()
        if self._backend.create(path, text):
            return True
        if self._has_warning(key):
            return False
        self._backend.remove(path)
        return self._backend.create(path, text)

    def _has_warning(self, key: str) -> bool:
        try:
            until = self._backend.read(f"evicting/{key}")
        except FileNotFoundError:
            return False
        return until.isdigit() and time.time() < int(until) / 1000

    def _remove(self, names: Collection[str]) -> None:
        for name in names:
            with suppress(EnvironmentProblem):  # it ends by itself
                self._backend.remove(f"leases/{name}")


def _extend(held: _HeldLease, fresh: _HeldLease) -> str:
    """Let ``held`` last as long as ``fresh``; returns the file that is then one too many."""
    if held.expiry >= fresh.expiry:
        return fresh.name
    if held.expiry < time.time():
        held.since = fresh.since
    extra, held.name, held.expiry = held.name, fresh.name, fresh.expiry
    return extra


def _parse(name: str) -> tuple[str, str, float]:
    """Key, server, and when it ends; files that are no leases have no key and never end."""
    parts = name.split(".")
    if len(parts) != 4 or not parts[3].isdigit():
        return "", "", float("inf")
    return parts[0], parts[1], int(parts[3]) / 1000
