"""Reductions and statistics: functions that NumPy names besides the ufuncs' own methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.reducers import extreme_of
from shardc.hlo.ir.types import array_shape, tuple_shape
from shardc.hlo.numpy.functions.ufuncs import accumulate, reduce
from shardc.hlo.numpy.recorder import Trace
from shardc.hlo.numpy.tracer import NP, Tracer
from shardc.hlo.numpy.values import (
    broadcast,
    constant,
    convert,
    emit,
    flat_or_along,
    full,
    iota,
    lift,
    normal_axes,
    normal_axis,
    refuse,
    reshape,
    take_slice,
)

__all__ = ["FUNCTIONS"]

_NOTHING = np._NoValue


def _value_or(value: Any, default: Any) -> Any:
    return default if value is _NOTHING or value is None else value


def _reduction(ufunc: Any) -> Callable[..., Any]:
    def function(
        recorder: Trace,
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        keepdims: Any = _NOTHING,
        initial: Any = _NOTHING,
        where: Any = _NOTHING,
    ) -> Any:
        return reduce(
            recorder,
            ufunc,
            a,
            axis,
            dtype,
            None,
            _value_or(keepdims, False),
            _value_or(initial, None),
            _value_or(where, True),
        )

    return function


def _extreme(ufunc: Any) -> Callable[..., Any]:
    general = _reduction(ufunc)

    def function(
        recorder: Trace,
        a: Any,
        axis: Any = None,
        keepdims: Any = _NOTHING,
        initial: Any = _NOTHING,
        where: Any = _NOTHING,
    ) -> Any:
        return general(recorder, a, axis, None, keepdims, initial, where)

    return function


def _of_bools(ufunc: Any) -> Callable[..., Any]:
    def function(recorder: Trace, a: Any, axis: Any = None, keepdims: Any = _NOTHING, where: Any = _NOTHING) -> Any:
        x = convert(lift(recorder, a), np.bool)
        return reduce(recorder, ufunc, x, axis, None, None, _value_or(keepdims, False), None, _value_or(where, True))

    return function


def _cumulative(ufunc: Any) -> Callable[..., Any]:
    def function(recorder: Trace, a: Any, axis: Any = None, dtype: Any = None) -> Any:
        return accumulate(recorder, ufunc, *flat_or_along(NP.atleast_1d(lift(recorder, a)), axis), dtype)

    return function


def _cumulative_array_api(ufunc: Any, start: int) -> Callable[..., Any]:
    def function(
        recorder: Trace, x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: bool = False
    ) -> Any:
        value = lift(recorder, x)
        d = normal_axis(0 if axis is None and value.ndim < 2 else axis, value.ndim)
        made = accumulate(recorder, ufunc, value, d, dtype)
        if not include_initial:
            return made
        first = full(made, [1 if k == d else n for k, n in enumerate(made.shape)], start, made.dtype)
        return emit("concatenate", first, made, dimensions=(d,))

    return function


def _count(x: Tracer, axes: tuple[int, ...], where: Any) -> Any:
    """How many elements are reduced: a number, or an array of them under a mask."""
    if where is True:
        return int(NP.prod([x.shape[d] for d in axes], dtype=np.int64))
    mask = broadcast(convert(lift(x, where), np.bool), x.shape)
    return NP.sum(mask, axis=axes, keepdims=True)


def _mean_type(x: Tracer, dtype: Any) -> tuple[Any, Any]:
    """The type that a mean is computed in, and the result's."""
    if dtype is not None:
        return np.dtype(dtype), np.dtype(dtype)
    if x.aval.dtype.kind in ("pred", "signed", "unsigned"):
        return np.dtype(np.float64), np.dtype(np.float64)
    return (np.dtype(np.float32), x.dtype) if x.dtype == np.float16 else (x.dtype, x.dtype)


