"""Arrays made: to the shape of another, by NumPy's makers with ``like=``, triangles and diagonals."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from shardc.hlo.numpy.functions.selection import changeable, is_traced
from shardc.hlo.numpy.recorder import Trace
from shardc.hlo.numpy.tracer import NP, Tracer
from shardc.hlo.numpy.values import (
    array,
    broadcast,
    constant,
    convert,
    emit,
    equal_shapes,
    full,
    iota,
    lift,
    refuse,
    reshape,
)

__all__ = ["FUNCTIONS"]

# Triangles and diagonals.


def _triangle(x: Tracer, k: int) -> Tracer:
    """Where column - row <= k in the last two dimensions."""
    dims = x.shape if x.ndim > 1 else (*x.shape, *x.shape)
    row, column = iota(x, dims, len(dims) - 2), iota(x, dims, len(dims) - 1)
    return emit("compare", column, emit("add", row, full(x, dims, int(k), np.int64)), direction="LE")


def _tril(recorder: Trace, m: Any, k: int = 0) -> Any:
    x = lift(recorder, m)
    mask = _triangle(x, k)
    whole = broadcast(x, mask.shape)
    return emit("select", mask, whole, full(x, mask.shape, 0, x.dtype))


def _triu(recorder: Trace, m: Any, k: int = 0) -> Any:
    x = lift(recorder, m)
    mask = _triangle(x, k - 1)
    whole = broadcast(x, mask.shape)
    return emit("select", mask, full(x, mask.shape, 0, x.dtype), whole)


def _diag(recorder: Trace, v: Any, k: int = 0) -> Any:
    x = lift(recorder, v)
    if x.ndim == 2:
        return NP.diagonal(x, k)
    if x.ndim != 1:
        raise ValueError("Input must be 1- or 2-d.")
    k, n = int(k), x.size + abs(int(k))
    column = emit("pad", x, constant(x, np.zeros((), x.dtype)), padding=((max(-k, 0), max(k, 0), 0),))
    whole = emit("broadcast", column, shape=column.aval.with_dims((n, n)), dimensions=(0,))
    row_plus = emit("add", iota(x, (n, n), 0), full(x, (n, n), k, np.int64))
    mask = emit("compare", iota(x, (n, n), 1), row_plus, direction="EQ")
    return emit("select", mask, whole, full(x, (n, n), 0, x.dtype))


def _diagflat(recorder: Trace, v: Any, k: int = 0) -> Any:
    x = lift(recorder, v)
    return _diag(recorder, reshape(x, (x.size,)), k)


def _fill_diagonal(recorder: Trace, a: Any, val: Any, wrap: bool = False) -> None:
    x = changeable(recorder, a, "fill_diagonal")
    if wrap:
        refuse(recorder, "np.fill_diagonal(wrap=True)", "assign with a mask")
    if x.ndim < 2:
        raise ValueError("array must be at least 2-d")
    n = min(x.shape)
    places = np.arange(n)
    value = lift(recorder, val)
    x[(places,) * x.ndim] = value if not value.ndim else NP.resize(value, (n,))


# Arrays to the shape of another, and NumPy's makers with like=.


def _full_like(value: Any) -> Callable[..., Any]:
    def function(
        recorder: Trace,
        a: Any,
        dtype: Any = None,
        order: str = "K",
        subok: bool = True,
        shape: Any = None,
        *,
        device: Any = None,
    ) -> Any:
        return _fill(recorder, a, value, dtype, shape)

    return function


def _fill(recorder: Trace, a: Any, value: Any, dtype: Any, shape: Any) -> Any:
    x = lift(recorder, a)
    dims = x.shape if shape is None else tuple(shape) if isinstance(shape, (tuple, list)) else (int(shape),)
    wanted = x.dtype if dtype is None else np.dtype(dtype)
    return broadcast(array(recorder, value, wanted), dims)


def _full_like_value(
    recorder: Trace,
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    order: str = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    device: Any = None,
) -> Any:
    return _fill(recorder, a, fill_value, dtype, shape)


def _make_constant(function: Any) -> Callable[..., Any]:
    """``np.tri(3, like=x)`` and such: NumPy makes the array, which becomes a constant."""

    def maker(recorder: Trace, *args: Any, **kwargs: Any) -> Any:
        if any(is_traced(v) for v in (*args, *kwargs.values())):
            refuse(recorder, f"np.{function.__name__} of traced numbers", "use shapes and plain numbers")
        try:
            return constant(recorder, function(*args, **kwargs))
        except MemoryError:
            refuse(recorder, f"np.{function.__name__} of a table larger than memory", "use np.zeros, np.ones, np.eye")

    return maker


def _splat(value: Any) -> Callable[..., Any]:
    """``np.zeros(shape, like=x)`` and such: one number everywhere."""

    def maker(recorder: Trace, shape: Any, dtype: Any = None, order: str = "C", *, device: Any = None) -> Any:
        return _full(recorder, shape, value, np.float64 if dtype is None else dtype)

    return maker


def _full(
    recorder: Trace, shape: Any, fill_value: Any, dtype: Any = None, order: str = "C", *, device: Any = None
) -> Any:
    dims = tuple(map(operator.index, shape if isinstance(shape, (tuple, list, np.ndarray)) else (shape,)))
    if any(n < 0 for n in dims):
        raise ValueError("negative dimensions are not allowed")
    value = lift(recorder, fill_value)
    return Tracer(recorder, broadcast(convert(value, value.dtype if dtype is None else dtype), dims).instruction)


def _eye(
    recorder: Trace,
    N: int,
    M: Any = None,
    k: int = 0,
    dtype: Any = float,
    order: str = "C",
    *,
    device: Any = None,
) -> Any:
    dims = (operator.index(N), operator.index(N if M is None else M))
    row_plus = emit("add", iota(recorder, dims, 0), full(recorder, dims, operator.index(k), np.int64))
    return convert(emit("compare", iota(recorder, dims, 1), row_plus, direction="EQ"), dtype)


def _arange(
    recorder: Trace, start: Any, stop: Any = None, step: Any = 1, dtype: Any = None, *, device: Any = None
) -> Any:
    """Integers are counted in the program, others are a constant."""
    numbers = (0, start, step) if stop is None else (start, stop, step)
    if not all(isinstance(v, (int, np.integer)) for v in numbers) or np.dtype(dtype or np.int64).kind not in "iu":
        return _make_constant(np.arange)(recorder, *numbers, dtype=dtype)
    kind = np.arange(numbers[0] * 0, numbers[1] * 0, numbers[2], dtype=dtype).dtype
    places = range(*map(int, numbers))
    counted: Any = iota(recorder, (len(places),), 0)
    return convert(counted * places.step + places.start, kind)


def _as_array(recorder: Trace, a: Any, dtype: Any = None, order: Any = None, **options: Any) -> Any:
    return array(recorder, a, dtype)


def _as_new_array(recorder: Trace, a: Any, dtype: Any = None, **options: Any) -> Any:
    return Tracer(recorder, array(recorder, a, dtype).instruction)


def _linspace(
    recorder: Trace,
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    a, b = lift(recorder, start), lift(recorder, stop)
    wanted = NP.result_type(a, b, float(num))
    a, b = equal_shapes(convert(a, wanted), convert(b, wanted))
    parts = max(num - 1 if endpoint else num, 1)
    steps = np.arange(num).astype(np.empty(0, wanted).real.dtype).reshape((num,) + (1,) * a.ndim)
    step: Any = NP.true_divide(NP.subtract(b, a), parts)
    made = a + step * steps
    if endpoint and num > 1:
        made = NP.concatenate([made[:-1], b[None]], axis=0)
    made = NP.moveaxis(made, 0, axis) if axis else made
    made = made if dtype is None else made.astype(dtype)
    return (made, step) if retstep else made


def _meshgrid(recorder: Trace, *xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    values = [lift(recorder, x) for x in xi]
    n = len(values)
    made = [reshape(v, [v.size if k == d else 1 for d in range(n)]) for k, v in enumerate(values)]
    if indexing == "xy" and n > 1:
        made = [NP.swapaxes(m, 0, 1) for m in made]
    return tuple(made) if sparse else tuple(equal_shapes(*made))


_MAKERS = "tri fromfunction"

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "tril": _tril,
    "triu": _triu,
    "diag": _diag,
    "diagflat": _diagflat,
    "fill_diagonal": _fill_diagonal,
    "zeros_like": _full_like(0),
    "ones_like": _full_like(1),
    "empty_like": _full_like(0),
    "full_like": _full_like_value,
    "linspace": _linspace,
    "meshgrid": _meshgrid,
    "zeros": _splat(0),
    "ones": _splat(1),
    "empty": _splat(0),
    "full": _full,
    "eye": _eye,
    "identity": lambda recorder, n, dtype=None: _eye(recorder, n, dtype=float if dtype is None else dtype),
    "arange": _arange,
    "asarray": _as_array,
    "asanyarray": _as_array,
    "ascontiguousarray": _as_array,
    "array": _as_new_array,
    **{name: _make_constant(getattr(np, name)) for name in _MAKERS.split()},
}
