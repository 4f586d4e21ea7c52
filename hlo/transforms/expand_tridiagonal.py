"""JAX's ``tridiagonal_solve_perturbed_ffi`` as HLO: tridiagonal systems that may be singular.

Rows are eliminated downwards with the better of two neighbours as pivot (relative to the size of its row), the right
sides along with them; then solved upwards. A pivot too small to divide by is moved away from zero in steps that begin
at the roundoff of the largest element, as LAPACK's ``?lagts`` does, so that inverse iteration never overflows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardc.hlo.ir.build import Builder, binary_computation
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.types import DType, Shape, array_shape, tuple_shape

__all__ = ["expand_tridiagonal"]


class _Value:
    """An instruction with arithmetic."""

    __slots__ = ("b", "i")

    def __init__(self, b: Builder, i: Instruction) -> None:
        self.b = b
        self.i = i

    @property
    def shape(self) -> Shape:
        return self.i.shape

    def op(self, opcode: str, *others: _Value, **attrs: Any) -> _Value:
        return _Value(self.b, self.b.add(opcode, self.i, *(o.i for o in others), **attrs))

    def __add__(self, other: _Value) -> _Value:
        return self.op("add", other)

    def __sub__(self, other: _Value) -> _Value:
        return self.op("subtract", other)

    def __mul__(self, other: _Value) -> _Value:
        return self.op("multiply", other)

    def __truediv__(self, other: _Value) -> _Value:
        return self.op("divide", other)

    def __neg__(self) -> _Value:
        return self.op("negate")

    def __abs__(self) -> _Value:
        return self.op("abs")

    def __and__(self, other: _Value) -> _Value:
        return self.op("and", other)

    def __or__(self, other: _Value) -> _Value:
        return self.op("or", other)

    def __invert__(self) -> _Value:
        return self.op("not")

    def is_(self, direction: str, other: _Value) -> _Value:
        return self.op("compare", other, direction=direction)

    def where(self, yes: _Value, no: _Value) -> _Value:
        return self.op("select", yes, no)

    def max(self, other: _Value) -> _Value:
        return self.op("maximum", other)

    def full(self, value: Any) -> _Value:
        """A constant of the same shape."""
        scalar = _Value(self.b, self.b.constant(value, self.shape.dtype))
        return scalar.op("broadcast", shape=self.shape, dimensions=()) if self.shape.rank else scalar

    def over(self, shape: Shape) -> _Value:
        """The same value for every element of further minor dimensions."""
        dims = tuple(range(self.shape.rank))
        return self.op("broadcast", shape=Shape(self.shape.dtype, shape.dims), dimensions=dims)

    def real(self) -> _Value:
        return self.op("real") if self.shape.dtype.is_complex else self

    def as_(self, dtype: DType) -> _Value:
        return self if self.shape.dtype is dtype else self.op("convert", shape=self.shape.with_dtype(dtype))


def expand_tridiagonal(b: Builder, call: Instruction, *operands: Instruction) -> Instruction:
    """``call(below, diagonal, above, right sides)``: vectors of n per matrix, right sides n x r."""
    below, diagonal, above, right = (_Value(b, o) for o in operands)
    size = diagonal.shape.dims[-1]
    if 0 in right.shape.dims:
        return right.i
    places = b.add("iota", shape=array_shape("s32", *above.shape.dims), iota_dimension=above.shape.rank - 1)
    last = _Value(b, places)
    last = last.is_("LT", last.full(size - 1))
    above = last.where(above, above.full(0))
    solved = _eliminate(b, below, diagonal, above, right)
    return _solve_upwards(b, *solved).i


def _loop(
    b: Builder, name: str, state: Sequence[_Value], condition: Callable[..., _Value], body: Callable[..., list[_Value]]
) -> list[_Value]:
    """While ``condition(*state)``, the state becomes ``body(*state)``."""
    shape = tuple_shape(*(v.shape for v in state))

    def computation(kind: str, make: Callable[..., Any]) -> Computation:
        inner = Builder(f"{name}.{kind}", metadata=b.metadata, origin=b.origin)
        whole = inner.parameter(shape)
        made = make(*(
            _Value(inner, inner.add("get-tuple-element", whole, index=k)) for k in range(len(state))
        ))  # fmt: skip
        root = made.i if isinstance(made, _Value) else inner.add("tuple", *(v.i for v in made))
        return inner.build(root)

    whole = b.add(
        "while",
        b.add("tuple", *(v.i for v in state)),
        condition=computation("condition", condition),
        body=computation("body", body),
    )
    return [_Value(b, b.add("get-tuple-element", whole, index=k)) for k in range(len(state))]


def _starts(x: _Value, k: _Value, dim: int) -> list[_Value]:
    zero = k.full(0)
    return [k if d == dim else zero for d in range(x.shape.rank)]


def _take(x: _Value, k: _Value, dim: int) -> _Value:
    """Element ``k`` along a dimension."""
    sizes = tuple(1 if d == dim else n for d, n in enumerate(x.shape.dims))
    part = x.op("dynamic-slice", *_starts(x, k, dim), dynamic_slice_sizes=sizes)
    return part.op("reshape", shape=x.shape.with_dims(tuple(n for d, n in enumerate(sizes) if d != dim)))


def _put(x: _Value, k: _Value, dim: int, value: _Value) -> _Value:
    dims = tuple(1 if d == dim else n for d, n in enumerate(x.shape.dims))
    return x.op("dynamic-update-slice", value.op("reshape", shape=x.shape.with_dims(dims)), *_starts(x, k, dim))


def _eliminate(b: Builder, below: _Value, diagonal: _Value, above: _Value, right: _Value) -> tuple[_Value, ...]:
    """The upper factor's three diagonals, the right sides of its system, and its largest element."""
    dim, size = diagonal.shape.rank - 1, diagonal.shape.dims[-1]
    start = _Value(b, b.constant(0, "s32"))
    pivot, beside = _take(diagonal, start, dim), _take(above, start, dim)
    row = _take(right, start, dim)
    nothing = diagonal.full(0)

    def step(
        k: _Value, below: _Value, diagonal: _Value, above: _Value, right: _Value, u0: _Value, u1: _Value, u2: _Value,
        x: _Value, pivot: _Value, beside: _Value, row: _Value, scale: _Value, largest: _Value,
    ) -> list[_Value]:  # fmt: skip
        following = k + k.full(1)
        s, d, e = (_take(v, following, dim) for v in (below, diagonal, above))
        y = _take(right, following, dim)
        zero, none = s.full(0), scale.full(0)
        next_scale = abs(s) + abs(d) + abs(e)
        ratio = pivot.is_("EQ", zero).where(none, abs(pivot) / scale)
        done = s.is_("EQ", zero)
        keep = done | (abs(s) / next_scale).is_("LE", ratio)
        factor = keep.where(done.where(zero, s / pivot), pivot / s)
        wide, wide_keep = factor.over(row.shape), keep.over(row.shape)
        new_pivot = keep.where(d - factor * beside, beside - factor * d)
        new_beside = keep.where(e, -(factor * e))
        written = [keep.where(pivot, s), keep.where(beside, d), keep.where(zero, e)]
        u0, u1, u2 = (_put(u, k, dim, w) for u, w in zip((u0, u1, u2), written, strict=True))
        x = _put(x, k, dim, wide_keep.where(row, y))
        row = wide_keep.where(y - wide * row, row - wide * y)
        scale = keep.where(next_scale, abs(new_pivot) + abs(new_beside))
        counts = k.is_("LT", k.full(size - 2))
        counts = counts.op("broadcast", shape=Shape(counts.shape.dtype, largest.shape.dims), dimensions=())
        for w in written:
            largest = counts.where(largest.max(abs(w)), largest)
        return [following, below, diagonal, above, right, u0, u1, u2, x, new_pivot, new_beside, row, scale, largest]

    state = [
        start, below, diagonal, above, right, nothing, nothing, nothing, right,
        pivot, beside, row, abs(pivot) + abs(beside), abs(pivot).max(abs(beside)),
    ]  # fmt: skip
    done = _loop(b, "eliminate", state, lambda k, *_: k.is_("LT", k.full(size - 1)), step)
    k, u0, u1, u2, x = done[0], *done[5:9]
    pivot, row, largest = done[9], done[11], done[13]
    return _put(u0, k, dim, pivot), u1, u2, _put(x, k, dim, row), largest.max(abs(pivot))


