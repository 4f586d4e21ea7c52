"""NumPy meaning: LAPACK's routines, by calling them on each matrix of a batch."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from shardc.hlo.evaluate.values import Array
from shardc.hlo.ir.lapack import LapackArgument, LapackRoutine, letter, symbol_for

__all__ = ["call_lapack"]

_ROW_MAJOR = 101
_PREFIX = {
    np.dtype(np.float32): "s",
    np.dtype(np.float64): "d",
    np.dtype(np.complex64): "c",
    np.dtype(np.complex128): "z",
}


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    """LAPACK of the wheel: one thread, and no search for NaNs, which would change what is returned."""
    import scipy_openblas32

    folder = Path(scipy_openblas32.get_lib_dir())
    names = sorted(p for p in folder.iterdir() if p.name.startswith("libscipy_openblas") and p.suffix != ".a")
    loaded = ctypes.CDLL(str(names[0]))
    loaded.scipy_openblas_set_num_threads(ctypes.c_int(1))
    loaded.scipy_LAPACKE_set_nancheck(ctypes.c_int(0))
    return loaded


def call_lapack(
    routine: LapackRoutine,
    attributes: Mapping[str, Any],
    operands: Sequence[Array],
    results: Sequence[Array],
    place: str = "",
) -> list[Array]:
    """The results of ``routine``: arrays as ``results`` (whose values do not count), one call per matrix.

    ``operands`` have the element type to compute in, which need not be the type that the routine's name says.
    Raises `UnsupportedError` at ``place`` for attributes that do not fit.
    """
    outputs = [
        np.zeros(r.shape, r.dtype) if not b.isdigit() else np.array(operands[int(b)], order="C")
        for r, b in zip(results, routine.begin, strict=True)
    ]
    batch = operands[0].shape[: operands[0].ndim - len(routine.operands[0])]
    if any(0 in o.shape for o in operands):
        return outputs
    inputs = [np.ascontiguousarray(o) for o in operands]
    for where in np.ndindex(*batch):
        values, places = ([x[(*where, ...)] for x in arrays] for arrays in (inputs, outputs))
        info = _Call(routine, attributes, values, places, place).run()
        if routine.returns_info:
            outputs[-1][where] = info
    return outputs


class _Call:
    """One call for one matrix."""

    def __init__(
        self,
        routine: LapackRoutine,
        attributes: Mapping[str, Any],
        operands: Sequence[Array],
        results: Sequence[Array],
        place: str,
    ) -> None:
        self.place = place
        self.routine = routine
        self.attributes = attributes
        self.operands = operands
        # A complex matrix that LAPACK gives as pairs of real columns has a real one for the call.
        self.results = [
            np.zeros(r.shape, r.real.dtype) if b == "~" else r for r, b in zip(results, routine.begin, strict=True)
        ]
        self.wanted = results
        self.keep: list[Array] = []

    def run(self) -> int:
        if self.routine.needs_finite and not np.isfinite(self.operands[0]).all():
            return -4
        words = [self._argument(a) for a in self.routine.arguments]
        prefix = _PREFIX[self.operands[0].dtype]
        function = getattr(_library(), symbol_for(self.routine, prefix))
        function.restype = None if self.routine.is_cblas else ctypes.c_int
        info = function(ctypes.c_int(_ROW_MAJOR), *words)
        for real, wanted, begin in zip(self.results, self.wanted, self.routine.begin, strict=True):
            if begin == "~":
                wanted[...] = _from_pairs(real, self.results[1])
        return 0 if info is None else int(info)

    def _array(self, a: LapackArgument) -> Array:
        return (self.operands if a.of == "o" else self.results)[a.index]

    def _argument(self, a: LapackArgument) -> Any:
        match a.kind:
            case "address":
                x = self._array(a)
                return ctypes.c_void_p(x.ctypes.data + a.offset * x.itemsize)
            case "copy" | "work":
                first = self.operands[0]
                self.keep.append(np.array(first) if a.kind == "copy" else np.zeros(max(first.shape), first.real.dtype))
                return ctypes.c_void_p(self.keep[-1].ctypes.data)
            case "rows":
                return ctypes.c_int(self._array(a).shape[-2])
            case "cols" | "ld":
                return ctypes.c_int(self._array(a).shape[-1])
            case "null":
                return ctypes.c_void_p(None)
            case "one":
                return self._one()
        value = letter(self.routine, a, self.attributes, self.place)
        return ctypes.c_char(value) if a.kind == "letter" else ctypes.c_int(value)

    def _one(self) -> Any:
        dtype = self.operands[0].dtype
        if dtype.kind == "c":
            self.keep.append(np.ones(1, dtype))
            return ctypes.c_void_p(self.keep[-1].ctypes.data)
        return ctypes.c_float(1.0) if dtype == np.float32 else ctypes.c_double(1.0)


def _from_pairs(real: Array, imaginary: Array) -> Array:
    """Columns j, j+1 of a pair of conjugate eigenvalues hold the real and imaginary part of the first's vector."""
    out = real.astype(np.result_type(real.dtype, np.complex64))
    first = np.flatnonzero(imaginary > 0)
    for j in first[first + 1 < len(imaginary)]:
        out[:, j] = real[:, j] + 1j * real[:, j + 1]
        out[:, j + 1] = np.conj(out[:, j])
    return out
