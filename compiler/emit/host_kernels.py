"""Kernels for the host of a GPU: what GPUs have no code for, behind one signature."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from llvmlite import ir

from shardc.compiler.emit.native_kernel import emit_kernel
from shardc.hlo.ir.ir import Instruction
from shardc.native.llvm.jit import compile_ir, new_module
from shardc.native.llvm.target import Target
from shardc.native.math.vector import I32, PTR, constant

__all__ = ["HostKernels"]


@dataclass(slots=True)
class HostKernels:
    """CPU kernels for ``machine`` behind one signature: ``void symbol(ptr* operands, ptr* results, i32 device)``."""

    name: str
    machine: Target
    _module: ir.Module | None = field(default=None, init=False)

    def symbol(self, instruction: Instruction, name: str) -> str:
        """The function that calls the kernel of ``instruction``; ``name`` is told in its own."""
        if self._module is None:
            self._module = new_module(self.name, self.machine)
        kernel = emit_kernel(self._module, instruction, name, self.machine)
        kernel.linkage = "internal"
        operands = sum(1 for o in instruction.operands for _ in o.shape.leaves())
        return str(_entry(kernel, f"host_{name}", operands).name)

    def objects(self) -> tuple[bytes, ...]:
        """The native objects: one, or none where nothing runs on the host."""
        if self._module is None:
            return ()
        return (compile_ir(self._module, self.machine),)


def _entry(kernel: ir.Function, name: str, operands: int) -> ir.Function:
    """``void name(ptr* operands, ptr* results, i32 device)``, which calls ``kernel``."""
    function = ir.Function(kernel.module, ir.FunctionType(ir.VoidType(), [PTR, PTR, I32]), name)
    b = ir.IRBuilder(function.append_basic_block("entry"))
    places, results, device = function.args

    def item(table: ir.Value, number: int) -> ir.Value:
        return b.load(b.gep(table, [constant(I32, number)], inbounds=True, source_etype=PTR), typ=PTR)

    count = len(kernel.args) - 1 - operands
    b.call(kernel, [*map(partial(item, places), range(operands)), *map(partial(item, results), range(count)), device])
    b.ret_void()
    return function
