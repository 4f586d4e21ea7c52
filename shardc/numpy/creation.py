"""NumPy's functions that make arrays, with ``sharding=`` and ``mesh=``: each process makes its own shards.

``like=`` is taken for NumPy's sake, and changes nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from shardc.hlo.ir.sharding import DimSharding, Sharding
from shardc.hlo.masked_arrays import refuse_masked
from shardc.hlo.numpy.recorder import current_trace
from shardc.hlo.numpy.trace import constrain
from shardc.hlo.numpy.tracer import Tracer
from shardc.launcher.arrays.array import Array
from shardc.launcher.arrays.make_arrays import array as array_of_value
from shardc.launcher.arrays.make_arrays import array_from_callback
from shardc.launcher.arrays.placement import is_spec
from shardc.numpy.placing import new_sharding

__all__ = [
    "arange",
    "array",
    "asarray",
    "empty",
    "eye",
    "fromfunction",
    "full",
    "identity",
    "indices",
    "linspace",
    "make",
    "ones",
    "zeros",
]


def make(
    function: Any,
    args: tuple[Any, ...],
    options: dict[str, Any],
    dims: Sequence[int],
    part: Callable[[tuple[slice, ...]], Any],
    dtype: Any,
    placed: tuple[Any, Any],
) -> Any:
    """An array as ``function(*args, **options)`` of NumPy's makes it: a traced value while a function is traced, else
    an `Array`, each shard of which is ``part(index)``. ``placed`` are the sharding and mesh asked for."""
    recorder = current_trace()
    if recorder is None:
        return array_from_callback(dims, dtype, new_sharding(dims, *placed), part)
    made = recorder.protocols.function(recorder, function, args, options)
    return _constrained(made, placed[0])


def _constrained(made: Any, sharding: Any) -> Any:
    return made if sharding is None or not isinstance(made, Tracer) else constrain(made, sharding)


def _dims(shape: Any) -> tuple[int, ...]:
    dims = tuple(map(operator.index, shape if isinstance(shape, tuple | list | np.ndarray) else (shape,)))
    if any(n < 0 for n in dims):
        raise ValueError("negative dimensions are not allowed")
    return dims


def _lengths(index: tuple[slice, ...]) -> tuple[int, ...]:
    return tuple(s.stop - s.start for s in index)


def zeros(
    shape: Any, dtype: Any = float, order: str = "C", *, like: Any = None, sharding: Any = None, mesh: Any = None
) -> Any:
    """`numpy.zeros`, sharded; each process makes its own shards. ``order`` and ``like`` change nothing.

    >>> np.zeros((64, 64), "float32", sharding=P("x", None), mesh=mesh)
    shardc.Array(f32[64,64], [{x}, {}])
    """
    kind = np.dtype(dtype)
    return make(
        np.zeros, (shape, kind), {}, _dims(shape), lambda i: np.zeros(_lengths(i), kind), kind, (sharding, mesh)
    )


def ones(
    shape: Any, dtype: Any = float, order: str = "C", *, like: Any = None, sharding: Any = None, mesh: Any = None
) -> Any:
    """`numpy.ones`, sharded. ``order`` and ``like`` change nothing.

    >>> float(np.ones((64, 64), mesh=mesh).sum())
    4096.0
    """
    dims, kind = _dims(shape), np.dtype(dtype)
    return make(np.ones, (dims, kind), {}, dims, lambda i: np.ones(_lengths(i), kind), kind, (sharding, mesh))


def empty(
    shape: Any, dtype: Any = float, order: str = "C", *, like: Any = None, sharding: Any = None, mesh: Any = None
) -> Any:
    """`numpy.empty`, sharded; its elements are zeros. ``order`` and ``like`` change nothing.

    >>> np.empty((64,), mesh=mesh).shape
    (64,)
    """
    return zeros(shape, dtype, sharding=sharding, mesh=mesh)


def full(
    shape: Any,
    fill_value: Any,
    dtype: Any = None,
    order: str = "C",
    *,
    like: Any = None,
    sharding: Any = None,
    mesh: Any = None,
) -> Any:
    """`numpy.full`, sharded. ``order`` and ``like`` change nothing.

    >>> float(np.full((64, 64), 0.5, mesh=mesh).max())
    0.5
    """
    if isinstance(fill_value, Tracer):
        return _constrained(np.full(shape, fill_value, dtype, like=fill_value), sharding)
    value = np.asarray(fill_value)
    kind = value.dtype if dtype is None else np.dtype(dtype)
    dims = _dims(shape)

    def part(index: tuple[slice, ...]) -> Any:
        return np.broadcast_to(value, dims)[index].astype(kind)

    return make(np.full, (shape, fill_value, kind), {}, dims, part, kind, (sharding, mesh))


def arange(
    start: Any,
    stop: Any = None,
    step: Any = 1,
    dtype: Any = None,
    *,
    like: Any = None,
    sharding: Any = None,
    mesh: Any = None,
) -> Any:
    """`numpy.arange`, sharded, with the same bits. ``like`` changes nothing.

    >>> np.arange(64, mesh=mesh)
    shardc.Array(s64[64], [{x}])
    """
    numbers = (0, start, step) if stop is None else (start, stop, step)
    first = np.arange(numbers[0] * 0, numbers[1] * 0, numbers[2], dtype=dtype)
    count = max(0, int(np.ceil((numbers[1] - numbers[0]) / numbers[2])))
    begin = np.asarray(numbers[0]).astype(first.dtype)
    pace = np.asarray(numbers[0] + numbers[2]).astype(first.dtype) - begin

    def part(index: tuple[slice, ...]) -> Any:
        return (begin + np.arange(index[0].start, index[0].stop) * pace).astype(first.dtype)

    return make(np.arange, (*numbers,), {"dtype": first.dtype}, (count,), part, first.dtype, (sharding, mesh))


def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    sharding: Any = None,
    mesh: Any = None,
) -> Any:
    """`numpy.linspace`, sharded, with NumPy's bits; if both ends are scalars, each process makes only its part.

    >>> float(np.linspace(0, 1, 65, mesh=mesh)[-1])
    1.0
    """
    recorder = current_trace()
    if recorder is not None:
        options = {"endpoint": endpoint, "retstep": retstep, "dtype": dtype, "axis": axis}
        return recorder.protocols.function(recorder, np.linspace, (start, stop, num), options)
    if np.ndim(start) or np.ndim(stop):
        whole: Any = np.linspace
        made = whole(start, stop, num, endpoint, retstep, dtype, axis)
        own = partial(array, sharding=sharding, mesh=mesh)
        return (own(made[0]), made[1]) if retstep else own(made)
    kind = np.result_type(start, stop, float(num)) if dtype is None else np.dtype(dtype)
    count = operator.index(num)
    a, b = start * 1.0, stop * 1.0
    parts = count - 1 if endpoint else count
    pace = (b - a) / parts if parts > 0 else np.nan

    def part(index: tuple[slice, ...]) -> Any:
        at = np.arange(index[0].start, index[0].stop, dtype=np.result_type(start, stop, float(num)))
        made = at * pace + a if parts > 0 and pace else at / max(parts, 1) * (b - a) + a
        if endpoint and count > 1 and index[0].stop == count and len(made):
            made[-1] = b
        return (np.floor(made) if kind.kind in "iu" else made).astype(kind)

    made = array_from_callback((count,), kind, new_sharding((count,), sharding, mesh), part)
    return (made, pace) if retstep else made


def eye(
    N: int,
    M: int | None = None,
    k: int = 0,
    dtype: Any = float,
    order: str = "C",
    *,
    like: Any = None,
    sharding: Any = None,
    mesh: Any = None,
) -> Any:
    """`numpy.eye`, sharded. ``order`` and ``like`` change nothing.

    >>> float(np.eye(64, mesh=mesh).sum())
    64.0
    """
    dims, kind = (operator.index(N), operator.index(N if M is None else M)), np.dtype(dtype)

    def part(index: tuple[slice, ...]) -> Any:
        rows, columns = index
        n, m = _lengths(index)
        return np.eye(n, m, k + rows.start - columns.start, kind)

    return make(np.eye, (*dims, k, kind), {}, dims, part, kind, (sharding, mesh))


def identity(n: int, dtype: Any = float, *, like: Any = None, sharding: Any = None, mesh: Any = None) -> Any:
    """`numpy.identity`, sharded. ``like`` changes nothing.

    >>> np.identity(64, mesh=mesh).shape
    (64, 64)
    """
    return eye(n, dtype=dtype, sharding=sharding, mesh=mesh)


def indices(
    dimensions: Sequence[int], dtype: Any = int, sparse: bool = False, *, sharding: Any = None, mesh: Any = None
) -> Any:
    """`numpy.indices`: one array with an index array per grid dimension, or with ``sparse`` a tuple of arrays.

    ``sharding`` is that of the grid; the first dimension is whole.

    >>> rows, columns = np.indices((64, 32), mesh=mesh)
    >>> int(rows[63, 0]), columns.shape
    (63, (64, 32))
    """
    dims, kind = _dims(tuple(dimensions)), np.dtype(dtype)
    if current_trace():
        lines = [
            arange(n, dtype=kind).reshape([n if k == d else 1 for k in range(len(dims))]) for d, n in enumerate(dims)
        ]
        if sparse:
            return tuple(_constrained(line, sharding) for line in lines)
        return np.stack([_constrained(np.broadcast_to(line, dims), sharding) for line in lines])
    grid = new_sharding(dims, sharding, mesh)

    def line(index: tuple[slice, ...], d: int) -> Any:
        """The positions along dimension ``d`` in a part of the grid."""
        at = np.arange(index[d].start, index[d].stop, dtype=kind)
        return at.reshape([-1 if k == d else 1 for k in range(len(index))])

    if sparse:
        return tuple(
            array_from_callback(
                tuple(n if k == d else 1 for k in range(len(dims))), kind, _sparse(grid, d), partial(line, d=d)
            )
            for d, n in enumerate(dims)
        )

    def part(index: tuple[slice, ...]) -> Any:
        numbers, *inside = index
        shape = _lengths(tuple(inside))
        return np.stack([np.broadcast_to(line(tuple(inside), d), shape) for d in range(numbers.start, numbers.stop)])

    return array_from_callback((len(dims), *dims), kind, replace(grid, dims=(DimSharding(), *grid.dims)), part)


def _sparse(grid: Sharding, dimension: int) -> Sharding:
    return Sharding(grid.mesh, tuple(s if k == dimension else DimSharding() for k, s in enumerate(grid.dims)))


def fromfunction(
    function: Callable[..., Any],
    shape: Sequence[int],
    *,
    dtype: Any = float,
    sharding: Any = None,
    mesh: Any = None,
    **kwargs: Any,
) -> Any:
    """`numpy.fromfunction`: ``function`` of the sharded positions along each dimension.

    >>> np.fromfunction(lambda i, j: i + j, (64, 32), mesh=mesh).shape
    (64, 32)
    """
    return function(*indices(shape, dtype, sharding=sharding, mesh=mesh), **kwargs)


def array(
    value: Any,
    dtype: Any = None,
    *,
    copy: bool | None = True,
    ndmin: int = 0,
    like: Any = None,
    sharding: Any = None,
    mesh: Any = None,
) -> Any:
    """`numpy.array`, sharded: ``value`` is the same on every process; lists of arrays are stacked. See `shardc.array`.

    >>> np.array([[1.0, 2.0], [3.0, 4.0]], sharding=P("x"), mesh=mesh)
    shardc.Array(f64[2,2], [{x}, {}])
    """
    recorder = current_trace()
    if isinstance(value, list | tuple) and any(isinstance(v, Array | Tracer) for v in value):
        value, copy = np.stack([array(v) if isinstance(v, list | tuple) else v for v in value]), None
    if recorder is not None:
        if copy or not isinstance(value, Tracer) or np.dtype(dtype or value.dtype) != value.dtype:
            value = recorder.protocols.function(recorder, np.array, (value,), {"dtype": dtype})
        made = _constrained(value, sharding)
    elif isinstance(value, Array):
        kept = value if dtype is None or np.dtype(dtype) == value.dtype else value.astype(dtype)
        over = value.sharding.mesh if mesh is None and is_spec(sharding) and value.sharding is not None else mesh
        here = sharding is None and mesh is None
        moved = kept if here else array_of_value(kept, new_sharding(kept.shape, sharding, over))
        made = np.copy(moved) if copy and moved is value else moved
    else:
        refuse_masked(value, "array")
        plain = np.asarray(value, dtype=dtype)
        made = array_of_value(plain, new_sharding(plain.shape, sharding, mesh), copy=copy)
    return made if made.ndim >= ndmin else made.reshape((1,) * (ndmin - made.ndim) + made.shape)


def asarray(value: Any, dtype: Any = None, *, sharding: Any = None, mesh: Any = None, **options: Any) -> Any:
    """`numpy.asarray`, sharded; an `Array` of the same type is returned itself.

    >>> x = np.ones(64, mesh=mesh)
    >>> np.asarray(x) is x
    True
    """
    return array(value, dtype, copy=None, sharding=sharding, mesh=mesh)
