"""Kernels for tests of runtimes, and runtimes that run them: the emulation, and CUDA over a stand-in for its driver."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from shardc.native.gpu.cuda.driver import CudaDriver
from shardc.native.gpu.cuda.probe import probe_driver
from shardc.native.gpu.cuda.runtime import CudaRuntime
from shardc.native.gpu.emulated.coroutines import EmulatedCode, compile_emulated, new_emulated_module
from shardc.native.gpu.emulated.runtime import EmulatedRuntime
from shardc.native.gpu.grid import GridCode
from shardc.native.gpu.nvptx import NvptxCode, emit_ptx, new_nvptx_module
from shardc.native.gpu.runtime import Image, LaunchShape, Memory, Runtime
from shardc.native.gpu.target import gpu_target
from shardc.native.math.vector import F32, I32, I64, constant
from tests.native.gpu.fake_cuda import FakeCuda

__all__ = ["BYTES", "SHAPE", "THREADS", "cuda_runtime", "download", "sample_image", "sample_ptx", "sample_runtime"]
__all__ += ["upload"]

THREADS = 64
SHAPE = LaunchShape((1, 1, 1), THREADS)
BYTES = 4 * THREADS


@lru_cache(maxsize=1)
def sample_image() -> Image:
    """``add``: y[i] = x[i] + device; ``double``: x[i] *= 2; ``astray``: as add, but THREADS elements behind."""
    module = new_emulated_module("samples")
    _define_all(module, EmulatedCode)
    return Image("emulated", compile_emulated(module))


@lru_cache(maxsize=1)
def sample_ptx() -> Image:
    """The same kernels for a GPU."""
    target = gpu_target("cuda:sm_80")
    module = new_nvptx_module("samples", target)
    _define_all(module, lambda: NvptxCode("sm_80"))
    return Image("ptx", emit_ptx(module, target))


def cuda_runtime(fake: FakeCuda, ordinal: int = 0) -> CudaRuntime:
    """A runtime over a stand-in for the driver."""
    return CudaRuntime(ordinal, probe=probe_driver(CudaDriver(fake)))


def sample_runtime(kind: str, seed: int | None = None, memory: int = 1 << 24) -> tuple[Runtime, Image]:
    """A runtime of a kind, ``"emulated"`` or ``"cuda"``, and the kernels for it."""
    if kind == "emulated":
        return EmulatedRuntime(seed=seed, memory_bytes=memory), sample_image()
    fake = FakeCuda({sample_ptx().data: sample_image().data}, seed=seed, memory=memory)
    return cuda_runtime(fake), sample_ptx()


def upload(runtime: Runtime, values: NDArray[Any], stream: Any) -> Memory:
    """Memory with ``values``, once ``stream`` is there."""
    memory = runtime.allocate(values.nbytes)
    host = runtime.pinned(values.nbytes)
    host[:] = values.view(np.uint8)
    runtime.copy(memory.address, host.ctypes.data, values.nbytes, stream)
    return memory


def download(runtime: Runtime, memory: Memory, stream: Any) -> NDArray[np.float32]:
    """What the memory holds when ``stream`` is empty."""
    host = runtime.pinned(memory.nbytes)
    runtime.copy(host.ctypes.data, memory.address, memory.nbytes, stream)
    runtime.synchronize(stream)
    return host.view(np.float32)


def _define_all(module: ir.Module, new_code: Callable[[], GridCode]) -> None:
    def add(code: GridCode, b: ir.IRBuilder, function: ir.Function, offset: int = 0) -> None:
        x, y = code.pointers(function)
        value = b.load(_place(b, x, code, 0), typ=F32)
        b.store(b.fadd(value, b.sitofp(code.device(function), F32)), _place(b, y, code, offset))

    def astray(code: GridCode, b: ir.IRBuilder, function: ir.Function) -> None:
        add(code, b, function, THREADS)

    def double(code: GridCode, b: ir.IRBuilder, function: ir.Function) -> None:
        place = _place(b, code.pointers(function)[0], code, 0)
        b.store(b.fmul(b.load(place, typ=F32), ir.Constant(F32, 2.0)), place)

    for name, pointers, body in (("add", 2, add), ("astray", 2, astray), ("double", 1, double)):
        code = new_code()
        function = code.define(module, name, pointers, (), THREADS)
        entry = ir.IRBuilder(function.append_basic_block("entry"))
        b = ir.IRBuilder(function.append_basic_block("body"))
        start = b.block
        body(code, b, function)
        code.enter(entry)
        entry.branch(start)
        code.leave(b)


def _place(b: ir.IRBuilder, array: ir.Value, code: GridCode, offset: int) -> ir.Value:
    index = b.add(b.add(b.mul(code.block(b), constant(I32, THREADS)), code.thread(b)), constant(I32, offset))
    return b.gep(array, [b.zext(index, I64)], source_etype=F32)
