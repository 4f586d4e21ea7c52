"""What is known of integers from the instructions that make them: the lowest and the highest (interval analysis)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.make import scalar_value
from shardc.hlo.ir.types import DType

__all__ = ["integer_range", "limits_of"]

#: How far back a value is followed.
_DEEPEST = 8
#: Opcodes whose results are elements of operands, by the positions of these.
_CHOSEN: Mapping[str, slice] = {
    **dict.fromkeys(("broadcast", "reshape", "transpose", "reverse", "slice", "dynamic-slice", "gather"), slice(0, 1)),
    "convert": slice(0, 1),
    "copy": slice(0, 1),
    "select": slice(1, 3),
    "concatenate": slice(None),
}
#: Opcodes that give more for more of each operand.
_RISING: Mapping[str, Callable[[int, int], int]] = {"add": operator.add, "maximum": max, "minimum": min}

Range = tuple[int, int]


def limits_of(dtype: DType) -> Range:
    """Lowest and highest value of an integer type."""
    signed = dtype.kind == "signed"
    return (-(1 << (dtype.bits - 1)) if signed else 0), (1 << (dtype.bits - signed)) - 1


def integer_range(i: Instruction, depth: int = _DEEPEST) -> Range | None:
    """Lowest and highest value that an integer can have, as far as it is plain to see; None for other types."""
    if not i.shape.is_array or not i.shape.dtype.is_integer:
        return None
    low, high = limits_of(i.shape.dtype)
    found = _found(i, depth)
    return found if found is not None and low <= found[0] and found[1] <= high else (low, high)


def _found(i: Instruction, depth: int) -> Range | None:
    """None where nothing is known."""
    value = scalar_value(i)
    if value is not None:
        return int(value), int(value)
    if i.opcode == "iota":
        return 0, max(i.shape.dims[i.attrs["iota_dimension"]] - 1, 0)
    if not depth:
        return None
    operands = i.operands[_CHOSEN[i.opcode]] if i.opcode in _CHOSEN else i.operands
    if i.opcode == "get-tuple-element" and operands[0].opcode == "sort":
        operands = (operands[0].operands[i.attrs["index"]],)
    elif i.opcode not in _CHOSEN and i.opcode not in _RISING and i.opcode != "sort":
        return None
    ranges = [integer_range(o, depth - 1) for o in operands]
    known = [r for r in ranges if r is not None]
    if len(known) < len(ranges) or not known:
        return None
    if i.opcode in _RISING:
        (a, b), join = known, _RISING[i.opcode]
        return join(a[0], b[0]), join(a[1], b[1])
    return min(r[0] for r in known), max(r[1] for r in known)
