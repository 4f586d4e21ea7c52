"""Stores for tests: in a folder, in memory, and in memory as if it were far away."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shardc.service.store.store import Store

KEY = bytes(range(32))
KINDS = ("folder", "memory", "far")


def name(number: object) -> str:
    """A key of the store."""
    return hashlib.sha256(str(number).encode()).hexdigest()


class Place:
    """A storage that servers open; ``state`` of each is its own unless they are told to share one."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.url = str(folder / "store") if kind == "folder" else f"memory://{uuid.uuid4().hex}"

    @contextmanager
    def open(self, limit: int = 0, state: str = "state", key: bytes = KEY) -> Iterator[Store]:
        with Store(self.url, self.folder / state, limit, key) as store:
            store._backend.near = self.kind != "far"
            yield store

    def files(self) -> list[Path]:
        """All files of a folder's store that hold something."""
        root = self.folder / "store"
        return sorted(p for part in ("entries", "programs", "leases") for p in (root / part).rglob("*") if p.is_file())

    def nbytes(self) -> int:
        return sum(p.stat().st_size for p in self.files())
