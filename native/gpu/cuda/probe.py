"""Whether there is an NVIDIA GPU that can be used, and why not. Found out once, before anything else of CUDA is
touched.

Without a driver, cuda-python's calls fail or even hang. So the driver's library is looked for first, by name; only
when it is there, its functions are called. Nothing here makes a context or takes memory of a GPU.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Literal

from shardc.native.gpu.cuda.cublaslt import find_cublaslt
from shardc.native.gpu.cuda.driver import CudaDriver
from shardc.native.gpu.cuda.nccl import find_nccl
from shardc.native.gpu.problems import GpuError, GpuProblem
from shardc.native.gpu.target import GPU_ARCHS, GpuTarget

__all__ = ["CudaDevice", "CudaProbe", "arch_for", "library_problem", "probe_cuda", "probe_driver"]

_INSTALL = "pip install 'shardc[cuda]'"
_OLDEST_DRIVER = 12000
_PROHIBITED = 2


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """A GPU. ``capability`` is e.g. (9, 0), ``memory`` in bytes, ``problem`` why it cannot be used ("" when it can)."""

    ordinal: int
    name: str
    capability: tuple[int, int]
    memory: int
    multiprocessors: int
    shared_bytes: int
    cache_bytes: int
    problem: str = ""

    @property
    def target(self) -> GpuTarget:
        """What code for it is made for; GpuProblem when there is no such code."""
        arch = arch_for(self.capability)
        if arch is None or self.problem:
            raise GpuProblem(self.problem or _too_old(self.capability), where=f"GPU {self.ordinal} ({self.name})")
        return GpuTarget("nvptx", arch, libraries=not library_problem("cuBLASLt"))


@dataclass(frozen=True, slots=True)
class CudaProbe:
    """What was found. ``problem`` and ``fix`` say why there is no ``driver``; then there are no devices either.
    ``version`` is the newest CUDA that the driver knows, as 13000."""

    driver: CudaDriver | None
    version: int = 0
    devices: tuple[CudaDevice, ...] = ()
    problem: str = ""
    fix: str = ""

    def device(self, ordinal: int) -> CudaDevice:
        """The usable GPU ``ordinal``, or GpuProblem with the reason."""
        if self.driver is None:
            raise GpuProblem(f"no NVIDIA GPU can be used: {self.problem}", fix=self.fix)
        if not 0 <= ordinal < len(self.devices):
            raise GpuProblem(
                f"there is no GPU {ordinal}: the driver shows {len(self.devices)}",
                fix="check CUDA_VISIBLE_DEVICES and the number of ranks per node",
            )
        device = self.devices[ordinal]
        if device.problem:
            raise GpuProblem(device.problem, where=f"GPU {ordinal} ({device.name})")
        return device


@lru_cache(maxsize=1)
def probe_cuda() -> CudaProbe:
    """What this process has; the first call looks, later ones remember."""
    if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        return CudaProbe(None, problem="cuda-python is not installed", fix=_INSTALL)
    reason = _load_driver()
    if reason:
        return CudaProbe(None, problem=reason, fix="install NVIDIA's driver, or run where there is a GPU")
    try:
        from cuda.bindings import driver as bindings
    except Exception as error:  # a broken installation raises what it likes
        return CudaProbe(None, problem=f"cuda-python cannot be imported: {error}", fix=_INSTALL)
    try:
        return probe_driver(CudaDriver(bindings))
    except GpuError as error:
        return CudaProbe(None, problem=error.what, fix=error.fix or "")


def probe_driver(driver: CudaDriver) -> CudaProbe:
    """What a driver that is there says about its GPUs."""
    try:
        version = int(driver.call("cuDriverGetVersion"))
        if version < _OLDEST_DRIVER:
            reason = f"the driver supports only CUDA {_dotted(version)}, but CUDA {_dotted(_OLDEST_DRIVER)} is required"
            return CudaProbe(None, version, problem=reason, fix="update NVIDIA's driver")
        driver.call("cuInit", 0)
        count = int(driver.call("cuDeviceGetCount"))
    except GpuError as error:
        return CudaProbe(None, problem=error.what, fix="check that nvidia-smi works, and check CUDA_VISIBLE_DEVICES")
    if not count:
        return CudaProbe(None, version, problem="the driver shows no GPU", fix="check CUDA_VISIBLE_DEVICES")
    return CudaProbe(driver, version, tuple(_describe(driver, ordinal) for ordinal in range(count)))


@lru_cache(maxsize=2)
def library_problem(name: Literal["cuBLASLt", "NCCL"]) -> str:
    """Why a library cannot be used; "" when it is installed. Loads nothing."""
    if name == "NCCL":
        return "" if find_nccl() is not None else "it is not installed: pip install nvidia-nccl-cu13"
    return "" if find_cublaslt() is not None else "it is not installed: pip install nvidia-cublas"


def arch_for(capability: tuple[int, int]) -> str | None:
    """The newest architecture that code is made for and that a GPU of this compute capability runs."""
    known = {(int(a[3:]) // 10, int(a[3:]) % 10): a for a in GPU_ARCHS if a.startswith("sm_")}
    return max(((c, arch) for c, arch in known.items() if c <= capability), default=(None, None))[1]


def _describe(driver: CudaDriver, ordinal: int) -> CudaDevice:
    handle = driver.call("cuDeviceGet", ordinal)

    def attribute(name: str) -> int:
        code = driver.value("CUdevice_attribute", f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(driver.call("cuDeviceGetAttribute", code, handle))

    capability = attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR")
    problem = "" if arch_for(capability) else _too_old(capability)
    if attribute("COMPUTE_MODE") == _PROHIBITED:
        problem = "its compute mode is Prohibited (change it with nvidia-smi -c 0)"
    return CudaDevice(
        ordinal,
        _text(driver.call("cuDeviceGetName", 256, handle)),
        capability,
        int(driver.call("cuDeviceTotalMem", handle)),
        attribute("MULTIPROCESSOR_COUNT"),
        attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        attribute("L2_CACHE_SIZE"),
        problem,
    )


def _load_driver() -> str:
    """Why the driver's library cannot be loaded; "" when it is."""
    if find_spec("cuda.pathfinder") is None:  # cuda-python before 12.9
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            return f"no NVIDIA driver is installed: {error}"
        return ""
    from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib

    try:
        load_nvidia_dynamic_lib("cuda")
    except DynamicLibNotFoundError:
        return "no NVIDIA driver is installed (its library libcuda was not found)"
    except (OSError, RuntimeError) as error:
        return f"NVIDIA's driver cannot be loaded: {' '.join(str(error).split())}"
    return ""


def _text(name: Any) -> str:
    raw = bytes(name) if isinstance(name, (bytes, bytearray)) else str(name).encode()
    return raw.split(b"\0")[0].decode(errors="replace")


def _too_old(capability: tuple[int, int]) -> str:
    return f"its compute capability {capability[0]}.{capability[1]} is not supported; the minimum is 8.0"


def _dotted(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"
