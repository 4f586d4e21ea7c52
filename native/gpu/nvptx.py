"""NVIDIA's PTX: the code of a thread as LLVM's NVPTX intrinsics, and modules of kernels as PTX text."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import llvmlite.binding as llvm
from llvmlite import ir

from shardc.native.gpu.grid import GridCode, Mma, from_words, to_words
from shardc.native.gpu.intrinsics import check_externals
from shardc.native.gpu.target import GpuTarget
from shardc.native.jit import TargetModule
from shardc.native.target import Target, target_machine
from shardc.native.unlocked import emit_text, run_passes
from shardc.native.vector import F32, F64, HALF, I8, I32, PTR, constant

__all__ = ["NvptxCode", "emit_ptx", "new_nvptx_module"]

_TRIPLE = "nvptx64-nvidia-cuda"
_SHARED = ir.PointerType(addrspace=3)
_GLOBAL = ir.PointerType(addrspace=1)
_AXES = "xyz"
_ALL_LANES = 0xFFFFFFFF
_VOID = ir.VoidType()


def new_nvptx_module(name: str, target: GpuTarget) -> TargetModule:
    """An empty module for kernels of ``target``."""
    module = TargetModule(name, Target(_TRIPLE, target.arch, ""))
    module.data_layout = str(target_machine(module.target).target_data)
    module.has_libm = False
    return module


def emit_ptx(module: ir.Module, target: GpuTarget) -> bytes:
    """The PTX of a module, which depends on its text, the architecture and LLVM's version only.

    ValueError names what the module calls that the target does not have: LLVM would end the process.
    """
    text = str(module)
    check_externals(text, "nvptx")
    machine = target_machine(Target(_TRIPLE, target.arch, ""), opt=3)
    parsed = llvm.parse_assembly(text, llvm.create_context())
    parsed.verify()
    options = llvm.create_pipeline_tuning_options(3)
    options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    run_passes(builder.getModulePassManager(), parsed, builder)
    return emit_text(machine, parsed)


class NvptxCode(GridCode):
    """See `GridCode`. ``arch`` is LLVM's name of a compute capability, at least ``sm_80``."""

    def __init__(self, arch: str) -> None:
        self.arch = arch

    def define(
        self, module: ir.Module, name: str, pointers: int, readonly: Collection[int] = (), threads: int = 0
    ) -> ir.Function:
        function = ir.Function(module, ir.FunctionType(_VOID, [PTR] * pointers + [I32]), name)
        function.calling_convention = "ptx_kernel"
        set.add(function.attributes, f'"nvvm.maxntid"="{threads or 1024}"')
        for number, argument in enumerate(function.args[:-1]):
            argument.attributes.align = 16
            if number in readonly:
                argument.add_attribute("noalias")
                set.add(argument.attributes, "readonly")
        return function

    def pointers(self, function: ir.Function) -> Sequence[ir.Value]:
        return list(function.args[:-1])

    def device(self, function: ir.Function) -> ir.Value:
        return function.args[-1]

    def enter(self, b: ir.IRBuilder) -> None:
        pass

    def leave(self, b: ir.IRBuilder) -> None:
        b.ret_void()

    def thread(self, b: ir.IRBuilder) -> ir.Value:
        return _call(b, "llvm.nvvm.read.ptx.sreg.tid.x", I32)

    def block(self, b: ir.IRBuilder, axis: int = 0) -> ir.Value:
        return _call(b, f"llvm.nvvm.read.ptx.sreg.ctaid.{_AXES[axis]}", I32)

    def blocks(self, b: ir.IRBuilder, axis: int = 0) -> ir.Value:
        return _call(b, f"llvm.nvvm.read.ptx.sreg.nctaid.{_AXES[axis]}", I32)

    def shared(self, b: ir.IRBuilder, offset: int) -> ir.Value:
        whole = b.module.globals.get("shardc_shared")
        if whole is None:
            whole = ir.GlobalVariable(b.module, ir.ArrayType(I8, 0), "shardc_shared", addrspace=3)
            whole.linkage, whole.align = "external", 16
        place = b.gep(whole, [constant(I32, offset)], source_etype=I8) if offset else whole
        return b.addrspacecast(place, PTR)

    def barrier(self, b: ir.IRBuilder) -> None:
        _call(b, "llvm.nvvm.barrier.cta.sync.aligned.all", _VOID, constant(I32, 0))

    def warp_barrier(self, b: ir.IRBuilder) -> None:
        _call(b, "llvm.nvvm.bar.warp.sync", _VOID, constant(I32, _ALL_LANES))

    def shuffle_xor(self, b: ir.IRBuilder, value: ir.Value, mask: int) -> ir.Value:
        return self._shuffle(b, "bfly", value, constant(I32, mask), 31)

    def shuffle_up(self, b: ir.IRBuilder, value: ir.Value, distance: int) -> ir.Value:
        return self._shuffle(b, "up", value, constant(I32, distance), 0)

    def shuffle_from(self, b: ir.IRBuilder, value: ir.Value, lane: ir.Value) -> ir.Value:
        return self._shuffle(b, "idx", value, lane, 31)

    def _shuffle(self, b: ir.IRBuilder, mode: str, value: ir.Value, argument: ir.Value, bound: int) -> ir.Value:
        name, lanes = f"llvm.nvvm.shfl.sync.{mode}.i32", constant(I32, _ALL_LANES)
        moved = [_call(b, name, I32, lanes, w, argument, constant(I32, bound)) for w in to_words(b, value)]
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
        found = _call(b, name, ir.LiteralStructType([result] * kind.c), *operands, *c)
        return [b.extract_value(found, n) for n in range(kind.c)]

    def load_matrix(self, b: ir.IRBuilder, place: ir.Value, count: int, transposed: bool = False) -> list[ir.Value]:
        name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if transposed else ''}.b16.p3"
        result = I32 if count == 1 else ir.LiteralStructType([I32] * count)
        found = _call(b, name, result, b.addrspacecast(place, _SHARED))
        return [found] if count == 1 else [b.extract_value(found, n) for n in range(count)]

    def copy_async(
        self, b: ir.IRBuilder, to: ir.Value, source: ir.Value, nbytes: int, taken: ir.Value | None = None
    ) -> None:
        name = f"llvm.nvvm.cp.async.{'cg' if nbytes == 16 else 'ca'}.shared.global.{nbytes}"
        places = [b.addrspacecast(to, _SHARED), b.addrspacecast(source, _GLOBAL)]
        if taken is None:
            _call(b, name, _VOID, *places)
        else:
            _call(b, f"{name}.s", _VOID, *places, b.select(taken, constant(I32, nbytes), constant(I32, 0)))

    def commit_copies(self, b: ir.IRBuilder) -> None:
        _call(b, "llvm.nvvm.cp.async.commit.group", _VOID)

    def await_copies(self, b: ir.IRBuilder, pending: int) -> None:
        _call(b, "llvm.nvvm.cp.async.wait.group", _VOID, constant(I32, pending))

    def fence(self, b: ir.IRBuilder) -> None:
        _call(b, "llvm.nvvm.membar.gl", _VOID)


def _call(b: ir.IRBuilder, name: str, result: ir.Type, *arguments: ir.Value) -> ir.Value:
    function = b.module.globals.get(name)
    if function is None:
        function = ir.Function(b.module, ir.FunctionType(result, [a.type for a in arguments]), name)
    return b.call(function, arguments)
