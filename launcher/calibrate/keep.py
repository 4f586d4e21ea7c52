"""Where a calibration is kept: checked before the measurement, which takes a while, and written whole."""

from __future__ import annotations

import os
from pathlib import Path

from shardc.hlo.errors import InputError
from shardc.hlo.files import write_atomically

__all__ = ["check_place", "keep"]

_ELSEWHERE = "write it somewhere else: shardc calibrate -o FILE.toml, later --machine FILE.toml"


def check_place(path: Path) -> None:
    """Raise `InputError` where no file could be written under ``path``; its folders need not be there."""
    if path.is_dir():
        raise InputError(f"{path} is a folder", fix="name a file to write")
    folder = next(p for p in path.absolute().parents if p.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(f"{folder} is not a folder that can be written", where=str(path), fix=_ELSEWHERE)


def keep(path: Path, text: str) -> None:
    """Write ``text``, whole or not at all, with the folders that it needs; `InputError` where that fails."""
    try:
        write_atomically(path, text.encode("utf-8"))
    except OSError as error:
        raise InputError(f"it cannot be written: {error.strerror or error}", where=str(path), fix=_ELSEWHERE) from None