def _mean(
    recorder: Trace, a: Any, axis: Any = None, dtype: Any = None, keepdims: Any = _NOTHING, where: Any = _NOTHING
) -> Any:
    x, mask = lift(recorder, a), _value_or(where, True)
    axes = normal_axes(axis, x.ndim)
    wide, final = _mean_type(x, dtype)
    total = reduce(recorder, np.add, x, axes, wide, None, True, None, mask)
    mean = NP.true_divide(total, _count(x, axes, mask))
    return convert(_without(mean, axes, keepdims), final)


def _without(x: Tracer, axes: tuple[int, ...], keepdims: Any) -> Tracer:
    """Drop reduced dimensions unless they are kept."""
    if _value_or(keepdims, False):
        return x
    return reshape(x, tuple(n for d, n in enumerate(x.shape) if d not in axes))


def _var(
    recorder: Trace,
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    ddof: Any = 0,
    keepdims: Any = _NOTHING,
    *,
    where: Any = _NOTHING,
    mean: Any = _NOTHING,
    correction: Any = _NOTHING,
) -> Any:
    x, mask = lift(recorder, a), _value_or(where, True)
    axes = normal_axes(axis, x.ndim)
    wide, final = _mean_type(x, dtype)
    x = convert(x, wide) if not x.aval.dtype.is_complex else x
    middle = _mean(recorder, x, axes, wide, True, where) if mean is _NOTHING else lift(recorder, mean)
    far = NP.subtract(x, middle)
    square = NP.real(far * NP.conjugate(far)) if far.aval.dtype.is_complex else far * far
    total = reduce(recorder, np.add, square, axes, None, None, True, None, mask)
    less = _value_or(correction, ddof)
    count = _count(x, axes, mask)
    divisor = max(count - less, 0) if mask is True else NP.maximum(count - less, 0)
    made = convert(_without(NP.true_divide(total, divisor), axes, keepdims), total.dtype)
    return convert(made, final) if not x.aval.dtype.is_complex else made


def _std(recorder: Trace, a: Any, *args: Any, **kwargs: Any) -> Any:
    return NP.sqrt(_var(recorder, a, *args, **kwargs))


def _arg_extreme(direction: str) -> Callable[..., Any]:
    """argmax and argmin: a reduction of (value, position) pairs; the first wins, and NaN before all."""

    def function(recorder: Trace, a: Any, axis: Any = None, *, keepdims: Any = _NOTHING) -> Any:
        x = lift(recorder, a)
        if x.aval.dtype.is_complex:
            refuse(recorder, "argmax and argmin of complex numbers", "use the real part or the absolute value")
        flat, d = flat_or_along(NP.atleast_1d(x), axis)
        if not flat.shape[d]:
            raise ValueError("attempt to get argmax of an empty sequence")
        if flat.aval.dtype.kind == "pred":
            flat = convert(flat, np.int8)
        made = _first_extreme(flat, d, direction)
        if not _value_or(keepdims, False):
            return made
        return reshape(made, [1 if axis is None or k == d else n for k, n in enumerate(x.shape)])

    return function


def _first_extreme(x: Tracer, d: int, direction: str) -> Tracer:
    dtype = x.aval.dtype
    b = Builder(x.recorder.unique_name("argmax" if direction == "GT" else "argmin"))
    v1, i1 = b.parameter(array_shape(dtype), "v1"), b.parameter(array_shape("s64"), "i1")
    v2, i2 = b.parameter(array_shape(dtype), "v2"), b.parameter(array_shape("s64"), "i2")
    beats = b.add("compare", v1, v2, direction=direction)
    equal = b.add("compare", v1, v2, direction="EQ")
    if dtype.is_float:
        nan1, nan2 = b.add("compare", v1, v1, direction="NE"), b.add("compare", v2, v2, direction="NE")
        beats = b.add("or", beats, b.add("and", nan1, b.add("not", nan2)))
        equal = b.add("or", equal, b.add("and", nan1, nan2))
    first = b.add("compare", i1, i2, direction="LT")
    keep = b.add("or", beats, b.add("and", equal, first))
    pair = b.add("tuple", b.add("select", keep, v1, v2), b.add("select", keep, i1, i2))
    body = b.build(pair)
    start = constant(x, extreme_of(dtype, greatest=direction == "LT"), x.dtype), constant(x, np.iinfo(np.int64).max)
    both = emit("reduce", x, iota(x, x.shape, d), *start, dimensions=(d,), to_apply=body)
    assert both.aval == tuple_shape(both.aval.elements[0], both.aval.elements[1])
    return emit("get-tuple-element", both, index=1)


