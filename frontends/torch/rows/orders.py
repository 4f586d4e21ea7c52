"""Operators that order elements, count them, or look for the place of one among others."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from shardc.frontends.torch.rows.in_32_bits import in_32_bits

__all__ = ["ROWS"]

Row = Callable[..., Any]


def _sort(x: Any, dim: int = -1, descending: bool = False, *, stable: bool | None = None) -> tuple[Any, Any]:
    if not x.ndim:
        return x, jnp.zeros((), jnp.int64)
    order = jnp.argsort(x, axis=dim, stable=True, descending=descending)
    return jnp.take_along_axis(x, order, axis=dim), order


def _sort_stable(x: Any, stable: bool | None = None, dim: int = -1, descending: bool = False) -> tuple[Any, Any]:
    return _sort(x, dim, descending)


def _topk(x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Any, Any]:  # noqa: A002
    if not x.ndim:
        return x, jnp.zeros((), jnp.int64)
    if largest and dim % x.ndim == x.ndim - 1:
        values, places = lax.top_k(x, k)
        return values, places
    order = lax.slice_in_dim(jnp.argsort(x, axis=dim, stable=True, descending=largest), 0, k, axis=dim % x.ndim)
    return jnp.take_along_axis(x, order, axis=dim), order


def _median(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    if dim is None:
        ordered = jnp.sort(x.reshape(-1))
        return ordered[(x.size - 1) // 2]
    values, order = _sort(x, dim)
    if not x.ndim:
        return values, order
    at = (x.shape[dim] - 1) // 2
    found = [lax.index_in_dim(v, at, dim % x.ndim, keepdims=keepdim) for v in (values, order)]
    return tuple(found)


def _kth(x: Any, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Any, ...]:
    """The ``k``-th smallest along a dimension, counted from one, and its place."""
    values, order = _sort(x, dim)
    if not x.ndim:
        return values, order
    return tuple(lax.index_in_dim(v, k - 1, dim % x.ndim, keepdims=keepdim) for v in (values, order))


def _nan_median(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """The lower median of what is no NaN, which sorts behind all others; NaN where there is nothing else."""
    if dim is None:
        return _nan_median(x.reshape(-1), 0)[0]
    values, order = _sort(x, dim)
    if not x.ndim:
        return values, order
    count = jnp.sum(~jnp.isnan(x), axis=dim, keepdims=True)
    at = jnp.maximum(count - 1, 0) // 2
    found = [jnp.take_along_axis(v, at, axis=dim) for v in (values, order)]
    return tuple(v if keepdim else jnp.squeeze(v, dim) for v in found)


def _mode(x: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """The most frequent element, the smallest of equals, and the last of its places."""
    if not x.ndim:
        return x, jnp.zeros((), jnp.int64)
    rows = jnp.moveaxis(x, dim, -1)
    equal = rows[..., :, None] == rows[..., None, :]
    count = jnp.sum(equal, -1)
    order = jnp.argsort(rows, axis=-1, stable=True)
    first = jnp.argmax(jnp.take_along_axis(count, order, axis=-1), -1, keepdims=True)
    values = jnp.take_along_axis(rows, jnp.take_along_axis(order, first, axis=-1), axis=-1)
    places = rows.shape[-1] - 1 - jnp.argmax(jnp.flip(rows == values, -1), -1, keepdims=True)
    found = [jnp.moveaxis(v, -1, dim) for v in (values, places)]
    return tuple(v if keepdim else jnp.squeeze(v, dim) for v in found)


def _histogram(x: Any, bins: int = 100, min: Any = 0, max: Any = 0) -> Any:  # noqa: A002  # PyTorch's names
    """How many elements lie in each of ``bins`` equal parts; between the least and the greatest where both ends
    are equal, and what lies outside is left out."""
    x = x.reshape(-1)
    dtype = x.dtype if jnp.issubdtype(x.dtype, jnp.inexact) else jnp.dtype(jnp.float64)
    wide = x.astype(dtype)
    low, high = jnp.asarray(min, dtype), jnp.asarray(max, dtype)
    if min == max and x.size:
        low, high = jnp.min(wide), jnp.max(wide)
    low, high = jnp.where(low == high, low - 1, low), jnp.where(low == high, high + 1, high)
    place = jnp.clip(((wide - low) / (high - low) * bins).astype(jnp.int32), 0, bins - 1)
    inside = (wide >= low) & (wide <= high)
    return jnp.zeros(bins, x.dtype).at[place].add(inside.astype(x.dtype))


def _counted(x: Any, edges: Sequence[Any], *, weight: Any = None, density: bool = False, **_: Any) -> Any:
    """How many rows of ``x`` [N, D] lie in each box between ``edges``, one list of them for each column; or the sum of
    their weights, or that sum as a share of all for each unit of volume. The last edge counts as inside."""
    inside, number = jnp.ones(x.shape[0], bool), jnp.zeros(x.shape[0], jnp.int64)
    for column, borders in zip(x.T, edges, strict=True):
        place = jnp.searchsorted(borders, column, side="right") - 1
        place = jnp.where(column == borders[-1], borders.size - 2, place)
        inside &= (place >= 0) & (place < borders.size - 1)
        number = number * (borders.size - 1) + jnp.clip(place, 0, borders.size - 2)
    shape = tuple(borders.size - 1 for borders in edges)
    each = jnp.where(inside, jnp.ones((), x.dtype) if weight is None else weight.reshape(-1).astype(x.dtype), 0)
    made = jnp.zeros(math.prod(shape), x.dtype).at[number].add(each).reshape(shape)
    if not density:
        return made
    volumes = functools.reduce(jnp.multiply.outer, [jnp.diff(borders) for borders in edges])
    return made / (jnp.sum(made) * volumes)


def _edges(x: Any, bins: Sequence[int], *, range: Any = None, **_: Any) -> Any:  # noqa: A002  # PyTorch's name
    """Edges of equal parts of each column, between its least and its greatest, or between the ends in ``range``."""
    made = []
    for k, (column, count) in enumerate(zip(x.T, bins, strict=True)):
        ends = (
            (jnp.min(column), jnp.max(column)) if range is None and column.size
            else (0.0, 1.0) if range is None else range[2 * k : 2 * k + 2]
        )  # fmt: skip
        low, high = (jnp.asarray(end, x.dtype) for end in ends)
        same = low == high
        made.append(jnp.linspace(jnp.where(same, low - 0.5, low), jnp.where(same, high + 0.5, high), count + 1))
    return made


def _counts(x: Any, bins: int = 100, **options: Any) -> tuple[Any, Any]:
    column = x.reshape(-1, 1)
    edges = _edges(column, [bins], range=options.get("range"))
    return _counted(column, edges, **options), edges[0]


_TABLE: dict[str, Row] = {
    "sort": _sort,
    "sort.stable": _sort_stable,
    "argsort": lambda x, dim=-1, descending=False: _sort(x, dim, descending)[1],
    "argsort.stable": lambda x, *, stable=True, dim=-1, descending=False: _sort(x, dim, descending)[1],
    "topk": _topk,
    "median": _median,
    "nanmedian": _nan_median,
    "kthvalue": _kth,
    "mode": _mode,
    "searchsorted": lambda sequence, x, out_int32=False, right=False, **_: jnp.searchsorted(
        sequence, x, side="right" if right else "left"
    ),
    "bucketize": lambda x, boundaries, out_int32=False, right=False: jnp.searchsorted(
        boundaries, x, side="right" if right else "left"
    ),
}

#: What adds up.
_SUMS: dict[str, Row] = {
    "histc": _histogram,
    "histogram.bin_ct": _counts,
    "histogram.bins_tensor": lambda x, edges, **options: (_counted(x.reshape(-1, 1), [edges], **options), edges),
    "_histogramdd_bin_edges": lambda x, bins, **options: _edges(x.reshape(-1, x.shape[-1]), bins, **options),
    "_histogramdd_from_bin_cts": lambda x, bins, **options: _counted(
        x.reshape(-1, x.shape[-1]), _edges(x.reshape(-1, x.shape[-1]), bins, range=options.get("range")), **options
    ),
    "_histogramdd_from_bin_tensors": lambda x, edges, **options: _counted(x.reshape(-1, x.shape[-1]), edges, **options),
}

#: The rows of this family.
ROWS: Mapping[str, Row] = {f"aten.{k}": f for k, f in (_TABLE | in_32_bits(_SUMS)).items()}
