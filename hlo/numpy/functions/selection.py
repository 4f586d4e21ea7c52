"""Choosing elements: where, take, put and their relatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from shardc.hlo.numpy.recorder import Trace
from shardc.hlo.numpy.tracer import NP, Tracer
from shardc.hlo.numpy.values import (
    broadcast,
    constant,
    convert,
    emit,
    equal_shapes,
    find_recorder,
    flat_or_along,
    full,
    hlo_dtype,
    lift,
    normal_axis,
    refuse,
    reshape,
)

__all__ = ["FUNCTIONS", "changeable", "is_traced"]

_NOTHING = np._NoValue


def _promote(recorder: Trace, *values: Any) -> list[Tracer]:
    """In the type that NumPy promotes them to; Python numbers adapt to the arrays."""
    lifted = [lift(recorder, v) for v in values]
    kinds: list[Any] = [v.weak(0) if v.weak else v.dtype for v in lifted]
    wanted = hlo_dtype(np.result_type(*kinds), recorder).numpy
    return [
        constant(recorder, v, wanted) if t.weak and not isinstance(v, Tracer) else convert(t, wanted)
        for v, t in zip(values, lifted, strict=True)
    ]


def _where(recorder: Trace, condition: Any, x: Any = None, y: Any = None, /) -> Any:
    if x is None or y is None:
        refuse(
            recorder,
            "np.where(condition) alone: the result's shape depends on values",
            "use np.where(condition, x, y), or np.sum(condition) to count",
        )
    mask, a, b = equal_shapes(convert(lift(recorder, condition), np.bool), *_promote(recorder, x, y))
    return emit("select", mask, a, b)


def _clip(
    recorder: Trace,
    a: Any,
    a_min: Any = _NOTHING,
    a_max: Any = _NOTHING,
    *,
    min: Any = _NOTHING,  # noqa: A002 - NumPy's name
    max: Any = _NOTHING,  # noqa: A002 - NumPy's name
) -> Any:
    low = next((v for v in (a_min, min) if v is not _NOTHING), None)
    high = next((v for v in (a_max, max) if v is not _NOTHING), None)
    made = lift(recorder, a)
    if made.dtype.kind in "iu":  # Limits that are Python integers may be beyond the type.
        info = np.iinfo(made.dtype)
        low = None if type(low) is int and low <= info.min else low
        high = None if type(high) is int and high >= info.max else high
    if low is None and high is None:
        return NP.copy(made)
    made = made if low is None else NP.maximum(made, low)
    return made if high is None else NP.minimum(made, high)


def _round(recorder: Trace, a: Any, decimals: int = 0) -> Any:
    x = lift(recorder, a)
    digits = int(decimals)
    if x.aval.dtype.kind == "pred":
        return convert(x, np.float16)
    if x.aval.dtype.is_complex:
        parts = [_round(recorder, emit(part, x), digits) for part in ("real", "imag")]
        return emit("complex", *parts)
    if not x.aval.dtype.is_float:
        if digits >= 0:
            return NP.copy(x)
        scale = 10**-digits
        return convert(NP.rint(NP.true_divide(x, scale)) * scale, x.dtype)
    if not digits:
        return emit("round-nearest-even", x)
    scale = x.dtype.type(10.0 ** abs(digits))
    if digits > 0:
        return NP.true_divide(NP.rint(x * scale), scale)
    return NP.rint(NP.true_divide(x, scale)) * scale


def _take(recorder: Trace, a: Any, indices: Any, axis: Any = None, mode: str = "raise") -> Any:
    x = lift(recorder, a)
    x, d = flat_or_along(NP.atleast_1d(x), axis)
    places = (
        indices
        if isinstance(indices, Tracer)
        else lift(recorder, indices)
        if is_traced(indices)
        else np.asarray(indices)
    )
    if places.size == 0 and isinstance(places, np.ndarray):  # of an empty list, whose type says nothing
        places = places.astype(np.int64)
    n = x.shape[d]
    if mode == "wrap":
        places = NP.remainder(places, n)
    elif mode == "clip":
        places = NP.clip(places, 0, n - 1)
    return x[(*(slice(None),) * d, places)]


def _compress(recorder: Trace, condition: Any, a: Any, axis: Any = None) -> Any:
    if is_traced(condition):
        refuse(
            recorder,
            "np.compress with a traced condition: its result's shape depends on values",
            "use a mask: np.where(condition, x, y), np.sum(x, where=condition)",
        )
    if np.ndim(condition) != 1:
        raise ValueError("condition must be a 1-d array")
    return _take(recorder, a, np.flatnonzero(condition), axis)


def _extract(recorder: Trace, condition: Any, arr: Any) -> Any:
    return _compress(recorder, condition if is_traced(condition) else np.ravel(condition), arr)


def is_traced(value: Any) -> bool:
    return isinstance(value, Tracer) or (isinstance(value, (list, tuple)) and any(is_traced(v) for v in value))


def _unravel_index(recorder: Trace, indices: Any, shape: Any, order: str = "C") -> Any:
    """Positions beyond the array count from its start again, where NumPy raises an error."""
    flat = convert(lift(recorder, indices), np.int64)
    dims = [int(n) for n in np.atleast_1d(shape)]
    made: list[Any] = []
    for n in dims if order == "F" else dims[::-1]:
        made.append(NP.remainder(flat, n))
        flat = NP.floor_divide(flat, n)
    return tuple(made if order == "F" else made[::-1])


def _ravel_multi_index(recorder: Trace, multi_index: Any, dims: Any, mode: Any = "raise", order: str = "C") -> Any:
    """Positions beyond the array are taken as they are, where NumPy raises an error."""
    sizes = [int(n) for n in np.atleast_1d(dims)]
    modes = [mode] * len(sizes) if isinstance(mode, str) else list(mode)
    places = [convert(lift(recorder, i), np.int64) for i in multi_index]
    if not len(places) == len(sizes) == len(modes):
        raise ValueError(f"parameter multi_index must be a sequence of length {len(sizes)}")
    made: Any = 0
    rows = list(zip(places, sizes, modes, strict=True))
    for at, n, how in rows[::-1] if order == "F" else rows:
        kept = NP.remainder(at, n) if how == "wrap" else NP.clip(at, 0, n - 1) if how == "clip" else at
        made = made * n + kept
    return made


def _along(x: Tracer, indices: Any, axis: Any) -> tuple[Any, ...]:
    """The index that ``take_along_axis`` stands for: positions along one axis, each other position its own."""
    places = indices if isinstance(indices, (Tracer, np.ndarray)) else np.asarray(indices)
    if places.ndim != x.ndim:
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    d = normal_axis(axis, x.ndim)
    index: list[Any] = []
    for k, n in enumerate(x.shape):
        index.append(places if k == d else np.arange(n).reshape([n if m == k else 1 for m in range(x.ndim)]))
    return tuple(index)


def _take_along_axis(recorder: Trace, arr: Any, indices: Any, axis: Any = -1) -> Any:
    x = lift(recorder, arr)
    if axis is None:
        return NP.take(reshape(x, (x.size,)), indices)
    return x[_along(x, indices, axis)]


def _put_along_axis(recorder: Trace, arr: Any, indices: Any, values: Any, axis: Any) -> None:
    x = changeable(recorder, arr, "put_along_axis")
    if axis is None:
        NP.reshape(x, -1)[indices] = values
    else:
        x[_along(x, indices, axis)] = values


def changeable(recorder: Trace, x: Any, name: str) -> Tracer:
    if not isinstance(x, Tracer):
        refuse(recorder, f"np.{name} of traced values into a plain NumPy array", "make it with np.zeros(shape, like=x)")
    return x


def _put(recorder: Trace, a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    x = changeable(recorder, a, "put")
    places = ind if isinstance(ind, Tracer) else np.asarray(ind)
    values = lift(recorder, v)
    if values.ndim and values.size != places.size:
        values = NP.resize(values, places.shape)
    flat = Tracer(recorder, reshape(x, (x.size,)).instruction)
    flat[NP.reshape(places, -1)] = values if not values.ndim else NP.reshape(values, -1)
    x.assign(reshape(flat, x.shape))


def _copyto(recorder: Trace, dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    x = changeable(recorder, dst, "copyto")
    value = lift(recorder, src)
    if value.weak:
        np.copyto(np.empty((), x.dtype), src, casting=casting)  # NumPy's errors for numbers that do not fit
    elif not NP.can_cast(value.dtype, x.dtype, casting=casting):
        raise TypeError(f"Cannot cast array data from {value.dtype!r} to {x.dtype!r} according to {casting!r}")
    if where is True:
        x[...] = value
    else:
        mask = broadcast(convert(lift(recorder, where), np.bool), x.shape)
        x.assign(emit("select", mask, broadcast(convert(value, x.dtype), x.shape), x))


def _putmask(recorder: Trace, a: Any, /, mask: Any, values: Any) -> None:
    x = changeable(recorder, a, "putmask")
    value = _safely(recorder, values, x.dtype)
    if value.ndim and value.shape != x.shape:
        value = NP.resize(value, x.shape)
    _copyto(recorder, x, value, "unsafe", NP.reshape(lift(recorder, mask), x.shape))


def _safely(recorder: Trace, values: Any, dtype: Any) -> Tracer:
    """Values of another type, if no value can change. Of numbers and lists, NumPy says which it takes."""
    if find_recorder([values]) is None:
        given = np.empty(np.shape(values), dtype)
        np.putmask(given, np.ones(given.shape, np.bool), values)
        return lift(recorder, given)
    value = lift(recorder, values)
    if not NP.can_cast(value.dtype, dtype, casting="safe"):
        raise TypeError(f"Cannot cast array data from {value.dtype!r} to {dtype!r} according to the rule 'safe'")
    return convert(value, dtype)


def _place(recorder: Trace, arr: Any, mask: Any, vals: Any) -> None:
    """The n-th element under the mask becomes the n-th of the values, which start again after their last one."""
    x, chosen = changeable(recorder, arr, "place"), lift(recorder, mask)
    values = NP.reshape(_safely(recorder, vals, x.dtype), -1)
    if chosen.size != x.size:
        raise ValueError("place: mask and data must be the same size")
    if not values.size:
        raise ValueError("Cannot insert from an empty array!")
    chosen = NP.reshape(convert(chosen, np.bool), -1)
    counted = NP.cumsum(chosen, dtype=np.int32 if x.size < 2**31 else np.int64)
    placed = NP.take(values, counted - 1, mode="wrap")
    _copyto(recorder, x, NP.reshape(placed, x.shape), "unsafe", NP.reshape(chosen, x.shape))


def _select(recorder: Trace, condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    if len(condlist) != len(choicelist) or not condlist:
        raise ValueError("list of cases must be same length as list of conditions")
    *choices, made = _promote(recorder, *choicelist, default)
    for mask, choice in zip(reversed(condlist), reversed(choices), strict=True):
        made = _where(recorder, mask, choice, made)
    return made


def _choose(recorder: Trace, a: Any, choices: Any, mode: str = "raise") -> Any:
    index, options = lift(recorder, a), _promote(recorder, *choices)
    if mode == "wrap":
        index = NP.remainder(index, len(options))
    made = options[-1]
    for k in reversed(range(len(options) - 1)):
        made = NP.where(NP.less_equal(index, k), options[k], made)
    return broadcast(made, np.broadcast_shapes(index.shape, made.shape))


def _piecewise(recorder: Trace, x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
    value = lift(recorder, x)
    conditions = list(condlist) if isinstance(condlist, (list, tuple)) else [condlist]
    functions = list(funclist)
    default: Any = functions.pop() if len(functions) == len(conditions) + 1 else 0
    made = full(recorder, value.shape, 0, value.dtype)
    for mask, function in zip([None, *conditions], [default, *functions], strict=True):
        part = function(value, *args, **kwargs) if callable(function) else function
        part = broadcast(convert(lift(recorder, part), value.dtype), value.shape)
        made = part if mask is None else _where(recorder, mask, part, made)
    return made


def _nan_to_num(
    recorder: Trace, x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> Any:
    value = lift(recorder, x)
    if value.aval.dtype.is_complex:
        parts = [_nan_to_num(recorder, emit(p, value), True, nan, posinf, neginf) for p in ("real", "imag")]
        made = emit("complex", *parts)
    elif value.aval.dtype.is_float:
        info = ml_dtypes.finfo(value.dtype)
        made = NP.where(NP.isnan(value), nan, value)
        made = NP.where(NP.equal(value, np.inf), info.max if posinf is None else posinf, made)
        made = NP.where(NP.equal(value, -np.inf), info.min if neginf is None else neginf, made)
        made = convert(made, value.dtype)
    else:
        made = NP.copy(value)
    if copy:
        return made
    value.assign(made)
    return value


def _isclose(recorder: Trace, a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Any:
    x, y = lift(recorder, a), lift(recorder, b)
    y = convert(y, np.result_type(y.dtype, 1.0))  # differences of integers would wrap
    near = NP.less_equal(NP.absolute(NP.subtract(x, y)), atol + rtol * NP.absolute(y))
    made = NP.logical_or(NP.logical_and(near, NP.isfinite(y)), NP.equal(x, y))
    if equal_nan:
        made = NP.logical_or(made, NP.logical_and(NP.isnan(x), NP.isnan(y)))
    return made


def _all_equal(recorder: Trace, a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    x, y = lift(recorder, a1), lift(recorder, a2)
    if x.shape != y.shape:
        return False
    same = NP.equal(x, y)
    if equal_nan:
        same = NP.logical_or(same, NP.logical_and(NP.isnan(x), NP.isnan(y)))
    return NP.all(same)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "where": _where,
    "clip": _clip,
    "round": _round,
    "around": _round,
    "compress": _compress,
    "extract": _extract,
    "ravel_multi_index": _ravel_multi_index,
    "unravel_index": _unravel_index,
    "take": _take,
    "take_along_axis": _take_along_axis,
    "put_along_axis": _put_along_axis,
    "put": _put,
    "copyto": _copyto,
    "putmask": _putmask,
    "place": _place,
    "select": _select,
    "choose": _choose,
    "piecewise": _piecewise,
    "nan_to_num": _nan_to_num,
    "isclose": _isclose,
    "allclose": lambda recorder, *args, **kwargs: NP.all(_isclose(recorder, *args, **kwargs)),
    "array_equal": _all_equal,
}
