"""Storage backends: a folder, or object storage by an fsspec URL.

In folders a file appears whole or not at all, and its data is on the disk before its name; object storage promises the
same. Only their owner may read the files: programs are private.
"""

from __future__ import annotations

import errno
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from shardc.hlo.errors import EnvironmentProblem, ShardcError
from shardc.hlo.files import replacing

__all__ = ["StorageBackend", "StorageFull"]

#: Bytes that are read at a time.
_PIECE = 8 << 20


class StorageFull(EnvironmentProblem):
    """The storage has no more quota, though the store's own limit may allow it."""


class StorageBackend:
    """Files below ``url``, by paths with ``/``. What is not there is `FileNotFoundError`; all else that goes wrong
    is `EnvironmentProblem`. Safe to use from several threads.

    ``near``: asking costs no more than a system call.
    """

    def __init__(self, url: str) -> None:
        self.where = re.sub(r"//[^/@]*@", "//", url)
        try:
            from fsspec.core import url_to_fs
            from fsspec.implementations.local import LocalFileSystem
            from fsspec.implementations.memory import MemoryFileSystem
        except ImportError:
            raise EnvironmentProblem("the store needs fsspec", fix="pip install 'shardc[serve]'") from None
        with self._problems("opened"):
            self._fs, root = url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
            self._root = root.rstrip("/")
            self._folder = Path(self._root) if isinstance(self._fs, LocalFileSystem) else None
            self.near = isinstance(self._fs, LocalFileSystem | MemoryFileSystem)
            if self._folder:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def write(self, path: str, pieces: Sequence[bytes]) -> None:
        """Write a file of ``pieces`` one after the other, whole or not at all."""
        with self._problems("written"):
            if self._folder:
                target = self._folder / path
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with replacing(target, 0o600) as file:
                    file.writelines(pieces)
            else:
                self._fs.pipe_file(self._at(path), b"".join(pieces))

    def create(self, path: str, data: bytes) -> bool:
        """Write a whole file unless there is one; returns whether it did. Where the storage cannot do that in one step,
        the last of several writers at the same time wins."""
        with self._problems("written"):
            try:
                if self._folder:
                    _create(self._folder / path, data)
                else:
                    self._fs.pipe_file(self._at(path), data, mode="create")
            except FileExistsError:
                return False
            except (NotImplementedError, TypeError):
                self._fs.pipe_file(self._at(path), data)
        return True

    def mark(self, path: str) -> None:
        """Write an empty file. Unlike that of `write` it may be lost in a power failure."""
        with self._problems("written"):
            if self._folder:
                target = self._folder / path
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                target.touch(0o600)
            else:
                self._fs.pipe_file(self._at(path), b"")

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """The bytes from ``start`` to before ``end``, fewer where the file is shorter."""
        with self._problems("read"):
            if end is not None and end <= start:
                return b""
            data: bytes = self._fs.cat_file(self._at(path), start=start or None, end=end)
            return data

    def pieces(self, path: str, start: int, end: int) -> Iterator[bytes]:
        """The same in pieces of some megabytes."""
        while start < end:
            data = self.read(path, start, min(start + _PIECE, end))
            if not data:
                return
            start += len(data)
            yield data

    def version(self, path: str) -> str:
        """Changes when the file does, as far as the storage can tell without reading it."""
        with self._problems("read"):
            if self._folder:
                found = (self._folder / path).stat()
                return f"{found.st_ino} {found.st_size} {found.st_ctime_ns}"
            return str(self._fs.ukey(self._at(path)))

    def remove(self, path: str) -> None:
        """Remove the file, if it is there."""
        with suppress(FileNotFoundError), self._problems("changed"):
            if self._folder:
                (self._folder / path).unlink()
            else:
                self._fs.rm_file(self._at(path))

    def names(self, folder: str) -> list[str]:
        """The names of the files in ``folder``; none when there is no such folder."""
        with self._problems("read"):
            try:
                found = self._fs.ls(self._at(folder), detail=False)
            except FileNotFoundError:
                return []
            return [str(path).rsplit("/", 1)[-1] for path in found]

    def files_below(self, folder: str) -> Iterator[tuple[str, int, float]]:
        """Path, size and time of the last change (`time.time`; now, where it is not known) of each file at any depth
        below ``folder``."""
        with self._problems("read"):
            found: dict[str, Any] = self._fs.find(self._at(folder), detail=True)
            for path, about in found.items():
                yield str(path).removeprefix(self._root).lstrip("/"), int(about["size"] or 0), _change_time(about)

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"

    @contextmanager
    def _problems(self, done: str) -> Iterator[None]:
        """Raise errors of the storage, which differ by its kind, as `EnvironmentProblem`."""
        try:
            yield
        except ShardcError:
            raise
        except Exception as e:
            if isinstance(e, FileNotFoundError) and done in ("read", "changed"):
                raise
            if isinstance(e, ImportError):
                fix = "install the package beside shardc, with pip"
                raise EnvironmentProblem(f"this kind of storage needs a package: {e}", where=self.where, fix=fix) from e
            if isinstance(e, OSError) and e.errno in (errno.ENOSPC, errno.EDQUOT):
                fix = "free disk space, or limit the store: --store-size"
                raise StorageFull("the store's disk is full", where=self.where, fix=fix) from e
            problem = (e.strerror if isinstance(e, OSError) else None) or str(e) or type(e).__name__
            raise EnvironmentProblem(
                f"the store cannot be {done}: {problem}",
                where=self.where,
                fix="check the storage, or name another one: --store",
            ) from e


def _create(path: Path, data: bytes) -> None:
    """A link, unlike a rename, never takes the place of another file."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    whole = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        with replacing(whole, 0o600) as file:
            file.write(data)
        path.hardlink_to(whole)
    finally:
        whole.unlink(missing_ok=True)


def _change_time(about: Mapping[str, Any]) -> float:
    """The time of the last change; each kind of storage has its own field for it."""
    for word in ("mtime", "LastModified", "last_modified", "updated", "created"):
        value = about.get(word)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
    return time.time()
