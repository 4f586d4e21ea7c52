"""One native function per distinct kernel: equal instructions share it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from shardc.compiler.kernels import kernel_key
from shardc.hlo.ir import Instruction

__all__ = ["EmitKernel", "KernelSet"]

#: Adds the function ``void name(operand leaves..., result leaves..., i32 device)`` to a module.
EmitKernel = Callable[[ir.Module, Instruction, str], ir.Function]


class KernelSet:
    """Kernels of one step function, emitted on first use and named by their order after ``prefix``."""

    def __init__(self, module: ir.Module, emit: EmitKernel, prefix: str = "") -> None:
        self._module = module
        self._emit = emit
        self._prefix = prefix
        self._functions: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self._functions)

    def function(self, instruction: Instruction) -> Any:
        """The kernel of ``instruction``."""
        key = kernel_key(instruction)
        found = self._functions.get(key)
        if found is None:
            name = f"{self._prefix}k{len(self._functions)}_{instruction.opcode.replace('-', '_')}"
            found = self._functions[key] = self._emit(self._module, instruction, name)
            found.linkage = "internal"
            found.attributes.add("noinline")
        return found
