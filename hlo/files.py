"""Output files that appear whole or not at all: a temporary file beside the target, renamed when complete.

A link stays a link: what it leads to is replaced. What is no regular file (a device, a FIFO, an open file under
``/proc`` or ``/dev/fd``) is written to, in one go when all is there.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import IO

from shardc.hlo.errors import InputError

__all__ = ["make_folder", "near_files", "replacing", "target_of", "unwritable", "write_atomically"]

#: Links that are followed from one to the next.
_LINKS = 40


def target_of(path: Path) -> tuple[Path, bool]:
    """Where ``path`` leads, and whether that is a regular file (or none yet). Raises OSError for links in a circle."""
    for _ in range(_LINKS):
        if not path.is_symlink():
            return path, path.is_file() or not path.exists()
        if path.parent.resolve().is_relative_to("/proc"):  # A file that is open: its name is not asked.
            return path, False
        path = path.parent / path.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


@contextmanager
def replacing(path: Path, mode: int | None = None, *, sync: bool = True) -> Iterator[IO[bytes]]:
    """A binary file that takes the place of ``path`` when the block ends, and vanishes when it fails.

    Readers see the old content or the new. The file gets the permissions ``mode``, or those of the file that it
    replaces, or those that a new file has; asking for these changes them for a moment, so name a mode where there are
    other threads. Without ``sync`` a machine that loses its power may leave a file without its content. Raises OSError.
    """
    path, is_regular = target_of(path)
    if not is_regular:
        with io.BytesIO() as held:
            yield held
            own = path.parent.resolve() == Path(f"/proc/{os.getpid()}/fd") and path.name.isdigit()
            handle = os.dup(int(path.name)) if own else os.open(path, os.O_WRONLY | os.O_APPEND)
            with os.fdopen(handle, "wb") as through:
                through.write(held.getvalue())
        return
    old = path.stat() if path.exists() else None
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        if old is not None and hasattr(os, "chown"):
            with suppress(OSError):  # Only root gives files away.
                os.chown(temporary, old.st_uid, old.st_gid)
        if mode is None and old is not None:
            mode = stat.S_IMODE(old.st_mode)
        if mode is None:
            umask = os.umask(0)
            os.umask(umask)
            mode = 0o666 & ~umask
        temporary.chmod(mode)
        temporary.replace(path)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def write_atomically(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Replace ``path`` by ``data``, making its folder if need be; ``sync`` as in `replacing`. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, sync=sync) as file:
        file.write(data)


def make_folder(folder: Path, where: str = "") -> None:
    """Make ``folder`` and those above it where missing. Raises the `InputError` of `unwritable`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise unwritable(folder, e, where) from None


def unwritable(path: Path, error: OSError, where: str = "") -> InputError:
    """The error for a file or folder that cannot be made or written to; ``where`` is the option or variable."""
    file = next((p for p in (path, *path.parents) if p.is_file()), None)
    if file is not None and isinstance(error, FileExistsError | NotADirectoryError):
        return InputError(
            f"{file} is a file, not a folder", where=where or None, fix="name a folder, or a file in an existing folder"
        )
    fix = "name a place that you may write to"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        fix = "free space on this disk, or name a place on another one"
    return InputError(f"{path} cannot be written: {error.strerror or error}", where=where or None, fix=fix)


def near_files(path: Path) -> str:
    """What to name in place of ``path``, which is missing: files in its folder, those of near names first."""
    folder = path.parent
    try:
        names = sorted(p.name for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
    except OSError:
        return f"name a file in an existing folder: {folder} cannot be read"
    near = get_close_matches(path.name, names, n=3) or [n for n in names if Path(n).suffix == path.suffix][:3]
    if near:
        return f"did you mean {' or '.join(str(folder / n) for n in near)}?"
    here = f"it holds {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}" if names else "it holds no files"
    return f"name a file that is in the folder {folder.resolve()}: {here}"
