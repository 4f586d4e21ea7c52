"""Matrix products and LAPACK: functions of the scipy-openblas32 wheel, by address, on one thread.

Threads are ours to use; OpenBLAS's own pool would fight them, so it is set to one thread when the library loads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from llvmlite import ir

__all__ = ["GEMM", "LAPACK", "SMALL", "SYMBOLS", "TRANSPOSE", "UNPACKED", "declare", "declare_gemm", "library"]

#: CBLAS function per element type; integers are 32 bits wide.
GEMM = {"f32": "scipy_cblas_sgemm", "f64": "scipy_cblas_dgemm", "c64": "scipy_cblas_cgemm", "c128": "scipy_cblas_zgemm"}
#: Letter of an element type in the names of LAPACK's routines, and the routines of real and of complex matrices.
LAPACK = {"f32": "s", "f64": "d", "c64": "c", "c128": "z"}
_BOTH = "potrf getrf geqrf geqp3 gesdd gesvd geev gees gehrd gtsv"
_REAL, _COMPLEX = "orgqr ormqr syevd sytrd", "ungqr unmqr heevd hetrd"
#: Transposing copy per element type.
TRANSPOSE = {"f32": "scipy_cblas_somatcopy", "f64": "scipy_cblas_domatcopy"}
SYMBOLS = (
    frozenset(GEMM.values())
    | frozenset(TRANSPOSE.values())
    | {f"scipy_cblas_{letter}trsm" for letter in "sdcz"}
    | {f"scipy_LAPACKE_{letter}{name}" for letter in "sd" for name in f"{_BOTH} {_REAL}".split()}
    | {f"scipy_LAPACKE_{letter}{name}" for letter in "cz" for name in f"{_BOTH} {_COMPLEX}".split()}
)

#: Products with fewer multiplications than this are loops: a call costs about a microsecond.
SMALL = 512
#: Products of at most so many multiplications need no packing with 512-bit registers: close to peak from cache.
UNPACKED = 1_000_000

ROW_MAJOR = 101
COLUMN_MAJOR = 102
NO_TRANS = 111
TRANS = 112


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """The wheel's shared library, loaded once, with one thread; LAPACK gets NaNs as they are."""
    import scipy_openblas32

    folder = Path(scipy_openblas32.get_lib_dir())
    names = sorted(p for p in folder.iterdir() if p.name.startswith("libscipy_openblas") and p.suffix != ".a")
    loaded = ctypes.CDLL(str(names[0]))
    loaded.scipy_openblas_set_num_threads.argtypes = [ctypes.c_int]
    loaded.scipy_openblas_set_num_threads.restype = None
    loaded.scipy_openblas_set_num_threads(1)
    loaded.scipy_LAPACKE_set_nancheck(ctypes.c_int(0))
    return loaded


def declare_gemm(module: ir.Module, dtype: str) -> ir.Function:
    """The declaration of ``cblas_?gemm`` for ``f32``, ``f64``, ``c64`` or ``c128`` in an IR module.

    Arguments: order, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc; alpha and beta are values for
    real types and pointers for complex ones.
    """
    name = GEMM[dtype]
    if name in module.globals:
        return module.globals[name]
    i32, pointer = ir.IntType(32), ir.PointerType()
    scale = {"f32": ir.FloatType(), "f64": ir.DoubleType()}.get(dtype, pointer)
    arguments = [i32] * 6 + [scale, pointer, i32, pointer, i32, scale, pointer, i32]
    return ir.Function(module, ir.FunctionType(ir.VoidType(), arguments), name)


def declare(module: ir.Module, symbol: str, arguments: Sequence[ir.Type]) -> ir.Function:
    """The declaration of one of `SYMBOLS` other than a product: LAPACKE returns an i32, CBLAS nothing."""
    assert symbol in SYMBOLS, symbol
    if symbol in module.globals:
        return module.globals[symbol]
    result = ir.VoidType() if "cblas" in symbol else ir.IntType(32)
    function = ir.Function(module, ir.FunctionType(result, list(arguments)), symbol)
    for argument in function.args:
        if argument.type == ir.IntType(8):  # a char: some platforms' callees expect it extended
            argument.add_attribute("signext")
    return function