def _solve_upwards(b: Builder, u0: _Value, u1: _Value, u2: _Value, x: _Value, largest: _Value) -> _Value:
    dim, size = u0.shape.rank - 1, u0.shape.dims[-1]
    info = np.finfo(largest.shape.dtype.numpy)
    first = _take(x, _Value(b, b.constant(size - 1, "s32")), dim)

    def step(
        k: _Value, u0: _Value, u1: _Value, u2: _Value, x: _Value, after: _Value, later: _Value, perturb: _Value
    ) -> list[_Value]:
        pivot, one, two = (_take(u, k, dim) for u in (u0, u1, u2))
        row = _take(x, k, dim) - one.over(after.shape) * after - two.over(after.shape) * later
        pivot, row = _divisible(k.b, pivot, row, perturb, float(info.tiny))
        row = row * (pivot.full(1) / pivot).over(row.shape)
        return [k - k.full(1), u0, u1, u2, _put(x, k, dim, row), row, after, perturb]

    nothing = first.full(0)
    state = [_Value(b, b.constant(size - 1, "s32")), u0, u1, u2, x, nothing, nothing, largest * largest.full(info.eps)]
    return _loop(b, "solve_upwards", state, lambda k, *_: k.is_("GE", k.full(0)), step)[4]


def _divisible(b: Builder, pivot: _Value, row: _Value, perturb: _Value, tiny: float) -> tuple[_Value, _Value]:
    """A pivot by which the row can be divided: itself where that is safe, scaled or moved away from zero elsewhere."""
    size = abs(pivot)
    step = perturb.max(perturb.full(tiny))
    # The sign of zero counts, too.
    step = (step.full(1) / pivot.real()).is_("LT", step.full(0)).where(-step, step)
    highest = _largest_of(abs(row))

    def change(pivot: _Value, row: _Value, step: _Value, active: _Value, highest: _Value) -> list[_Value]:
        size = abs(pivot)
        least, most = size.full(tiny), size.full(1 / tiny)
        small = size.is_("LT", least)
        far = size.is_("EQ", size.full(0)) | (highest * least).is_("GT", size)
        move = active & small.where(far, highest.is_("GT", size * most))
        scale = active & small & ~far
        moved = move.where(pivot + step.as_(pivot.shape.dtype), pivot)
        by = scale.where(most, size.full(1)).as_(pivot.shape.dtype)
        pivot = moved * by
        row = scale.over(row.shape).where(row * by.over(row.shape), row)
        step = move.where(step + step, step)
        return [pivot, row, step, move & abs(pivot).is_("LT", size.full(1)), highest]

    state = [pivot, row, step, size.is_("LT", size.full(1)), highest]
    pivot, row, *_ = _loop(b, "make_divisible", state, lambda p, r, s, active, h: _any(active), change)
    return pivot, row


def _largest_of(x: _Value) -> _Value:
    """The largest along the minor dimension."""
    start = x.b.constant(0.0, x.shape.dtype)
    join = binary_computation("maximum", x.shape.dtype)
    return _Value(x.b, x.b.add("reduce", x.i, start, dimensions=(x.shape.rank - 1,), to_apply=join))


def _any(x: _Value) -> _Value:
    start = x.b.constant(False, x.shape.dtype)
    dims = tuple(range(x.shape.rank))
    return _Value(x.b, x.b.add("reduce", x.i, start, dimensions=dims, to_apply=binary_computation("or", "pred")))
