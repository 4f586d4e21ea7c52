"""What is known of a value's signs from the instructions that make it."""

from __future__ import annotations

import numpy as np

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.make import scalar_value
from shardc.hlo.ir.reducers import reducer_opcode

__all__ = ["is_positive"]

#: How far back a value is followed.
_DEEPEST = 8


def is_positive(i: Instruction, depth: int = _DEEPEST) -> bool:
    """Whether every element is at least +0, or NaN."""
    if not depth:
        return False
    value = scalar_value(i)
    if value is not None:
        return bool(value >= 0) and not np.signbit(value)

    def back(o: Instruction) -> bool:
        return is_positive(o, depth - 1)

    match i.opcode:
        case "abs" | "exponential" | "logistic":
            return True
        case "multiply":
            return i.operands[0] is i.operands[1] or all(map(back, i.operands))
        case "add" | "maximum" | "minimum" | "divide" | "concatenate":
            return all(map(back, i.operands))
        case "broadcast" | "reshape" | "slice" | "transpose" | "sqrt" | "dynamic-slice" | "reverse":
            return back(i.operands[0])
        case "select":
            return all(map(back, i.operands[1:]))
        case "reduce":
            kind = reducer_opcode(i.attrs["to_apply"]) if i.shape.is_array else None
            return kind in ("add", "maximum", "minimum", "multiply") and all(map(back, i.operands))
    return False