def _count_nonzero(recorder: Trace, a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return reduce(recorder, np.add, convert(lift(recorder, a), np.bool), axis, np.int64, None, keepdims)


def _ptp(recorder: Trace, a: Any, axis: Any = None, keepdims: Any = _NOTHING) -> Any:
    x, kept = lift(recorder, a), _value_or(keepdims, False)
    return NP.max(x, axis=axis, keepdims=kept) - NP.min(x, axis=axis, keepdims=kept)


def _average(
    recorder: Trace,
    a: Any,
    axis: Any = None,
    weights: Any = None,
    returned: bool = False,
    *,
    keepdims: Any = _NOTHING,
) -> Any:
    x, kept = lift(recorder, a), _value_or(keepdims, False)
    if weights is None:
        mean = NP.mean(x, axis=axis, keepdims=kept)
        number = _count(x, normal_axes(axis, x.ndim), True)
        return (mean, full(mean, mean.shape, number, mean.dtype)) if returned else mean
    w = lift(recorder, weights)
    if w.shape != x.shape:
        axes = normal_axes(axis, x.ndim)
        if w.shape != tuple(x.shape[d] for d in axes):
            raise ValueError("Shape of weights must be consistent with shape of a along specified axis.")
        w = reshape(w, tuple(n if d in axes else 1 for d, n in enumerate(x.shape)))
    integer = x.aval.dtype.kind in ("pred", "signed", "unsigned")
    dtype = np.result_type(x.dtype, w.dtype, np.float64) if integer else np.result_type(x.dtype, w.dtype)
    x, w = convert(x, dtype), broadcast(convert(w, dtype), x.shape)
    scale = NP.sum(w, axis=axis, keepdims=kept)
    mean = NP.sum(NP.multiply(x, w), axis=axis, keepdims=kept) / scale
    return (mean, scale) if returned else mean


# Functions that leave NaN out.


def _nan_to(x: Tracer, value: Any) -> Tracer:
    if not x.aval.dtype.is_float and not x.aval.dtype.is_complex:
        return x
    return emit("select", emit("compare", x, x, direction="NE"), full(x, x.shape, value, x.dtype), x)


def _nan_free(function: Any, value: Any) -> Callable[..., Any]:
    """NaN replaced by what does not matter."""
    return lambda recorder, a, *args, **kwargs: function(_nan_to(lift(recorder, a), value), *args, **kwargs)


def _nan_arg_extreme(function: Any, *, greatest: bool) -> Callable[..., Any]:
    """The least (greatest) value of the type in place of NaN."""

    def row(recorder: Trace, a: Any, *args: Any, **kwargs: Any) -> Any:
        x = lift(recorder, a)
        of_float = x.aval.dtype.is_float
        worst = extreme_of(x.aval.dtype, greatest=greatest) if of_float else np.inf if greatest else -np.inf
        return function(_nan_to(x, worst), *args, **kwargs)

    return row


def _mask_nans(function: Any) -> Callable[..., Any]:
    """``function`` over the elements that are not NaN, by its own ``where=``."""

    def masked(recorder: Trace, a: Any, *args: Any, where: Any = _NOTHING, **kwargs: Any) -> Any:
        x = lift(recorder, a)
        mask = NP.logical_not(NP.isnan(x))
        if where is not _NOTHING:
            mask = NP.logical_and(mask, where)
        return function(x, *args, where=mask, **kwargs)

    return masked


def _nan_extreme(ufunc: Any) -> Callable[..., Any]:
    return _extreme(ufunc)


def _diff(recorder: Trace, a: Any, n: int = 1, axis: int = -1, prepend: Any = _NOTHING, append: Any = _NOTHING) -> Any:
    x: Any = lift(recorder, a)
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n}")
    d = normal_axis(axis, x.ndim)
    ends: list[Any] = []
    for end in (prepend, append):
        if end is not _NOTHING:
            part = lift(recorder, end)
            ends.append(broadcast(part, [1 if k == d else m for k, m in enumerate(x.shape)]) if not part.ndim else part)
        else:
            ends.append(None)
    x = NP.concatenate([p for p in (ends[0], x, ends[1]) if p is not None], axis=d)
    differ = np.not_equal if x.aval.dtype.kind == "pred" else np.subtract
    for _ in range(n):
        x = differ(take_slice(x, d, min(1, x.shape[d]), x.shape[d]), take_slice(x, d, 0, max(x.shape[d] - 1, 0)))
    return x


