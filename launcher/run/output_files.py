"""Output files of commands: never half written, and our errors where they cannot be."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from shardc.hlo.errors import InputError
from shardc.hlo.files import replacing, target_of

__all__ = ["STANDARD_OUTPUT", "atomic_output", "check_outputs", "check_writable", "write_text"]

#: The path that stands for standard output, as in other commands.
STANDARD_OUTPUT = Path("-")


def check_outputs(**paths: Path | None) -> None:
    """`check_writable` for the files of several options, where ``picture`` is an SVG; raises `InputError` where two
    of them are one file."""
    known: dict[Path, str] = {}
    for option, path in paths.items():
        check_writable(path, ".svg" if option == "picture" else "")
        if path is None or path == STANDARD_OUTPUT or (path.exists() and not path.is_file()):
            continue
        other = known.setdefault(path.resolve(), option)
        if other != option:
            raise InputError(f"--{other} and --{option} are both {path}", fix="name two files")


def check_writable(path: Path | None, suffix: str = "") -> None:
    """Raise `InputError` early when ``path`` cannot become an output file, or its name ends otherwise than what is
    written there; None and ``-`` are fine."""
    if path is None or path == STANDARD_OUTPUT:
        return
    if path.is_dir():
        raise InputError(f"{path} is a folder", fix="name a file to write")
    if suffix and path.suffix and path.suffix.lower() != suffix:
        raise InputError(f"{path} would hold a picture as {suffix[1:].upper()}", fix=f"name {path.with_suffix(suffix)}")
    try:
        target, is_regular = target_of(path)
    except OSError as e:
        raise InputError(f"{path} cannot be written: {e.strerror or e}") from None
    if not is_regular:
        if not os.access(target, os.W_OK):
            raise InputError(f"{path} is not writable", fix="write to another place")
        return
    folder = target.parent
    if not folder.is_dir():
        raise InputError(f"the folder {folder} for {path.name} does not exist", fix=f"mkdir -p {folder}")
    if not os.access(folder, os.W_OK):
        raise InputError(f"the folder {folder} for {path.name} is not writable", fix="write to another place")


@contextmanager
def atomic_output(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that appears under ``path`` when the block ends, and not at all when it fails.

    ``-`` is standard output, and what is no regular file is written to (`shardc.hlo.files`).
    """
    check_writable(path)
    try:
        if path == STANDARD_OUTPUT:
            with io.BytesIO() as held:
                yield held
                sys.stdout.flush()
                with open(1, "wb", closefd=False) as out:
                    out.write(held.getvalue())
            return
        with replacing(path) as file:
            yield file
    except BrokenPipeError:
        raise
    except OSError as e:
        raise InputError(f"{path} cannot be written: {e.strerror or e}") from None


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8, whole or not at all."""
    with atomic_output(path) as file:
        file.write(text.encode("utf-8"))
