"""A shelf: things of one kind by key, each a few files that are checked before anybody sees them.

Nothing is trusted because it is there. A thing is read and checked in full when this process first sees it, and again
when its files look changed; what fails is removed and counts as absent, so whoever wants it makes it again.
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
from shardc.service.jobs import Artifact, Entry
from shardc.service.store.leases import Leases
from shardc.service.store.manifest import DIGEST, Damaged, Manifest, manifest_path, read_manifest
from shardc.service.store.media_types import media_type
from shardc.service.store.quota import Room
from shardc.service.store.recent import Recent
from shardc.service.store.storage_backend import Full, Medium

__all__ = ["NotStored", "Shelf"]

#: Bytes of files, and number of manifests, that are kept in memory; larger files are read each time.
_MEMORY, _MANIFESTS = 64 << 20, 4096

#: How often something may change while it is looked at before it counts as absent.
_TRIES = 3


class NotStored(InputError):
    """The store does not have it: it never had, or it was evicted, or found damaged."""


@dataclass(slots=True)
class _Seen:
    """A manifest that was checked with its files when they had ``versions``, last at ``checked`` (`time.monotonic`)."""

    manifest: Manifest
    versions: tuple[str, ...]
    checked: float


class Shelf:
    """Things below ``folder``. ``check`` raises when a manifest is not to be trusted. Safe in several threads."""

    def __init__(self, folder: str, medium: Medium, leases: Leases, room: Room, check: Callable[[Entry], None]) -> None:
        self.damaged = 0
        self._folder = folder
        self._medium = medium
        self._leases = leases
        self._room = room
        self._check = check
        self._seen: Recent[_Seen] = Recent(_MANIFESTS, lambda seen: 1)
        self._files: Recent[bytes] = Recent(_MEMORY, len)
        self._writing = tuple(threading.Lock() for _ in range(64))

    def find(self, key: str) -> Manifest | None:
        """What is under ``key``; None for nothing and for what can be no key."""
        if not DIGEST.fullmatch(key):
            return None
        place = self._place(key)
        seen = self._seen.get(place)
        if not seen or not self._still(seen):
            seen = self._look(place)
        if seen:
            self._room.used(place)
        return seen.manifest if seen else None

    def at_hand(self, key: str, name: str) -> tuple[Entry, Artifact, bytes] | None:
        """The file ``name`` and whose it is, where telling takes no longer than a system call: it was checked, is
        unchanged, and in memory. None says nothing."""
        place = self._place(key)
        seen = self._seen.get(place) if self._medium.near else None
        part = seen.manifest.part(name) if seen and self._still(seen) else None
        data = self._files.get(part[0].sha256) if part else None
        if seen is None or part is None or data is None:
            return None
        self._room.used(place)
        return seen.manifest.entry, part[0], data

    def read(self, key: str, name: str) -> bytes:
        """The file ``name`` of what is under ``key``. Raises `NotStored`."""
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
                data = self._medium.read(manifest.files_path, start, start + artifact.bytes)
                if hashlib.sha256(data).hexdigest() == artifact.sha256:
                    self._files.put(artifact.sha256, data)
                    return data
            self._suspect(manifest.place, manifest)
        raise NotStored("the store does not have it", where=f"{name} of {key}", fix="submit the order again")

    def put(self, key: str, files: Mapping[str, bytes], finish: Callable[[tuple[Artifact, ...]], Entry]) -> Manifest:
        """Keep ``files`` under ``key``, unless something is there already; returns what is there then.

        ``finish`` makes the entry of the artifacts. Raises `EnvironmentProblem` when there is no room; then nothing
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
        self, place: str, files: Mapping[str, bytes], finish: Callable[[tuple[Artifact, ...]], Entry]
    ) -> Manifest:
        names = sorted(files)
        artifacts = tuple(
            Artifact(n, len(files[n]), hashlib.sha256(files[n]).hexdigest(), media_type(n)) for n in names
        )
        data = Manifest(place, secrets.token_hex(8), finish(artifacts)).to_bytes()
        manifest = read_manifest(place, data)  # what could not be read again is not written
        size = manifest.files_bytes + len(data)
        self._room.reserve(place, size)
        try:
            self._write_files(manifest, [files[n] for n in names])
            there = self._publish(manifest, data)
            if there.token != manifest.token:
                self._medium.remove(manifest.files_path)
                return there
        except BaseException:
            with suppress(EnvironmentProblem):  # the first one is told
                self._medium.remove(manifest.files_path)
                self._room.release(place)
            raise
        self._room.added(place, size)
        return manifest

    def _write_files(self, manifest: Manifest, pieces: list[bytes]) -> None:
        """Where the disk is full before the limit is reached, what was used long ago gives way, once."""
        try:
            self._medium.write(manifest.files_path, pieces)
        except Full:
            if not self._room.give_way(manifest.files_bytes):
                raise
            self._medium.write(manifest.files_path, pieces)

    def _publish(self, manifest: Manifest, data: bytes) -> Manifest:
        """Write the manifest, unless another server was quicker: then its own, if that is sound."""
        for _ in range(_TRIES):
            if self._medium.create(manifest.path, data):
                return manifest
            there = self._look(manifest.place)
            if there:
                return there.manifest
        raise EnvironmentProblem("the store cannot be written: another server keeps damaging it", where=manifest.path)

    def _place(self, key: str) -> str:
        return f"{self._folder}/{key[:2]}/{key}"

    def _version_of_files(self, manifest: Manifest) -> tuple[str, ...]:
        """Far away only the manifest is asked about: its files go after it, and object storage keeps them sound."""
        return (self._medium.version(manifest.files_path),) if self._medium.near else ()

    def _still(self, seen: _Seen) -> bool:
        """Is what was seen there, unchanged? Nobody has evicted what this server has been using since."""
        since = self._leases.since(seen.manifest.entry.key)
        if not self._medium.near and since is not None and seen.checked >= since:
            return True
        now = time.monotonic()
        try:
            versions = (self._medium.version(seen.manifest.path), *self._version_of_files(seen.manifest))
        except FileNotFoundError:
            return False
        seen.checked = now
        return versions == seen.versions

    def _look(self, place: str) -> _Seen | None:
        """Read and check what is at ``place``, in full."""
        for _ in range(_TRIES):
            now = time.monotonic()
            try:
                version = self._medium.version(manifest_path(place))
                data = self._medium.read(manifest_path(place))
            except FileNotFoundError:
                break
            manifest = None
            try:
                manifest = read_manifest(place, data)
                self._check(manifest.entry)
                versions = (version, *self._version_of_files(manifest))
                self._check_files(manifest)
            except (Damaged, FileNotFoundError):
                self._suspect(place, manifest)
                continue
            seen = _Seen(manifest, versions, now)
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
            for piece in self._medium.pieces(manifest.files_path, start, end):
                digest.update(piece)
                pieces = [piece]
            if digest.hexdigest() != artifact.sha256:
                raise Damaged(f"{artifact.name} of {manifest.place} is damaged")
            if pieces and len(pieces[0]) == artifact.bytes:
                self._files.put(artifact.sha256, pieces[0])
            start = end

    def _suspect(self, place: str, manifest: Manifest | None) -> None:
        """Something was wrong at ``place``: remove it, unless somebody has replaced it meanwhile."""
        self._seen.drop(place)
        try:
            there: Manifest | None = read_manifest(place, self._medium.read(manifest_path(place)))
        except FileNotFoundError:
            return
        except Damaged:
            there = None
        if (there and there.token) != (manifest and manifest.token):
            return
        self.damaged += 1
        self._room.release(place)  # first: afterwards somebody else may put it again
        self._medium.remove(manifest_path(place))
        if manifest:
            self._medium.remove(manifest.files_path)
