"""One native function per distinct kernel: equal instructions share it."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from shardc.compiler.kernel_key import kernel_key
from shardc.hlo.ir.ir import Instruction

__all__ = ["EmitKernel", "KernelSet", "Parts"]

#: Adds the function ``void name(operand leaves..., result leaves..., i32 device)`` to a module.
EmitKernel = Callable[[ir.Module, Instruction, str], ir.Function]


class Parts:
    """The modules that a large step's kernels are spread over, so that they compile at the same time.

    The first is the step's own and is complete with the step; ``complete`` is called for each of the others as soon
    as nothing comes to it. Which kernel is where depends on the kernels alone.
    """

    #: LLVM instructions in a module before the next kernels get another: some 50 ms of compilation.
    size = 1000

    def __init__(self, first: ir.Module, new: Callable[[], ir.Module], complete: Callable[[ir.Module], None]) -> None:
        self._first = self._module = first
        self._new = new
        self._complete = complete

    def module(self) -> ir.Module:
        """Where the next kernel goes."""
        if _weight(self._module) >= self.size:
            self.close()
            self._module = self._new()
        return self._module

    def close(self) -> None:
        """Complete the last module."""
        if self._module is not self._first:
            self._complete(self._module)


def _weight(module: ir.Module) -> int:
    """LLVM instructions; the step's own do not count."""
    return sum(len(b.instructions) for f in module.functions if "optnone" not in f.attributes for b in f.blocks)


class KernelSet:
    """Kernels of one step function, emitted on first use and named by their order after ``prefix``.

    They go into ``module``, the step's own, or into ``parts``.
    """

    def __init__(self, module: ir.Module, emit: EmitKernel, prefix: str = "", parts: Parts | None = None) -> None:
        self._module = module
        self._emit = emit
        self._prefix = prefix
        self._parts = parts
        self._functions: dict[str, ir.Function] = {}

    def __len__(self) -> int:
        return len(self._functions)

    def function(self, instruction: Instruction) -> ir.Function:
        """The kernel of ``instruction``, in the step's module or declared there."""
        key = kernel_key(instruction)
        found = self._functions.get(key)
        if found is None:
            name = f"{self._prefix}k{len(self._functions)}_{instruction.opcode.replace('-', '_')}"
            found = self._functions[key] = self._made(instruction, name)
        return found

    def _made(self, instruction: Instruction, name: str) -> ir.Function:
        module = self._module if self._parts is None else self._parts.module()
        made = self._emit(module, instruction, name)
        made.attributes.add("noinline")
        if module is not self._module:
            return ir.Function(self._module, made.function_type, name)
        made.linkage = "internal"
        return made
