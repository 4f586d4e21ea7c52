"""A table of objects of one kind by key, each a manifest and a few files, checked before anybody reads them.

An object is read and checked in full when this process first sees it, and again when its files look changed. One that
fails the check is removed and counts as absent, so whoever wants it makes it again.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from shardc.hlo.errors import EnvironmentProblem, InputError
from shardc.service.jobs import Artifact, StoreEntry
from shardc.service.store.leases import Leases
from shardc.service.store.manifest import DIGEST, Damaged, Manifest, manifest_path, read_manifest
from shardc.service.store.media_types import media_type
from shardc.service.store.quota import Quota
from shardc.service.store.recent import Recent
from shardc.service.store.storage_backend import StorageBackend, StorageFull

__all__ = ["NotStored", "ObjectTable"]

#: Raises `Damaged` for an entry that is not to be trusted.
Check = Callable[[StoreEntry], None]

#: Bytes of files, and number of manifests, that are kept in memory; larger files are read each time.
_MEMORY, _MANIFESTS = 64 << 20, 4096

#: How often an object may change while it is read before it counts as absent.
_TRIES = 3


class NotStored(InputError):
    """The store does not have it: it never had, or it was evicted, or found damaged."""


@dataclass(slots=True)
class _Checked:
    """A manifest that was checked with its files when they had ``versions``, last at ``checked`` (`time.monotonic`)."""

    manifest: Manifest
    versions: tuple[str, ...]
    checked: float


class ObjectTable:
    """Objects below ``folder``. ``check`` raises `Damaged` when a manifest is not to be trusted. Thread-safe."""

    def __init__(self, folder: str, backend: StorageBackend, leases: Leases, quota: Quota, check: Check) -> None:
        self.damaged = 0
        self._folder = folder
        self._backend = backend
        self._leases = leases
        self._quota = quota
        self._check = check
        self._seen: Recent[_Checked] = Recent(_MANIFESTS, lambda seen: 1)
        self._files: Recent[bytes] = Recent(_MEMORY, len)
        self._writing = tuple(threading.Lock() for _ in range(64))

    def find(self, key: str) -> Manifest | None:
        """The manifest under ``key``; None where there is none and for strings that are no keys."""
        if not DIGEST.fullmatch(key):
            return None
        place = self._place(key)
        seen = self._seen.get(place)
        if not seen or not self._is_unchanged(seen):
            seen = self._load(place)
        if seen:
            self._quota.note_use(place)
        return seen.manifest if seen else None

    def find_cached(self, key: str, name: str) -> tuple[StoreEntry, Artifact, bytes] | None:
        """The file ``name`` with its entry, if it was checked, is unchanged and in memory: takes a system call at most.
        None: it may be there all the same."""
        place = self._place(key)
        seen = self._seen.get(place) if self._backend.near else None
        part = seen.manifest.part(name) if seen and self._is_unchanged(seen) else None
        data = self._files.get(part[0].sha256) if part else None
        if seen is None or part is None or data is None:
            return None
        self._quota.note_use(place)
        return seen.manifest.entry, part[0], data

    def read(self, key: str, name: str) -> bytes:
        """The file ``name`` of the object under ``key``. Raises `NotStored`."""
        for _ in range(_TRIES):
            manifest = self.find(key)
            part = manifest.part(name) if manifest else None
            if not manifest or not part:
                break
            artifact, start = part
            data = self._files.get(artifact.sha256)
            if data is not None:
                return data
            with suppress(FileNotFoundError):
                data = self._backend.read(manifest.files_path, start, start + artifact.bytes)
                if hashlib.sha256(data).hexdigest() == artifact.sha256:
                    self._files.put(artifact.sha256, data)
                    return data
            self._remove_damaged(manifest.place, manifest)
        raise NotStored("the store does not have it", where=f"{name} of {key}", fix="submit the order again")

    def put(
        self, key: str, files: Mapping[str, bytes], finish: Callable[[tuple[Artifact, ...]], StoreEntry]
    ) -> Manifest:
        """Store ``files`` under ``key`` unless there is an object already; returns the manifest that is there then.

        ``finish`` makes the entry of the artifacts. Raises `EnvironmentProblem` when there is no space; then nothing
        of it stays.
        """
        if not DIGEST.fullmatch(key):
            raise ValueError(f"{key!r} is not a key")
        self._leases.take(key)
        try:
            with self._writing[int(key[:2], 16) % len(self._writing)]:
                return self.find(key) or self._write(self._place(key), files, finish)
        finally:
            self._leases.give_back(key)

    def _write(
        self, place: str, files: Mapping[str, bytes], finish: Callable[[tuple[Artifact, ...]], StoreEntry]
    ) -> Manifest:
        names = sorted(files)
        artifacts = tuple(
            Artifact(n, len(files[n]), hashlib.sha256(files[n]).hexdigest(), media_type(n)) for n in names
        )
        data = Manifest(place, secrets.token_hex(8), finish(artifacts)).to_bytes()
        manifest = read_manifest(place, data)  # what could not be read again is not written
        size = manifest.files_bytes + len(data)
        self._quota.reserve(place, size)
        try:
            self._write_files(manifest, [files[n] for n in names])
            there = self._publish(manifest, data)
            if there.token != manifest.token:
                self._backend.remove(manifest.files_path)
                return there
        except BaseException:
            with suppress(EnvironmentProblem):  # the first one is told
                self._backend.remove(manifest.files_path)
                self._quota.release(place)
            raise
        self._quota.confirm(place, size)
        return manifest

    def _write_files(self, manifest: Manifest, pieces: list[bytes]) -> None:
        """Write the files; where the disk is full before the limit is reached, evict old objects and try once more."""
        try:
            self._backend.write(manifest.files_path, pieces)
        except StorageFull:
            if not self._quota.evict_bytes(manifest.files_bytes):
                raise
            self._backend.write(manifest.files_path, pieces)

    def _publish(self, manifest: Manifest, data: bytes) -> Manifest:
        """Write the manifest. Returns it, or that of another server which was quicker, if that is sound."""
        for _ in range(_TRIES):
            if self._backend.create(manifest.path, data):
                return manifest
            there = self._load(manifest.place)
            if there:
                return there.manifest
        raise EnvironmentProblem(
            "the store cannot be written: another server damages it again and again", where=manifest.path
        )

    def _place(self, key: str) -> str:
        return f"{self._folder}/{key[:2]}/{key}"

    def _file_versions(self, manifest: Manifest) -> tuple[str, ...]:
        """Versions of the manifest's files. In object storage none: files are removed after their manifest, and the
        storage keeps them sound."""
        return (self._backend.version(manifest.files_path),) if self._backend.near else ()

    def _is_unchanged(self, seen: _Checked) -> bool:
        """Whether the object is there and unchanged. Nobody evicts what this server holds a lease on."""
        since = self._leases.since(seen.manifest.entry.key)
        if not self._backend.near and since is not None and seen.checked >= since:
            return True
        now = time.monotonic()
        try:
            versions = (self._backend.version(seen.manifest.path), *self._file_versions(seen.manifest))
        except FileNotFoundError:
            return False
        seen.checked = now
        return versions == seen.versions

    def _load(self, place: str) -> _Checked | None:
        """Read the object at ``place`` and check it in full."""
        for _ in range(_TRIES):
            now = time.monotonic()
            try:
                version = self._backend.version(manifest_path(place))
                data = self._backend.read(manifest_path(place))
            except FileNotFoundError:
                break
            manifest = None
            try:
                manifest = read_manifest(place, data)
                self._check(manifest.entry)
                versions = (version, *self._file_versions(manifest))
                self._check_files(manifest)
            except (Damaged, FileNotFoundError):
                self._remove_damaged(place, manifest)
                continue
            seen = _Checked(manifest, versions, now)
            self._seen.put(place, seen)
            return seen
        self._seen.drop(place)
        return None

    def _check_files(self, manifest: Manifest) -> None:
        start = 0
        for artifact in manifest.entry.artifacts:
            end = start + artifact.bytes
            digest = hashlib.sha256()
            pieces = []
            for piece in self._backend.pieces(manifest.files_path, start, end):
                digest.update(piece)
                pieces = [piece]
            if digest.hexdigest() != artifact.sha256:
                raise Damaged(f"{artifact.name} of {manifest.place} is damaged")
            if pieces and len(pieces[0]) == artifact.bytes:
                self._files.put(artifact.sha256, pieces[0])
            start = end

    def _remove_damaged(self, place: str, manifest: Manifest | None) -> None:
        """Remove the object at ``place`` whose ``manifest`` failed a check, unless it was replaced meanwhile."""
        self._seen.drop(place)
        try:
            there: Manifest | None = read_manifest(place, self._backend.read(manifest_path(place)))
        except FileNotFoundError:
            return
        except Damaged:
            there = None
        if (there and there.token) != (manifest and manifest.token):
            return
        self.damaged += 1
        self._quota.release(place)  # first: afterwards another server may put it again
        self._backend.remove(manifest_path(place))
        if manifest:
            self._backend.remove(manifest.files_path)
