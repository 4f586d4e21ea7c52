"""The functions of NVIDIA's driver that are called, through cuda-python, each answer looked at.

`CudaDriver` takes the bindings as a value, so that tests can hand in others. All functions are in `FUNCTIONS`: a
cuda-python that lacks one is told at once, and a test compares names and numbers of arguments with the real bindings.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from shardc.native.gpu.problems import GpuError, GpuFault, GpuProblem

__all__ = ["ENUMS", "FUNCTIONS", "CudaDriver"]

#: Functions of ``cuda.bindings.driver`` by name, and how many arguments they take there.
FUNCTIONS: Mapping[str, int] = MappingProxyType(
    {
        "cuCtxSetCurrent": 1,
        "cuDeviceGet": 1,
        "cuDeviceGetAttribute": 2,
        "cuDeviceGetCount": 0,
        "cuDeviceGetName": 2,
        "cuDevicePrimaryCtxRetain": 1,
        "cuDeviceTotalMem": 1,
        "cuDriverGetVersion": 0,
        "cuEventCreate": 1,
        "cuEventDestroy": 1,
        "cuEventElapsedTime": 2,
        "cuEventQuery": 1,
        "cuEventRecord": 2,
        "cuFuncSetAttribute": 3,
        "cuGetErrorName": 1,
        "cuGetErrorString": 1,
        "cuGraphDestroy": 1,
        "cuGraphExecDestroy": 1,
        "cuGraphInstantiate": 2,
        "cuGraphLaunch": 2,
        "cuInit": 1,
        "cuLaunchHostFunc": 3,
        "cuLaunchKernel": 11,
        "cuMemAlloc": 1,
        "cuMemFree": 1,
        "cuMemFreeHost": 1,
        "cuMemGetInfo": 0,
        "cuMemHostAlloc": 2,
        "cuMemcpyAsync": 4,
        "cuMemsetD8Async": 4,
        "cuModuleGetFunction": 2,
        "cuModuleLoadDataEx": 4,
        "cuModuleUnload": 1,
        "cuStreamBeginCapture": 2,
        "cuStreamCreate": 1,
        "cuStreamEndCapture": 1,
        "cuStreamQuery": 1,
        "cuStreamSynchronize": 1,
        "cuStreamWaitEvent": 3,
    }
)

#: Enumerations of the bindings and their members that are used, with the values that the driver's interface fixes.
ENUMS: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {
        "CUresult": {
            "CUDA_SUCCESS": 0,
            "CUDA_ERROR_INVALID_VALUE": 1,
            "CUDA_ERROR_OUT_OF_MEMORY": 2,
            "CUDA_ERROR_NO_DEVICE": 100,
            "CUDA_ERROR_INVALID_IMAGE": 200,
            "CUDA_ERROR_NO_BINARY_FOR_GPU": 209,
            "CUDA_ERROR_INVALID_PTX": 218,
            "CUDA_ERROR_JIT_COMPILER_NOT_FOUND": 221,
            "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": 222,
            "CUDA_ERROR_NOT_FOUND": 500,
            "CUDA_ERROR_NOT_READY": 600,
            "CUDA_ERROR_ILLEGAL_ADDRESS": 700,
        },
        "CUdevice_attribute": {
            "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT": 16,
            "CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE": 38,
            "CU_DEVICE_ATTRIBUTE_COMPUTE_MODE": 20,
            "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR": 75,
            "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR": 76,
            "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 97,
        },
        "CUfunction_attribute": {"CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES": 8},
        "CUjit_option": {"CU_JIT_ERROR_LOG_BUFFER": 5, "CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES": 6},
        "CUstreamCaptureMode": {"CU_STREAM_CAPTURE_MODE_RELAXED": 2},
    }
)

_UPGRADE = "pip install --upgrade 'shardc[cuda]'"


class CudaDriver:
    """The driver of this process. ``bindings`` is the module ``cuda.bindings.driver``, or what stands in for it.

    GpuProblem when the bindings are too old to have what is called.
    """

    def __init__(self, bindings: Any) -> None:
        missing = [name for name in FUNCTIONS if not callable(getattr(bindings, name, None))]
        missing += [
            f"{kind}.{name}"
            for kind, names in ENUMS.items()
            for name in names
            if not hasattr(getattr(bindings, kind, None), name)
        ]
        if missing:
            raise GpuProblem(f"the installed cuda-python lacks {', '.join(missing[:5])}", fix=_UPGRADE)
        self.bindings = bindings
        self.functions = {name: getattr(bindings, name) for name in FUNCTIONS}

    def call(self, name: str, *arguments: Any, where: str | None = None) -> Any:
        """What the function answers behind its status: nothing, one value, or a tuple. Another status is an error."""
        status, *answer = self.functions[name](*arguments)
        if status != 0:
            raise self.error(name, status, where)
        return answer[0] if len(answer) == 1 else tuple(answer)

    def attempt(self, name: str, *arguments: Any) -> tuple[int, Any]:
        """Status and answer of a function whose failure the caller knows how to take."""
        status, *answer = self.functions[name](*arguments)
        return int(status), answer[0] if len(answer) == 1 else tuple(answer)

    def value(self, kind: str, name: str) -> Any:
        """A member of one of the bindings' enumerations."""
        return getattr(getattr(self.bindings, kind), name)

    def status_name(self, status: int) -> str:
        """``CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered``."""
        try:
            code = self.bindings.CUresult(status)
        except ValueError:  # the driver is newer than the bindings
            return f"CUDA error {int(status)}"
        words = []
        for name in ("cuGetErrorName", "cuGetErrorString"):
            failed, text = self.functions[name](code)
            if failed == 0 and text is not None:
                words.append(text.decode() if isinstance(text, bytes) else str(text))
        return ": ".join(words) or f"CUDA error {int(status)}"

    def error(self, name: str, status: int, where: str | None = None) -> GpuError:
        """The exception for a function's status."""
        what = f"{name} failed with {self.status_name(status)}"
        codes = ENUMS["CUresult"]
        if status == codes["CUDA_ERROR_OUT_OF_MEMORY"]:
            return GpuProblem(what, where=where, fix="use more devices, or smaller arrays")
        return GpuFault(what, where=where)
