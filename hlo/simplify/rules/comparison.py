"""Comparisons whose outcome is known, and selects and negations of what they decide."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import broadcast_scalar, constant, make, scalar_value
from shardc.hlo.simplify.ranges import integer_range

__all__ = ["RULES", "outcome"]

#: The direction that is true where the first is false, for values that are all comparable.
_INVERSE: Mapping[str, str] = {"EQ": "NE", "NE": "EQ", "LT": "GE", "GE": "LT", "GT": "LE", "LE": "GT"}


def _truth(value: bool, like: Instruction) -> Instruction:
    return broadcast_scalar(constant(Literal(np.array(value)), like), like.shape.dims, like)


def compare_to_itself(i: Instruction) -> Instruction | None:
    """x < x is false and, without NaNs, x <= x is true."""
    a, b = i.operands
    direction = i.attrs["direction"]
    if a is not b:
        return None
    if direction in ("LT", "GT"):
        return _truth(False, i)
    if a.shape.dtype.is_float or a.shape.dtype.is_complex:
        return None
    return _truth(direction in ("EQ", "LE", "GE"), i)


def outcome(i: Instruction) -> bool | None:
    """What a comparison of integers always gives by their ranges; None where that depends or is not known."""
    a, b = map(integer_range, i.operands)
    if a is None or b is None:
        return None
    always = {
        "LT": a[1] < b[0], "LE": a[1] <= b[0], "GT": a[0] > b[1], "GE": a[0] >= b[1],
        "EQ": a[0] == a[1] == b[0] == b[1], "NE": a[1] < b[0] or b[1] < a[0],
    }  # fmt: skip
    direction = i.attrs["direction"]
    return True if always[direction] else False if always[_INVERSE[direction]] else None


def compare_out_of_range(i: Instruction) -> Instruction | None:
    """Integers whose ranges decide it."""
    found = outcome(i)
    return None if found is None else _truth(found, i)


def not_compare(i: Instruction) -> Instruction | None:
    """The negation of a comparison is the inverse one; with NaNs only equality has an inverse."""
    inner = i.operands[0]
    if i.shape.dtype.kind != "pred" or inner.opcode != "compare":
        return None
    direction, dtype = inner.attrs["direction"], inner.operands[0].shape.dtype
    total = inner.attrs.get("type") == "TOTALORDER"
    if direction not in ("EQ", "NE") and dtype.is_float and not total:
        return None
    return make("compare", i.shape, inner.operands, i, **{**inner.attrs, "direction": _INVERSE[direction]})


def select_by_not(i: Instruction) -> Instruction | None:
    """select(not(p), a, b) is select(p, b, a)."""
    p, a, b = i.operands
    return make("select", i.shape, (p.operands[0], b, a), i) if p.opcode == "not" else None


def select_of_truths(i: Instruction) -> Instruction | None:
    """select(p, true, false) is p."""
    p, a, b = i.operands
    if i.shape.dtype.kind != "pred" or p.shape.dims != i.shape.dims:
        return None
    values = (scalar_value(a), scalar_value(b))
    if values == (True, False):
        return p
    return make("not", i.shape, (p,), i) if values == (False, True) else None


def select_in_select(i: Instruction) -> Instruction | None:
    """A select inside of one by the same predicate is decided."""
    p, a, b = i.operands
    if a.opcode == "select" and a.operands[0] is p:
        return make("select", i.shape, (p, a.operands[1], b), i)
    if b.opcode == "select" and b.operands[0] is p:
        return make("select", i.shape, (p, a, b.operands[2]), i)
    return None


RULES: Mapping[str, tuple[Callable[[Instruction], Instruction | None], ...]] = {
    "compare": (compare_to_itself, compare_out_of_range),
    "not": (not_compare,),
    "select": (select_by_not, select_of_truths, select_in_select),
}
