"""DLPack, both ways, on CPU memory: NumPy's own export and import, with the element types that it lacks.

NumPy carries bfloat16 and float8 as unsigned integers of their width, and the type code in the tensor's header is
changed on the way. Structures and codes as in DLPack 1.1 (dmlc.github.io/dlpack).
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from shardc.hlo.errors import InputError

__all__ = ["CPU", "from_dlpack", "to_dlpack"]

#: What ``__dlpack_device__`` of CPU memory says: kDLCPU, number 0.
CPU = (1, 0)
#: Devices whose memory the CPU reads: kDLCPU, kDLCUDAHost, kDLROCMHost.
_READABLE = (1, 3, 11)
_UNSIGNED = 1
#: Type codes that NumPy has not, with their NumPy types.
_CODES: Mapping[int, np.dtype[Any]] = MappingProxyType(
    {
        4: np.dtype(ml_dtypes.bfloat16),
        7: np.dtype(ml_dtypes.float8_e3m4),
        8: np.dtype(ml_dtypes.float8_e4m3),
        9: np.dtype(ml_dtypes.float8_e4m3b11fnuz),
        10: np.dtype(ml_dtypes.float8_e4m3fn),
        11: np.dtype(ml_dtypes.float8_e4m3fnuz),
        12: np.dtype(ml_dtypes.float8_e5m2),
        13: np.dtype(ml_dtypes.float8_e5m2fnuz),
        14: np.dtype(ml_dtypes.float8_e8m0fnu),
    }
)


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


def to_dlpack(array: NDArray[Any], max_version: tuple[int, int] | None, copy: bool | None) -> Any:
    """A capsule of ``array``; BufferError for what DLPack cannot say (sub-byte types, read-only in old versions)."""
    code = next((c for c, t in _CODES.items() if t == array.dtype), None)
    plain = array if code is None else array.view(f"u{array.dtype.itemsize}")
    capsule = plain.__dlpack__(max_version=max_version, copy=copy)
    if code is not None:
        _header(capsule).code = code
    return capsule


def from_dlpack(value: Any, where: str) -> NDArray[Any]:
    """The memory of ``value``, which has ``__dlpack__``, seen as NumPy, never copied; `InputError` if it cannot be."""
    device = int(value.__dlpack_device__()[0]) if hasattr(value, "__dlpack_device__") else CPU[0]
    if device not in _READABLE:
        raise InputError(
            f"the {type(value).__name__} is on an accelerator (DLPack device type {device})",
            where=where,
            fix="copy it to the CPU first",
        )
    try:
        capsule = value.__dlpack__()
        header = _header(capsule)
        dtype = _CODES.get(header.code)
        if dtype is not None:
            if (header.bits, header.lanes) != (8 * dtype.itemsize, 1):
                raise BufferError(f"{header.bits} bits in {header.lanes} lanes for {dtype}")
            header.code = _UNSIGNED
        out = np.from_dlpack(_Exporter(capsule))
    except (BufferError, RuntimeError, TypeError, ValueError) as e:
        raise InputError(f"the {type(value).__name__} cannot be read through DLPack: {e}", where=where) from None
    return out if dtype is None else out.view(dtype)


class _Exporter:
    """The object from which `numpy.from_dlpack` requests a capsule."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU


def _header(capsule: Any) -> _Tensor:
    """The tensor that an unused capsule holds."""
    valid = ctypes.pythonapi.PyCapsule_IsValid
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    valid.argtypes, valid.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_int
    pointer.argtypes, pointer.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
    for name, offset in ((b"dltensor", 0), (b"dltensor_versioned", _Versioned.tensor.offset)):
        if valid(capsule, name):
            return _Tensor.from_address(pointer(capsule, name) + offset)
    raise BufferError("no DLPack tensor")
