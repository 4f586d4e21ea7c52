"""Folders of checkpoints: ``step-00000100`` is one, complete from the moment that it has this name.

What is still being written is ``.step-00000100.X.partial``, what is going away ``.step-00000100.X.removed``, with an X
of each save's own. A file in the former is locked as long as the save lives: other saves leave the folder alone. What a
crash left is not locked, and the next save clears it away.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from shardc.hlo.errors import InputError
from shardc.launcher.checkpoint.index import INDEX
from shardc.launcher.checkpoint.locks import Lock

__all__ = [
    "alone",
    "checkpoint_path",
    "checkpoints",
    "latest_checkpoint",
    "local_folder",
    "new_staging",
    "prune",
    "put_away",
    "resolve",
    "sync_folder",
    "unneeded",
]

_NAME = re.compile(r"step-(\d{8,})")
#: The locked file of a folder that is being written, and that of the folder of all checkpoints.
_ALIVE, _ALONE = ".alive", ".step-lock"
#: Seconds that a save waits for another one to change the names in the folder.
_WAIT = 60.0


def local_folder(folder: str | Path) -> Path:
    """``folder`` as a path. Raises `InputError` for a URL, which would make a folder named ``s3:``."""
    if "://" in str(folder):
        raise InputError(
            f"checkpoints are in folders, and {folder} is a URL",
            fix="give a folder on a disk that all ranks see, and copy it to the storage with a tool of that storage",
        )
    return Path(folder)


def checkpoint_path(folder: Path, step: int) -> Path:
    """Where the checkpoint of ``step`` is."""
    return folder / f"step-{step:08d}"


def checkpoints(folder: str | Path) -> dict[int, Path]:
    """The complete checkpoints in ``folder`` by step, ascending; none where there is no folder."""
    return _complete(_steps(local_folder(folder)))


def _steps(folder: Path) -> dict[int, Path]:
    """What has the name of a checkpoint, complete or not."""
    try:
        found = [(_NAME.fullmatch(p.name), p) for p in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return dict(sorted((int(m[1]), p) for m, p in found if m))


def _complete(steps: dict[int, Path]) -> dict[int, Path]:
    return {step: path for step, path in steps.items() if (path / INDEX).is_file()}


def latest_checkpoint(folder: str | Path) -> Path | None:
    """Return the path of the complete checkpoint of the highest step in ``folder``, or None.

    A warning names folders of higher steps that are incomplete.

    >>> shardc.latest_checkpoint("empty") is None
    True
    """
    steps = _steps(local_folder(folder))
    found = _complete(steps)
    latest = max(found, default=-1)
    for step, path in steps.items():
        if step > latest and path.is_dir():
            logging.getLogger("shardc").warning("%s is incomplete and is left out: it has no %s", path, INDEX)
    return found.get(latest)


def resolve(path: Path) -> Path:
    """The folder of a checkpoint, given itself or a folder of several, of which it takes the latest."""
    if (path / INDEX).is_file():
        return path
    if path.is_dir() and (_NAME.fullmatch(path.name) or any(path.glob("data-*.safetensors"))):
        raise InputError(
            f"the checkpoint {path} is incomplete: it has no {INDEX}",
            fix="copy the whole folder again, or load another checkpoint",
        )
    latest = latest_checkpoint(path)
    if latest is None:
        what = f"there is no checkpoint in {path}" if path.is_dir() else f"there is no folder {path}"
        what += "".join(f"; {p.name} is incomplete, it has no {INDEX}" for p in list(_steps(path).values())[-1:])
        raise InputError(
            f"{path} is a file, not a folder" if path.is_file() else what,
            fix="give a folder that save_checkpoint wrote to, or one of the checkpoints in it",
        )
    return latest


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Within the block no other save changes the names in ``folder``; then what was put away is removed.

    Raises `InputError` where another one takes too long. Where a disk has no locks, the block runs without.
    """
    path, lock = folder / _ALONE, None
    try:
        lock = Lock(path, _WAIT)
    except BlockingIOError:
        raise InputError(
            f"another save has kept {folder} locked for {_WAIT:g} s",
            where=str(path),
            fix="end the job that saves there, or save into another folder",
        ) from None
    except PermissionError:  # Another user's.
        pass
    except OSError:
        with suppress(OSError):
            path.unlink()
    try:
        yield
    finally:
        if lock is not None:
            lock.release()
    for gone in folder.glob(".step-*.removed"):
        shutil.rmtree(gone, ignore_errors=True)


def new_staging(target: Path) -> tuple[Path, Lock | None]:
    """Make the folder that ``target`` is written into until it is complete, and lock it. Call it `alone`."""
    path = _hidden(target, "partial")
    path.mkdir()
    try:
        return path, Lock(path / _ALIVE)
    except OSError:  # A disk without locks.
        (path / _ALIVE).unlink(missing_ok=True)
        return path, None


def put_leftovers_away(folder: Path) -> None:
    """Put away what interrupted saves left in ``folder``. Call it `alone`."""
    for path in folder.glob(".step-*.partial"):
        try:
            lock = Lock(path / _ALIVE)
        except (BlockingIOError, PermissionError):  # It lives, or is another user's.
            continue
        except OSError:
            lock = None
        with suppress(OSError):
            put_away(path)
        if lock is not None:
            lock.release(remove=False)


def put_away(path: Path) -> None:
    """Give a folder a name under which it is removed; at no moment a part of a checkpoint looks like a whole one."""
    path.rename(_hidden(path, "removed"))


def _hidden(path: Path, ending: str) -> Path:
    return path.with_name(f".{path.name.lstrip('.')}.{secrets.token_hex(8)}.{ending}")


def prune(folder: Path, keep: int, saved: int) -> None:
    """Of the checkpoints up to step ``saved`` keep the last ``keep``; those of higher steps stay, and do not count.
    Call it `alone`."""
    found = {step: path for step, path in checkpoints(folder).items() if step <= saved}
    for step in list(found)[:-keep]:
        put_away(found[step])


def unneeded(folder: Path, needed: Iterable[str]) -> list[Path]:
    """What is in a checkpoint that its index does not name: former data, and leftovers of an overwriting that ended."""
    names = {INDEX, *needed}
    ours = (*folder.glob("data-*.safetensors"), *folder.glob(f".{INDEX}.*.part"))
    return sorted(p for p in ours if p.name not in names)


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
