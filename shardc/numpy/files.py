"""Reading and writing files: each process reads and writes only what its own devices hold.

`from_array` reads whatever has a shape, an element type and slices: an HDF5 dataset, a zarr array, a memory map.
"""

from __future__ import annotations

import errno
import glob
import importlib
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from shardc.hlo.errors import EnvironmentProblem, InputError
from shardc.hlo.files import near_files
from shardc.hlo.numpy.tracer import Tracer
from shardc.hlo.units import kind_text
from shardc.launcher.arrays.array import Array
from shardc.launcher.arrays.make_arrays import array as array_of_value
from shardc.launcher.arrays.make_arrays import array_from_callback
from shardc.launcher.checkpoint.locks import Lock
from shardc.launcher.jobs.job import job_transport
from shardc.launcher.jobs.job_config import job_config
from shardc.numpy.placing import new_sharding

__all__ = ["from_array", "from_hdf5", "from_zarr", "load", "save"]


def from_array(source: Any, *, dtype: Any = None, sharding: Any = None, mesh: Any = None) -> Any:
    """Make an `Array` of an object with ``shape``, ``dtype`` and slices; each process reads only what its devices
    hold.

    HDF5 datasets, netCDF variables, zarr arrays and memory maps are such objects. Raises `InputError` for others.

    >>> import numpy
    >>> np.from_array(numpy.arange(64.0), sharding=P("x"), mesh=mesh)
    shardc.Array(f64[64], [{x}])
    """
    if not hasattr(source, "shape") or not hasattr(source, "dtype"):
        raise InputError(f"{kind_text(source)} has no shape and element type", fix="use np.array for lists and numbers")
    dims = tuple(int(n) for n in source.shape)
    kind = np.dtype(source.dtype if dtype is None else dtype).newbyteorder("=")

    def part(index: tuple[slice, ...]) -> Any:
        # The ellipsis keeps what has no dimensions an array.
        return np.asarray(source[index if index else ...]).astype(kind, copy=False)

    return array_from_callback(dims, kind, new_sharding(dims, sharding, mesh), part)


def load(path: str | os.PathLike[str], mmap_mode: str | None = None, *, sharding: Any = None, mesh: Any = None) -> Any:
    """Load an .npy file as `numpy.load` does, each process its part. An .npz file becomes a dict of whole arrays.

    Each process reads its part through a memory map in any case, so ``mmap_mode`` may be None, "r" or "c". Raises
    `InputError` for other modes, for files that are neither, and for files that hold Python objects.

    >>> np.save("u.npy", np.ones((64, 64), mesh=mesh))
    >>> np.load("u.npy", sharding=P("x"), mesh=mesh)
    shardc.Array(f64[64,64], [{x}, {}])
    """
    if mmap_mode not in (None, "r", "c"):
        raise InputError(
            f"mmap_mode={mmap_mode!r}: changes of an array do not reach its file",
            where="np.load",
            fix='use mmap_mode="r", and write the file with np.save',
        )
    try:
        found = np.load(path, mmap_mode="r")
    except FileNotFoundError:
        raise InputError(f"there is no file {path}", fix=near_files(Path(path))) from None
    except (ValueError, OSError, EOFError) as e:
        raise InputError(
            f"{path} cannot be read: {e}", fix="give a file that numpy.save or numpy.savez wrote"
        ) from None
    if isinstance(found, np.ndarray):
        return from_array(found, sharding=sharding, mesh=mesh)
    with found:
        return {name: from_array(found[name], sharding=sharding, mesh=mesh) for name in found.files}


def from_hdf5(path: str | os.PathLike[str], name: str, *, sharding: Any = None, mesh: Any = None) -> Any:
    """Read the dataset ``name`` of an HDF5 file, each process its part. Needs h5py (``pip install "shardc[hdf5]"``).

    Raises `EnvironmentProblem` without h5py, `InputError` for a file or name that cannot be read.

    >>> import h5py
    >>> with h5py.File("state.h5", "w") as file:
    ...     file["fields/u"] = [[1.0, 2.0], [3.0, 4.0]]
    >>> np.from_hdf5("state.h5", "fields/u", sharding=P("x"), mesh=mesh)
    shardc.Array(f64[2,2], [{x}, {}])
    """
    h5py = _imported("h5py", "hdf5")
    try:
        with h5py.File(path, "r") as file:
            if name not in file or not hasattr(file[name], "shape"):
                raise InputError(f"{path} has no dataset {name!r}", fix=f"it has {', '.join(file) or 'nothing'}")
            return from_array(file[name], sharding=sharding, mesh=mesh)
    except OSError as e:
        raise InputError(f"{path} cannot be read: {e}", fix="give an HDF5 file") from None


