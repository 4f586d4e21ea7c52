"""Sorting, and what follows from sorted values: order statistics and searches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import array_shape, tuple_shape
from shardc.hlo.numpy.functions.statistics import _NOTHING, _mean_type, _value_or
from shardc.hlo.numpy.recorder import Trace
from shardc.hlo.numpy.tracer import NP, Tracer
from shardc.hlo.numpy.values import (
    broadcast,
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
    transpose,
)

__all__ = ["FUNCTIONS"]


def _compare(b: Builder, x: Instruction, y: Instruction, direction: str) -> Instruction:
    """By NumPy's order: NaN after all numbers, equal to each other, and so are zeros; as `jax.lax.sort` has it."""
    how = {"type": "TOTALORDER"} if x.shape.dtype.is_float else {}
    return b.add("compare", _canonical(b, x), _canonical(b, y), direction=direction, **how)


def _canonical(b: Builder, x: Instruction) -> Instruction:
    if not x.shape.dtype.is_float:
        return x
    zero, nan = b.constant(0.0, x.shape.dtype), b.constant(np.nan, x.shape.dtype)
    one_zero = b.add("select", b.add("compare", x, zero, direction="EQ"), zero, x)
    return b.add("select", b.add("compare", x, x, direction="NE"), nan, one_zero)


def _numbers(b: Builder, x: Instruction) -> list[Instruction]:
    """What an element is ordered by: complex numbers by real, then imaginary part."""
    return [b.add("real", x), b.add("imag", x)] if x.shape.dtype.is_complex else [x]


def _sort_by_keys(keys: list[Tracer], d: int, extra: list[Tracer]) -> list[Tracer]:
    """All operands in the order of ``keys``, the first one first; stable."""
    operands = [*keys, *extra]
    b = Builder(keys[0].recorder.unique_name("before"))
    pairs = []
    for k, o in enumerate(operands):
        scalar = array_shape(o.aval.dtype)
        pairs.append((b.parameter(scalar, f"a{k}"), b.parameter(scalar, f"b{k}")))
    numbers = [pair for x, y in pairs[: len(keys)] for pair in zip(_numbers(b, x), _numbers(b, y), strict=True)]
    made = _compare(b, *numbers[-1], "LT")
    for x, y in reversed(numbers[:-1]):
        made = b.add("or", _compare(b, x, y, "LT"), b.add("and", _compare(b, x, y, "EQ"), made))
    whole = emit("sort", *operands, dimensions=(d,), is_stable=True, to_apply=b.build(made))
    if len(operands) == 1:
        return [whole]
    assert whole.aval == tuple_shape(*whole.aval.elements)
    return [emit("get-tuple-element", whole, index=k) for k in range(len(operands))]


