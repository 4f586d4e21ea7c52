"""Dynamic slices whose bounds are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shardc.hlo.ir import Instruction
from shardc.hlo.simplify.make import make, scalar_value

__all__ = ["RULES"]


def dynamic_slice_of_all(i: Instruction) -> Instruction | None:
    operand = i.operands[0]
    return operand if operand.shape.dims == i.shape.dims else None


def dynamic_slice_at_constants(i: Instruction) -> Instruction | None:
    """Constant start indices make a static slice; starts are clamped so that the slice fits."""
    operand, *starts = i.operands
    if len(starts) != operand.shape.rank:
        return None
    values = [scalar_value(s) for s in starts]
    if any(v is None for v in values):
        return None
    bounds = []
    for value, whole, part in zip(values, operand.shape.dims, i.shape.dims, strict=True):
        low = min(max(int(value), 0), whole - part)
        bounds.append((low, low + part, 1))
    return make("slice", i.shape, (operand,), i, slice=tuple(bounds))


def update_of_all(i: Instruction) -> Instruction | None:
    operand, update = i.operands[:2]
    return update if operand.shape.dims == update.shape.dims else None


def update_of_nothing(i: Instruction) -> Instruction | None:
    operand, update = i.operands[:2]
    return operand if update.shape.size == 0 else None


RULES: Mapping[str, tuple[Callable[[Instruction], Instruction | None], ...]] = {
    "dynamic-slice": (dynamic_slice_of_all, dynamic_slice_at_constants),
    "dynamic-update-slice": (update_of_all, update_of_nothing),
}
