"""Matrix products by cuBLASLt: one call with its epilogue, the algorithm chosen by the library's heuristic once.

The library thinks in columns. A row-major array is its own transpose in columns, and ``d = a @ b`` is
``d' = b' @ a'``: so the library's first operand is our ``b``, and nothing is moved.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from shardc.native.gpu.c_library import CLibrary, find_library, open_library
from shardc.native.gpu.problems import GpuFault, GpuProblem
from shardc.native.gpu.product import Product
from shardc.native.gpu.runtime import Runtime, Stream

__all__ = ["Products", "find_cublaslt"]

_INSTALL = "pip install nvidia-cublas (with a driver for CUDA 12: nvidia-cublas-cu12)"
_P, _N, _I = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int


class _Algorithm(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t: the algorithm (64 bytes), and how it would run."""

    _fields_ = [
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace_size", _N),
        ("state", _I),
        ("waves", ctypes.c_float),
        ("reserved", _I * 4),
    ]


_SETTER = (_P, _I, _P, _N)
_FUNCTIONS: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "cublasLtCreate": (ctypes.POINTER(_P),),
        "cublasLtDestroy": (_P,),
        "cublasLtMatmulDescCreate": (ctypes.POINTER(_P), _I, _I),
        "cublasLtMatmulDescDestroy": (_P,),
        "cublasLtMatmulDescSetAttribute": _SETTER,
        "cublasLtMatrixLayoutCreate": (ctypes.POINTER(_P), _I, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64),
        "cublasLtMatrixLayoutDestroy": (_P,),
        "cublasLtMatrixLayoutSetAttribute": _SETTER,
        "cublasLtMatmulPreferenceCreate": (ctypes.POINTER(_P),),
        "cublasLtMatmulPreferenceDestroy": (_P,),
        "cublasLtMatmulPreferenceSetAttribute": _SETTER,
        "cublasLtMatmulAlgoGetHeuristic": (
            *(_P, _P, _P, _P, _P, _P, _P, _I),
            ctypes.POINTER(_Algorithm),
            ctypes.POINTER(_I),
        ),
        "cublasLtMatmul": (_P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _N, _P),
    }
)
#: cudaDataType by our names.
_TYPES = MappingProxyType({"f32": 0, "f64": 1, "f16": 2, "bf16": 14})
#: cublasComputeType_t: f32 as f32, f32 in tensor cores, f64.
_F32, _TF32, _F64 = 68, 77, 70
#: Attributes: cublasLtMatmulDescAttributes_t, cublasLtMatrixLayoutAttribute_t, cublasLtMatmulPreferenceAttributes_t.
_TURN_A, _TURN_B, _EPILOGUE, _BIAS, _BIAS_TYPE = 3, 4, 7, 8, 26
_BATCH, _STRIDE = 5, 6
_WORKSPACE, _ALIGNMENTS = 1, (5, 6, 7, 8)
#: cublasLtEpilogue_t, by activation and whether there is a bias.
_EPILOGUES: Mapping[tuple[str, bool], int] = MappingProxyType(
    {("", False): 1, ("relu", False): 2, ("", True): 4, ("relu", True): 6, ("gelu", False): 32, ("gelu", True): 36}
)
#: The best alignment that the library asks about, in bytes.
_ALIGNED = 256


def find_cublaslt() -> str | None:
    """Where the library is; None where there is none. Loads nothing."""
    return find_library(["cu*/lib/libcublasLt.so.*", "cublas/lib/libcublasLt.so.*"], "cublasLt")


@lru_cache(maxsize=1)
def _installed() -> Any:
    return open_library("cuBLASLt", find_cublaslt(), _INSTALL)


def _opened(library: Any) -> CLibrary:
    library = library if library is not None else _installed()
    words = library.cublasLtGetStatusString
    words.argtypes, words.restype = [_I], ctypes.c_char_p

    def say(status: int) -> str:
        return (words(status) or b"").decode(errors="replace") or f"status {status}"

    return CLibrary("cuBLASLt", library, _FUNCTIONS, say, fix=_INSTALL)


