"""NCCL: collectives between GPUs of several processes, one communicator per replica group.

Counts are of elements where NCCL computes, and of bytes where it moves. How processes tell each other the unique id is
the caller's business.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from shardc.native.gpu.c_library import CLibrary, find_library, open_library
from shardc.native.gpu.problems import GpuFault, GpuProblem
from shardc.native.gpu.runtime import Runtime, Stream

__all__ = ["NCCL_REDUCTIONS", "NCCL_TYPES", "Communicator", "find_nccl", "nccl_version", "new_unique_id", "together"]

#: ncclDataType_t by our names.
NCCL_TYPES: Mapping[str, int] = MappingProxyType(
    {"s8": 0, "u8": 1, "s32": 2, "u32": 3, "s64": 4, "u64": 5, "f16": 6, "f32": 7, "f64": 8, "bf16": 9}
)
#: ncclRedOp_t by our names.
NCCL_REDUCTIONS: Mapping[str, int] = MappingProxyType({"add": 0, "multiply": 1, "maximum": 2, "minimum": 3})

_BYTES = NCCL_TYPES["u8"]
_ID_BYTES = 128
_OLDEST = 20700
_IN_PROGRESS = 7
_INSTALL = "pip install nvidia-nccl-cu13 (with a driver for CUDA 12: nvidia-nccl-cu12)"


class _UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * _ID_BYTES)]


_P, _N, _I = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
#: Functions by name: arguments; all answer ncclResult_t.
_FUNCTIONS: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "ncclGetVersion": (ctypes.POINTER(_I),),
        "ncclGetUniqueId": (ctypes.POINTER(_UniqueId),),
        "ncclCommInitRank": (ctypes.POINTER(_P), _I, _UniqueId, _I),
        "ncclCommDestroy": (_P,),
        "ncclCommAbort": (_P,),
        "ncclCommGetAsyncError": (_P, ctypes.POINTER(_I)),
        "ncclGroupStart": (),
        "ncclGroupEnd": (),
        "ncclAllReduce": (_P, _P, _N, _I, _I, _P, _P),
        "ncclReduceScatter": (_P, _P, _N, _I, _I, _P, _P),
        "ncclAllGather": (_P, _P, _N, _I, _P, _P),
        "ncclSend": (_P, _N, _I, _I, _P, _P),
        "ncclRecv": (_P, _N, _I, _I, _P, _P),
    }
)


def find_nccl() -> str | None:
    """Where NCCL's library is; None where there is none. Loads nothing."""
    return find_library(["nccl/lib/libnccl.so.2"], "nccl")


@lru_cache(maxsize=1)
def _installed() -> Any:
    return open_library("NCCL", find_nccl(), _INSTALL)


def _opened(library: Any) -> CLibrary:
    """The functions of ``library``, or of the NCCL that is installed."""
    library = library if library is not None else _installed()
    words = library.ncclGetErrorString
    words.argtypes, words.restype = [_I], ctypes.c_char_p
    last = getattr(library, "ncclGetLastError", None)  # since 2.13
    if last is not None:
        last.argtypes, last.restype = [_P], ctypes.c_char_p

    def say(status: int) -> str:
        details = last(None) if last is not None else None
        said = [text.decode(errors="replace") for text in (words(status), details) if text]
        return "; ".join(said) or f"status {status}"

    functions = CLibrary("NCCL", library, _FUNCTIONS, say, passing=(0, _IN_PROGRESS), fix=_INSTALL)
    if nccl_version(functions) < _OLDEST:
        raise GpuProblem(f"NCCL {nccl_version(functions)} is too old: version 20700 or newer is required", fix=_INSTALL)
    return functions


def nccl_version(functions: CLibrary | None = None) -> int:
    """The version as NCCL counts: 2.27.3 is 22703. GpuProblem when it is not installed."""
    number = _I()
    (functions or _opened(None)).call("ncclGetVersion", ctypes.byref(number))
    return number.value


