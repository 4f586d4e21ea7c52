"""The store: uploaded programs and finished entries by content, in a folder or in object storage by its fsspec URL.

    URL/programs/ab/abcd….json, .TOKEN.files             an uploaded program, by its SHA-256
    URL/entries/NAME OF KEY/ab/abcd….json, .TOKEN.files  an order's files, by `order_key`; signed with the server's key
    URL/leases/…, evicting/…                             what servers are using, and about to remove
    STATE/store-….sqlite                                 sizes and last uses

Several servers may use one URL. Those with the same key share their entries; the others' are not trusted, and only
count towards the size.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from shardc.hlo.errors import EnvironmentProblem, RunError
from shardc.service.jobs import Artifact, StoreEntry
from shardc.service.store.index import StoreIndex
from shardc.service.store.leases import Leases
from shardc.service.store.manifest import DIGEST, Damaged
from shardc.service.store.object_table import NotStored, ObjectTable
from shardc.service.store.quota import Evicted, Quota
from shardc.service.store.signature import check_signature, key_name, sign
from shardc.service.store.storage_backend import StorageBackend

__all__ = ["NotStored", "Store", "StoreStatistics"]

#: Seconds between two runs of housekeeping, and between two of its listings of the whole store.
_PAUSE, _RESCAN = 2.0, 300.0

_PROGRAM = "program"


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """``bytes`` of everything in the store, ``in_use``: keys that this server holds; the rest since it was opened.

    ``problem``: what went wrong last in housekeeping, empty when nothing does.
    """

    entries: int
    programs: int
    bytes: int
    limit_bytes: int
    in_use: int
    hits: int
    misses: int
    evicted: int
    evicted_bytes: int
    damaged: int
    problem: str


class Store:
    """A store at ``url`` (a folder, or an fsspec URL), bounded by ``limit_bytes`` (0: not), with its index in the
    folder ``state``; entries are signed with ``key``.

    Safe to use from several threads and processes. Raises `EnvironmentProblem` when the storage or the index cannot
    be used. To be closed. Example:

        with Store("store", Path("state"), 10**9, server_key(Path("state"))) as store:
            with store.lease(key):
                entry = store.find(key) or store.put(key, {"report.json": b"{}"}, {})
                store.read(key, "report.json")
    """

    def __init__(self, url: str, state: Path, limit_bytes: int, key: bytes) -> None:
        self._key = key
        self._backend = StorageBackend(url)
        probe = f"probe.{secrets.token_hex(8)}"
        self._backend.mark(probe)
        self._backend.remove(probe)
        self._leases = Leases(self._backend)
        self._index = StoreIndex(state / f"store-{hashlib.sha256(url.encode()).hexdigest()[:12]}.sqlite")
        self._quota = Quota(self._backend, self._index, self._leases, limit_bytes)
        parts = (self._backend, self._leases, self._quota)
        self._entries = ObjectTable(f"entries/{key_name(key)}", *parts, self._check_entry)
        self._programs = ObjectTable("programs", *parts, _check_program)
        self._hits = self._misses = 0
        self._counting = threading.Lock()
        self._problem = ""
        self._closed = threading.Event()
        self._housekeeping = threading.Thread(target=self._run_housekeeping, name="shardc store", daemon=True)
        try:
            if self._index.fresh:
                self._quota.rescan()
        except BaseException:
            self._index.close()
            raise
        self._housekeeping.start()

    def put_program(self, data: bytes, facts: Mapping[str, Any] = MappingProxyType({})) -> str:
        """Keep an uploaded program; returns its key. ``facts`` are told by `program_entry`."""
        key = hashlib.sha256(data).hexdigest()
        self._programs.put(key, {_PROGRAM: data}, lambda files: StoreEntry(key, files, facts))
        return key

    def program_entry(self, key: str) -> StoreEntry | None:
        """Size and facts of a program; None when it is not there."""
        found = self._programs.find(key)
        return found.entry if found else None

    def has_program(self, key: str) -> bool:
        return self._programs.find(key) is not None

    def program(self, key: str) -> bytes:
        """An uploaded program. Raises `NotStored`."""
        return self._programs.read(key, _PROGRAM)

    def find(self, key: str) -> StoreEntry | None:
        """The entry under ``key``, signed and sound; None when there is none (any more)."""
        found = self._entries.find(key)
        with self._counting:
            self._hits += found is not None
            self._misses += found is None
        return found.entry if found else None

    def put(self, key: str, files: Mapping[str, bytes], facts: Mapping[str, Any]) -> StoreEntry:
        """Keep an order's ``files`` with ``facts`` (plain data); what is there already stays, and is returned.

        Raises `EnvironmentProblem` when there is no quota, on the disk or within the limit.
        """

        def finish(artifacts: tuple[Artifact, ...]) -> StoreEntry:
            return sign(StoreEntry(key, artifacts, facts), self._key)

        return self._entries.put(key, files, finish).entry

    def read(self, key: str, name: str) -> bytes:
        """A file of an entry, checked. Raises `NotStored`."""
        return self._entries.read(key, name)

    def find_cached(self, key: str, name: str) -> tuple[StoreEntry, Artifact, bytes | None] | None:
        """A file of an entry, with both, if it is in memory: for threads that must not wait. None: it may be there all
        the same."""
        found = self._entries.find_cached(key, name)
        with self._counting:
            self._hits += found is not None
        return found

    @contextmanager
    def lease(self, *keys: str) -> Iterator[None]:
        """While this lasts no server evicts what is under ``keys`` (entries, programs; there already or not yet)."""
        with ExitStack() as stack:
            for key in keys:
                if DIGEST.fullmatch(key):
                    self._leases.take(key)
                    stack.callback(self._leases.give_back, key)
            yield

    def evict(self) -> Evicted:
        """Bring the store within its limit now, as `put` does by itself; returns what was evicted."""
        return self._quota.evict()

    def statistics(self) -> StoreStatistics:
        evicted = self._quota.evicted
        return StoreStatistics(
            entries=self._index.count("entries/"),
            programs=self._index.count("programs/"),
            bytes=self._index.total(),
            limit_bytes=self._quota.limit,
            in_use=self._leases.count(),
            hits=self._hits,
            misses=self._misses,
            evicted=evicted.number,
            evicted_bytes=evicted.bytes,
            damaged=self._entries.damaged + self._programs.damaged,
            problem=self._problem,
        )

    def close(self) -> None:
        """End housekeeping and give all leases back."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._housekeeping.join()
        with suppress(EnvironmentProblem):  # last uses are worth no failure
            self._quota.flush_uses()
        self._leases.close()
        self._index.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run_housekeeping(self) -> None:
        scanned = float("-inf")
        while not self._closed.is_set():
            try:
                self._leases.renew()
                self._quota.flush_uses()
                if self._index.fresh or time.monotonic() - scanned > _RESCAN:
                    self._quota.rescan()
                    scanned = time.monotonic()
                self._quota.evict()
                self._problem = ""
            except EnvironmentProblem as e:
                self._problem = str(e)
            self._closed.wait(_PAUSE)

    def _check_entry(self, entry: StoreEntry) -> None:
        try:
            check_signature(entry, self._key)
        except RunError as e:
            raise Damaged(str(e)) from None


def _check_program(entry: StoreEntry) -> None:
    if [(a.name, a.sha256) for a in entry.artifacts] != [(_PROGRAM, entry.key)]:
        raise Damaged("this is another program")
