"""Reductions and sorts with little or nothing to do, and reductions of values that were only moved."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import broadcast_scalar, constant, make, reshape, transpose
from shardc.hlo.ir.opset import OPS
from shardc.hlo.ir.reducers import any_order, reducer_opcode

__all__ = ["RULES"]

#: Combining a value with itself gives the value.
_IDEMPOTENT = frozenset({"maximum", "minimum", "and", "or"})
#: Most arrays of a stack that are combined one by one.
_MOST_STACKED = 32


def sort_of_ones(i: Instruction) -> Instruction | None:
    (d,) = i.attrs["dimensions"]
    if len(i.operands) != 1 or i.operands[0].shape.dims[d] > 1:
        return None
    return i.operands[0]


def _plain(i: Instruction) -> str | None:
    """The opcode of a reduction of one array by one operation of its own type."""
    if len(i.operands) != 2 or i.operands[0].shape.dtype is not i.shape.dtype:
        return None
    return reducer_opcode(i.attrs["to_apply"])


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


def reduce_of_nothing(i: Instruction) -> Instruction | None:
    """Without elements there is the initial value."""
    if len(i.operands) != 2 or i.operands[0].shape.size or not i.shape.size or not _plain(i):
        return None
    return broadcast_scalar(i.operands[1], i.shape.dims, i)


def reduce_of_transpose(i: Instruction) -> Instruction | None:
    """The reduction reads the value as it was; what is left of the order is put right behind it."""
    inner = i.operands[0]
    if inner.opcode != "transpose" or not _free_order(i):
        return None
    permutation, gone = inner.attrs["dimensions"], set(i.attrs["dimensions"])
    source = inner.operands[0]
    reduced = tuple(sorted(permutation[d] for d in gone))
    kept = [d for d in range(source.shape.rank) if d not in reduced]
    shape = i.shape.with_dims(tuple(source.shape.dims[d] for d in kept))
    result = make("reduce", shape, (source, i.operands[1]), i, **{**i.attrs, "dimensions": reduced})
    return transpose(
        result, tuple(kept.index(permutation[d]) for d in range(i.operands[0].shape.rank) if d not in gone), i
    )


def _free_order(i: Instruction) -> bool:
    """Whether the reduction may take elements in any order. It may if it is one operation that commutes."""
    return _plain(i) is not None


def reduce_of_added_ones(i: Instruction) -> Instruction | None:
    """A reshape that only adds or drops dimensions of size 1 in front of a reduction goes behind it."""
    inner = i.operands[0]
    if inner.opcode != "reshape" or not _free_order(i):
        return None
    source = inner.operands[0]
    old, new = ([d for d, n in enumerate(s.shape.dims) if n != 1] for s in (source, inner))
    if [source.shape.dims[d] for d in old] != [inner.shape.dims[d] for d in new]:
        return None
    reduced = tuple(o for o, n in zip(old, new, strict=True) if n in i.attrs["dimensions"])
    if not reduced:
        return None
    kept = tuple(n for d, n in enumerate(source.shape.dims) if d not in reduced)
    shape = i.shape.with_dims(kept)
    return reshape(
        make("reduce", shape, (source, i.operands[1]), i, **{**i.attrs, "dimensions": reduced}), i.shape.dims, i
    )


def reduce_of_stack(i: Instruction) -> Instruction | None:
    """A reduction over the dimension along which arrays were stacked combines the arrays, in their order."""
    inner, opcode = i.operands[0], _plain(i)
    if inner.opcode != "concatenate" or opcode is None or inner.attrs["dimensions"] != i.attrs["dimensions"]:
        return None
    (d,) = i.attrs["dimensions"]
    rounds = opcode not in _IDEMPOTENT and i.shape.dtype.is_float and i.shape.dtype.bits < 32
    if rounds or len(inner.operands) > _MOST_STACKED or any(o.shape.dims[d] != 1 for o in inner.operands):
        return None
    total = broadcast_scalar(i.operands[1], i.shape.dims, i)
    for o in inner.operands:
        total = make(opcode, i.shape, (total, reshape(o, i.shape.dims, i)), i)
    return total


def skip_repeated_dimensions(i: Instruction) -> Instruction | None:
    """The largest of equal values is any of them: dimensions that a broadcast adds need not be looked at."""
    inner = i.operands[0]
    opcode = _plain(i)
    if inner.opcode != "broadcast" or opcode not in _IDEMPOTENT or not inner.shape.size:
        return None
    source, dimensions = inner.operands[0], inner.attrs["dimensions"]
    gone = i.attrs["dimensions"]
    added = [d for d in gone if d not in dimensions]
    if not added or not any_order(i.attrs["to_apply"], i.shape.dtype):
        return None
    kept = [d for d in range(inner.shape.rank) if d not in added]
    shape = inner.shape.with_dims(tuple(inner.shape.dims[d] for d in kept))
    narrow = make("broadcast", shape, (source,), i, dimensions=tuple(kept.index(d) for d in dimensions))
    left = tuple(kept.index(d) for d in gone if d not in added)
    return make("reduce", i.shape, (narrow, i.operands[1]), i, **{**i.attrs, "dimensions": left})


def multiply_repeated_sum(i: Instruction) -> Instruction | None:
    """The sum of n equal integers is n times one of them, modulo the integer's size."""
    inner = i.operands[0]
    dtype = i.shape.dtype
    if inner.opcode != "broadcast" or _plain(i) != "add" or not dtype.is_integer or not inner.shape.size:
        return None
    source, dimensions = inner.operands[0], inner.attrs["dimensions"]
    gone = i.attrs["dimensions"]
    added = [d for d in gone if d not in dimensions]
    count = math.prod(inner.shape.dims[d] for d in added)
    if not added or count >= 1 << (dtype.bits - 1):
        return None
    kept = [d for d in range(inner.shape.rank) if d not in added]
    shape = inner.shape.with_dims(tuple(inner.shape.dims[d] for d in kept))
    narrow = make("broadcast", shape, (source,), i, dimensions=tuple(kept.index(d) for d in dimensions))
    times = broadcast_scalar(constant(Literal(np.asarray(count, dtype.numpy)), i), shape.dims, i)
    product = make("multiply", shape, (narrow, times), i)
    left = tuple(kept.index(d) for d in gone if d not in added)
    return make("reduce", i.shape, (product, i.operands[1]), i, **{**i.attrs, "dimensions": left})


RULES: Mapping[str, tuple[Callable[[Instruction], Instruction | None], ...]] = {
    "sort": (sort_of_ones,),
    "reduce": (
        reduce_of_nothing,
        reduce_of_ones,
        reduce_of_transpose,
        reduce_of_added_ones,
        reduce_of_stack,
        skip_repeated_dimensions,
        multiply_repeated_sum,
    ),
}
