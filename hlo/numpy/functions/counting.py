"""Searches in sorted arrays, and counts: searchsorted, digitize, histogram, bincount.

A search halves what is left of the array as often as it takes, for all wanted values at once: a chain of lookups that
run in one kernel. Counts are a scatter of ones, which devices do for their elements and add up, bins only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from shardc.hlo.ir.build import binary_computation
from shardc.hlo.numpy.recorder import Trace
from shardc.hlo.numpy.tracer import NP, Tracer
from shardc.hlo.numpy.values import constant, convert, emit, find_recorder, full, hlo_dtype, lift, refuse, reshape

__all__ = ["FUNCTIONS"]


def _lookup(table: Tracer, at: Tracer) -> Tracer:
    """``table[at]`` for positions inside of it."""
    picked: dict[str, Any] = {"offset_dims": (), "collapsed_slice_dims": (0,), "start_index_map": (0,)}
    return emit("gather", table, at, index_vector_dim=at.ndim, slice_sizes=(1,), **picked)


def _position_type(count: int) -> Any:
    return np.dtype(np.int32 if count < np.iinfo(np.int32).max else np.int64)


def _searchsorted(recorder: Trace, a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    if side not in ("left", "right"):
        raise ValueError(f"search side must be 'left' or 'right' (got {side!r})")
    table, wanted = lift(recorder, a), lift(recorder, v)
    if table.ndim != 1:
        raise ValueError("object too deep for desired array")
    if sorter is not None:
        table = NP.take(table, sorter)
    common = np.promote_types(table.dtype, wanted.dtype)
    return convert(_search(convert(table, common), convert(wanted, common), side), np.int64)


def _search(table: Tracer, wanted: Any, side: str) -> Any:
    """How many elements of a sorted table come before each wanted value; NaNs are the last of all."""
    before: Callable[..., Any] = NP.less if side == "left" else NP.less_equal
    if wanted.aval.dtype.is_complex:
        before = _complex_less if side == "left" else lambda x, y: NP.logical_not(_complex_less(y, x))
    kind, left = _position_type(table.size), table.size
    at: Any = full(table, wanted.shape, 0, kind)
    if not left:
        return at
    while left > 1:
        half = left // 2
        at = NP.where(before(_lookup(table, at + kind.type(half - 1)), wanted), at + kind.type(half), at)
        left -= half
    last: Any = before(_lookup(table, at), wanted)
    at = at + convert(last, kind)
    if wanted.aval.dtype.is_float:
        numbers = NP.sum(NP.equal(table, table), dtype=kind) if side == "left" else constant(table, table.size, kind)
        at = NP.where(NP.isnan(wanted), numbers, at)
    return at


def _complex_less(x: Any, y: Any) -> Any:
    """The order in which NumPy sorts: by real parts, then imaginary ones. Numbers with a NaN there come last."""
    a, b, imag = NP.real(x), NP.real(y), (NP.imag(x), NP.imag(y))
    x_before = NP.logical_and(NP.logical_not(NP.isnan(imag[0])), NP.isnan(imag[1]))
    y_before = NP.logical_and(NP.isnan(imag[0]), NP.logical_not(NP.isnan(imag[1])))
    same = NP.logical_or(NP.equal(a, b), NP.logical_and(NP.isnan(a), NP.isnan(b)))
    made = NP.where(same, NP.logical_or(NP.less(*imag), x_before), NP.isnan(b))
    made = NP.where(NP.greater(a, b), x_before, made)
    return NP.where(NP.less(a, b), NP.logical_not(y_before), made)


def _digitize(recorder: Trace, x: Any, bins: Any, right: bool = False) -> Any:
    edges = lift(recorder, bins)
    steps = np.zeros(0) if isinstance(bins, Tracer) else np.diff(np.asarray(bins))
    if bool((steps < 0).any()):
        if bool((steps > 0).any()):
            raise ValueError("bins must be monotonically increasing or decreasing")
        found = _searchsorted(recorder, NP.flip(edges), x, "right" if right else "left")
        return NP.subtract(edges.size, found)
    return _searchsorted(recorder, edges, x, "left" if right else "right")


def _counted(at: Tracer, count: int, values: Tracer) -> Tracer:
    """Sums of ``values`` by position, 0 to ``count`` - 1; what has no such position is left out."""
    at, values = reshape(at, (at.size,)), reshape(values, (values.size,))
    body = binary_computation("add", values.aval.dtype, at.recorder.unique_name("count"))
    placed: dict[str, Any] = {"inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,)}
    ground = full(at, (count,), 0, values.dtype)
    return emit("scatter", ground, at, values, update_window_dims=(), index_vector_dim=1, to_apply=body, **placed)


def _bincount(recorder: Trace, x: Any, /, weights: Any = None, minlength: Any = 0) -> Any:
    """``minlength`` counts, exactly: what lies beyond is left out, as writes outside of an array are."""
    at = lift(recorder, x)
    if isinstance(minlength, Tracer) or not int(minlength):
        refuse(
            recorder,
            "np.bincount(x) without minlength=: the result's length depends on values",
            "give it: np.bincount(x, minlength=n)",
        )
    if at.ndim != 1:
        raise ValueError(
            "object of too small depth for desired array" if not at.ndim else "object too deep for desired array"
        )
    _check_safe(at.dtype, np.int64)
    at = convert(at, np.int32) if at.aval.dtype.kind == "pred" else at
    if weights is None:
        return _counted(at, int(minlength), full(at, at.shape, 1, np.int64))
    values = lift(recorder, weights)
    if values.shape != at.shape:
        raise ValueError("The weights and list don't have the same length.")
    _check_safe(values.dtype, np.float64)
    return _counted(at, int(minlength), convert(values, np.float64))


def _check_safe(given: Any, wanted: Any) -> None:
    if not np.can_cast(given, wanted, "safe"):
        raise TypeError(f"Cannot cast array data from {given!r} to {np.dtype(wanted)!r} according to the rule 'safe'")


def _edges(recorder: Trace, name: str, x: Any, bins: Any, limits: Any) -> Any:
    """The edges of a histogram, which must not depend on values."""
    counted = isinstance(bins, (int, np.integer))
    known = limits is not None if counted else not isinstance(bins, (str, Tracer))
    if not known or find_recorder([bins, limits]):
        refuse(
            recorder,
            f"np.{name} with bins that depend on values",
            "give range=(low, high) with a number of bins, or plain edges; "
            "np.searchsorted(edges, x) takes traced edges",
        )
    return np.histogram_bin_edges(np.empty(0, lift(recorder, x).dtype), bins, limits)


def _histogram_bin_edges(recorder: Trace, a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:  # noqa: A002
    return _edges(recorder, "histogram_bin_edges", a, bins, range)


def _bins_of(x: Any, edges: Any, *, uniform: bool) -> Any:
    """The bin of each element, or the number of bins where it has none; the last bin has both of its ends."""
    count = edges.size - 1
    kind = _position_type(count)
    inside = NP.logical_and(NP.greater_equal(x, edges[0]), NP.less_equal(x, edges[-1]))
    if uniform:
        # Divided as NumPy does it, then put right where rounding came out on the wrong side of an edge.
        x, table = convert(x, edges.dtype), constant(x, edges)
        share = (x - edges[0]) / (edges[-1] - edges[0]) * edges.dtype.type(count)
        at = NP.minimum(convert(NP.where(inside, share, edges.dtype.type(0)), kind), kind.type(count - 1))
        lower = NP.less(x, _lookup(table, at))
        higher = NP.logical_and(NP.greater_equal(x, _lookup(table, at + kind.type(1))), at != kind.type(count - 1))
        at = at + convert(higher, kind) - convert(lower, kind)
    elif count > 1:
        common = np.promote_types(x.dtype, edges.dtype)
        at = _search(constant(x, edges[1:-1], common), convert(x, common), "right")
    else:
        at = full(x, x.shape, 0, kind)
    return NP.where(inside, at, kind.type(count))


def _histogram(
    recorder: Trace,
    a: Any,
    bins: Any = 10,
    range: Any = None,  # noqa: A002 - NumPy's name
    density: Any = None,
    weights: Any = None,
) -> Any:
    edges = _edges(recorder, "histogram", a, bins, range)
    x = lift(recorder, a)
    x = convert(x, np.uint8) if x.aval.dtype.kind == "pred" else x
    at = _bins_of(x, edges, uniform=isinstance(bins, (int, np.integer)))
    if weights is None:
        counts = _counted(at, edges.size - 1, full(x, x.shape, 1, np.int64))
    else:
        w = lift(recorder, weights)
        if w.shape != x.shape:
            raise ValueError("weights should have the same shape as a.")
        wide = np.dtype(np.complex128 if w.dtype.kind == "c" else np.float64)
        counts = convert(_counted(at, edges.size - 1, convert(w, wide)), hlo_dtype(w.dtype, recorder).numpy)
    if density:
        counts = NP.true_divide(NP.true_divide(counts, np.diff(edges).astype(float)), NP.sum(counts))
    return counts, edges


# Histograms of several dimensions.


def _columns(recorder: Trace, sample: Any) -> list[Tracer]:
    """The coordinates of a sample: columns of an array, or one array each of a sequence, as NumPy has it."""
    if isinstance(sample, (Tracer, np.ndarray)):
        x = lift(recorder, sample)
        if x.ndim == 1:
            return [x]
        if x.ndim != 2:
            raise ValueError("the sample of np.histogramdd is an (N, D) array, or a sequence of D arrays")
        return [x[:, d] for d in range(x.shape[1])]
    found = [lift(recorder, x) for x in sample]
    if any(x.ndim != 1 or x.shape != found[0].shape for x in found):
        raise ValueError("the coordinates of np.histogramdd must be one-dimensional arrays of equal size")
    return found


def _all_edges(recorder: Trace, name: str, count: int, bins: Any, limits: Any) -> Any:
    """The edges of each dimension, made by NumPy, and which of them are evenly spaced in a range."""
    if find_recorder([bins, limits]):
        _refuse_bins(recorder, name)
    several = [bins] * count if isinstance(bins, (int, np.integer)) else list(bins)
    if len(several) != count:
        raise ValueError("The dimension of bins must be equal to the dimension of the sample x.")
    counted = [isinstance(b, (int, np.integer)) for b in several]
    if any(c and (limits is None or limits[d] is None) for d, c in enumerate(counted)):
        _refuse_bins(recorder, name)
    histogram: Any = np.histogramdd
    return histogram(np.empty((0, count)), several, limits)[1], counted


def _refuse_bins(recorder: Trace, name: str) -> NoReturn:
    fix = "give range=[(low, high), ...] with numbers of bins, or plain edges"
    refuse(recorder, f"np.{name} with bins that depend on values", fix)


def _counted_in_bins(recorder: Trace, name: str, sample: Any, bins: Any, limits: Any, density: Any, w: Any) -> Any:
    columns = _columns(recorder, sample)
    edges, counted = _all_edges(recorder, name, len(columns), bins, limits)
    sizes = [e.size - 1 for e in edges]
    total = math.prod(sizes)
    kind = _position_type(total)
    at: Any = full(columns[0], columns[0].shape, 0, kind)
    outside: Any = None
    for x, e, size, uniform in zip(columns, edges, sizes, counted, strict=True):
        one = _bins_of(x, e, uniform=uniform)
        beyond = NP.equal(one, size)
        outside = beyond if outside is None else NP.logical_or(outside, beyond)
        at = at * kind.type(size) + convert(one, kind)
    weights = full(at, at.shape, 1, np.float64) if w is None else lift(recorder, w)
    _check_safe(weights.dtype, np.float64)
    if weights.shape != at.shape:
        raise ValueError("The weights and list don't have the same length.")
    counts = reshape(
        _counted(NP.where(outside, kind.type(total), at), total, convert(weights, np.float64)), tuple(sizes)
    )
    if density:
        whole = NP.sum(counts)
        for d, e in enumerate(edges):
            shape = [-1 if k == d else 1 for k in range(len(sizes))]
            counts = NP.true_divide(counts, np.diff(e).reshape(shape))
        counts = NP.true_divide(counts, whole)
    return counts, edges


def _histogramdd(
    recorder: Trace,
    sample: Any,
    bins: Any = 10,
    range: Any = None,  # noqa: A002 - NumPy's name
    density: Any = None,
    weights: Any = None,
) -> Any:
    return _counted_in_bins(recorder, "histogramdd", sample, bins, range, density, weights)


def _histogram2d(
    recorder: Trace,
    x: Any,
    y: Any,
    bins: Any = 10,
    range: Any = None,  # noqa: A002 - NumPy's name
    density: Any = None,
    weights: Any = None,
) -> Any:
    """``bins`` of neither one nor two elements are the edges of both dimensions."""
    if len(x) != len(y):
        raise ValueError("x and y must have the same length.")
    if not isinstance(bins, (int, np.integer, Tracer)) and len(bins) not in (1, 2):
        bins = [bins, bins]
    counts, edges = _counted_in_bins(recorder, "histogram2d", [x, y], bins, range, density, weights)
    return counts, edges[0], edges[1]


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "searchsorted": _searchsorted,
    "digitize": _digitize,
    "bincount": _bincount,
    "histogram": _histogram,
    "histogram2d": _histogram2d,
    "histogramdd": _histogramdd,
    "histogram_bin_edges": _histogram_bin_edges,
}
