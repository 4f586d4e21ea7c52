"""Reductions and sorts with nothing to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shardc.hlo.ir import Instruction

__all__ = ["RULES"]


def sort_of_ones(i: Instruction) -> Instruction | None:
    (d,) = i.attrs["dimensions"]
    if len(i.operands) != 1 or i.operands[0].shape.dims[d] > 1:
        return None
    return i.operands[0]


RULES: Mapping[str, tuple[Callable[[Instruction], Instruction | None], ...]] = {
    "sort": (sort_of_ones,),
}
