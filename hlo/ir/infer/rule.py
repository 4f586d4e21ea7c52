"""What a row of a shape-inference table is, and the checks that rows share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from shardc.hlo.ir.types import DType, Shape

__all__ = [
    "Attrs",
    "Check",
    "Infer",
    "RuleError",
    "ShapeRule",
    "Shapes",
    "common_float",
    "fail",
    "need_array",
    "need_dims",
    "need_permutation",
    "no_rule",
    "same_shape",
    "shape_required",
    "shapes_agree",
]

Shapes = Sequence[Shape]
Attrs = Mapping[str, Any]
Infer = Callable[[Shapes, Attrs], Shape]
Check = Callable[[Shapes, Attrs, Shape], None]


class RuleError(Exception):
    """A rule is broken; `infer_shape` and the verifier turn it into an error that names the instruction."""

    def __init__(self, what: str, dimension: int | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.dimension = dimension


def fail(what: str, dimension: int | None = None) -> NoReturn:
    raise RuleError(what, dimension)


@dataclass(frozen=True, slots=True)
class ShapeRule:
    """One row: how the shape follows from the operands, or how a given shape is checked.

    ``infer`` is None where operands and attributes do not determine the shape. ``check(operands, attrs, shape)``
    judges a given shape; without it the given shape must equal the inferred one. ``why`` explains a blank row:
    nothing is known of the op, every shape is taken as it is.
    """

    infer: Infer | None = None
    check: Check | None = None
    why: str = ""


def shape_required(check: Check) -> ShapeRule:
    """A row whose shape the caller must give."""
    return ShapeRule(None, check)


def no_rule(why: str) -> ShapeRule:
    """A blank row and the reason for it."""
    return ShapeRule(None, None, why)


def need_array(shape: Shape, what: str = "operand") -> Shape:
    if not shape.is_array:
        fail(f"{what} must be an array, not {shape}")
    return shape


def need_dims(dims: Sequence[int], rank: int, what: str = "dimensions") -> None:
    """Each of ``dims`` is a dimension of a rank-``rank`` array, none twice."""
    for d in dims:
        if not 0 <= d < rank:
            fail(f"{what} names dimension {d} of an array of rank {rank}", d)
    if len(set(dims)) != len(dims):
        fail(f"{what} names a dimension twice: {tuple(dims)}")


def need_permutation(dims: Sequence[int], rank: int, what: str = "dimensions") -> None:
    need_dims(dims, rank, what)
    if len(dims) != rank:
        fail(f"{what} must list all {rank} dimensions, not {tuple(dims)}")


def common_float(a: DType, b: DType) -> DType | None:
    """The type two operands compute in: equal types, or the more precise of two floats; None if there is none."""
    if a is b:
        return a
    if (a.is_float and b.is_float) or (a.is_complex and b.is_complex):
        return a if a.bits >= b.bits else b
    return None


def same_shape(shapes: Shapes) -> Shape:
    """The one shape that all operands have (mixed float precision gives the more precise)."""
    first = need_array(shapes[0])
    dtype = first.dtype
    for position, s in enumerate(shapes[1:], start=1):
        need_array(s)
        if s.dims != first.dims:
            if len(s.dims) != len(first.dims):
                fail(f"operand {position} has rank {s.rank}, operand 0 has rank {first.rank} ({s} and {first})")
            d = next(i for i in range(s.rank) if s.dims[i] != first.dims[i])
            fail(f"operand {position} has size {s.dims[d]}, operand 0 has size {first.dims[d]} ({s} and {first})", d)
        both = common_float(dtype, s.dtype)
        if both is None:
            fail(f"operand {position} has element type {s.dtype}, operand 0 has {dtype}")
        dtype = both
    return Shape(dtype, first.dims)


def shapes_agree(a: Shape, b: Shape) -> bool:
    """Equal up to layouts and dynamic marks."""
    if a.is_tuple or b.is_tuple:
        return (
            a.is_tuple
            and b.is_tuple
            and len(a.elements) == len(b.elements)
            and all(shapes_agree(x, y) for x, y in zip(a.elements, b.elements, strict=True))
        )
    return a.dtype is b.dtype and a.dims == b.dims