def from_zarr(path: Any, name: str | None = None, *, sharding: Any = None, mesh: Any = None) -> Any:
    """Read a zarr array, or the array ``name`` of a group, each process its part. Needs zarr (``pip install
    "shardc[zarr]"``).

    Raises `EnvironmentProblem` without zarr, `InputError` for arrays that cannot be read.

    >>> import numpy, zarr
    >>> zarr.save("state.zarr", numpy.ones((64, 4)))
    >>> np.from_zarr("state.zarr", sharding=P("x"), mesh=mesh)
    shardc.Array(f64[64,4], [{x}, {}])
    """
    zarr = _imported("zarr", "zarr")
    try:
        source = zarr.open(path, mode="r")
        if name is not None:
            source = source[name]
    except Exception as e:  # zarr's stores have errors of their own
        raise InputError(f"{path} cannot be read: {e}", fix="give a zarr array or group") from None
    if not hasattr(source, "shape"):
        raise InputError(f"{path} is a group of zarr arrays", fix="give the name of one array")
    return from_array(source, sharding=sharding, mesh=mesh)


def _imported(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as e:
        raise EnvironmentProblem(
            f"{module} is not installed: {e}", fix=f'pip install {module}, or pip install "shardc[{extra}]"'
        ) from None


def save(path: str | os.PathLike[str], value: Any) -> None:
    """`numpy.save`: each process writes its shards into one .npy file; every process must call it.

    All processes must see the file, which appears when all of it is written. A value that is not an `Array` must be
    equal on every process. Raises `InputError` for types that such files do not have, and for a file that cannot be
    written.

    >>> np.save("v.npy", np.ones((64, 64), mesh=mesh))
    >>> np.load("v.npy", mesh=mesh).shape
    (64, 64)
    """
    if isinstance(value, Tracer):
        raise value.refusal("np.save of a traced value, which has no elements yet", "return it, and save the result")
    if not isinstance(value, Array):
        value = array_of_value(np.asarray(value), new_sharding(np.shape(value)))
    if np.dtype(value.dtype).kind == "V":
        raise InputError(
            f"an .npy file has no element type {value.dtype}",
            where=str(path),
            fix='save x.astype("float32"), or keep the type with shardc.save_checkpoint',
        )
    name = os.fspath(path)
    target = Path(name if name.endswith(".npy") else f"{name}.npy")
    first = job_transport(job_config()).process_index == 0
    locks: list[Lock] = []
    try:
        part = target.with_name(_together(target, (lambda: _reserve(target, value, locks)) if first else None))
        _together(target, lambda: _write_shards(part, value))
        _together(target, (lambda: str(part.replace(target))) if first else None)
    finally:
        for lock in locks:
            lock.release()


def _reserve(target: Path, value: Array, locks: list[Lock]) -> str:
    """Make a hidden file for this save alone, and return its name; ``locks`` gets its lock. What ended saves left is
    removed."""
    folder = target.parent
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, f"the folder {folder} does not exist (mkdir -p {folder})")
    for left in folder.glob(f".{glob.escape(target.name)}.*.part"):
        with suppress(OSError):  # Another save writes it, or the disk has no locks.
            Lock(left).release()
    part = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    with suppress(OSError):
        locks.append(Lock(part))
    np.lib.format.open_memmap(part, "w+", value.dtype, value.shape)
    return part.name


def _write_shards(path: Path, value: Array) -> None:
    out: Any = np.lib.format.open_memmap(path, "r+")
    for shard in value.addressable_shards:
        out[(*shard.index, ...)] = shard.data
    out.flush()


def _together(target: Path, work: Callable[[], str | None] | None) -> str:
    """Do ``work``, if there is any, and return its text on process 0; when one process fails all of them raise
    `InputError`."""
    problem, text = "", None
    try:
        if work is not None:
            text = work()
    except (OSError, ValueError) as e:
        problem = str(getattr(e, "strerror", None) or e)
    answers = job_transport(job_config()).exchange_objects((problem, text), doing=f"writing {target}")
    found = next((p for p, _ in answers if p), "")
    if found:
        raise InputError(
            f"{target} cannot be written: {found}", fix="give a file in a folder that every process reaches"
        )
    return str(answers[0][1])
