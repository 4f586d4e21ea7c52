"""One LLVM function per instruction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from llvmlite import ir

from shardc.compiler.cpu.body import CpuKernel
from shardc.compiler.cpu.called import EmitProgram
from shardc.compiler.cpu.function import emit_elements, emit_fusion
from shardc.compiler.cpu.loops.updates import emit_dynamic_update_slice, emit_scatter, emit_update
from shardc.compiler.cpu.reductions.rows import emit_rows
from shardc.compiler.elements.expansions import EXPANSIONS
from shardc.compiler.lower.fuse.fusion_rules import new_part
from shardc.compiler.lower.fuse.row_plan import plan_rows
from shardc.compiler.tuning import DEFAULT, Tuning
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.native.llvm.target import Target, host_target
from shardc.native.math.vector import I32, I64, PTR

__all__ = ["SPECIAL", "define_kernel"]


def define_kernel(
    module: ir.Module,
    instruction: Instruction,
    name: str,
    emit_program: EmitProgram,
    target: Target | None = None,
    tuning: Tuning = DEFAULT,
    *,
    counted: bool = False,
) -> ir.Function:
    """Define the function ``name`` in ``module`` that computes ``instruction``; ``emit_program`` makes what it calls.

    Its signature is ``void name(ptr operand leaf 0, ..., ptr result leaf 0, ..., i32 device)``; all arrays are dense,
    row-major and aligned to their elements; results of ``tuning.streamed`` bytes and more start at multiples of 64.
    A result may lie in an operand's memory only where element k of the result reads nothing of that operand but
    element k, or where the op updates its operand 0 (scatter, dynamic-update-slice; triangular-solve: operand 1).
    A ``counted`` function has an ``i64 count`` before the device's number: how many elements there are of its operands
    and results that are no scalars, and have one dimension. Only for what is computed element by element.
    Raises UnsupportedError for what has no native code.
    """
    for shape in instruction.shape.leaves():
        if not shape.is_array:
            raise UnsupportedError(
                f"a CPU kernel cannot write {shape}, the result of {instruction.opcode}", where=f"%{instruction.name}"
            )
    leaves = sum(1 for o in instruction.operands for _ in o.shape.leaves())
    results = sum(1 for _ in instruction.shape.leaves())
    kinds = [*[PTR] * (leaves + results), *([I64] if counted else []), I32]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), name)
    function.attributes.add("nounwind")
    kernel = CpuKernel(function, instruction, target or host_target(), emit_program, tuning, counted=counted)
    SPECIAL.get(instruction.opcode, emit_elements)(kernel)
    return function


def _fusion(kernel: CpuKernel) -> None:
    """A product and what is made from it; an update in place; places of sorted rows; row by row where there are rows;
    else per element."""
    computation = kernel.instruction.attrs["calls"]
    if kernel.instruction.attrs["kind"] == "kOutput":
        _fused_dot(kernel)
        return
    if new_part(kernel.instruction) is not None:
        emit_update(kernel, computation)
        return
    if any(i.opcode == "sort" for i in computation) and _places(kernel, computation):
        return
    plan = plan_rows(computation)
    if plan is None:
        emit_fusion(kernel, computation)
    else:
        emit_rows(kernel, computation, plan)


def _expanded(kernel: CpuKernel) -> None:
    emit_fusion(kernel, EXPANSIONS[kernel.instruction.opcode](kernel.instruction))


# Emitters of kinds that most small programs lack are imported with the first kernel of the kind: they are a third of
# the compiler's modules for CPUs, and a process waits for them before its first program.


def _convolution(kernel: CpuKernel) -> None:
    from shardc.compiler.cpu.convolutions.convolution import emit_convolution

    emit_convolution(kernel)


def _fft(kernel: CpuKernel) -> None:
    from shardc.compiler.cpu.fft.fourier import emit_fft

    emit_fft(kernel)


def _cholesky(kernel: CpuKernel) -> None:
    from shardc.compiler.cpu.linalg.linalg import emit_cholesky

    emit_cholesky(kernel)


def _triangular_solve(kernel: CpuKernel) -> None:
    from shardc.compiler.cpu.linalg.linalg import emit_triangular_solve

    emit_triangular_solve(kernel)


def _dot(kernel: CpuKernel) -> None:
    from shardc.compiler.cpu.products.contraction import emit_dot

    emit_dot(kernel)


def _fused_dot(kernel: CpuKernel) -> None:
    from shardc.compiler.cpu.products.contraction import emit_fused_dot

    emit_fused_dot(kernel)


def _select_and_scatter(kernel: CpuKernel) -> None:
    from shardc.compiler.cpu.reductions.selection import emit_select_and_scatter

    emit_select_and_scatter(kernel)


def _sort(kernel: CpuKernel) -> None:
    from shardc.compiler.cpu.reductions.sorting import emit_sort

    emit_sort(kernel)


def _places(kernel: CpuKernel, computation: Computation) -> bool:
    """Emits places of sorted rows; False where it is another computation."""
    from shardc.compiler.cpu.reductions.places import emit_places
    from shardc.compiler.lower.fuse.place_plan import plan_places

    plan = plan_places(computation)
    if plan is not None:
        emit_places(kernel, plan)
    return plan is not None


def _topk(kernel: CpuKernel) -> None:
    from shardc.compiler.cpu.reductions.top_k import emit_topk

    emit_topk(kernel)


def _custom_call(kernel: CpuKernel) -> None:
    from shardc.compiler.cpu.custom_call import emit_custom_call

    emit_custom_call(kernel)


def _reduce_window(kernel: CpuKernel) -> None:
    from shardc.compiler.cpu.reductions.cumulative import emit_reduce_window

    emit_reduce_window(kernel)


#: Opcodes whose kernels are not (only) maps over elements.
SPECIAL: Mapping[str, Callable[[CpuKernel], None]] = MappingProxyType(
    {
        "fusion": _fusion,
        "dot": _dot,
        "convolution": _convolution,
        "dynamic-update-slice": emit_dynamic_update_slice,
        "scatter": emit_scatter,
        "reduce-window": _reduce_window,
        "sort": _sort,
        "topk": _topk,
        "cholesky": _cholesky,
        "triangular-solve": _triangular_solve,
        "fft": _fft,
        "custom-call": _custom_call,
        "select-and-scatter": _select_and_scatter,
        **dict.fromkeys(EXPANSIONS, _expanded),
    }
)
