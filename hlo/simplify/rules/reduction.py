"""Reductions and sorts with nothing to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shardc.hlo.ir import Instruction
from shardc.hlo.opset import OPS
from shardc.hlo.simplify.make import broadcast_scalar, make, reshape

__all__ = ["RULES"]


def sort_of_ones(i: Instruction) -> Instruction | None:
    (d,) = i.attrs["dimensions"]
    if len(i.operands) != 1 or i.operands[0].shape.dims[d] > 1:
        return None
    return i.operands[0]


def reduce_of_ones(i: Instruction) -> Instruction | None:
    """A reduction over dimensions of one element is its reducer, applied once."""
    if len(i.operands) != 2 or any(i.operands[0].shape.dims[d] != 1 for d in i.attrs["dimensions"]):
        return None
    x, init = i.operands
    reducer = i.attrs["to_apply"]
    root, parameters = reducer.root, reducer.parameters
    if (
        OPS[root.opcode].family != "elementwise"
        or root.attrs
        or sorted(map(id, root.operands)) != sorted(map(id, parameters))
    ):
        return None
    values = {parameters[0]: broadcast_scalar(init, i.shape.dims, i), parameters[1]: reshape(x, i.shape.dims, i)}
    return make(root.opcode, i.shape, (values[o] for o in root.operands), i)


RULES: Mapping[str, tuple[Callable[[Instruction], Instruction | None], ...]] = {
    "reduce": (reduce_of_ones,),
    "sort": (sort_of_ones,),
}
