"""The MPI library of this process, as native code calls it: addresses, and handles as numbers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shardc.hlo.errors import EnvironmentProblem

__all__ = ["MpiFunctions", "mpi_functions"]


@dataclass(frozen=True, slots=True)
class MpiFunctions:
    """What native code must know of the MPI library of this process, and the module ``mpi4py.MPI``."""

    mpi: Any
    isend: int
    irecv: int
    testall: int
    request_status: Callable[..., int]
    byte: int
    request_bytes: int
    status_bytes: int


def mpi_functions(mpi: Any) -> MpiFunctions:
    """Looked up in the library that ``mpi`` has loaded; raises `EnvironmentProblem` if it may not be called here."""
    if mpi.Query_thread() < mpi.THREAD_SERIALIZED and not mpi.Is_thread_main():
        raise EnvironmentProblem(
            "MPI was started for calls from the main thread only, but this is another thread",
            fix="run the program on the main thread, or start MPI with mpi4py.rc.thread_level = 'multiple'",
        )
    library = ctypes.CDLL(mpi.__file__)

    def address(name: str) -> int:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0

    kind = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
    return MpiFunctions(
        mpi,
        address("MPI_Isend"),
        address("MPI_Irecv"),
        address("MPI_Testall"),
        kind(address("MPI_Request_get_status")),
        mpi._handleof(mpi.BYTE),
        mpi._sizeof(mpi.Request),
        mpi._sizeof(mpi.Status),
    )
