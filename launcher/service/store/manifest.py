"""Manifests: what lies in the store under a place, as a small file that is written last and removed first.

The files themselves lie one behind the other in a single file of a name that is never used twice. So what is written
or removed at the same time by somebody else, for the same key, is never the same file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from shardc.launcher.service.jobs import Artifact, Entry

__all__ = ["DIGEST", "Damaged", "Manifest", "read_manifest"]

#: SHA-256 in hexadecimal, which all keys are.
DIGEST = re.compile(r"[0-9a-f]{64}")

_FORMAT = 1
_TOKEN = re.compile(r"[0-9a-f]{16}")
_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,99}")


class Damaged(Exception):
    """What was read is not what was written; who asked for it is told that it is not there."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The stored form of ``entry``: its files are in ``place``.``token``.files, in the order of its artifacts."""

    place: str
    token: str
    entry: Entry

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
        return json.dumps({"format": _FORMAT, "token": self.token, "entry": asdict(self.entry)}).encode()


def manifest_path(place: str) -> str:
    return f"{place}.json"


def read_manifest(place: str, data: bytes) -> Manifest:
    """The manifest that lies at ``place``; `Damaged` when ``data`` is none, or that of another key."""
    try:
        found = json.loads(data)
        manifest = Manifest(place, found["token"], _entry(found["entry"]))
        good = found["format"] == _FORMAT and _TOKEN.fullmatch(manifest.token)
    except (ValueError, LookupError, TypeError, RecursionError) as e:
        raise Damaged(f"{place} has no manifest: {e}") from None
    if not good or manifest.entry.key != place.rsplit("/", 1)[-1]:
        raise Damaged(f"{place} has a manifest of something else")
    return manifest


def _entry(found: Mapping[str, Any]) -> Entry:
    artifacts = tuple(Artifact(**about) for about in found["artifacts"])
    for a in artifacts:
        text = isinstance(a.name, str) and isinstance(a.sha256, str) and isinstance(a.media_type, str)
        if not text or not _NAME.fullmatch(a.name) or not DIGEST.fullmatch(a.sha256):
            raise ValueError("an artifact's name or digest is malformed")
        if type(a.bytes) is not int or a.bytes < 0:
            raise ValueError("an artifact's size is malformed")
    if not isinstance(found["facts"], dict) or not isinstance(found["signature"], str):
        raise ValueError("facts or signature are malformed")
    return Entry(str(found["key"]), artifacts, found["facts"], found["signature"])
