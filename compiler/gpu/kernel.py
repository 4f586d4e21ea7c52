"""One instruction's launches on a GPU: kernel emitters, each for one way to compute, and which of them takes what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from llvmlite import ir

from shardc.compiler.gpu.function import GpuKernel
from shardc.compiler.gpu.launches import Launches
from shardc.compiler.gpu.linalg import (
    emit_cholesky,
    emit_triangular_solve,
    takes_cholesky,
    takes_triangular_solve,
)
from shardc.compiler.gpu.maps.loop import emit_loop, takes_loop
from shardc.compiler.gpu.maps.updates import emit_concatenation, emit_update, takes_concatenation, takes_update
from shardc.compiler.gpu.products.convolution import emit_convolution, takes_convolution
from shardc.compiler.gpu.products.product import emit_products, takes_product
from shardc.compiler.gpu.reductions.column_reduction import emit_column_reduction, takes_column_reduction
from shardc.compiler.gpu.reductions.row_kernel import emit_row_kernel, takes_row_kernel
from shardc.compiler.gpu.reductions.row_reduction import emit_row_reduction, takes_row_reduction
from shardc.compiler.gpu.reductions.staged import emit_staged, takes_staged
from shardc.compiler.gpu.scans.cumulative import emit_cumulative, takes_cumulative
from shardc.compiler.gpu.scatter.scatter import emit_scatter, takes_scatter
from shardc.compiler.gpu.scatter.select_scatter import emit_select_and_scatter, takes_select_and_scatter
from shardc.compiler.gpu.sorting.sorting import emit_sort, takes_sort
from shardc.compiler.gpu.sorting.top_k import emit_topk, takes_topk
from shardc.compiler.tuning import DEFAULT, Tuning
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.ir import Instruction
from shardc.native.gpu.target import GpuTarget

__all__ = ["KERNEL_EMITTERS", "KernelEmitter", "emit_gpu_kernel", "find_kernel_emitter"]


@dataclass(frozen=True, slots=True)
class KernelEmitter:
    """One way to compute: ``takes`` says whether a kernel suits it, ``emit`` makes the launches."""

    name: str
    takes: Callable[[GpuKernel], bool]
    emit: Callable[[GpuKernel], None]


def _emit_part(kernel: GpuKernel) -> None:
    emitter = find_kernel_emitter(kernel)
    assert emitter is not None, f"what element rules compute is taken by the loop: {kernel.instruction}"
    emitter.emit(kernel)


#: The first that takes a kernel makes it: special ways before general ones.
KERNEL_EMITTERS: tuple[KernelEmitter, ...] = (
    KernelEmitter("update", takes_update, emit_update),
    KernelEmitter("concatenation", takes_concatenation, emit_concatenation),
    KernelEmitter("scatter", takes_scatter, emit_scatter),
    KernelEmitter("select and scatter", takes_select_and_scatter, emit_select_and_scatter),
    KernelEmitter("sort", takes_sort, emit_sort),
    KernelEmitter("top-k", takes_topk, emit_topk),
    KernelEmitter("cholesky", takes_cholesky, emit_cholesky),
    KernelEmitter("triangular solve", takes_triangular_solve, emit_triangular_solve),
    KernelEmitter("column reduction", takes_column_reduction, emit_column_reduction),
    KernelEmitter("row reduction", takes_row_reduction, emit_row_reduction),
    KernelEmitter("row kernel", takes_row_kernel, emit_row_kernel),
    KernelEmitter("product", takes_product, emit_products),
    KernelEmitter("convolution", takes_convolution, emit_convolution),
    KernelEmitter("cumulative", takes_cumulative, emit_cumulative),
    KernelEmitter("staged", takes_staged, partial(emit_staged, emit_part=_emit_part)),
    KernelEmitter("loop", takes_loop, emit_loop),
)


def find_kernel_emitter(kernel: GpuKernel) -> KernelEmitter | None:
    """The first kernel emitter that takes this kernel; None where the host computes it."""
    return next((e for e in KERNEL_EMITTERS if e.takes(kernel)), None)


def emit_gpu_kernel(
    module: ir.Module,
    instruction: Instruction,
    name: str,
    target: GpuTarget,
    aliased: frozenset[int] = frozenset(),
    tuning: Tuning = DEFAULT,
) -> Launches:
    """Define the functions that compute ``instruction`` in ``module``, and say how they are launched.

    The functions are named ``name``, ``name_1``, ``name_2`` and so on. All arrays are dense, row-major, and start at
    multiples of 16 bytes. ``aliased`` numbers the operand leaves that lie in the memory of a result (of the first one,
    where the op updates an array in place). Results without elements are never written.
    Raises UnsupportedError for what has no GPU code: such an instruction runs on the host.

    Example: ``emit_gpu_kernel(module, add, "k0", gpu_target("cuda:sm_90")).steps[0].shape.grid`` is the grid.
    """
    where = f"%{instruction.name}"
    if any(not o.shape.is_array for o in instruction.operands):
        raise UnsupportedError(f"{instruction.opcode} of tuples has no GPU code", where=where)
    if any(not s.is_array for s in instruction.shape.leaves()):
        raise UnsupportedError(
            f"a GPU kernel cannot write {instruction.shape}, the result of {instruction.opcode}", where=where
        )
    kernel = GpuKernel(module, instruction, name, target, aliased, tuning)
    if any(s.size for s in kernel.result_shapes):
        emitter = find_kernel_emitter(kernel)
        if emitter is None:
            raise UnsupportedError(f"{instruction.opcode} has no GPU code", where=where)
        emitter.emit(kernel)
    return kernel.launches()
