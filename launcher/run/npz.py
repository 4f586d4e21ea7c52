"""Arrays in ``.npz`` files: ``in0..inN`` by parameter, ``out0..outN`` by flattened result.

Types that NumPy lacks travel as unsigned integers of the same width; sub-byte types travel one element per byte,
integers among them sign-extended. OUT.npz also has ``dtypes``, the HLO name of each result's type. Pickles are
never loaded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.compiler.executable import ArraySpec
from shardc.hlo.errors import InputError, ShardcError
from shardc.hlo.ir.types import DType
from shardc.hlo.units import count_text
from shardc.launcher.run.output_files import atomic_output

__all__ = ["decode", "encode", "read_inputs", "read_outputs", "write_outputs"]

_SAVE = "save it with np.savez(path, in0=..., in1=...)"


def carrier(dtype: DType) -> np.dtype[Any]:
    """The NumPy type in which elements of ``dtype`` travel."""
    if dtype.is_integer and dtype.bits < 8:
        return np.dtype(np.int8 if dtype.kind == "signed" else np.uint8)
    if dtype.numpy.isbuiltin == 1:
        return dtype.numpy
    return np.dtype(f"u{dtype.nbytes}")


def encode(array: NDArray[Any], dtype: DType) -> NDArray[Any]:
    """``array`` of ``dtype`` in the form that files hold."""
    to = carrier(dtype)
    if to == dtype.numpy:
        return array
    return array.astype(to) if dtype.is_integer else np.ascontiguousarray(array).view(to).reshape(array.shape)


def decode(array: NDArray[Any], dtype: DType, where: str) -> NDArray[Any]:
    """A file's array as elements of ``dtype``; raises `InputError` when it holds another type."""
    to = carrier(dtype)
    if array.dtype.kind == "V" and array.dtype.names is None and array.dtype.itemsize == dtype.nbytes:
        array = np.ascontiguousarray(array).view(to).reshape(array.shape)
    if array.dtype in (dtype.numpy, dtype.numpy.newbyteorder()):
        return array.astype(dtype.numpy, copy=False)
    if to == dtype.numpy or array.dtype.kind not in "iu" or array.dtype.itemsize != dtype.nbytes:
        held = "" if to == dtype.numpy else f" (as {to})"
        raise InputError(
            f"the file holds {array.dtype}, but the parameter is {dtype}{held}",
            where=where,
            fix=f"write the file with elements of {to}: x.astype({to.name!r})",
        )
    if not dtype.is_integer:
        return np.ascontiguousarray(array, to).view(dtype.numpy).reshape(array.shape)
    if np.any(array.astype(np.int16) != array.astype(dtype.numpy).astype(np.int16)):
        raise InputError(
            f"the file holds values outside of {dtype}", where=where, fix=f"write values that {dtype} can hold"
        )
    return array.astype(dtype.numpy)


def check_inputs(path: Path) -> None:
    """Raise `InputError` where ``path`` is no file to read arguments from."""
    if not path.is_file():
        what = f"{path} is a folder" if path.is_dir() else f"there is no file {path}"
        raise InputError(what, fix="give --inputs an .npz file with the arrays in0, in1, ...")


def read_inputs(path: Path, parameters: Sequence[ArraySpec]) -> list[NDArray[Any]]:
    """The arguments in ``path``; raises `InputError` naming key and parameter for anything that does not fit."""
    check_inputs(path)
    try:
        # Opened here, because np.load leaves a damaged file open.
        with path.open("rb") as handle:
            file = np.load(handle, allow_pickle=False)
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise InputError(f"{path} is not an .npz file", fix=_SAVE)
            keys = [k for k in file.files if re.fullmatch(r"in\d+", k)]
            _check_keys(path, keys, parameters)
            return [_input(file, path, i, p) for i, p in enumerate(parameters)]
    except ShardcError:
        raise
    except Exception as e:  # a damaged zip file can raise nearly anything
        what = "is not an .npz file" if "pickle" in str(e) else f"cannot be read: {e}"
        raise InputError(f"{path} {what}", fix=_SAVE) from None


def _check_keys(path: Path, keys: Sequence[str], parameters: Sequence[ArraySpec]) -> None:
    missing = [f"in{i} ({p.name})" if p.name else f"in{i}" for i, p in enumerate(parameters) if f"in{i}" not in keys]
    if missing:
        raise InputError(f"{path} lacks {', '.join(missing)}", fix=f"it has {', '.join(keys) or 'no in* keys'}")
    extra = [k for k in keys if int(k[2:]) >= len(parameters)]
    if extra:
        raise InputError(
            f"{path} has {', '.join(extra)}, but the program has {count_text(len(parameters), 'parameter')}",
            fix=f"save in0 to in{len(parameters) - 1} only" if parameters else "omit --inputs",
        )


def _input(file: Any, path: Path, number: int, parameter: ArraySpec) -> NDArray[Any]:
    where = f"{path}, in{number}" + (f" ({parameter.name})" if parameter.name else "")
    try:
        array = file[f"in{number}"]
    except ValueError as e:
        raise InputError(
            f"the array cannot be read: {e}", where=where, fix="save arrays of numbers: object arrays are never loaded"
        ) from None
    if array.shape != parameter.global_shape.dims:
        raise InputError(
            f"the file holds shape {list(array.shape)}, but the parameter has {list(parameter.global_shape.dims)}",
            where=where,
            fix="save the global array, not one shard",
        )
    return decode(array, parameter.global_shape.dtype, where)


def read_outputs(path: Path, results: Sequence[ArraySpec]) -> list[NDArray[Any]]:
    """What `write_outputs` wrote for a program with these ``results``."""
    with np.load(path, allow_pickle=False) as file:
        return [decode(file[f"out{i}"], r.global_shape.dtype, f"{path}, out{i}") for i, r in enumerate(results)]


def write_outputs(path: Path, arrays: Sequence[NDArray[Any]], dtypes: Sequence[DType]) -> None:
    """Write ``out0..outN`` and ``dtypes``, whole or not at all."""
    entries: dict[str, Any] = {f"out{i}": encode(a, d) for i, (a, d) in enumerate(zip(arrays, dtypes, strict=True))}
    entries["dtypes"] = np.array([d.name for d in dtypes], dtype=np.str_)
    with atomic_output(path) as file:
        np.savez(file, **entries)
