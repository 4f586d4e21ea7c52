"""Folders of checkpoints: ``step-00000100`` is one, complete from the moment that it has this name.

What is still being written is ``.step-00000100.partial``, what is going away ``.step-00000100.removed``: leftovers of
a crash, which the next save clears away.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from shardc.hlo.errors import InputError
from shardc.launcher.checkpoint.index import INDEX

__all__ = [
    "checkpoint_path",
    "checkpoints",
    "latest_checkpoint",
    "local_folder",
    "prune",
    "remove",
    "resolve",
    "staging",
    "sync_folder",
]

_NAME = re.compile(r"step-(\d{8,})")


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
    try:
        found = [(_NAME.fullmatch(p.name), p) for p in local_folder(folder).iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return dict(sorted((int(m[1]), p) for m, p in found if m and (p / INDEX).is_file()))


def latest_checkpoint(folder: str | Path) -> Path | None:
    """Return the path of the complete checkpoint of the highest step in ``folder``, or None.

    >>> shardc.latest_checkpoint("empty") is None
    True
    """
    found = checkpoints(folder)
    return found[max(found)] if found else None


def resolve(path: Path) -> Path:
    """The folder of a checkpoint, given itself or a folder of several, of which it takes the latest."""
    if (path / INDEX).is_file():
        return path
    latest = latest_checkpoint(path)
    if latest is None:
        what = f"there is no checkpoint in {path}" if path.is_dir() else f"there is no folder {path}"
        raise InputError(
            f"{path} is a file, not a folder" if path.is_file() else what,
            fix="give a folder that save_checkpoint wrote to, or one of the checkpoints in it",
        )
    return latest


def staging(target: Path) -> Path:
    """Where ``target`` is written until it is complete."""
    return target.with_name(f".{target.name}.partial")


def clear_leftovers(folder: Path) -> None:
    """Remove what interrupted saves left in ``folder``."""
    for path in folder.glob(".step-*"):
        if path.name.endswith((".partial", ".removed")):
            shutil.rmtree(path, ignore_errors=True)


def remove(path: Path) -> None:
    """Remove a checkpoint; at no moment a part of it looks like a whole one."""
    gone = path.with_name(f".{path.name}.removed")
    shutil.rmtree(gone, ignore_errors=True)
    path.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def prune(folder: Path, keep: int, saved: int) -> None:
    """Of the checkpoints up to step ``saved`` keep the last ``keep``; those of higher steps stay, and do not count."""
    found = {step: path for step, path in checkpoints(folder).items() if step <= saved}
    for step in list(found)[:-keep]:
        remove(found[step])


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
