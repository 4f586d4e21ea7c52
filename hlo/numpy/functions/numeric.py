"""Numerical functions that are a few lines of NumPy: differences, integrals, polynomials, filters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from shardc.hlo.numpy.recorder import Trace
from shardc.hlo.numpy.tracer import NP, Tracer
from shardc.hlo.numpy.values import convert, emit, full, iota, lift, normal_axes, refuse, reshape

__all__ = ["FUNCTIONS"]


def _floating(x: Tracer) -> Tracer:
    return x if x.aval.dtype.is_float or x.aval.dtype.is_complex else convert(x, np.float64)


def _trapezoid(recorder: Trace, y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    value = NP.moveaxis(lift(recorder, y), axis, -1)
    if x is None:
        step = dx
    else:
        place = lift(recorder, x)
        step = NP.diff(place if place.ndim == 1 else NP.moveaxis(place, axis, -1), axis=-1)
    return NP.sum(step * (value[..., 1:] + value[..., :-1]) / 2.0, axis=-1)


def _shifted(x: Any, d: int, by: int) -> Any:
    """The elements ``by`` places further along ``d``; the last one, or the first, stands for those beyond."""
    lead, n = (slice(None),) * d, x.shape[d]
    if by > 0:
        return NP.concatenate([x[(*lead, slice(by, None))], *[x[(*lead, slice(n - 1, None))]] * by], axis=d)
    return NP.concatenate([*[x[(*lead, slice(1))]] * -by, x[(*lead, slice(n + by))]], axis=d)


def _inner_weights(near: Any, far: Any) -> tuple[Any, Any, Any]:
    """Weights of the elements before, at and behind a place, whose neighbours are ``near`` and ``far`` away."""
    return -far / (near * (near + far)), (far - near) / (near * far), near / (far * (near + far))


def _end_weights(near: Any, far: Any) -> tuple[Any, Any, Any]:
    """Weights of the first three elements, ``near`` and ``far`` from each other, for the slope at the first."""
    return -(2.0 * near + far) / (near * (near + far)), (near + far) / (near * far), -near / (far * (near + far))


def _slope(x: Any, d: int, h: Any, edge_order: int) -> Any:
    """Differences around each element, of second order; those at the ends are of order ``edge_order``.

    ``h`` is the spacing, or one for each pair of neighbours.
    """
    n, uniform = x.shape[d], NP.ndim(h) == 0
    before, behind, place = _shifted(x, d, -1), _shifted(x, d, 1), iota(x, x.shape, d)
    if uniform:
        inner = (behind - before) / (2.0 * h)
        first, second, last, last_but_one = (h,) * 4
    else:
        long = [1] * d + [n] + [1] * (x.ndim - d - 1)
        xp = np if isinstance(h, np.ndarray) else NP
        weights = [xp.reshape(xp.pad(w, (1, 1)), long) for w in _inner_weights(h[:-1], h[1:])]
        inner = sum(w * v for w, v in zip(weights, (before, x, behind), strict=True))
        first, second, last, last_but_one = h[0], h[min(1, n - 2)], h[-1], h[max(-2, 1 - n)]
    if edge_order == 1:
        low, high = (behind - before) / first, (behind - before) / last
    else:
        a, b, c = _end_weights(first, second)
        low = a * x + b * behind + c * _shifted(x, d, 2)
        a, b, c = _end_weights(last, last_but_one)
        high = -a * x - b * before - c * _shifted(x, d, -2)
    return convert(NP.where(NP.equal(place, 0), low, NP.where(NP.equal(place, n - 1), high, inner)), x.dtype)


def _spacings(given: tuple[Any, ...], x: Tracer, axes: tuple[int, ...]) -> list[Any]:
    """For each axis the spacing, or where coordinates are given those between neighbours."""
    if not given or (len(given) == 1 and NP.ndim(given[0]) == 0):
        return [*(given or (1.0,))] * len(axes)
    if len(given) != len(axes):
        raise TypeError("invalid number of arguments")
    steps: list[Any] = []
    for d, places in zip(axes, given, strict=True):
        if NP.ndim(places) == 0:
            steps.append(places)
            continue
        if NP.ndim(places) != 1:
            raise ValueError("distances must be either scalars or 1d")
        if NP.shape(places) != (x.shape[d],):
            raise ValueError("when 1d, distances must match the length of the corresponding dimension")
        if isinstance(places, Tracer):
            steps.append(NP.diff(_floating(places)))
            continue
        known = np.asarray(places)
        apart = np.diff(known.astype(np.float64) if known.dtype.kind in "iu" else known)
        steps.append(apart[0] if (apart == apart[:1]).all() else apart)
    return steps


def _gradient(recorder: Trace, f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    x = _floating(lift(recorder, f))
    axes = normal_axes(axis, x.ndim)
    if edge_order > 2:
        raise ValueError("'edge_order' greater than 2 not supported")
    if any(x.shape[d] < edge_order + 1 for d in axes):
        raise ValueError(
            "Shape of array too small to calculate a numerical gradient, "
            "at least (edge_order + 1) elements are required."
        )
    steps = _spacings(varargs, x, axes)
    made = [_slope(x, d, h, edge_order) for d, h in zip(axes, steps, strict=True)]
    return made[0] if len(made) == 1 else tuple(made)


def _cross(recorder: Trace, a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None) -> Any:
    if axis is not None:
        axisa = axisb = axisc = axis
    x = NP.moveaxis(lift(recorder, a), axisa, -1)
    y = NP.moveaxis(lift(recorder, b), axisb, -1)
    if x.shape[-1] != 3 or y.shape[-1] != 3:
        refuse(recorder, "np.cross of vectors that do not have 3 elements", "append a zero")
    (x0, x1, x2), (y0, y1, y2) = ([v[..., k] for k in range(3)] for v in (x, y))
    made = NP.stack([x1 * y2 - x2 * y1, x2 * y0 - x0 * y2, x0 * y1 - x1 * y0], axis=-1)
    return NP.moveaxis(made, -1, axisc)


def _linalg_cross(recorder: Trace, x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    return _cross(recorder, x1, x2, axis=axis)


def _polyval(recorder: Trace, p: Any, x: Any) -> Any:
    coefficients, value = lift(recorder, p), lift(recorder, x)
    made: Any = NP.zeros_like(value)
    for k in coefficients.steps(coefficients.shape[0]):
        made = made * value + coefficients[k]
    return made


def _vander(recorder: Trace, x: Any, N: Any = None, increasing: bool = False) -> Any:
    value = lift(recorder, x)
    if value.ndim != 1:
        raise ValueError("x must be a one-dimensional array or sequence.")
    value = convert(value, np.result_type(value.dtype, np.int64))
    count = value.size if N is None else int(N)
    powers: list[Any] = [NP.ones_like(value)]
    for _ in value.steps(count)[1:]:
        powers.append(powers[-1] * value)
    return NP.stack((powers if increasing else powers[::-1])[:count], axis=1)


def _convolve(recorder: Trace, a: Any, v: Any, mode: str = "full") -> Any:
    """A sum of shifted products, one per element of the shorter one."""
    long, short = lift(recorder, a), lift(recorder, v)
    if long.ndim > 1 or short.ndim > 1:
        raise ValueError("object too deep for desired array")
    if short.size > long.size:
        long, short = short, long
    dtype = np.result_type(long.dtype, short.dtype)
    long, short, n, m = convert(long, dtype), convert(short, dtype), long.size, short.size
    if not m:
        raise ValueError("v cannot be empty")
    wide = NP.pad(long, (m - 1, m - 1))
    made: Any = None
    for k in short.steps(m):
        part = wide[m - 1 - k : m - 1 - k + n + m - 1] * short[k]
        made = part if made is None else made + part
    if mode == "same":
        return made[(m - 1) // 2 : (m - 1) // 2 + n]
    return made[m - 1 : n] if mode == "valid" else made


def _correlate(recorder: Trace, a: Any, v: Any, mode: str = "valid") -> Any:
    x, y = lift(recorder, a), lift(recorder, v)
    turned = NP.flip(y).conj()
    if mode == "same" and y.size > x.size:
        start = x.size // 2
        return _convolve(recorder, x, turned, "full")[start : start + y.size]
    return _convolve(recorder, x, turned, mode)


def _interp(recorder: Trace, x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    if period is not None:
        refuse(recorder, "np.interp(period=)", "take x modulo the period, and extend xp and fp by one period")
    at, known, values = (lift(recorder, v) for v in (x, xp, fp))
    if at.aval.dtype.is_complex or known.aval.dtype.is_complex:
        raise TypeError(
            "Cannot cast array data from dtype('complex128') to dtype('float64') according to the rule 'safe'"
        )
    if known.size != values.size or not known.size:
        raise ValueError("fp and xp are not of the same length.")
    at, known = convert(at, np.float64), convert(known, np.float64)
    if not values.aval.dtype.is_complex:
        return _between(at, known, convert(values, np.float64), left, right)
    parts = []
    for part in (NP.real, NP.imag):
        ends = (None if v is None else part(v) for v in (left, right))
        parts.append(_between(at, known, convert(part(values), np.float64), *ends))
    return emit("complex", *parts)


def _between(at: Any, known: Any, values: Any, left: Any, right: Any) -> Any:
    """Real values of lines between known points. A point itself has its value, whatever its neighbours have. Lines to
    infinity are followed from their other end, as NumPy does."""
    k = NP.clip(NP.searchsorted(known, at, side="right"), 1, max(known.size - 1, 1))
    x0, x1, y0, y1 = known[k - 1], known[k], values[k - 1], values[k]
    slope = (y1 - y0) / (x1 - x0)
    made = slope * (at - x0) + y0
    again = slope * (at - x1) + y1
    again = NP.where(NP.logical_and(NP.isnan(again), NP.equal(y0, y1)), y0, again)
    made = NP.where(NP.isnan(made), again, made)
    made = NP.where(NP.equal(at, x0), y0, NP.where(NP.isnan(at), at, made)) if known.size > 1 else y0
    made = NP.where(NP.equal(at, known[-1]), values[-1], made)
    made = NP.where(NP.less(at, known[0]), values[0] if left is None else left, made)
    return NP.where(NP.greater(at, known[-1]), values[-1] if right is None else right, made)


def _sinc(recorder: Trace, x: Any) -> Any:
    value = _floating(lift(recorder, x))
    zero = NP.equal(value, 0)
    y = np.pi * NP.where(zero, value.dtype.type(1), value)
    return NP.where(zero, value.dtype.type(1), NP.sin(y) / y)


def _unwrap(recorder: Trace, p: Any, discont: Any = None, axis: int = -1, *, period: Any = 2 * np.pi) -> Any:
    x = _floating(lift(recorder, p))
    y = NP.moveaxis(x, axis, -1)
    step, half = NP.diff(y, axis=-1), period / 2
    within = NP.remainder(step + half, period) - half
    within = NP.where(NP.logical_and(NP.equal(within, -half), NP.greater(step, 0)), half, within)
    fix = NP.where(NP.less(NP.absolute(step), half if discont is None else discont), 0.0, within - step)
    made = NP.concatenate([y[..., :1], y[..., 1:] + NP.cumsum(fix, axis=-1)], axis=-1)
    return NP.moveaxis(convert(made, x.dtype), -1, axis)


def _ediff1d(recorder: Trace, ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    x = lift(recorder, ary)
    made = NP.diff(reshape(x, (x.size,)))
    parts = [None if v is None else convert(NP.ravel(lift(recorder, v)), x.dtype) for v in (to_begin, to_end)]
    return NP.concatenate([p for p in (parts[0], made, parts[1]) if p is not None])


def _fix(recorder: Trace, x: Any) -> Any:
    return NP.trunc(lift(recorder, x))


def _infinite(sign: float) -> Callable[..., Any]:
    return lambda recorder, x: NP.equal(lift(recorder, x), np.inf * sign)


def _is_real(recorder: Trace, x: Any) -> Any:
    value = lift(recorder, x)
    if not value.aval.dtype.is_complex:
        return full(value, value.shape, True)
    part = emit("imag", value)
    return NP.equal(part, 0)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "trapezoid": _trapezoid,
    "gradient": _gradient,
    "cross": _cross,
    "linalg.cross": _linalg_cross,
    "polyval": _polyval,
    "vander": _vander,
    "convolve": _convolve,
    "correlate": _correlate,
    "interp": _interp,
    "sinc": _sinc,
    "unwrap": _unwrap,
    "ediff1d": _ediff1d,
    "fix": _fix,
    "isposinf": _infinite(1.0),
    "isneginf": _infinite(-1.0),
    "isreal": _is_real,
    "iscomplex": lambda recorder, x: NP.logical_not(_is_real(recorder, x)),
}
