"""What code for real GPUs has in common, whoever made them: kernels as plain functions, and the way through LLVM."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from shardc.native.gpu.grid import GridCode
from shardc.native.gpu.intrinsics import check_externals
from shardc.native.llvm.jit import TargetModule
from shardc.native.llvm.target import Target, target_machine
from shardc.native.llvm.unlocked import run_passes
from shardc.native.math.vector import I8, I32, PTR, constant

__all__ = ["VOID", "DeviceCode", "call", "compile_device", "new_device_module"]

VOID = ir.VoidType()


def new_device_module(name: str, target: Target) -> TargetModule:
    """An empty module for kernels of ``target``, which has no C library."""
    module = TargetModule(name, target)
    module.data_layout = str(target_machine(target).target_data)
    module.has_libm = False
    return module


def compile_device(text: str, target: Target, known: frozenset[str], emit: Callable[[Any, Any], bytes]) -> bytes:
    """What ``emit`` makes of a module's optimised text. ValueError names what it declares that is not ``known``."""
    check_externals(text, known)
    machine = target_machine(target, opt=3)
    parsed = llvm.parse_assembly(text, llvm.create_context())
    parsed.verify()
    options = llvm.create_pipeline_tuning_options(3)
    options.loop_vectorization = options.slp_vectorization = False  # a thread of a GPU has no vectors to fill
    builder = llvm.create_pass_builder(machine, options)
    run_passes(builder.getModulePassManager(), parsed, builder)
    return emit(machine, parsed)


def call(b: ir.IRBuilder, name: str, result: ir.Type, *arguments: ir.Value) -> ir.Value:
    """Call an intrinsic of the target, declared on first use."""
    function = b.module.globals.get(name)
    if function is None:
        function = ir.Function(b.module, ir.FunctionType(result, [a.type for a in arguments]), name)
    return b.call(function, arguments)


class DeviceCode(GridCode):
    """`GridCode` of kernels that a driver starts: ``convention`` is how, ``threads_attribute`` says how many threads a
    block may have."""

    convention: str
    threads_attribute: str

    def define(
        self, module: ir.Module, name: str, pointers: int, readonly: Collection[int] = (), threads: int = 0
    ) -> ir.Function:
        function = ir.Function(module, ir.FunctionType(VOID, [PTR] * pointers + [I32]), name)
        function.calling_convention = self.convention
        set.add(function.attributes, self.threads_attribute.format(threads or 1024))
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

    def shared(self, b: ir.IRBuilder, offset: int) -> ir.Value:
        whole = b.module.globals.get("shardc_shared")
        if whole is None:
            whole = ir.GlobalVariable(b.module, ir.ArrayType(I8, 0), "shardc_shared", addrspace=3)
            whole.linkage, whole.align = "external", 16
        place = b.gep(whole, [constant(I32, offset)], source_etype=I8) if offset else whole
        return b.addrspacecast(place, PTR)