def new_unique_id(library: Any = None) -> bytes:
    """128 bytes by which the processes of a communicator find each other: made by one, told to all. ``library``: what
    stands in for NCCL's."""
    unique = _UniqueId()
    _opened(library).call("ncclGetUniqueId", ctypes.byref(unique))
    return bytes(memoryview(unique))


class Communicator:
    """This process's rank of a communicator of ``size`` GPUs; all of them make it together.

    Functions put work into ``stream`` and return. Addresses are of the GPU's memory. GpuFault when NCCL refuses.
    ``library``: what stands in for NCCL's, for tests. Example: ``Communicator(runtime, new_unique_id(), 1, 0)``.
    """

    def __init__(self, runtime: Runtime, unique_id: bytes, size: int, rank: int, library: Any = None) -> None:
        if len(unique_id) != _ID_BYTES:
            raise ValueError(f"a unique id has {_ID_BYTES} bytes, not {len(unique_id)}")
        self._runtime = runtime
        self.size, self.rank = size, rank
        self._nccl = _opened(library)
        self._handle: int | None = None
        runtime.make_current()
        handle = _P()
        self._nccl.call("ncclCommInitRank", ctypes.byref(handle), size, _UniqueId.from_buffer_copy(unique_id), rank)
        self._handle = handle.value

    def all_reduce(self, source: int, to: int, count: int, dtype: str, reduction: str, stream: Stream) -> None:
        """``to[i] = reduction over ranks of source[i]``, for ``count`` elements."""
        self._reduce("ncclAllReduce", source, to, count, dtype, reduction, stream)

    def reduce_scatter(self, source: int, to: int, count: int, dtype: str, reduction: str, stream: Stream) -> None:
        """``to`` gets this rank's part, of ``count`` elements, of the reduction of ``size * count``."""
        self._reduce("ncclReduceScatter", source, to, count, dtype, reduction, stream)

    def all_gather(self, source: int, to: int, nbytes: int, stream: Stream) -> None:
        """``to`` gets ``nbytes`` bytes of every rank, in their order."""
        self._put("ncclAllGather", source, to, nbytes, _BYTES, self._handle, stream.handle)

    def send(self, source: int, nbytes: int, peer: int, stream: Stream) -> None:
        """Bytes for the rank ``peer``, which receives as many."""
        self._put("ncclSend", source, nbytes, _BYTES, peer, self._handle, stream.handle)

    def receive(self, to: int, nbytes: int, peer: int, stream: Stream) -> None:
        """Bytes from the rank ``peer``."""
        self._put("ncclRecv", to, nbytes, _BYTES, peer, self._handle, stream.handle)

    def check(self) -> None:
        """GpuFault when work under way has failed, such as by the end of another rank."""
        status = _I()
        self._nccl.call("ncclCommGetAsyncError", self._handle, ctypes.byref(status))
        if self._nccl.is_failure(status.value):
            raise self._nccl.fault("a collective", status.value)

    def close(self) -> None:
        """Give the communicator back; all ranks do, when their work is done."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            self._runtime.make_current()
            self._nccl.call("ncclCommDestroy", handle)

    def abort(self) -> None:
        """End it without the other ranks, and whatever is under way."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            self._nccl.call("ncclCommAbort", handle)

    def begin(self) -> None:
        """See `together`."""
        self._runtime.make_current()
        self._nccl.call("ncclGroupStart")

    def end(self) -> None:
        self._nccl.call("ncclGroupEnd")

    def _reduce(self, name: str, source: int, to: int, count: int, dtype: str, reduction: str, stream: Stream) -> None:
        kind, operation = NCCL_TYPES[dtype], NCCL_REDUCTIONS[reduction]
        self._put(name, source, to, count, kind, operation, self._handle, stream.handle)

    def _put(self, name: str, *arguments: Any) -> None:
        if self._handle is None:
            raise GpuFault(f"NCCL: {name} after the communicator was closed")
        self._runtime.make_current()
        self._nccl.call(name, *arguments)


@contextmanager
def together(communicator: Communicator) -> Iterator[None]:
    """What is put in inside begins as one: sends and receives do not wait for each other."""
    communicator.begin()
    try:
        yield
    finally:
        communicator.end()
