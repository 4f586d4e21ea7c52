"""AMD's GPUs: the code of a thread as LLVM's AMDGPU intrinsics, and modules of kernels as ELF objects.

A proof that kernels are not tied to one maker: they are emitted and assembled, nothing here loads them. A warp is a
wavefront of 64 lanes. There are no products of matrices yet, so kernels that ask for them say so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from llvmlite import ir

from shardc.native.gpu.device import VOID, DeviceCode, call, compile_device, new_device_module
from shardc.native.gpu.grid import Mma, from_words, to_words
from shardc.native.gpu.intrinsics import AMDGPU
from shardc.native.gpu.problems import GpuProblem
from shardc.native.gpu.target import GpuTarget
from shardc.native.llvm.jit import TargetModule
from shardc.native.llvm.target import Target
from shardc.native.llvm.unlocked import emit_object
from shardc.native.math.vector import I1, I32, constant

__all__ = ["AmdgpuCode", "emit_amdgpu", "new_amdgpu_module"]

_TRIPLE = "amdgcn-amd-amdhsa"
_IMPLICIT = ir.PointerType(addrspace=4)
#: Stack slots lie in an address space of their own; code uses generic pointers to them.
_SLOT = re.compile(r'^  (%"[^"]+") = alloca (.*)$', re.MULTILINE)


def new_amdgpu_module(name: str, target: GpuTarget) -> TargetModule:
    """An empty module for kernels of ``target``."""
    return new_device_module(name, Target(_TRIPLE, target.arch, ""))


def emit_amdgpu(module: ir.Module, target: GpuTarget) -> bytes:
    """The relocatable ELF object of a module; ValueError as `emit_ptx`."""
    text = _SLOT.sub(_own_slot, str(module))
    return compile_device(text, Target(_TRIPLE, target.arch, ""), AMDGPU, emit_object)


def _own_slot(found: re.Match[str]) -> str:
    name, what = found.groups()
    own = f'{name[:-1]}.own"'
    return f"  {own} = alloca {what}, addrspace(5)\n  {name} = addrspacecast ptr addrspace(5) {own} to ptr"


class AmdgpuCode(DeviceCode):
    """See `GridCode`."""

    warp = 64
    convention = "amdgpu_kernel"
    threads_attribute = '"amdgpu-flat-work-group-size"="1,{}"'

    def thread(self, b: ir.IRBuilder) -> ir.Value:
        return call(b, "llvm.amdgcn.workitem.id.x", I32)

    def block(self, b: ir.IRBuilder, axis: int = 0) -> ir.Value:
        return call(b, f"llvm.amdgcn.workgroup.id.{'xyz'[axis]}", I32)

    def blocks(self, b: ir.IRBuilder, axis: int = 0) -> ir.Value:
        hidden = call(b, "llvm.amdgcn.implicitarg.ptr", _IMPLICIT)
        return b.load(b.gep(hidden, [constant(I32, axis)], source_etype=I32), typ=I32)

    def barrier(self, b: ir.IRBuilder) -> None:
        b.fence("release", "workgroup")
        call(b, "llvm.amdgcn.s.barrier", VOID)
        b.fence("acquire", "workgroup")

    def warp_barrier(self, b: ir.IRBuilder) -> None:
        b.fence("release", "wavefront")
        call(b, "llvm.amdgcn.wave.barrier", VOID)
        b.fence("acquire", "wavefront")

    def shuffle_from(self, b: ir.IRBuilder, value: ir.Value, lane: ir.Value) -> ir.Value:
        place = b.shl(lane, constant(I32, 2))
        moved = [call(b, "llvm.amdgcn.ds.bpermute", I32, place, w) for w in to_words(b, value)]
        return from_words(b, moved, value.type)

    def mma(
        self, b: ir.IRBuilder, kind: Mma, a: Sequence[ir.Value], bs: Sequence[ir.Value], c: Sequence[ir.Value]
    ) -> list[ir.Value]:
        raise _missing("products of matrices by a warp")

    def load_matrix(self, b: ir.IRBuilder, place: ir.Value, count: int, transposed: bool = False) -> list[ir.Value]:
        raise _missing("loads of matrices by a warp")

    def copy_async(
        self, b: ir.IRBuilder, to: ir.Value, source: ir.Value, nbytes: int, taken: ir.Value | None = None
    ) -> None:
        """There is no such copy: it is made at once, through registers."""
        t = I32 if nbytes == 4 else ir.VectorType(I32, nbytes // 4)
        start = b.block
        with b.if_then(constant(I1, 1) if taken is None else taken):
            loaded = b.load(source, typ=t, align=nbytes)
            end = b.block
        value = b.phi(t)
        value.add_incoming(ir.Constant(t, ir.Undefined if taken is None else None), start)
        value.add_incoming(loaded, end)
        b.store(value, to, align=nbytes)

    def commit_copies(self, b: ir.IRBuilder) -> None:
        pass

    def await_copies(self, b: ir.IRBuilder, pending: int) -> None:
        pass

    def fence(self, b: ir.IRBuilder) -> None:
        b.fence("seq_cst", "agent")


def _missing(what: str) -> GpuProblem:
    return GpuProblem(f"shardc cannot generate code for {what} on AMD GPUs", fix='compile for "cuda" or "cpu"')
