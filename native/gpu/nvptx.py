"""NVIDIA's PTX: the code of a thread as LLVM's NVPTX intrinsics, and modules of kernels as PTX text."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from shardc.native.gpu.device import VOID, DeviceCode, call, compile_device, new_device_module
from shardc.native.gpu.grid import Mma, from_words, to_words
from shardc.native.gpu.intrinsics import NVPTX
from shardc.native.gpu.target import GpuTarget
from shardc.native.llvm.jit import TargetModule
from shardc.native.llvm.target import Target
from shardc.native.llvm.unlocked import emit_text
from shardc.native.math.vector import F32, F64, HALF, I32, constant

__all__ = ["NvptxCode", "emit_ptx", "new_nvptx_module"]

_TRIPLE = "nvptx64-nvidia-cuda"
_SHARED = ir.PointerType(addrspace=3)
_GLOBAL = ir.PointerType(addrspace=1)
_AXES = "xyz"
_ALL_LANES = 0xFFFFFFFF


def new_nvptx_module(name: str, target: GpuTarget) -> TargetModule:
    """An empty module for kernels of ``target``."""
    return new_device_module(name, Target(_TRIPLE, target.arch, ""))


def emit_ptx(module: ir.Module, target: GpuTarget) -> bytes:
    """The PTX of a module, which depends on its text, the architecture and LLVM's version only.

    ValueError names what the module calls that the target does not have: LLVM would end the process.
    """
    return compile_device(str(module), Target(_TRIPLE, target.arch, ""), NVPTX, emit_text)


class NvptxCode(DeviceCode):
    """See `GridCode`. ``arch`` is LLVM's name of a compute capability, at least ``sm_80``."""

    convention = "ptx_kernel"
    threads_attribute = '"nvvm.maxntid"="{}"'

    def __init__(self, arch: str) -> None:
        self.arch = arch

    def thread(self, b: ir.IRBuilder) -> ir.Value:
        return call(b, "llvm.nvvm.read.ptx.sreg.tid.x", I32)

    def block(self, b: ir.IRBuilder, axis: int = 0) -> ir.Value:
        return call(b, f"llvm.nvvm.read.ptx.sreg.ctaid.{_AXES[axis]}", I32)

    def blocks(self, b: ir.IRBuilder, axis: int = 0) -> ir.Value:
        return call(b, f"llvm.nvvm.read.ptx.sreg.nctaid.{_AXES[axis]}", I32)

    def barrier(self, b: ir.IRBuilder) -> None:
        call(b, "llvm.nvvm.barrier.cta.sync.aligned.all", VOID, constant(I32, 0))

    def warp_barrier(self, b: ir.IRBuilder) -> None:
        call(b, "llvm.nvvm.bar.warp.sync", VOID, constant(I32, _ALL_LANES))

    def shuffle_xor(self, b: ir.IRBuilder, value: ir.Value, mask: int) -> ir.Value:
        return self._shuffle(b, "bfly", value, constant(I32, mask), 31)

    def shuffle_up(self, b: ir.IRBuilder, value: ir.Value, distance: int) -> ir.Value:
        return self._shuffle(b, "up", value, constant(I32, distance), 0)

    def shuffle_from(self, b: ir.IRBuilder, value: ir.Value, lane: ir.Value) -> ir.Value:
        return self._shuffle(b, "idx", value, lane, 31)

    def _shuffle(self, b: ir.IRBuilder, mode: str, value: ir.Value, argument: ir.Value, bound: int) -> ir.Value:
        name, lanes = f"llvm.nvvm.shfl.sync.{mode}.i32", constant(I32, _ALL_LANES)
        moved = [call(b, name, I32, lanes, w, argument, constant(I32, bound)) for w in to_words(b, value)]
        return from_words(b, moved, value.type)

    def mma(
        self, b: ir.IRBuilder, kind: Mma, a: Sequence[ir.Value], bs: Sequence[ir.Value], c: Sequence[ir.Value]
    ) -> list[ir.Value]:
        result = F64 if kind.accumulator == "f64" else F32
        operands = [*a, *bs]
        if kind.operand == "f16":
            operands = [b.bitcast(x, ir.VectorType(HALF, 2)) for x in operands]
        types = {"f16": "f32.f32"}.get(kind.operand, kind.operand)
        name = f"llvm.nvvm.mma.m{kind.m}n{kind.n}k{kind.k}.row.col.{types}"
        found = call(b, name, ir.LiteralStructType([result] * kind.c), *operands, *c)
        return [b.extract_value(found, n) for n in range(kind.c)]

    def load_matrix(self, b: ir.IRBuilder, place: ir.Value, count: int, transposed: bool = False) -> list[ir.Value]:
        name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if transposed else ''}.b16.p3"
        result = I32 if count == 1 else ir.LiteralStructType([I32] * count)
        found = call(b, name, result, b.addrspacecast(place, _SHARED))
        return [found] if count == 1 else [b.extract_value(found, n) for n in range(count)]

    def copy_async(
        self, b: ir.IRBuilder, to: ir.Value, source: ir.Value, nbytes: int, taken: ir.Value | None = None
    ) -> None:
        name = f"llvm.nvvm.cp.async.{'cg' if nbytes == 16 else 'ca'}.shared.global.{nbytes}"
        places = [b.addrspacecast(to, _SHARED), b.addrspacecast(source, _GLOBAL)]
        if taken is None:
            call(b, name, VOID, *places)
        else:
            call(b, f"{name}.s", VOID, *places, b.select(taken, constant(I32, nbytes), constant(I32, 0)))

    def commit_copies(self, b: ir.IRBuilder) -> None:
        call(b, "llvm.nvvm.cp.async.commit.group", VOID)

    def await_copies(self, b: ir.IRBuilder, pending: int) -> None:
        call(b, "llvm.nvvm.cp.async.wait.group", VOID, constant(I32, pending))

    def fence(self, b: ir.IRBuilder) -> None:
        call(b, "llvm.nvvm.membar.gl", VOID)
