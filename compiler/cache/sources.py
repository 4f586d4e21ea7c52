"""A digest of the compiler's own source text, so that nothing that it made outlives a change of it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from shardc.hlo.config import Config
from shardc.hlo.files import write_atomically

__all__ = ["source_digest"]

#: The parts of shardc that have a say in an executable.
_PARTS = (
    "analysis",
    "collectives",
    "compiler",
    "costs",
    "frontends",
    "hlo",
    "launcher",
    "native",
    "partitioner",
    "service",
    "sharding",
    "stages",
)

_DIGEST = re.compile(r"[0-9a-f]{64}")


@lru_cache(maxsize=1)
def source_digest() -> str:
    """The digest of this shardc, the same wherever it is installed.

    Every process asks, and reading a thousand files takes longer than many programs. So the digest is kept in the cache
    folder under what the file system says of the files, and they are read again when one of them was written.
    """
    root = Path(__file__).parents[2]
    files = sorted(entry for part in _PARTS for entry in _python_files(root / part))
    state = hashlib.sha256(repr(files).encode()).hexdigest()
    kept = Config.from_environment().cache_dir / "sources" / state[:2] / state
    with suppress(OSError, UnicodeDecodeError):
        found = kept.read_text()
        if _DIGEST.fullmatch(found):
            return found
    digest = hashlib.sha256()
    for path, *_ in files:
        digest.update(os.path.relpath(path, root).encode() + b"\0" + Path(path).read_bytes())
    with suppress(OSError):  # whoever writes an entry says that the folder cannot be written
        write_atomically(kept, digest.hexdigest().encode(), sync=False)
    return digest.hexdigest()


def _python_files(folder: Path) -> Iterator[tuple[str, int, int, int, int]]:
    """All source files below ``folder``: path, size, times of writing, inode. Much faster than a glob."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                found = entry.stat()
                yield entry.path, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino
            elif entry.name != "__pycache__" and entry.is_dir():
                yield from _python_files(Path(entry.path))
