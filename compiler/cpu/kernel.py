"""One LLVM function per instruction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from llvmlite import ir

from shardc.compiler.cpu.body import CpuKernel
from shardc.compiler.cpu.called import EmitProgram
from shardc.compiler.cpu.convolutions.convolution import emit_convolution
from shardc.compiler.cpu.custom_call import emit_custom_call
from shardc.compiler.cpu.fft.fourier import emit_fft
from shardc.compiler.cpu.function import emit_elements, emit_fusion
from shardc.compiler.cpu.linalg.linalg import emit_cholesky, emit_triangular_solve
from shardc.compiler.cpu.loops.updates import emit_dynamic_update_slice, emit_scatter, emit_update
from shardc.compiler.cpu.products.contraction import emit_dot, emit_fused_dot
from shardc.compiler.cpu.reductions.cumulative import emit_reduce_window
from shardc.compiler.cpu.reductions.rows import emit_rows
from shardc.compiler.cpu.reductions.selection import emit_select_and_scatter
from shardc.compiler.cpu.reductions.sorting import emit_sort
from shardc.compiler.cpu.reductions.top_k import emit_topk
from shardc.compiler.elements.expansions import EXPANSIONS
from shardc.compiler.lower.fuse.fusion_rules import new_part
from shardc.compiler.lower.fuse.row_plan import plan_rows
from shardc.compiler.tuning import DEFAULT, Tuning
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.ir import Instruction
from shardc.native.llvm.target import Target, host_target
from shardc.native.math.vector import I32, PTR

__all__ = ["SPECIAL", "define_kernel"]


def define_kernel(
    module: ir.Module,
    instruction: Instruction,
    name: str,
    emit_program: EmitProgram,
    target: Target | None = None,
    tuning: Tuning = DEFAULT,
) -> ir.Function:
    """Define the function ``name`` in ``module`` that computes ``instruction``; ``emit_program`` makes what it calls.

    Its signature is ``void name(ptr operand leaf 0, ..., ptr result leaf 0, ..., i32 device)``; all arrays are dense,
    row-major and aligned to their elements; results of ``tuning.streamed`` bytes and more start at multiples of 64.
    A result may lie in an operand's memory only where element k of the result reads nothing of that operand but
    element k, or where the op updates its operand 0 (scatter, dynamic-update-slice; triangular-solve: operand 1).
    Raises UnsupportedError for what has no native code.
    """
    for shape in instruction.shape.leaves():
        if not shape.is_array:
            raise UnsupportedError(f"{instruction.opcode} gives {shape}", where=f"%{instruction.name}")
    leaves = sum(1 for o in instruction.operands for _ in o.shape.leaves())
    results = sum(1 for _ in instruction.shape.leaves())
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [PTR] * (leaves + results) + [I32]), name)
    function.attributes.add("nounwind")
    kernel = CpuKernel(function, instruction, target or host_target(), emit_program, tuning)
    SPECIAL.get(instruction.opcode, emit_elements)(kernel)
    return function


def _fusion(kernel: CpuKernel) -> None:
    """A product and what is made from it; an update in place; row by row where there are rows; else per element."""
    computation = kernel.instruction.attrs["calls"]
    if kernel.instruction.attrs["kind"] == "kOutput":
        emit_fused_dot(kernel)
        return
    if new_part(kernel.instruction) is not None:
        emit_update(kernel, computation)
        return
    plan = plan_rows(computation)
    if plan is None:
        emit_fusion(kernel, computation)
    else:
        emit_rows(kernel, computation, plan)


def _expanded(kernel: CpuKernel) -> None:
    emit_fusion(kernel, EXPANSIONS[kernel.instruction.opcode](kernel.instruction))


#: Opcodes whose kernels are not (only) maps over elements.
SPECIAL: Mapping[str, Callable[[CpuKernel], None]] = MappingProxyType(
    {
        "fusion": _fusion,
        "dot": emit_dot,
        "convolution": emit_convolution,
        "dynamic-update-slice": emit_dynamic_update_slice,
        "scatter": emit_scatter,
        "reduce-window": emit_reduce_window,
        "sort": emit_sort,
        "topk": emit_topk,
        "cholesky": emit_cholesky,
        "triangular-solve": emit_triangular_solve,
        "fft": emit_fft,
        "custom-call": emit_custom_call,
        "select-and-scatter": emit_select_and_scatter,
        **dict.fromkeys(EXPANSIONS, _expanded),
    }
)