def _sort(recorder: Trace, a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    x = lift(recorder, a)
    if order is not None:
        refuse(recorder, "np.sort(order=) of structured arrays", "sort by np.lexsort")
    np.sort(np.zeros(1), kind=kind)  # NumPy's own error for an unknown kind
    x, d = flat_or_along(x, axis)
    return _sort_by_keys([x], d, [])[0]


def _argsort(
    recorder: Trace, a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None
) -> Any:
    x = lift(recorder, a)
    if order is not None:
        refuse(recorder, "np.argsort(order=) of structured arrays", "sort by np.lexsort")
    x, d = flat_or_along(NP.atleast_1d(x), axis)
    return _sort_by_keys([x], d, [iota(x, x.shape, d)])[1]


#: Elements for each place from which on it is found without sorting (`select_places`), and most such places.
_LONG, _FEW = 1 << 11, 8


def _partition(recorder: Trace, a: Any, kth: Any, axis: Any = -1, kind: Any = None) -> Any:
    """Numbers of 32 bits and less are sorted: that takes no more passes."""
    return _in_classes(recorder, a, kth, axis, lambda x, d: x, _sort, least=8)


def _argpartition(recorder: Trace, a: Any, kth: Any, axis: Any = -1, kind: Any = None) -> Any:
    return _in_classes(
        recorder, NP.atleast_1d(lift(recorder, a)), kth, axis, lambda x, d: iota(x, x.shape, d), _argsort
    )


def _in_classes(
    recorder: Trace,
    a: Any,
    kth: Any,
    axis: Any,
    moved: Callable[[Tracer, int], Tracer],
    whole: Callable[..., Any],
    least: int = 1,
) -> Any:
    """``moved`` sorted by its elements' classes, before, at and behind each place of ``kth``; or the ``whole`` sort."""
    x = lift(recorder, a)
    x, d = flat_or_along(x, axis)
    size = x.shape[d]
    for k in np.atleast_1d(kth):
        if size and not -size <= k < size:
            raise ValueError(f"kth(={k}) out of bounds ({size})")
    places = sorted({int(k) % size for k in np.atleast_1d(kth)}) if size else []
    few = 0 < len(places) <= _FEW and size >= _LONG * len(places)
    if not few or x.aval.dtype.is_complex or x.dtype.itemsize < least:
        return whole(recorder, x, d)
    ordered = _sort_by_keys([x], d, [])[0]
    classes = full(x, x.shape, 0, np.uint8)
    for k in places:
        limit = broadcast(take_slice(ordered, d, k, k + 1), x.shape)
        for behind in (_is_before(limit, x), NP.logical_not(_is_before(x, limit))):
            classes = emit("add", classes, convert(behind, np.uint8))
    return _sort_by_keys([classes], d, [moved(x, d)])[1]


def _is_before(x: Tracer, y: Tracer) -> Tracer:
    less: Tracer = NP.less(x, y)
    if not x.aval.dtype.is_float:
        return less
    numbers: Tracer = NP.logical_and(NP.isnan(y), NP.logical_not(NP.isnan(x)))
    return emit("or", less, numbers)


def _lexsort(recorder: Trace, keys: Any, axis: int = -1) -> Any:
    """The last key counts most."""
    values = [lift(recorder, k) for k in keys][::-1]
    if any(v.shape != values[0].shape for v in values):
        raise ValueError("all keys need to be the same shape")
    d = normal_axis(axis, values[0].ndim)
    return _sort_by_keys(values, d, [iota(values[0], values[0].shape, d)])[-1]


def _sort_complex(recorder: Trace, a: Any) -> Any:
    x = lift(recorder, a)
    return _sort(recorder, convert(x, np.result_type(x.dtype, np.complex64)))


# Order statistics.


def _flatten_axes(x: Tracer, axis: Any) -> tuple[Tracer, tuple[int, ...]]:
    """The reduced axes as one last dimension."""
    axes = normal_axes(axis, x.ndim)
    kept = [d for d in range(x.ndim) if d not in axes]
    moved = transpose(x, [*kept, *axes])
    count = int(NP.prod([x.shape[d] for d in axes], dtype=np.int64))
    return reshape(moved, (*(x.shape[d] for d in kept), count)), axes


def _finish(x: Tracer, original: Tracer, axes: tuple[int, ...], keepdims: Any, lead: int = 0) -> Tracer:
    if not _value_or(keepdims, False):
        return x
    kept = [1 if d in axes else n for d, n in enumerate(original.shape)]
    return reshape(x, (*x.shape[:lead], *kept))


def _at(x: Tracer, k: int) -> Tracer:
    """Element ``k`` of the last dimension."""
    return reshape(take_slice(x, x.ndim - 1, k, k + 1), x.shape[:-1])


def _nan_where_any(made: Tracer, x: Tracer) -> Tracer:
    if not (x.aval.dtype.is_float or x.aval.dtype.is_complex):
        return made
    bad = NP.any(NP.isnan(x), axis=-1)
    return emit("select", bad, full(made, made.shape, np.nan, made.dtype), made)


def _median(recorder: Trace, a: Any, axis: Any = None, overwrite_input: bool = False, keepdims: Any = _NOTHING) -> Any:
    x = lift(recorder, a)
    flat, axes = _flatten_axes(x, axis)
    n = flat.shape[-1]
    if not n:
        return NP.mean(x, axis=axes, keepdims=_value_or(keepdims, False))
    ordered = _sort_by_keys([flat], flat.ndim - 1, [])[0]
    wide, final = _mean_type(x, None)
    middle = convert(_at(ordered, n // 2), wide)
    if n % 2 == 0:
        middle = NP.true_divide(NP.add(convert(_at(ordered, n // 2 - 1), wide), middle), 2)
    return _finish(convert(_nan_where_any(middle, flat), final), x, axes, keepdims)


_METHODS: Mapping[str, Callable[[float], float]] = {
    "linear": lambda v: v,
    "lower": np.floor,
    "higher": np.ceil,
    "nearest": np.rint,
    "midpoint": lambda v: (NP.floor(v) + NP.ceil(v)) / 2,
}


def _quantile(
    recorder: Trace,
    a: Any,
    q: Any,
    axis: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: Any = _NOTHING,
    *,
    hundred: float = 1.0,
) -> Any:
    x = lift(recorder, a)
    if isinstance(q, Tracer) or method not in _METHODS:
        refuse(
            recorder,
            "np.quantile of traced levels or by an unusual method",
            f"use plain levels and one of the methods {', '.join(_METHODS)}",
        )
    levels = NP.true_divide(np.asarray(q, np.float64), hundred)
    if (levels < 0).any() or (levels > 1).any():
        raise ValueError("Quantiles must be in the range [0, 1]")
    flat, axes = _flatten_axes(x, axis)
    ordered = _sort_by_keys([flat], flat.ndim - 1, [])[0]
    exact = method in ("lower", "higher", "nearest")
    dtype = NP.quantile(np.zeros(1, x.dtype), 0.5 if isinstance(q, (int, float)) else levels, method=method).dtype
    made = []
    for level in levels.reshape(-1):
        place = float(_METHODS[method](level * (flat.shape[-1] - 1)))
        low = int(NP.floor(place))
        part = _at(ordered, low) if exact else _between(ordered, low, place - low, dtype)
        made.append(convert(_nan_where_any(part, flat), dtype))
    whole = NP.stack(made) if levels.ndim else made[0]
    whole = reshape(whole, (*levels.shape, *whole.shape[1:])) if levels.ndim > 1 else whole
    return _finish(whole, x, axes, keepdims, levels.ndim)


def _between(ordered: Tracer, low: int, weight: float, dtype: Any) -> Tracer:
    """NumPy's interpolation, from the nearer end."""
    a = convert(_at(ordered, low), dtype)
    if not weight:
        return a
    b = convert(_at(ordered, low + 1), dtype)
    far = NP.subtract(b, a)
    made: Tracer = a + far * weight if weight < 0.5 else b - far * (1 - weight)
    return made


def _percentile(recorder: Trace, a: Any, q: Any, *args: Any, **kwargs: Any) -> Any:
    return _quantile(recorder, a, q, *args, **kwargs, hundred=100.0)


def _isin(
    recorder: Trace,
    element: Any,
    test_elements: Any,
    assume_unique: bool = False,
    invert: bool = False,
    *,
    kind: Any = None,
) -> Any:
    x, wanted = lift(recorder, element), lift(recorder, test_elements)
    found = NP.any(NP.equal(x[..., None], reshape(wanted, (wanted.size,))), axis=-1)
    return NP.logical_not(found) if invert else found


def _nan_quantile(function: Any) -> Callable[..., Any]:
    def handler(recorder: Trace, *args: Any, **kwargs: Any) -> Any:
        refuse(
            recorder,
            f"np.{function}: the number of elements depends on values",
            "call it outside of the traced function, or remove the NaN before",
        )

    return handler


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "sort": _sort,
    "argsort": _argsort,
    "partition": _partition,
    "argpartition": _argpartition,
    "lexsort": _lexsort,
    "sort_complex": _sort_complex,
    "median": _median,
    "quantile": _quantile,
    "percentile": _percentile,
    "isin": _isin,
    **{name: _nan_quantile(name) for name in ("nanmedian", "nanquantile", "nanpercentile")},
}
