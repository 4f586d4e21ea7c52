"""What becomes of a program's kernels: launches, library calls or calls on the host, each made once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from llvmlite import ir

from shardc.compiler.cpu import emit_kernel, kernel_key
from shardc.compiler.gpu.compilation import GpuCompilation
from shardc.compiler.gpu.function import GpuKernel
from shardc.compiler.gpu.identity import IDENTITIES, emit_identity
from shardc.compiler.gpu.kernel import emit_gpu_kernel
from shardc.compiler.gpu.launches import Launches
from shardc.compiler.gpu.products.library_product import LibraryProduct, library_product
from shardc.compiler.tune.tuning import DEFAULT, Tuning
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.ir import Instruction
from shardc.native.gpu.target import GpuTarget
from shardc.native.llvm.jit import Compilation, new_module
from shardc.native.llvm.target import Target
from shardc.native.math.vector import I32, PTR, constant

__all__ = ["GpuKernels", "HostCall", "Made"]


@dataclass(frozen=True, slots=True)
class HostCall:
    """The CPU's kernel does it: ``symbol`` of the host's objects."""

    symbol: str


#: Attributes that matter to GPU code, of those that `kernel_key` leaves out.
_TOLD = ("unique_indices", "operand_precision", "algorithm")

Made = Launches | LibraryProduct | HostCall


class GpuKernels:
    """The kernels of one program for ``target``: code goes to ``gpu``, that of the host to ``host``.

    ``partitions`` is what ``partition-id`` counts by. What no hero takes runs on the host.
    """

    def __init__(
        self, target: GpuTarget, partitions: int, gpu: GpuCompilation, host: HostKernels, tuning: Tuning = DEFAULT
    ) -> None:
        self._target, self._partitions, self._tuning = target, partitions, tuning
        self._gpu, self._host = gpu, host
        self._made: dict[tuple[object, ...], Made] = {}

    def made(self, instruction: Instruction, aliased: Collection[int]) -> Made:
        """How ``instruction`` is computed; equal ones share the answer. ``aliased`` as `emit_gpu_kernel` has it."""
        alias = frozenset(aliased)
        inside = instruction.attrs["calls"] if instruction.opcode == "fusion" else (instruction,)
        told = tuple(str(i.attrs.get(name)) for i in inside for name in _TOLD)
        key = (kernel_key(instruction), told, alias)
        if key not in self._made:
            self._made[key] = self._make(instruction, alias)
        return self._made[key]

    def _make(self, instruction: Instruction, aliased: frozenset[int]) -> Made:
        product = library_product(instruction, self._tuning) if self._target.libraries else None
        if product is not None:
            return product
        name = f"k{len(self._made)}_{instruction.opcode.replace('-', '_')}"
        module = self._gpu.module()
        if instruction.opcode in IDENTITIES:
            kernel = GpuKernel(module, instruction, name, self._target, aliased, self._tuning)
            emit_identity(kernel, self._partitions)
            return kernel.launches()
        try:
            return emit_gpu_kernel(module, instruction, name, self._target, aliased, self._tuning)
        except UnsupportedError:
            _take_back(module, name)
            return HostCall(self._host.symbol(instruction, name))


def _take_back(module: ir.Module, name: str) -> None:
    """Remove the functions of a kernel that was begun."""
    for symbol in [f.name for f in module.functions if f.name == name or f.name.startswith(f"{name}_")]:
        del module.globals[symbol]


@dataclass(slots=True)
class HostKernels:
    """CPU kernels for ``machine`` behind one signature: ``void symbol(ptr* operands, ptr* results, i32 device)``."""

    name: str
    machine: Target
    threads: int
    _module: Any = field(default=None, init=False)

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
        with Compilation(self.machine, self.threads) as compilation:
            compilation.add(self._module)
            return compilation.objects()


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
