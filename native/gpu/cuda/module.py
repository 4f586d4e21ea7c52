"""Kernels of a loaded cubin or PTX, and how their arguments are handed to the driver."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from shardc.native.gpu.cuda.driver import ENUMS, CudaDriver
from shardc.native.gpu.launching import PLAIN_SHARED_BYTES, check_shared
from shardc.native.gpu.problems import GpuFault, GpuProblem
from shardc.native.gpu.runtime import Image, LaunchShape

__all__ = ["CudaKernel", "CudaModule", "load_image"]

_LOG_BYTES = 16 << 10
_STATUS = ENUMS["CUresult"]
#: What the driver answers to code that it cannot run, and what to do.
_REFUSALS = {
    _STATUS["CUDA_ERROR_INVALID_IMAGE"]: "update NVIDIA's driver, or compile without nvidia-nvjitlink and ptxas",
    _STATUS["CUDA_ERROR_NO_BINARY_FOR_GPU"]: "compile the program for this GPU (`shardc devices` names it)",
    _STATUS["CUDA_ERROR_INVALID_PTX"]: "this is a bug in shardc; please report it with the log",
    _STATUS["CUDA_ERROR_UNSUPPORTED_PTX_VERSION"]: "update NVIDIA's driver, or install nvidia-nvjitlink",
    _STATUS["CUDA_ERROR_JIT_COMPILER_NOT_FOUND"]: "install nvidia-nvjitlink, which assembles PTX without the driver",
}


class CudaKernel:
    """A function of a module, which it keeps loaded. Arguments are packed as `GridCode` declares them: addresses, and
    the device's number."""

    def __init__(self, module: CudaModule, function: Any, name: str, shared_bytes: int) -> None:
        self.name, self.names = name, (name,)
        self.shared_bytes = shared_bytes
        #: The shape that was found to be right: launches of a kernel mostly have the same.
        self.checked: LaunchShape | None = None
        self._module = module
        self._function = function
        self._values: Any = None
        self._table: Any = None

    def launch(self, driver: CudaDriver, shape: LaunchShape, pointers: Sequence[int], device: int, stream: Any) -> int:
        """The driver's status. It copies the arguments before it answers."""
        count = len(pointers)
        if self._table is None or len(self._table) != count + 1:
            self._values = (ctypes.c_uint64 * (count + 1))()
            start = ctypes.addressof(self._values)
            self._table = (ctypes.c_uint64 * (count + 1))(*(start + 8 * n for n in range(count + 1)))
        self._values[:count] = list(pointers)
        self._values[count] = device  # an i32: the low half
        (status,) = driver.functions["cuLaunchKernel"](
            self._function,
            *shape.grid,
            shape.threads,
            1,
            1,
            shape.shared_bytes,
            stream,
            ctypes.addressof(self._table),
            0,
        )
        return int(status)


class CudaModule:
    """Loaded images. ``unload`` gets their handles when nobody needs them any more."""

    def __init__(
        self, driver: CudaDriver, handles: Sequence[Any], most_shared: int, unload: Callable[[Any], None]
    ) -> None:
        self._driver = driver
        self._handles = tuple(handles)
        self._most_shared = most_shared
        self._unload = unload

    def kernel(self, symbol: str, shared_bytes: int = 0) -> CudaKernel:
        check_shared(symbol, shared_bytes, self._most_shared)
        for handle in self._handles:
            status, function = self._driver.attempt("cuModuleGetFunction", handle, symbol.encode())
            if status == _STATUS["CUDA_ERROR_NOT_FOUND"]:
                continue
            if status != 0:
                raise self._driver.error("cuModuleGetFunction", status, symbol)
            if shared_bytes > PLAIN_SHARED_BYTES:
                more = self._driver.value("CUfunction_attribute", "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES")
                self._driver.call("cuFuncSetAttribute", function, more, shared_bytes, where=symbol)
            return CudaKernel(self, function, symbol, shared_bytes)
        raise GpuFault(f"no kernel {symbol!r} in the loaded code")

    def __del__(self) -> None:
        for handle in self._handles:
            self._unload(handle)


def load_image(driver: CudaDriver, image: Image, text: bytes, device: str) -> Any:
    """The handle of a loaded cubin or PTX, which the driver assembles. A cubin that it refuses, as an older driver does
    with that of a newer assembler, gives place to its PTX ``text``, if there is any.

    GpuProblem, with the driver's log, for code that does not run on ``device``.
    """
    if image.kind not in ("cubin", "ptx"):
        raise GpuProblem(
            f"an NVIDIA GPU cannot run {image.kind} code", where=device, fix="compile the program for cuda"
        )
    if image.kind == "cubin" and text:
        status, handle, _ = _load(driver, image.data)
        if status == 0:
            return handle
        if status == _STATUS["CUDA_ERROR_OUT_OF_MEMORY"]:
            raise driver.error("cuModuleLoadDataEx", status, device)
        image = Image("ptx", text)
    status, handle, said = _load(driver, image.data)
    if status == 0:
        return handle
    if status not in _REFUSALS:
        raise driver.error("cuModuleLoadDataEx", status, device)
    what = f"the driver cannot load the {image.kind}: {driver.status_name(status)}"
    raise GpuProblem(f"{what}\n{said}" if said else what, where=device, fix=_REFUSALS[status])


def _load(driver: CudaDriver, code: bytes) -> tuple[int, Any, str]:
    """Status, handle, and what the driver's assembler complained of."""
    data = ctypes.create_string_buffer(code)  # ends with a zero, as PTX must
    log = bytearray(_LOG_BYTES)
    names = "CU_JIT_ERROR_LOG_BUFFER", "CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES"
    options = [driver.value("CUjit_option", name) for name in names]
    status, handle = driver.attempt(
        "cuModuleLoadDataEx", ctypes.addressof(data), len(options), options, [log, len(log)]
    )
    return status, handle, log.split(b"\0")[0].decode(errors="replace").strip()
