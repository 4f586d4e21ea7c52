"""Comparisons whose outcome is known, and selects and negations of what they decide."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import broadcast_scalar, constant, make, scalar_value
from shardc.hlo.ir.types import DType

__all__ = ["RULES"]

#: The direction that is true where the first is false, for values that are all comparable.
_INVERSE: Mapping[str, str] = {"EQ": "NE", "NE": "EQ", "LT": "GE", "GE": "LT", "GT": "LE", "LE": "GT"}
#: The direction with the sides exchanged.
_MIRRORED: Mapping[str, str] = {"EQ": "EQ", "NE": "NE", "LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}


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


def limits_of(dtype: DType) -> tuple[int, int]:
    """Lowest and highest value of an integer type."""
    signed = dtype.kind == "signed"
    return (-(1 << (dtype.bits - 1)) if signed else 0), (1 << (dtype.bits - signed)) - 1


def _range(i: Instruction) -> tuple[int, int] | None:
    """Lowest and highest value that an integer can have, as far as it is plain to see."""
    if not i.shape.dtype.is_integer:
        return None
    low, high = limits_of(i.shape.dtype)
    if i.opcode == "iota":
        last = i.shape.dims[i.attrs["iota_dimension"]] - 1
        return (0, max(last, 0)) if last <= high else (low, high)
    return low, high


def compare_out_of_range(i: Instruction) -> Instruction | None:
    """An integer (a count of a dimension, or any of its type) against a constant that it never or always is below."""
    a, b = i.operands
    direction = i.attrs["direction"]
    if scalar_value(a) is not None:
        a, b, direction = b, a, _MIRRORED[direction]
    limit, span = scalar_value(b), _range(a)
    if limit is None or span is None or scalar_value(a) is not None:
        return None
    low, high, limit = *span, int(limit)
    always = {
        "LT": high < limit, "LE": high <= limit, "GT": low > limit, "GE": low >= limit,
        "EQ": low == high == limit, "NE": not low <= limit <= high,
    }  # fmt: skip
    if always[direction]:
        return _truth(True, i)
    return _truth(False, i) if always[_INVERSE[direction]] else None


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
