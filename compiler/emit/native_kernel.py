"""Native kernels with the programs that they call: `emit_kernel` for all who compile for CPUs."""

from __future__ import annotations

from llvmlite import ir

from shardc.compiler.cpu.called import CalledProgram
from shardc.compiler.cpu.kernel import define_kernel
from shardc.compiler.emit.step import emit_step
from shardc.compiler.kernel_key import computation_key
from shardc.compiler.lower.pipeline import lower
from shardc.compiler.tuning import DEFAULT, Tuning
from shardc.hlo.config import Config
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.build import make_module
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.native.llvm.target import Target
from shardc.native.math.vector import I8

__all__ = ["emit_kernel", "emit_program"]

#: Most bytes of a caller's stack that a called computation may take.
_STACK = 1 << 20


def emit_kernel(
    module: ir.Module,
    instruction: Instruction,
    name: str,
    target: Target | None = None,
    tuning: Tuning = DEFAULT,
    *,
    counted: bool = False,
) -> ir.Function:
    """Define the function ``name`` in ``module`` that computes ``instruction``, as `define_kernel` says; called
    computations with loops and arrays become programs of their own.

    Example: ``emit_kernel(module, add, "k0")`` for ``add = f32[8] add(x, y)`` defines ``void k0(ptr, ptr, ptr, i32)``.
    """
    return define_kernel(module, instruction, name, emit_program, target, tuning, counted=counted)


def emit_program(module: ir.Module, computation: Computation) -> CalledProgram:
    """The program of ``computation`` in ``module``, lowered like any other; defined once per module."""
    name = f"called_{computation_key(computation)}"
    lowered = lower(make_module(name, computation), Config())
    if lowered.collectives or lowered.checks or lowered.plan.arena_bytes > _STACK:
        raise UnsupportedError(
            f"%{computation.name} is called per element, but it contains a collective or a check, or needs much memory",
            fix="write it as operations on whole arrays",
        )
    step = module.globals.get(name)
    if step is None:
        pool = ir.GlobalVariable(module, ir.ArrayType(I8, max(len(lowered.constants.data), 1)), name + ".constants")
        pool.initializer = ir.Constant(pool.value_type, bytearray(lowered.constants.data or b"\0"))
        pool.linkage, pool.global_constant, pool.align = "internal", True, 64
        step = emit_step(module, lowered, emit_kernel, name)
        step.linkage = "internal"
    return CalledProgram(step, lowered.plan.arena_bytes, module.globals[name + ".constants"])
