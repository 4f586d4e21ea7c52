"""Manifests: the list of an object's files, a small file that is written last and removed first.

The files themselves lie one behind the other in a single file of a name that is never used twice. So what is written
or removed at the same time by somebody else, for the same key, is never the same file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from shardc.hlo.codec.plain import from_json, to_json
from shardc.hlo.errors import InputError
from shardc.service.jobs import Artifact, StoreEntry

__all__ = ["DIGEST", "Damaged", "Manifest", "manifest_path", "read_manifest"]

#: SHA-256 in hexadecimal, which all keys are.
DIGEST = re.compile(r"[0-9a-f]{64}")

_TOKEN = re.compile(r"[0-9a-f]{16}")
_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,99}")


class Damaged(Exception):
    """What was read is not what was written; who asked for it is told that it is not there."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """What the file says, as JSON."""

    format: Literal[1]
    token: str
    entry: StoreEntry


@dataclass(frozen=True, slots=True)
class Manifest:
    """The stored form of ``entry``: its files are in ``place``.``token``.files, in the order of its artifacts."""

    place: str
    token: str
    entry: StoreEntry

    @property
    def path(self) -> str:
        return manifest_path(self.place)

    @property
    def files_path(self) -> str:
        return f"{self.place}.{self.token}.files"

    @property
    def files_bytes(self) -> int:
        return sum(a.bytes for a in self.entry.artifacts)

    def part(self, name: str) -> tuple[Artifact, int] | None:
        """The artifact called ``name``, and where it begins in the file."""
        start = 0
        for artifact in self.entry.artifacts:
            if artifact.name == name:
                return artifact, start
            start += artifact.bytes
        return None

    def to_bytes(self) -> bytes:
        return to_json(_Stored(1, self.token, self.entry)).encode()


def manifest_path(place: str) -> str:
    return f"{place}.json"


def read_manifest(place: str, data: bytes) -> Manifest:
    """The manifest that lies at ``place``; `Damaged` when ``data`` is none, or that of another key."""
    try:
        found = from_json(_Stored, data)
    except InputError as e:
        raise Damaged(f"{place} has no manifest: {e}") from None
    files = found.entry.artifacts
    good = all(_NAME.fullmatch(a.name) and DIGEST.fullmatch(a.sha256) and a.bytes >= 0 for a in files)
    if not good or not _TOKEN.fullmatch(found.token) or found.entry.key != place.rsplit("/", 1)[-1]:
        raise Damaged(f"{place} has a manifest of something else")
    return Manifest(place, found.token, found.entry)
