"""One instruction's launches on a GPU: heroes, each of which knows one way to compute, and who takes what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
from shardc.compiler.tune.tuning import DEFAULT, Tuning
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.ir import Instruction
from shardc.native.gpu.target import GpuTarget

__all__ = ["HEROES", "Hero", "emit_gpu_kernel", "hero_of"]


@dataclass(frozen=True, slots=True)
class Hero:
    """A way to compute: ``takes`` says whether a kernel suits it, ``emit`` makes the launches."""

    name: str
    takes: Callable[[GpuKernel], bool]
    emit: Callable[[GpuKernel], None]


#: The first that takes a kernel makes it: special ways before general ones.
HEROES: tuple[Hero, ...] = (
    Hero("update", takes_update, emit_update),
    Hero("concatenation", takes_concatenation, emit_concatenation),
    Hero("scatter", takes_scatter, emit_scatter),
    Hero("select and scatter", takes_select_and_scatter, emit_select_and_scatter),
    Hero("sort", takes_sort, emit_sort),
    Hero("top-k", takes_topk, emit_topk),
    Hero("cholesky", takes_cholesky, emit_cholesky),
    Hero("triangular solve", takes_triangular_solve, emit_triangular_solve),
    Hero("column reduction", takes_column_reduction, emit_column_reduction),
    Hero("row reduction", takes_row_reduction, emit_row_reduction),
    Hero("row kernel", takes_row_kernel, emit_row_kernel),
    Hero("product", takes_product, emit_products),
    Hero("convolution", takes_convolution, emit_convolution),
    Hero("cumulative", takes_cumulative, emit_cumulative),
    Hero("staged", takes_staged, emit_staged),
    Hero("loop", takes_loop, emit_loop),
)


def hero_of(kernel: GpuKernel) -> Hero | None:
    """Who makes this kernel; None where nobody can."""
    return next((h for h in HEROES if h.takes(kernel)), None)


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
        raise UnsupportedError(f"{instruction.opcode} gives {instruction.shape}", where=where)
    kernel = GpuKernel(module, instruction, name, target, aliased, tuning)
    if any(s.size for s in kernel.result_shapes):
        hero = hero_of(kernel)
        if hero is None:
            raise UnsupportedError(f"{instruction.opcode} has no GPU code", where=where)
        hero.emit(kernel)
    return kernel.launches()
