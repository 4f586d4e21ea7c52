"""Where a calibration is kept: checked before the measurement, which takes a while, and written whole."""

from __future__ import annotations

import tempfile
from pathlib import Path

from shardc.hlo.errors import InputError
from shardc.hlo.files import write_atomically
from shardc.launcher.run.output_files import STANDARD_OUTPUT, check_writable, write_text

__all__ = ["check_place", "keep"]

_ELSEWHERE = "name another file: shardc calibrate -o FILE.toml, later --machine FILE.toml"


def check_place(path: Path) -> None:
    """Raise `InputError` where no file can be written under ``path`` (``-`` is standard output); makes the folders that
    it needs."""
    if path == STANDARD_OUTPUT:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            check_writable(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"the calibration cannot be written: {reason}", where=str(path), fix=_ELSEWHERE) from None


def keep(path: Path, text: str) -> None:
    """Write ``text``, whole or not at all, with the folders that it needs; `InputError` where that fails. ``-`` is
    standard output."""
    if path == STANDARD_OUTPUT:
        write_text(path, text)
        return
    try:
        write_atomically(path, text.encode("utf-8"))
    except OSError as error:
        raise InputError(
            f"the calibration cannot be written: {error.strerror or error}", where=str(path), fix=_ELSEWHERE
        ) from None