def _cov(recorder: Trace, m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: Any = None) -> Any:
    x = _observations(recorder, m, y, rowvar)
    less = ddof if ddof is not None else 0 if bias else 1
    x = x - NP.mean(x, axis=1, keepdims=True)
    made = NP.matmul(x, NP.conjugate(NP.transpose(x))) / (x.shape[1] - less)
    return NP.squeeze(made)


def _observations(recorder: Trace, m: Any, y: Any, rowvar: bool) -> Any:
    parts = []
    for part in (m, y):
        if part is not None:
            v = lift(recorder, part)
            v = convert(v, np.result_type(v.dtype, np.float64))
            v = reshape(v, (1, v.size)) if v.ndim < 2 else v
            parts.append(v if rowvar or v.shape[0] == 1 else NP.transpose(v))
    return NP.concatenate(parts, axis=0)


def _corrcoef(recorder: Trace, x: Any, y: Any = None, rowvar: bool = True) -> Any:
    c = _cov(recorder, x, y, rowvar)
    if not c.ndim:
        return c / c
    spread = NP.sqrt(NP.real(NP.diagonal(c)))
    made = c / spread[:, None] / spread[None, :]
    return NP.clip(made, -1, 1) if not made.aval.dtype.is_complex else made


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "sum": _reduction(np.add),
    "prod": _reduction(np.multiply),
    "max": _extreme(np.maximum),
    "amax": _extreme(np.maximum),
    "min": _extreme(np.minimum),
    "amin": _extreme(np.minimum),
    "all": _of_bools(np.logical_and),
    "any": _of_bools(np.logical_or),
    "mean": _mean,
    "var": _var,
    "std": _std,
    "argmax": _arg_extreme("GT"),
    "argmin": _arg_extreme("LT"),
    "cumsum": _cumulative(np.add),
    "cumprod": _cumulative(np.multiply),
    "cumulative_sum": _cumulative_array_api(np.add, 0),
    "cumulative_prod": _cumulative_array_api(np.multiply, 1),
    "count_nonzero": _count_nonzero,
    "ptp": _ptp,
    "average": _average,
    "nansum": _nan_free(np.sum, 0),
    "nanprod": _nan_free(np.prod, 1),
    "nancumsum": _nan_free(np.cumsum, 0),
    "nancumprod": _nan_free(np.cumprod, 1),
    "nanmax": _nan_extreme(np.fmax),
    "nanmin": _nan_extreme(np.fmin),
    "nanargmax": _nan_arg_extreme(np.argmax, greatest=False),
    "nanargmin": _nan_arg_extreme(np.argmin, greatest=True),
    "nanmean": _mask_nans(np.mean),
    "nanvar": _mask_nans(np.var),
    "nanstd": _mask_nans(np.std),
    "diff": _diff,
    "cov": _cov,
    "corrcoef": _corrcoef,
}
