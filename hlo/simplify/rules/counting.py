"""Movements of iotas, and reshapes of broadcasts: values that are cheaper to make anew than to move."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import broadcast_scalar, constant, make

__all__ = ["RULES"]


def count_of_one(i: Instruction) -> Instruction | None:
    """Counting a dimension of size 1 gives 0."""
    if not i.shape.dims or i.shape.dims[i.attrs["iota_dimension"]] != 1:
        return None
    zero = constant(Literal(np.zeros((), i.shape.dtype.numpy)), i)
    return broadcast_scalar(zero, i.shape.dims, i)


def transpose_of_iota(i: Instruction) -> Instruction | None:
    inner = i.operands[0]
    if inner.opcode != "iota":
        return None
    place = i.attrs["dimensions"].index(inner.attrs["iota_dimension"])
    return make("iota", i.shape, (), i, iota_dimension=place)


def broadcast_of_iota(i: Instruction) -> Instruction | None:
    """An iota with more dimensions counts along the same one."""
    inner = i.operands[0]
    if inner.opcode != "iota":
        return None
    return make("iota", i.shape, (), i, iota_dimension=i.attrs["dimensions"][inner.attrs["iota_dimension"]])


def reshape_of_iota(i: Instruction) -> Instruction | None:
    """A reshape that keeps the counted dimension and what lies before it as large as they are."""
    inner = i.operands[0]
    if inner.opcode != "iota" or i.shape.size == 0:
        return None
    place = _same_place(inner.shape.dims, i.shape.dims, inner.attrs["iota_dimension"])
    return None if place is None else make("iota", i.shape, (), i, iota_dimension=place)


def reshape_of_broadcast(i: Instruction) -> Instruction | None:
    """A reshape that leaves every dimension of the source as it is, and joins or splits only repeated ones."""
    inner = i.operands[0]
    if inner.opcode != "broadcast" or i.shape.size == 0 or not inner.operands[0].shape.dims:
        return None
    places = [_same_place(inner.shape.dims, i.shape.dims, d) for d in inner.attrs["dimensions"]]
    found = tuple(p for p in places if p is not None)
    if len(set(found)) != len(places):
        return None
    return make("broadcast", i.shape, inner.operands, i, dimensions=found)


def _same_place(old: tuple[int, ...], new: tuple[int, ...], d: int) -> int | None:
    """The dimension of ``new`` that is dimension ``d`` of ``old``: of that size, with as much before it."""
    before = int(np.prod(old[:d], dtype=np.int64))
    passed = 1
    for place, size in enumerate(new):
        if passed == before and size == old[d]:
            return place
        passed *= size
    return None


RULES: Mapping[str, tuple[Callable[[Instruction], Instruction | None], ...]] = {
    "iota": (count_of_one,),
    "transpose": (transpose_of_iota,),
    "broadcast": (broadcast_of_iota,),
    "reshape": (reshape_of_iota, reshape_of_broadcast),
}
