"""What there are routines for: asked of every program, so without what writes their calls."""

from __future__ import annotations

from shardc.compiler.lower.lowered import BufferCopy, KernelStep, Lowered, Step

__all__ = ["KNOWN", "may_be_table"]

#: Opcodes of `shardc.compiler.routines.table`.
KNOWN = frozenset(["broadcast", "concatenate", "convolution", "dot", "pad", "reverse", "slice", "sort", "transpose"])


def may_be_table(lowered: Lowered) -> bool:
    """Whether routines exist for all that a program does, if it does little. They convert nothing."""
    return not lowered.once.steps and all(map(_is_known, lowered.steps))


def _is_known(step: Step) -> bool:
    if isinstance(step, KernelStep) and step.instruction.opcode in KNOWN:
        i = step.instruction
        return i.shape.is_array and all(o.shape.dtype is i.shape.dtype for o in i.operands)
    return isinstance(step, BufferCopy)
