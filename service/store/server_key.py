"""The server's key: 32 random bytes in a file that only its owner reads, made once."""

from __future__ import annotations

import os
import re
import secrets
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from shardc.hlo.errors import EnvironmentProblem

__all__ = ["server_key"]

_HEX = re.compile(r"[0-9a-f]{64}\s*")


def server_key(state: Path) -> bytes:
    """The key in ``state``/key (64 hexadecimal digits), made when there is none.

    Servers that start at the same time agree on one. Raises `EnvironmentProblem` where the file cannot be made, holds
    something else, or can be read by others.
    """
    path = state / "key"
    try:
        if not path.exists():
            _make(path)
        text = path.read_text(encoding="ascii", errors="replace")
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as e:
        raise EnvironmentProblem(
            f"the server's key cannot be stored: {e.strerror or e}", where=str(path), fix="name another folder: --state"
        ) from None
    if mode & 0o077:
        raise EnvironmentProblem("other users can read the server's key", where=str(path), fix=f"chmod 600 {path}")
    if not _HEX.fullmatch(text):
        raise EnvironmentProblem(
            "the server's key is not 64 hexadecimal digits", where=str(path), fix="restore it, or remove the file"
        )
    return bytes.fromhex(text)


def _make(path: Path) -> None:
    """A new key under ``path``, unless somebody else is first: a link, unlike a rename, never replaces a file."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".key.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            path.hardlink_to(name)
    finally:
        Path(name).unlink()
