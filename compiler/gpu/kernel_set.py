"""What becomes of a program's kernels: launches, library calls or calls on the host, each made once."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from llvmlite import ir

from shardc.compiler.gpu.compilation import GpuCompilation
from shardc.compiler.gpu.function import GpuKernel
from shardc.compiler.gpu.identity import IDENTITIES, emit_identity
from shardc.compiler.gpu.kernel import emit_gpu_kernel
from shardc.compiler.gpu.launches import Launches
from shardc.compiler.gpu.products.library_product import LibraryProduct, library_product
from shardc.compiler.kernel_key import kernel_key
from shardc.compiler.tuning import DEFAULT, Tuning
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.ir import Instruction
from shardc.native.gpu.target import GpuTarget

__all__ = ["GpuKernels", "HostSymbol", "HostSymbolCall", "Made"]


@dataclass(frozen=True, slots=True)
class HostSymbolCall:
    """The CPU's kernel does it: ``symbol`` of the host's objects."""

    symbol: str


#: Attributes that matter to GPU code, of those that `kernel_key` leaves out.
_TOLD = ("unique_indices", "operand_precision", "algorithm")

#: The symbol of a function on the host that computes an instruction, with the kernel's name in its own.
HostSymbol = Callable[[Instruction, str], str]

Made = Launches | LibraryProduct | HostSymbolCall


class GpuKernels:
    """The kernels of one program for ``target``: code goes to ``gpu``.

    ``partitions`` is what ``partition-id`` counts by. What no kernel emitter takes is computed by ``host``.
    """

    def __init__(
        self, target: GpuTarget, partitions: int, gpu: GpuCompilation, host: HostSymbol, tuning: Tuning = DEFAULT
    ) -> None:
        self._target, self._partitions, self._tuning = target, partitions, tuning
        self._gpu, self._host = gpu, host
        self._made: dict[tuple[object, ...], Made] = {}

    def make(self, instruction: Instruction, aliased: Collection[int]) -> Made:
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
            return HostSymbolCall(self._host(instruction, name))


def _take_back(module: ir.Module, name: str) -> None:
    """Remove the functions of a kernel that was begun."""
    for symbol in [f.name for f in module.functions if f.name == name or f.name.startswith(f"{name}_")]:
        del module.globals[symbol]
