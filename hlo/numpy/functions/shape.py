"""Shapes: reshape, transpose and what else gives a view of its operand; queries that need no values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from shardc.hlo.ir.types import array_shape
from shardc.hlo.numpy.recorder import Trace
from shardc.hlo.numpy.strides import Strides
from shardc.hlo.numpy.tracer import NP, Tracer, _astype, _view_as
from shardc.hlo.numpy.values import (
    broadcast,
    convert,
    emit,
    full,
    hlo_dtype,
    iota,
    lift,
    normal_axes,
    normal_axis,
    refuse,
    reshape,
    transpose,
)

__all__ = ["FUNCTIONS"]


def _reorder(x: Tracer, order: Sequence[int]) -> Tracer:
    """A transposed view."""
    back = tuple(int(d) for d in np.argsort(np.asarray(order, np.int64)))
    made = Tracer(x.recorder, transpose(x, order).instruction)
    return made.as_view(
        x, lambda base: transpose(base, order), lambda base, new: transpose(new, back), x.layout.transpose(order)
    )


def _as_shape(x: Tracer, dims: Sequence[int]) -> Tracer:
    """Reshaped: a view where NumPy gives one, else a copy."""
    made = Tracer(x.recorder, reshape(x, dims).instruction)
    layout = x.layout.reshape(dims)
    if layout is None:
        return made
    old = x.shape
    return made.as_view(x, lambda base: reshape(base, dims), lambda base, new: reshape(new, old), layout)


def _reshape(recorder: Trace, a: Any, /, shape: Any, order: str = "C", *, copy: Any = None) -> Any:
    x = lift(recorder, a)
    dims = _known_dims(x, shape)
    if order == "F":
        flipped = transpose(x, range(x.ndim)[::-1])
        return transpose(reshape(flipped, dims[::-1]), range(len(dims))[::-1])
    made = _as_shape(x, dims)
    return Tracer(recorder, made.instruction) if copy else made


def _known_dims(x: Tracer, shape: Any) -> tuple[int, ...]:
    """Sizes with -1 filled in; traced sizes are refused by their own error."""
    asked = tuple(int(n) for n in shape) if isinstance(shape, (tuple, list, np.ndarray)) else (int(shape),)
    if asked.count(-1) > 1:
        raise ValueError("can only specify one unknown dimension")
    known = math.prod(n for n in asked if n != -1)
    dims = tuple(x.size // max(known, 1) if n == -1 else n for n in asked)
    if math.prod(dims) != x.size or any(n < 0 for n in dims) or (-1 in asked and not known):
        raise ValueError(f"cannot reshape array of size {x.size} into shape {asked}")
    return dims


def _ravel(recorder: Trace, a: Any, order: str = "C") -> Any:
    """A view where the elements follow one another in memory, else a copy."""
    x = lift(recorder, a)
    flipped = range(x.ndim)[::-1]
    if order == "K":
        x = _reorder(x, sorted(range(x.ndim), key=lambda d: -abs(x.layout.steps[d])))
    elif order == "F" or (order == "A" and x.layout.transpose(flipped).is_dense and not x.layout.is_dense):
        x = _reorder(x, flipped)
    made = _as_shape(x, (x.size,))
    return made if x.layout.is_dense else Tracer(recorder, made.instruction)


def _transpose(recorder: Trace, a: Any, axes: Any = None) -> Any:
    x = lift(recorder, a)
    order = tuple(range(x.ndim))[::-1] if axes is None else normal_axes(tuple(axes), x.ndim)
    if len(order) != x.ndim:
        raise ValueError("axes don't match array")
    return _reorder(x, order)


def _matrix_transpose(recorder: Trace, x: Any) -> Any:
    return NP.swapaxes(lift(recorder, x), -1, -2)


def _swapaxes(recorder: Trace, a: Any, axis1: int, axis2: int) -> Any:
    x = lift(recorder, a)
    order = list(range(x.ndim))
    i, j = normal_axis(axis1, x.ndim), normal_axis(axis2, x.ndim)
    order[i], order[j] = j, i
    return _reorder(x, order)


def _moveaxis(recorder: Trace, a: Any, source: Any, destination: Any) -> Any:
    x = lift(recorder, a)
    moved, places = normal_axes(source, x.ndim), normal_axes(destination, x.ndim)
    if len(moved) != len(places):
        raise ValueError("`source` and `destination` arguments must have the same number of elements")
    order = [d for d in range(x.ndim) if d not in moved]
    for place, d in sorted(zip(places, moved, strict=True)):
        order.insert(place, d)
    return _reorder(x, order)


def _rollaxis(recorder: Trace, a: Any, axis: int, start: int = 0) -> Any:
    x = lift(recorder, a)
    d = normal_axis(axis, x.ndim)
    place = start + x.ndim if start < 0 else start
    order = [k for k in range(x.ndim) if k != d]
    order.insert(place - 1 if d < place else place, d)
    return _reorder(x, order)


def _squeeze(recorder: Trace, a: Any, axis: Any = None) -> Any:
    x = lift(recorder, a)
    gone = [d for d, n in enumerate(x.shape) if n == 1] if axis is None else normal_axes(axis, x.ndim)
    if any(x.shape[d] != 1 for d in gone):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return _as_shape(x, [n for d, n in enumerate(x.shape) if d not in gone])


def _expand_dims(recorder: Trace, a: Any, axis: Any) -> Any:
    x = lift(recorder, a)
    count = len(axis) if isinstance(axis, (tuple, list)) else 1
    places = normal_axes(axis, x.ndim + count)
    sizes = iter(x.shape)
    return _as_shape(x, [1 if d in places else next(sizes) for d in range(x.ndim + count)])


def _broadcast_to(recorder: Trace, array: Any, shape: Any, subok: bool = False) -> Any:
    x = lift(recorder, array)
    dims = tuple(int(n) for n in shape) if isinstance(shape, (tuple, list)) else (int(shape),)
    if np.broadcast_shapes(x.shape, dims) != dims:
        raise ValueError(f"operands could not be broadcast together with remapped shapes {x.shape} and {dims}")
    made = Tracer(recorder, broadcast(x, dims).instruction)
    return made.as_view(x, lambda base: broadcast(base, dims), None, x.layout.broadcast(dims))


def _broadcast_arrays(recorder: Trace, *args: Any, subok: bool = False) -> Any:
    values = [lift(recorder, a) for a in args]
    dims = np.broadcast_shapes(*(v.shape for v in values))
    return tuple(_broadcast_to(recorder, v, dims) for v in values)


_AT_LEAST: Mapping[int, Mapping[int, str]] = {1: {0: "1"}, 2: {0: "11", 1: "1n"}, 3: {0: "111", 1: "1n1", 2: "nn1"}}


def _at_least(rank: int) -> Callable[..., Any]:
    """atleast_1d and on: where a lower rank gets its dimensions of size 1."""

    def function(recorder: Trace, *arys: Any) -> Any:
        made = []
        for a in arys:
            x = lift(recorder, a)
            sizes = iter(x.shape)
            dims = [1 if c == "1" else next(sizes) for c in _AT_LEAST[rank].get(x.ndim, "")]
            made.append(_as_shape(x, dims) if dims else x)
        return made[0] if len(made) == 1 else tuple(made)

    return function


def _real(recorder: Trace, val: Any) -> Any:
    x = lift(recorder, val)
    if not x.aval.dtype.is_complex:
        return _as_shape(x, x.shape)
    made = emit("real", x)
    return made.as_view(
        x,
        lambda base: emit("real", base),
        lambda base, new: emit("complex", new, emit("imag", base)),
        x.layout.spread(2),
    )


def _imag(recorder: Trace, val: Any) -> Any:
    x = lift(recorder, val)
    if not x.aval.dtype.is_complex:
        return full(x, x.shape, 0, x.dtype)
    made = emit("imag", x)
    return made.as_view(
        x,
        lambda base: emit("imag", base),
        lambda base, new: emit("complex", emit("real", base), new),
        x.layout.spread(2),
    )


def _angle(recorder: Trace, z: Any, deg: bool = False) -> Any:
    x = lift(recorder, z)
    made = NP.arctan2(NP.imag(x), NP.real(x)) if x.aval.dtype.is_complex else NP.arctan2(0, x)
    return NP.rad2deg(made) if deg else made


def _diagonal(recorder: Trace, a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """A view that is read only."""
    x = lift(recorder, a)
    i, j = normal_axis(axis1, x.ndim), normal_axis(axis2, x.ndim)
    if i == j:
        raise ValueError("axis1 and axis2 cannot be the same")
    made = Tracer(recorder, _read_diagonal(x, int(offset), i, j).instruction)
    steps = x.layout.steps
    rest = [s for d, s in enumerate(steps) if d not in (i, j)]
    layout = Strides(made.shape, (*rest, steps[i] + steps[j]))
    return made.as_view(x, lambda base: _read_diagonal(base, int(offset), i, j), None, layout)


def _read_diagonal(x: Tracer, offset: int, i: int, j: int) -> Any:
    rest = [d for d in range(x.ndim) if d not in (i, j)]
    moved = transpose(x, [*rest, i, j])
    rows, columns = moved.shape[-2:]
    low, right = max(-offset, 0), max(offset, 0)
    count = max(min(rows - low, columns - right), 0)
    corner: Any = moved[..., low : low + count, right : right + count]
    lead = corner.ndim - 2
    same = emit("compare", iota(x, corner.shape, lead), iota(x, corner.shape, lead + 1), direction="EQ")
    return NP.sum(NP.where(same, corner, corner.dtype.type(0)), axis=-1, dtype=x.dtype)


def _trace(recorder: Trace, a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Any:
    return NP.sum(_diagonal(recorder, a, offset, axis1, axis2), axis=-1, dtype=dtype)


def _copy(recorder: Trace, a: Any, order: str = "K", subok: bool = False) -> Any:
    return Tracer(recorder, lift(recorder, a).instruction)


def _as_type(
    recorder: Trace, x: Any, dtype: Any, /, *, casting: str = "unsafe", copy: bool = True, device: Any = None
) -> Any:
    value = lift(recorder, x)
    if not NP.can_cast(value.dtype, dtype, casting=casting):
        raise TypeError(f"Cannot cast array data from {value.dtype!r} to {np.dtype(dtype)!r} according to {casting!r}")
    made = convert(value, dtype)
    return Tracer(recorder, made.instruction) if made is value and copy else made


def _view(recorder: Trace, x: Any, dtype: Any) -> Any:
    value = lift(recorder, x)
    if dtype is None:
        return _as_shape(value, value.shape)
    wanted, old = hlo_dtype(dtype, recorder), value.aval.dtype
    if wanted.nbytes != old.nbytes or wanted.is_complex or old.is_complex:
        refuse(recorder, f"x.view({dtype}) of {value.dtype}", "give a type of the same size, or use x.astype(...)")

    def bits(y: Tracer, to: Any) -> Tracer:
        return y if y.aval.dtype is to else emit("bitcast-convert", y, shape=array_shape(to, *y.shape))

    made = Tracer(recorder, bits(value, wanted).instruction)
    return made.as_view(value, lambda base: bits(base, wanted), lambda base, new: bits(new, old), value.layout)


# What needs no values.


def _result_type(recorder: Trace, *arrays_and_dtypes: Any) -> Any:
    return np.result_type(
        *((a.weak(0) if a.weak else a.dtype) if isinstance(a, Tracer) else a for a in arrays_and_dtypes)
    )


def _empty(dtype: Any) -> Any:
    return np.empty(0, dtype)


def _dtype_query(function: Any) -> Callable[..., Any]:
    """A question about element types: NumPy answers it for empty arrays."""
    return lambda recorder, *values: function(*(_empty(lift(recorder, v).dtype) for v in values))


def _can_cast(recorder: Trace, from_: Any, to: Any, casting: str = "safe") -> Any:
    kinds = [v.dtype if isinstance(v, Tracer) else v for v in (from_, to)]
    return NP.can_cast(*kinds, casting=casting)


def _size(recorder: Trace, a: Any, axis: Any = None) -> Any:
    x = lift(recorder, a)
    return x.size if axis is None else math.prod(x.shape[d] for d in normal_axes(axis, x.ndim))


FUNCTIONS: Mapping[Any, Callable[..., Any]] = {
    _astype: _as_type,
    _view_as: _view,
    "astype": _as_type,
    "reshape": _reshape,
    "ravel": _ravel,
    "transpose": _transpose,
    "permute_dims": _transpose,
    "matrix_transpose": _matrix_transpose,
    "linalg.matrix_transpose": _matrix_transpose,
    "swapaxes": _swapaxes,
    "moveaxis": _moveaxis,
    "rollaxis": _rollaxis,
    "squeeze": _squeeze,
    "expand_dims": _expand_dims,
    "broadcast_to": _broadcast_to,
    "broadcast_arrays": _broadcast_arrays,
    "atleast_1d": _at_least(1),
    "atleast_2d": _at_least(2),
    "atleast_3d": _at_least(3),
    "real": _real,
    "imag": _imag,
    "angle": _angle,
    "diagonal": _diagonal,
    "linalg.diagonal": lambda recorder, x, /, *, offset=0: _diagonal(recorder, x, offset, -2, -1),
    "trace": _trace,
    "linalg.trace": lambda recorder, x, /, *, offset=0, dtype=None: _trace(recorder, x, offset, -2, -1, dtype),
    "copy": _copy,
    "shape": lambda recorder, a: lift(recorder, a).shape,
    "ndim": lambda recorder, a: lift(recorder, a).ndim,
    "size": _size,
    "result_type": _result_type,
    "common_type": _dtype_query(np.common_type),
    "iscomplexobj": _dtype_query(np.iscomplexobj),
    "isrealobj": _dtype_query(np.isrealobj),
    "can_cast": _can_cast,
}