class Products:
    """cuBLASLt on the GPU of ``runtime``; algorithms may use ``workspace_bytes`` of memory that each call names.

    GpuProblem when the library is not there. ``library``: what stands in for it, for tests.
    Example: ``Products(runtime, 32 << 20).run(product, a, b, bias, d, workspace, stream)``.
    """

    def __init__(self, runtime: Runtime, workspace_bytes: int, library: Any = None) -> None:
        self._runtime = runtime
        self._workspace_bytes = workspace_bytes
        self._calls = _opened(library)
        self._plans: dict[tuple[Product, bool, int], _Plan] = {}
        runtime.make_current()
        handle = _P()
        self._calls.call("cublasLtCreate", ctypes.byref(handle))
        self._handle = handle

    def run(
        self, product: Product, a: int, b: int, bias: int, d: int, workspace: int, stream: Stream, name: str = ""
    ) -> None:
        """Put the product of the arrays at ``a`` and ``b`` into ``stream``; ``bias`` is 0 where there is none, ``name``
        is for messages."""
        self._runtime.make_current()
        plan = self._plan(product, name, bool(bias), min(_alignment(address) for address in (a, b, d)))
        if bias:
            plan.set_bias(bias)
        self._calls.call(
            "cublasLtMatmul",
            *(self._handle, plan.product, ctypes.byref(plan.one)),
            *(b, plan.first, a, plan.second, ctypes.byref(plan.zero), d, plan.third, d, plan.third),
            *(ctypes.byref(plan.algorithm), workspace, self._workspace_bytes, stream.handle),
        )

    def _plan(self, product: Product, name: str, with_bias: bool, alignment: int) -> _Plan:
        key = (product, with_bias, alignment)
        if key not in self._plans:
            plan = _Plan(self._calls, product, with_bias)
            plan.choose(self._handle, self._workspace_bytes, alignment, name)
            self._plans[key] = plan
        return self._plans[key]

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self._plans.clear()
            self._calls.call("cublasLtDestroy", self._handle)


class _Plan:
    """The library's description of one product, and the algorithm for it."""

    def __init__(self, calls: CLibrary, asked: Product, with_bias: bool) -> None:
        self._calls, self._asked = calls, asked
        self._made: list[tuple[str, Any]] = []
        compute = (
            _F64 if asked.dtype == "f64" else _TF32 if asked.precision == "tf32" and asked.dtype == "f32" else _F32
        )
        scale = _TYPES["f64" if compute == _F64 else "f32"]
        number = ctypes.c_double if compute == _F64 else ctypes.c_float
        self.one, self.zero = number(1), number(0)
        self.algorithm = _Algorithm()
        self.product = self._make("MatmulDesc", compute, scale)
        self._set("MatmulDesc", self.product, _TURN_A, ctypes.c_int32(asked.transpose_b))
        self._set("MatmulDesc", self.product, _TURN_B, ctypes.c_int32(asked.transpose_a))
        self._set("MatmulDesc", self.product, _EPILOGUE, ctypes.c_uint32(_EPILOGUES[asked.epilogue, with_bias]))
        if with_bias:
            self._set("MatmulDesc", self.product, _BIAS_TYPE, ctypes.c_int32(_TYPES[asked.result]))
        m, n, k = asked.m, asked.n, asked.k
        self.first = self._layout(asked.dtype, (k, n) if asked.transpose_b else (n, k), asked.batch)
        self.second = self._layout(asked.dtype, (m, k) if asked.transpose_a else (k, m), asked.batch)
        self.third = self._layout(asked.result, (n, m), asked.batch)

    def choose(self, handle: Any, workspace_bytes: int, alignment: int, name: str) -> None:
        """Ask the library how; GpuProblem when it does not know a way."""
        asked = self._asked
        preference = self._make("MatmulPreference")
        self._set("MatmulPreference", preference, _WORKSPACE, ctypes.c_uint64(workspace_bytes))
        for attribute in _ALIGNMENTS:
            self._set("MatmulPreference", preference, attribute, ctypes.c_uint32(alignment))
        count = _I()
        problem = ""
        try:
            self._calls.call(
                "cublasLtMatmulAlgoGetHeuristic",
                *(handle, self.product, self.first, self.second, self.third, self.third, preference, 1),
                *(ctypes.byref(self.algorithm), ctypes.byref(count)),
            )
        except GpuFault as fault:
            problem = fault.what
        if problem or not count.value or self.algorithm.state:
            raise GpuProblem(
                f"cuBLASLt has no algorithm for {asked.m} x {asked.k} x {asked.n} in {asked.dtype}"
                + (f": {problem}" if problem else ""),
                where=name or None,
                fix="update nvidia-cublas",
            )

    def set_bias(self, address: int) -> None:
        """Where the bias lies; read when the product is put into a stream."""
        self._set("MatmulDesc", self.product, _BIAS, ctypes.c_void_p(address))

    def _layout(self, dtype: str, shape: tuple[int, int], batch: int) -> Any:
        rows, columns = shape
        layout = self._make("MatrixLayout", _TYPES[dtype], rows, columns, rows)
        if batch > 1:
            self._set("MatrixLayout", layout, _BATCH, ctypes.c_int32(batch))
            self._set("MatrixLayout", layout, _STRIDE, ctypes.c_int64(rows * columns))
        return layout

    def _make(self, kind: str, *arguments: int) -> Any:
        value = _P()
        self._calls.call(f"cublasLt{kind}Create", ctypes.byref(value), *arguments)
        self._made.append((kind, value))
        return value

    def _set(self, kind: str, value: Any, attribute: int, data: Any) -> None:
        self._calls.call(f"cublasLt{kind}SetAttribute", value, attribute, ctypes.byref(data), ctypes.sizeof(data))

    def __del__(self) -> None:
        for kind, value in reversed(self._made):
            self._calls.call(f"cublasLt{kind}Destroy", value)


def _alignment(address: int) -> int:
    return min(address & -address, _ALIGNED) if address else _ALIGNED
