"""Reductions of whole arrays that would read them twice, written so that each part is read while it is in the cache.

A sum of squares around the mean waits for the mean. In parts it need not: each takes the squares around a mean of its
own, and the distances of those means come on top (Chan, Golub, LeVeque, "Updating Formulae and a Pairwise Algorithm for
Computing Sample Variances", 1979). The position of the first extreme is that of the first element that equals its
part's extreme, where that equals the whole's.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from shardc.compiler.lower.simplify.reduction_parts import ReductionParts, Views, fold, fold_parts, neutral
from shardc.hlo.ir.build import binary_computation
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import broadcast_scalar, constant, inline, make, reshape, scalar_value, splat_source
from shardc.hlo.ir.reducers import identity_of, reducer_opcode
from shardc.hlo.ir.types import array_shape

__all__ = ["extreme_of", "mean_of", "part_extreme", "part_variance"]

#: Between a sum and the mean that is made of it: only what scales and moves a number.
_MOST_STEPS = 16
#: What the reducers of arg-extremes are made of: their answer depends on the order of what they compare alone.
_ORDERING = frozenset({"parameter", "tuple", "compare", "select", "and", "or", "not", "get-tuple-element"})


# -- squares around the mean -------------------------------------------------------------------------------------


def mean_of(i: Instruction, users: Mapping[Instruction, Sequence[Instruction]]) -> Instruction | None:
    """The mean that a sum of squares is taken around; None for other reductions. Both are over the whole array."""
    dtype = i.operands[0].shape.dtype
    if i.shape.dims or not dtype.is_float or dtype.accumulator is not dtype:
        return None
    square = i.operands[0]
    if reducer_opcode(i.attrs["to_apply"]) != "add" or square.opcode != "multiply" or len(set(square.operands)) != 1:
        return None
    far = square.operands[0]
    if far.opcode != "subtract" or set(users[far]) != {square} or set(users[square]) != {i}:
        return None
    x, spread = far.operands
    if spread.opcode != "broadcast" or spread.operands[0].shape.size != 1:
        return None
    return spread.operands[0] if _summed(spread.operands[0]) is x else None


def _summed(mean: Instruction) -> Instruction | None:
    """The array whose sum, over all devices, a number is a positive share of."""
    at = mean
    for _ in range(_MOST_STEPS):
        whole = at.operands[0] if at.opcode == "get-tuple-element" else at
        if whole.opcode == "all-reduce" and reducer_opcode(whole.attrs["to_apply"]) == "add":
            at = whole.operands[at.attrs.get("index", 0)]
        elif at.opcode in ("reshape", "broadcast", "bitcast", "copy") and at.operands[0].shape.size == 1:
            at = at.operands[0]
        elif at.opcode in ("multiply", "divide"):
            value = scalar_value(at.operands[1])
            if value is None or not 0 < value < np.inf:
                return None
            at = at.operands[0]
        else:
            break
    is_sum = at.opcode == "reduce" and at.shape.is_array and not at.shape.dims
    return at.operands[0] if is_sum and reducer_opcode(at.attrs["to_apply"]) == "add" else None


def part_variance(
    i: Instruction, mean: Instruction, operands: Sequence[Instruction], parts: ReductionParts, views: Views
) -> Instruction:
    """The squares of each part around its own mean, and those of these means around the whole's."""
    reducer = i.attrs["to_apply"]
    x, init = i.operands[0].operands[0].operands[0], operands[1]
    rows = views.view(views.new.get(x, x), parts.dims, i)
    total = fold(rows, reducer, parts, i)
    share = _number(1 / parts.length, total, i)
    own = make("multiply", total.shape, (total, share), i)
    far = make("subtract", rows.shape.plain, (rows, _spread(own, parts, i)), i)
    within = fold(make("multiply", far.shape, (far, far), i), reducer, parts, i)
    middle = broadcast_scalar(reshape(views.new.get(mean, mean), (), i), own.shape.dims, i)
    gap = make("subtract", own.shape, (own, middle), i)
    between = make(
        "multiply", own.shape, (make("multiply", own.shape, (gap, gap), i), _number(parts.length, own, i)), i
    )
    both = make("add", own.shape, (within, between), i)
    return fold_parts(both, init, reducer, parts, i.shape, i)


def _number(value: float, like: Instruction, i: Instruction) -> Instruction:
    """A number for each part."""
    scalar = constant(Literal.full(array_shape(like.shape.dtype), value), i)
    return broadcast_scalar(scalar, like.shape.dims, i)


