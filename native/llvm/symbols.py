"""The functions outside our code that compiled code may call: a whitelist with their libraries."""

from __future__ import annotations

import ctypes
import ctypes.util
import sys
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from shardc.native.llvm import blas

__all__ = ["C_SYMBOLS", "MATH_SYMBOLS", "PARALLEL", "THREAD_SYMBOLS", "addresses_for"]

#: C library functions that emitted code or LLVM's lowering of memory intrinsics calls.
C_SYMBOLS = frozenset(
    {
        "memcpy",
        "memmove",
        "memset",
        "memcmp",
        "bzero",
        "malloc",
        "free",
        "aligned_alloc",
        "abort",
        "clock_gettime",
        "pthread_self",
    }
)


_THREADS = (
    "getpid clock_gettime nanosleep syscall sigfillset pthread_create pthread_attr_init pthread_attr_destroy "
    "pthread_sigmask pthread_attr_setstacksize pthread_attr_setdetachstate pthread_mutex_init pthread_mutex_lock "
    "pthread_mutex_unlock pthread_cond_init pthread_cond_wait pthread_cond_broadcast sched_getcpu "
    "sched_getaffinity sched_setaffinity sched_yield"
)
#: What the thread pool calls.
THREAD_SYMBOLS = frozenset(_THREADS.split())

#: The call of kernels into the thread pool, see `shardc.native.threads.pool`.
PARALLEL = "shardc_parallel"

_F64 = (
    "acos acosh asin asinh atan atan2 atanh cbrt ceil cos cosh erf erfc exp exp2 expm1 fabs floor fma fmod log log10 "
    "log1p log2 pow rint round roundeven sin sinh sqrt tan tanh trunc nearbyint ldexp fmin fmax"
)
#: libm, double and single precision.
MATH_SYMBOLS = frozenset(n + suffix for n in _F64.split() for suffix in ("", "f"))


def addresses_for(names: Iterable[str]) -> tuple[dict[str, int], list[object]]:
    """Addresses of whitelisted symbols, and the libraries that must stay loaded for them.

    Unknown names are left out: the linker then reports them. Example: ``addresses_for(["expf", "scipy_cblas_sgemm"])``.
    """
    found: dict[str, int] = {}
    keep: list[object] = []
    for name in names:
        plain = name.removeprefix("_") if sys.platform == "darwin" else name
        library: Any = None
        if plain in blas.SYMBOLS:
            library = blas.library()
        elif plain in MATH_SYMBOLS:
            library = _libm()
        elif plain in C_SYMBOLS or plain in THREAD_SYMBOLS:
            library = _libc()
        if library is None:
            continue
        address = ctypes.cast(getattr(library, plain), ctypes.c_void_p).value
        assert address is not None
        found[name] = address
        keep.append(library)
    return found, keep


@lru_cache(maxsize=1)
def _libm() -> ctypes.CDLL:
    return ctypes.CDLL(ctypes.util.find_library("m") or "libm.so.6")


@lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
