"""Output files of commands: never half written, and our errors where they cannot be."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from shardc.hlo.errors import InputError
from shardc.hlo.files import replacing, target_of, unwritable

__all__ = ["STANDARD_OUTPUT", "atomic_output", "check_outputs", "check_writable", "write_text"]

#: The path that stands for standard output, as in other commands.
STANDARD_OUTPUT = Path("-")
#: The options that write a picture as SVG.
_PICTURES = ("picture", "svg", "memory_svg")


def check_outputs(*sources: Path | None, replaces: Callable[[str], bool] | None = None, **paths: Path | None) -> None:
    """`check_writable` for the files of several options, of which some are pictures as SVG.

    Raises `InputError` where two of them are one file or standard output, or one is among the ``sources``,
    which the command reads.
    """
    known: dict[Path, str] = {}
    for name, path in paths.items():
        option = name.replace("_", "-")
        check_writable(path, ".svg" if name in _PICTURES else "", replaces)
        if path is None or (path != STANDARD_OUTPUT and path.exists() and not path.is_file()):
            continue
        if path != STANDARD_OUTPUT and any(_is_same(path, source) for source in sources):
            fix = "name another file to write"
            raise InputError(f"--{option} would overwrite {path}, which the command reads", fix=fix)
        other = known.setdefault(path if path == STANDARD_OUTPUT else path.resolve(), option)
        if other != option:
            both = "both go to standard output" if path == STANDARD_OUTPUT else f"are both {path}"
            raise InputError(f"--{other} and --{option} {both}", fix="name two files")


def _is_same(path: Path, source: Path | None) -> bool:
    return source is not None and path.is_file() and source.is_file() and path.samefile(source)


def check_writable(path: Path | None, suffix: str = "", replaces: Callable[[str], bool] | None = None) -> None:
    """Raise `InputError` early when ``path`` cannot become an output file, its name ends otherwise than what is written
    there, or it is Python code of somebody; None and ``-`` are fine.

    ``replaces`` tells of the text of a Python file whether it may be overwritten; by default none may.
    """
    if path is None or path == STANDARD_OUTPUT:
        return
    try:
        _check_place(path, suffix)
        if path.suffix == ".py" and path.is_file() and not (replaces and replaces(_text_of(path))):
            raise InputError(
                f"the output would overwrite the Python file {path}",
                fix="name another file to write, or move this one away",
            )
    except OSError as e:
        raise unwritable(path, e) from None


def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _check_place(path: Path, suffix: str = "") -> None:
    """`check_writable` for what is not Python. Raises OSError, too."""
    if path.is_dir():
        raise InputError(f"{path} is a folder", fix="name a file to write")
    if suffix and path.suffix and path.suffix.lower() != suffix:
        raise InputError(f"{path} needs the ending {suffix}", fix=f"name {path.with_suffix(suffix)}")
    target, is_regular = target_of(path)
    if not is_regular:
        if not os.access(target, os.W_OK):
            raise InputError(f"{path} is not writable", fix="write to another place")
        return
    folder = target.parent
    if any(p.is_file() for p in (folder, *folder.parents)):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if not folder.is_dir():
        raise InputError(f"the folder {folder} for {path.name} does not exist", fix=f"mkdir -p {folder}")
    if not os.access(folder, os.W_OK):
        raise InputError(f"the folder {folder} for {path.name} is not writable", fix="write to another place")


@contextmanager
def atomic_output(path: Path, replaces: Callable[[str], bool] | None = None) -> Iterator[IO[bytes]]:
    """A binary file that appears under ``path`` when the block ends, and not at all when it fails.

    ``-`` is standard output, and what is no regular file is written to (`shardc.hlo.files`). Raises `InputError` as
    `check_writable`, which has ``replaces``, and where writing fails.
    """
    check_writable(path, replaces=replaces)
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
        raise unwritable(path, e) from None


def write_text(path: Path, text: str, replaces: Callable[[str], bool] | None = None) -> None:
    """Write ``text`` as UTF-8, whole or not at all; ``replaces`` as in `check_writable`."""
    with atomic_output(path, replaces) as file:
        file.write(text.encode("utf-8"))
