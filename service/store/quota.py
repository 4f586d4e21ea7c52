"""The store's quota: evicts the least recently used objects (LRU), but none that is in use."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass

from shardc.hlo.errors import EnvironmentProblem
from shardc.service.store.index import StoreIndex
from shardc.service.store.leases import Leases
from shardc.service.store.manifest import Damaged, manifest_path, read_manifest
from shardc.service.store.storage_backend import StorageBackend

__all__ = ["Evicted", "Quota"]

#: Folders whose files count and may be evicted.
_FOLDERS = ("entries", "programs")

#: Seconds after which a file that no manifest names belongs to nobody: its writer has died.
_LEFT_OVER = 3600.0

#: Objects that are evicted before sizes are asked again.
_AT_ONCE = 32


#: Path, size, and when it was changed.
_File = tuple[str, int, float]


@dataclass(slots=True)
class Evicted:
    """What was evicted so far."""

    number: int = 0
    bytes: int = 0


class Quota:
    """Keeps the objects in ``backend`` within ``limit`` bytes (0: no limit). Thread-safe."""

    def __init__(self, backend: StorageBackend, index: StoreIndex, leases: Leases, limit: int) -> None:
        self.evicted = Evicted()
        self.limit = limit
        self._backend = backend
        self._index = index
        self._leases = leases
        self._lock = threading.Lock()
        self._used: dict[str, float] = {}
        self._used_lock = threading.Lock()

    def note_use(self, place: str) -> None:
        """Note the use of an object; `flush_uses` writes it into the index."""
        with self._used_lock:
            self._used[place] = self._index.now()

    def flush_uses(self) -> None:
        """Write noted uses into the index."""
        with self._used_lock:
            used, self._used = self._used, {}
        if used:
            self._index.use(used)

    def reserve(self, place: str, size: int) -> None:
        """Evict until ``size`` bytes at ``place`` fit, and count them from now on.

        Raises `EnvironmentProblem` when they do not fit, because of the limit or because everything is in use.
        """
        with self._lock:
            if self.limit:
                self._evict(self.limit - size)
                if self._index.total() + size > self.limit:
                    raise self._full(size)
            self._index.add(place, size)

    def confirm(self, place: str, size: int) -> None:
        """The object that was reserved is there now; a listing in between may have missed it."""
        with suppress(EnvironmentProblem):  # the next listing puts it right
            self._index.add(place, size)

    def release(self, place: str) -> None:
        """``place`` has no object (any more)."""
        with suppress(EnvironmentProblem):  # the next listing puts it right
            self._index.remove([place])

    def evict_bytes(self, size: int) -> bool:
        """Evict ``size`` bytes, because the disk is full before the limit is reached; returns whether anything went.

        Evicts nothing for more than half of all bytes: that alone would not help.
        """
        with self._lock:
            before = self._index.total()
            if 2 * size > before:
                return False
            self._evict(before - size)
            return self._index.total() < before

    def evict(self) -> Evicted:
        """Bring the store within its limit, as far as objects are not in use; returns what was evicted."""
        before = Evicted(self.evicted.number, self.evicted.bytes)
        with self._lock:
            if self.limit:
                self._evict(self.limit)
        return Evicted(self.evicted.number - before.number, self.evicted.bytes - before.bytes)

    def rescan(self) -> None:
        """List the store, put the index right, and remove what writers who died have left."""
        began = time.time()
        groups: dict[str, list[_File]] = defaultdict(list)
        for folder in _FOLDERS:
            for found in self._backend.files_below(folder):
                groups[_place(found[0])].append(found)
        whole = {place: files for place, files in groups.items() if any(f[0] == manifest_path(place) for f in files)}
        sizes = {p: (sum(size for _, size, _ in f), max(changed for _, _, changed in f)) for p, f in whole.items()}
        self._index.agree(sizes, began)
        suspects = {place: files for place, files in groups.items() if place not in whole or len(files) > 2}
        old = {place: [f[0] for f in files if began - f[2] > _LEFT_OVER] for place, files in suspects.items()}
        self._clear({place: paths for place, paths in old.items() if paths})

    def _clear(self, left: Mapping[str, Collection[str]]) -> None:
        """Remove old files, but for those that the manifest at their place names."""
        busy = self._leases.in_use([_key(place) for place in left])
        for place, paths in left.items():
            if _key(place) not in busy:
                for path in set(paths) - self._named_files(place):
                    self._backend.remove(path)

    def _named_files(self, place: str) -> set[str]:
        """The files that the manifest at ``place`` names, and itself."""
        path = manifest_path(place)
        try:
            manifest = read_manifest(place, self._backend.read(path))
        except (FileNotFoundError, Damaged):
            return {path}
        return {path, manifest.files_path}

    def _evict(self, target: int) -> None:
        """Evict until at most ``target`` bytes are left, or only what is in use."""
        self.flush_uses()
        if self._index.fresh:
            self.rescan()
        tried: set[str] = set()
        while (over := self._index.total() - target) > 0:
            oldest = [(place, size) for place, size in self._index.oldest() if place not in tried]
            busy = self._leases.in_use([_key(place) for place, _ in oldest])
            victims: dict[str, int] = {}
            for place, size in oldest:
                if over > 0 and len(victims) < _AT_ONCE and _key(place) not in busy:
                    victims[place] = size
                    over -= size
            if not victims:
                return
            tried.update(victims)
            with self._leases.announce_eviction([_key(place) for place in victims]) as may_go:
                for place, size in victims.items():
                    if may_go(_key(place)):
                        self._remove(place, size)

    def _remove(self, place: str, size: int) -> None:
        path = manifest_path(place)
        with suppress(FileNotFoundError):  # somebody else has removed it
            manifest = self._backend.read(path)
            self._backend.remove(path)
            self.evicted.number += 1
            self.evicted.bytes += size
            with suppress(Damaged):  # then its files are left over, see `rescan`
                self._backend.remove(read_manifest(place, manifest).files_path)
        self._index.remove([place])

    def _full(self, size: int) -> EnvironmentProblem:
        what = f"the store has no space for {size:,} bytes: "
        if size > self.limit:
            what += f"its limit is {self.limit:,}"
        else:
            what += f"{self._index.total():,} of {self.limit:,} are in use"
        return EnvironmentProblem(
            what, where=self._backend.where, fix="try again later, or make the store larger: --store-size"
        )


def _place(path: str) -> str:
    """The object that a file belongs to; also of a file that is being written, ``.KEY.json.x.part``."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/{name.lstrip('.').partition('.')[0]}"


def _key(place: str) -> str:
    return place.rpartition("/")[2]