def _spread(per_part: Instruction, parts: ReductionParts, i: Instruction) -> Instruction:
    """One element per part for every element of the parts."""
    return make("broadcast", per_part.shape.with_dims(parts.dims), (per_part,), i, dimensions=parts.left)


# -- the first extreme -------------------------------------------------------------------------------------------


def extreme_of(i: Instruction) -> str | None:
    """``maximum`` or ``minimum``, where a reduction finds the first one of a whole array, and its rising position."""
    if len(i.operands) != 4 or any(s.dims for s in i.shape.elements):
        return None
    x, at = i.operands[:2]
    plain = x.shape.dtype.is_float or x.shape.dtype.kind in ("signed", "unsigned")
    return _extreme_by(i.attrs["to_apply"]) if plain and _rises(at) else None


def _rises(at: Instruction) -> bool:
    """Whether every element is greater than those before it."""
    while at.opcode == "add":
        moved = [o for o in at.operands if splat_source(o) is None]
        if len(moved) != 1:
            return False
        at = moved[0]
    return (
        at.opcode == "iota"
        and sum(n != 1 for n in at.shape.dims) == 1
        and at.shape.dims[at.attrs["iota_dimension"]] > 1
    )


@lru_cache(maxsize=64)
def _extreme_by(reducer: Computation) -> str | None:
    """Which extreme a reducer of (value, position) keeps, of any two in their order; NaN is beyond all.

    What only compares and selects gives the same answer for all values that lie in the same order, so a few of each
    order are a proof.
    """
    if any(
        k.opcode not in _ORDERING or k.attrs.get("type") not in (None, "FLOAT", "SIGNED", "UNSIGNED") for k in reducer
    ):
        return None
    dtype = reducer.parameters[0].shape.dtype
    values = [0, 1, 2] + ([np.nan] if dtype.is_float else [])
    pairs = list(itertools.product(values, values))
    one, two = (np.array([p[k] for p in pairs]).astype(dtype.numpy) for k in (0, 1))
    first, second = (np.full(len(pairs), k, reducer.parameters[1].shape.dtype.numpy) for k in (3, 5))
    from shardc.hlo.evaluate import evaluate_computation  # most programs start without it

    kept, at = evaluate_computation(reducer, [one, first, two, second])
    for opcode, beats in (("maximum", np.less), ("minimum", np.greater)):
        later = beats(one, two) | (np.isnan(two) & ~np.isnan(one)) if dtype.is_float else beats(one, two)
        wanted = np.where(later, two, one)
        if np.array_equal(at, np.where(later, second, first)) and np.array_equal(
            kept, wanted, equal_nan=dtype.is_float
        ):
            return opcode
    return None


def part_extreme(
    i: Instruction, opcode: str, operands: Sequence[Instruction], parts: ReductionParts, views: Views
) -> Instruction:
    """The extreme of each part and where it first is, then of all parts."""
    x, at, *inits = operands
    rows, places = (views.view(o, parts.dims, i) for o in (x, at))
    best, least = binary_computation(opcode, x.shape.dtype), binary_computation("minimum", at.shape.dtype)
    most = fold(rows, best, parts, i)
    where = fold(_where(rows, _spread(most, parts, i), places, i), least, parts, i)
    scalar = array_shape(x.shape.dtype)
    top = fold_parts(most, neutral(best, x.shape.dtype, i), best, parts, scalar, i)
    hits = _where(most, broadcast_scalar(top, most.shape.dims, i), where, i)
    place = fold_parts(hits, neutral(least, at.shape.dtype, i), least, parts, array_shape(at.shape.dtype), i)
    return inline(i.attrs["to_apply"], (*inits, top, place))


def _where(x: Instruction, extreme: Instruction, places: Instruction, i: Instruction) -> Instruction:
    """The positions of elements that are the extreme, the greatest number elsewhere; a NaN is the extreme of all."""
    shape = x.shape.plain
    hit = make("compare", array_shape("pred", *shape.dims), (x, extreme), i, direction="EQ")
    if shape.dtype.is_float:
        nan = make("compare", hit.shape, (x, x), i, direction="NE")
        hit = make("or", hit.shape, (hit, nan), i)
    kind = places.shape.dtype
    none = constant(Literal.full(array_shape(kind), identity_of(binary_computation("minimum", kind), kind)), i)
    spread = broadcast_scalar(none, shape.dims, i)
    return make("select", places.shape.plain, (hit, places, spread), i)
