"""Output files that are never half written: a temporary file beside the target, renamed when complete."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from shardc.hlo.errors import InputError

__all__ = ["atomic_output", "check_writable", "write_text"]


def check_writable(path: Path | None) -> None:
    """Raise `InputError` early when ``path`` cannot become an output file; None is fine."""
    if path is None:
        return
    if path.is_dir():
        raise InputError(f"{path} is a folder", fix="name a file to write")
    folder = path.parent
    if not folder.is_dir():
        raise InputError(f"the folder {folder} for {path.name} does not exist", fix=f"mkdir -p {folder}")
    if not os.access(folder, os.W_OK):
        raise InputError(f"the folder {folder} for {path.name} is not writable", fix="write somewhere else")


@contextmanager
def atomic_output(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that appears under ``path`` when the block ends, and not at all when it fails."""
    check_writable(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as e:
        raise InputError(f"{path} cannot be written: {e.strerror}") from None
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    except OSError as e:
        raise InputError(f"{path} cannot be written: {e.strerror or e}") from None
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8, whole or not at all."""
    with atomic_output(path) as file:
        file.write(text.encode("utf-8"))
