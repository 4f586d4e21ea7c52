"""Products: transposes are part of how they read, and those that add up nothing are plain multiplications."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

import numpy as np

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import broadcast_scalar, constant, make, reshape, transpose
from shardc.hlo.ir.types import Shape

__all__ = ["RULES"]

_SIDES = ("lhs", "rhs")


def dot_of_transpose(i: Instruction) -> Instruction | None:
    """``dot(transpose(x), y)`` reads x itself, where that leaves the order of the result's dimensions as it is."""
    operands, attrs = list(i.operands), dict(i.attrs)
    for n, side in enumerate(_SIDES):
        if operands[n].opcode != "transpose":
            continue
        moved, source = operands[n].attrs["dimensions"], operands[n].operands[0]
        batch, contracted = (
            tuple(moved[d] for d in attrs.get(f"{side}_{role}_dims", ())) for role in ("batch", "contracting")
        )
        taken = {*batch, *contracted}
        free = [d for d in moved if d not in taken]
        if free != sorted(free) or not all(_is_run(source.shape, dims) for dims in (free, contracted)):
            continue
        operands[n] = source
        attrs[f"{side}_contracting_dims"] = contracted
        if batch:
            attrs[f"{side}_batch_dims"] = batch
    if operands == list(i.operands):
        return None
    return i.replace(operands=operands, attrs=MappingProxyType(attrs))


def _is_run(shape: Shape, dims: Sequence[int]) -> bool:
    """Whether ``dims`` follow one another in memory, so that a matrix product takes them as one dimension."""
    long = [d for d in range(shape.rank) if shape.dims[d] != 1]
    places = [long.index(d) for d in dims if shape.dims[d] != 1]
    return all(b == a + 1 for a, b in pairwise(places))


def dot_of_nothing(i: Instruction) -> Instruction | None:
    """A sum of no products is 0."""
    contracted = i.attrs.get("lhs_contracting_dims", ())
    if all(i.operands[0].shape.dims[d] for d in contracted) or not i.shape.size:
        return None
    return broadcast_scalar(constant(Literal(np.zeros((), i.shape.dtype.numpy)), i), i.shape.dims, i)


def dot_of_columns(i: Instruction) -> Instruction | None:
    """Products that add up nothing: each element of one side times each of the other."""
    if "algorithm" in i.attrs or i.shape.dtype.kind == "pred":
        return None
    sides = []
    for operand, side in zip(i.operands, _SIDES, strict=True):
        contracted = i.attrs.get(f"{side}_contracting_dims", ())
        if any(operand.shape.dims[d] != 1 for d in contracted):
            return None
        sides.append(operand if operand.shape.dtype is i.shape.dtype else _convert(operand, i))
    wide = [_spread(x, i, side, n) for n, (x, side) in enumerate(zip(sides, _SIDES, strict=True))]
    return make("multiply", i.shape, wide, i)


def _convert(operand: Instruction, i: Instruction) -> Instruction:
    return make("convert", Shape(i.shape.dtype, operand.shape.dims), (operand,), i)


def _spread(x: Instruction, dot: Instruction, side: str, number: int) -> Instruction:
    """One side of a product with the result's dimensions: batch, free of the left, free of the right."""
    batch = tuple(dot.attrs.get(f"{side}_batch_dims", ()))
    contracted = dot.attrs.get(f"{side}_contracting_dims", ())
    free = [d for d in range(x.shape.rank) if d not in batch and d not in contracted]
    ordered = transpose(x, (*batch, *free, *contracted), dot)
    plain = reshape(ordered, tuple(x.shape.dims[d] for d in (*batch, *free)), dot)
    count = len(batch)
    first = count if number == 0 else dot.shape.rank - len(free)
    places = (*range(count), *range(first, first + len(free)))
    return make("broadcast", dot.shape, (plain,), dot, dimensions=places)


RULES: Mapping[str, tuple[Callable[[Instruction], Instruction | None], ...]] = {
    "dot": (dot_of_nothing, dot_of_columns, dot_of_transpose)
}
