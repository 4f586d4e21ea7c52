"""Shape inference: data movement whose pattern is fixed."""

from __future__ import annotations

import math

from shardc.hlo.ir.infer.rule import (
    Attrs,
    ShapeRule,
    Shapes,
    common_float,
    fail,
    need_array,
    need_dims,
    need_permutation,
    shape_required,
    shapes_agree,
)
from shardc.hlo.ir.types import DTYPES, Shape

__all__ = ["RULES"]


def _broadcast(shapes: Shapes, attrs: Attrs, shape: Shape) -> None:
    operand, dims = need_array(shapes[0]), attrs["dimensions"]
    if len(dims) != operand.rank:
        fail(f"dimensions {tuple(dims)} must name one result dimension for each of {operand}")
    need_dims(dims, need_array(shape, "result").rank)
    if operand.dtype is not shape.dtype:
        fail(f"operand has element type {operand.dtype}, the result {shape.dtype}")
    for d, r in enumerate(dims):
        if operand.dims[d] not in (shape.dims[r], 1):
            fail(f"operand dimension {d} of {operand} does not fit result dimension {r} of {shape}", r)


def _reshape(shapes: Shapes, attrs: Attrs, shape: Shape) -> None:
    operand = need_array(shapes[0])
    if operand.dtype is not need_array(shape, "result").dtype:
        fail(f"operand has element type {operand.dtype}, the result {shape.dtype}")
    if operand.size != shape.size:
        fail(f"{operand} has {operand.size} elements, {shape} has {shape.size}")


def _bitcast(shapes: Shapes, attrs: Attrs, shape: Shape) -> None:
    operand = need_array(shapes[0])
    if operand.size * operand.dtype.bits != need_array(shape, "result").size * shape.dtype.bits:
        fail(f"{operand} and {shape} differ in size")


def _transpose(shapes: Shapes, attrs: Attrs) -> Shape:
    operand = need_array(shapes[0])
    need_permutation(attrs["dimensions"], operand.rank)
    return operand.with_dims(tuple(operand.dims[d] for d in attrs["dimensions"]))


def _concatenate(shapes: Shapes, attrs: Attrs) -> Shape:
    if not shapes or len(attrs["dimensions"]) != 1:
        fail("concatenate needs an operand and one dimension")
    first, (axis,) = need_array(shapes[0]), attrs["dimensions"]
    need_dims((axis,), first.rank)
    dtype, total = first.dtype, 0
    for position, s in enumerate(shapes):
        both = common_float(dtype, need_array(s).dtype)
        if both is None or s.rank != first.rank:
            fail(f"operand {position} is {s}, operand 0 is {first}")
        for d, n in enumerate(s.dims):
            if d != axis and n != first.dims[d]:
                fail(f"operand {position} has size {n}, operand 0 has size {first.dims[d]}", d)
        dtype, total = both, total + s.dims[axis]
    return Shape(dtype, tuple(total if d == axis else n for d, n in enumerate(first.dims)))


def _slice(shapes: Shapes, attrs: Attrs) -> Shape:
    operand, ranges = need_array(shapes[0]), attrs["slice"]
    if len(ranges) != operand.rank:
        fail(f"{len(ranges)} ranges for an operand of rank {operand.rank}")
    dims: list[int] = []
    for d, (start, limit, stride) in enumerate(ranges):
        if stride < 1 or not 0 <= start <= limit <= operand.dims[d]:
            fail(f"range [{start}:{limit}:{stride}] is not within a dimension of size {operand.dims[d]}", d)
        dims.append(-(-(limit - start) // stride))
    return operand.with_dims(tuple(dims))


def _pad(shapes: Shapes, attrs: Attrs) -> Shape:
    operand, value = need_array(shapes[0]), need_array(shapes[1], "padding value")
    if value.rank or common_float(value.dtype, operand.dtype) is None:
        fail(f"padding value must be a scalar {operand.dtype}, not {value}")
    if len(attrs["padding"]) != operand.rank:
        fail(f"padding for {len(attrs['padding'])} dimensions, operand has rank {operand.rank}")
    dims: list[int] = []
    for d, (low, high, interior) in enumerate(attrs["padding"]):
        n = operand.dims[d]
        size = low + high + n + max(n - 1, 0) * interior
        if interior < 0 or size < 0:
            fail(f"padding {low}_{high}_{interior} of a dimension of size {n} gives size {size}", d)
        dims.append(size)
    return operand.with_dims(tuple(dims))


def _reverse(shapes: Shapes, attrs: Attrs) -> Shape:
    need_dims(attrs["dimensions"], need_array(shapes[0]).rank)
    return shapes[0].plain


def _iota(shapes: Shapes, attrs: Attrs, shape: Shape) -> None:
    if need_array(shape, "result").rank or attrs["iota_dimension"]:
        need_dims((attrs["iota_dimension"],), shape.rank, "iota_dimension")
    if shape.dtype.kind == "pred":
        fail("iota cannot count in pred")


def _constant(shapes: Shapes, attrs: Attrs) -> Shape:
    shape: Shape = attrs["literal"].shape
    return shape


def _get_dimension_size(shapes: Shapes, attrs: Attrs) -> Shape:
    need_dims(attrs["dimensions"], need_array(shapes[0]).rank)
    return Shape(DTYPES["s32"])


def _set_dimension_size(shapes: Shapes, attrs: Attrs) -> Shape:
    need_dims(attrs["dimensions"], need_array(shapes[0]).rank)
    if not shapes_agree(shapes[1], Shape(DTYPES["s32"])):
        fail(f"the size must be s32[], not {shapes[1]}")
    marks = list(shapes[0].dynamic or (False,) * shapes[0].rank)
    marks[attrs["dimensions"][0]] = True
    return Shape(shapes[0].dtype, shapes[0].dims, dynamic=tuple(marks))


def _dynamic_reshape(shapes: Shapes, attrs: Attrs, shape: Shape) -> None:
    operand = need_array(shapes[0])
    if operand.dtype is not shape.dtype or len(shapes) != shape.rank + 1:
        fail(f"{operand} with {len(shapes) - 1} sizes cannot become {shape}")
    if math.prod(shape.dims) < operand.size and not any(shape.dynamic):
        fail(f"{operand} does not fit into {shape}")


RULES = {
    "broadcast": shape_required(_broadcast),
    "reshape": shape_required(_reshape),
    "bitcast": shape_required(_bitcast),
    "transpose": ShapeRule(_transpose),
    "concatenate": ShapeRule(_concatenate),
    "slice": ShapeRule(_slice),
    "pad": ShapeRule(_pad),
    "reverse": ShapeRule(_reverse),
    "iota": shape_required(_iota),
    "constant": ShapeRule(_constant),
    "get-dimension-size": ShapeRule(_get_dimension_size),
    "set-dimension-size": ShapeRule(_set_dimension_size),
    "dynamic-reshape": shape_required(_dynamic_reshape),
}
