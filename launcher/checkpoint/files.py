"""Files of safetensors: written whole from the arrays' memory, read by mapping them.

The package writes them and checks them when they are opened; its NumPy side does not know float8, so elements are
found by the header's offsets. Types that the format has not are kept as bytes: complex128 with 16 of them as a last
dimension, int4 with one per element.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.hlo.errors import EnvironmentProblem, InputError, UnsupportedError
from shardc.hlo.ir.types import DTYPES, DType

__all__ = ["TensorFile", "safetensors", "stored", "write_file"]

#: What the format calls our element types.
_CODES: Mapping[str, str] = MappingProxyType(
    {
        "pred": "BOOL",
        **{f"{k}{n}": f"{c}{n}" for k, c in (("s", "I"), ("u", "U")) for n in (8, 16, 32, 64)},
        "f8e4m3fn": "F8_E4M3",
        "f8e5m2": "F8_E5M2",
        "f8e8m0fnu": "F8_E8M0",
        "f8e4m3fnuz": "F8_E4M3FNUZ",
        "f8e5m2fnuz": "F8_E5M2FNUZ",
        "bf16": "BF16",
        "f16": "F16",
        "f32": "F32",
        "f64": "F64",
        "c64": "C64",
    }
)
_TYPES: Mapping[str, DType] = MappingProxyType({code: DTYPES[name] for name, code in _CODES.items()})


def safetensors() -> Any:
    """The package; `EnvironmentProblem` without it."""
    try:
        import safetensors as package
    except ImportError:
        raise EnvironmentProblem(
            "checkpoints need the package safetensors", fix='install it: pip install "shardc[checkpoint]"'
        ) from None
    return package


def stored(array: NDArray[Any], dtype: DType) -> NDArray[Any]:
    """``array`` in its stored form: contiguous, in a type of the format."""
    plain = np.ascontiguousarray(array).reshape(array.shape)
    if dtype.name in _CODES:
        return plain
    return plain.reshape(-1).view(np.uint8).reshape((*array.shape, *((dtype.nbytes,) if dtype.nbytes > 1 else ())))


def write_file(path: Path, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> int:
    """Write contiguous arrays and wait until they are on the disk; returns the file's bytes. Raises `InputError`."""
    package = safetensors()
    specs = {
        name: package.TensorSpec(
            dtype=a.dtype.name, shape=list(a.shape), data_ptr=a.ctypes.data if a.size else 0, data_len=a.nbytes
        )
        for name, a in arrays.items()
    }
    try:
        package.serialize_file(specs, path, metadata=dict(metadata))
        with path.open("rb+") as file:
            os.fsync(file.fileno())
        return path.stat().st_size
    except (OSError, package.SafetensorError) as e:
        raise InputError(
            f"the file cannot be written: {e}",
            where=str(path),
            fix="check the free space and the permissions of the disk",
        ) from None


@dataclass(frozen=True)
class TensorFile:
    """A file of safetensors, mapped; pages are read when they are looked at.

    Raises `InputError`, with ``fix``, when it is missing, cut short or damaged in its header.
    """

    path: Path
    fix: str = "load an older checkpoint"

    @cached_property
    def _header(self) -> Mapping[str, Any]:
        package = safetensors()
        try:
            with package.safe_open(self.path, framework="numpy"):
                pass
            with self.path.open("rb") as file:
                header: dict[str, Any] = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        except FileNotFoundError:
            raise InputError("the file is missing", where=str(self.path), fix=self.fix) from None
        except (OSError, ValueError, package.SafetensorError) as e:
            raise InputError(
                f"the file is damaged, truncated, or not a safetensors file: {e}", where=str(self.path), fix=self.fix
            ) from None
        header.pop("__metadata__", None)
        return header

    @cached_property
    def _bytes(self) -> NDArray[np.uint8]:
        size = self.path.stat().st_size
        self._header  # noqa: B018  (checks the file first)
        return np.memmap(self.path, np.uint8, "r", shape=(size,))

    @cached_property
    def _start(self) -> int:
        return 8 + int.from_bytes(self._bytes[:8].tobytes(), "little")

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self._header)

    def dtype(self, key: str) -> DType:
        """The element type that the header says."""
        code = self._header[key]["dtype"]
        if code not in _TYPES:
            raise UnsupportedError(f"tensors of type {code} are not supported", where=f"{self.path}, {key}")
        return _TYPES[code]

    def shape(self, key: str) -> tuple[int, ...]:
        return tuple(self._header[key]["shape"])

    def read(self, key: str, dtype: DType, shape: tuple[int, ...]) -> NDArray[Any]:
        """A tensor of ``shape``, seen in the file; `InputError` if it is not there, of another type or shape."""
        if key not in self._header:
            raise InputError("the tensor is missing", where=f"{self.path}, {key}", fix=self.fix)
        code = _CODES.get(dtype.name)
        kept = shape if code or dtype.nbytes == 1 else (*shape, dtype.nbytes)
        if self._header[key]["dtype"] != (code or "U8") or self.shape(key) != kept:
            raise InputError(
                f"the file has {self._header[key]['dtype']}{list(self.shape(key))}, but the index has "
                f"{dtype}{list(shape)}",
                where=f"{self.path}, {key}",
                fix=self.fix,
            )
        first, last = self._header[key]["data_offsets"]
        data = self._bytes[self._start + first : self._start + last]
        if data.ctypes.data % dtype.numpy.alignment or not data.size:
            return np.frombuffer(data.tobytes(), dtype.numpy).reshape(shape)
        return np.asarray(data).view(dtype.numpy).reshape(shape)
