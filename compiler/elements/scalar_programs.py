"""Called computations that are arithmetic on single elements, which can stand where they are called."""

from __future__ import annotations

from shardc.compiler.elements.arithmetic.elementwise import ELEMENTWISE
from shardc.hlo.ir.ir import Computation, Instruction, called_computations

__all__ = ["is_scalar_program"]

#: Opcodes that a scalar program may hold besides elementwise ones.
_PLUMBING = frozenset(
    {"parameter", "constant", "tuple", "get-tuple-element", "broadcast", "reshape", "bitcast", "transpose", "iota"}
)
_CALLS = frozenset({"call", "map", "fusion"})


def is_scalar_program(computation: Computation) -> bool:
    """Whether every value of the computation is one element, made by arithmetic that can stand in place of the call."""
    return all(_is_scalar(i) for i in computation)


def _is_scalar(i: Instruction) -> bool:
    if any(not s.is_array or s.size != 1 for s in i.shape.leaves()):
        return False
    if i.opcode in _CALLS:
        return all(is_scalar_program(c) for _, c in called_computations(i))
    return i.opcode in _PLUMBING or i.opcode in ELEMENTWISE
