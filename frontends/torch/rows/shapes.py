"""Operators that make arrays, move their elements, or give them other shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from shardc.hlo.errors import UnsupportedError

__all__ = ["ROWS"]


def _view(x: Any, size: Any, *_: Any, **__: Any) -> Any:
    """``view`` to another shape, or as another type of the same bits."""
    if isinstance(size, np.dtype):
        return lax.bitcast_convert_type(x, size)
    return jnp.reshape(x, tuple(size))


def _expand(x: Any, size: Sequence[int], implicit: bool = False) -> Any:
    added = len(size) - x.ndim
    dims = tuple(x.shape[k - added] if n == -1 else n for k, n in enumerate(size))
    return jnp.broadcast_to(x, dims)


def _resize(x: Any, size: Sequence[int], *, memory_format: Any = None) -> Any:
    """The first elements in another shape; more than there are would have no values."""
    count = math.prod(size)
    if count > x.size:
        raise UnsupportedError(
            f"resize to {list(size)} needs more elements than the tensor has",
            fix="make a larger tensor: torch.zeros, torch.cat",
        )
    return x.reshape(-1)[:count].reshape(tuple(size))


def _squeeze(x: Any, dim: Any = None) -> Any:
    dims = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    return jnp.squeeze(x, tuple({d % max(x.ndim, 1) for d in dims if x.ndim and x.shape[d] == 1}))


def _slice(x: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    return x[_along(x, dim, slice(start, end, step))]


def _along(x: Any, dim: int, index: Any) -> tuple[Any, ...]:
    """An index of one dimension."""
    return (*(slice(None),) * int(dim % x.ndim), index)


def _select(x: Any, dim: int, index: int) -> Any:
    return lax.index_in_dim(x, index % x.shape[dim], dim % x.ndim, keepdims=False)


def _split(x: Any, sizes: Any, dim: int = 0) -> tuple[Any, ...]:
    length = x.shape[dim]
    if isinstance(sizes, int):
        sizes = [min(sizes, length - k) for k in range(0, max(length, 1), max(sizes, 1))]
    ends = np.cumsum(sizes).tolist()
    return tuple(lax.slice_in_dim(x, e - n, e, axis=dim % x.ndim) for e, n in zip(ends, sizes, strict=True))


def _cat(arrays: Sequence[Any], dim: int = 0) -> Any:
    """Arrays of one empty dimension go along with all others."""
    real = [a for a in arrays if a.shape != (0,)] or list(arrays)
    return jnp.concatenate(real, axis=dim)


def _pad(x: Any, pad: Sequence[int], value: Any = 0.0) -> Any:
    """``pad`` has two numbers for each dimension, from the last one on; negative ones cut."""
    sides = [(0, 0, 0)] * x.ndim
    for k in range(len(pad) // 2):
        sides[x.ndim - 1 - k] = (pad[2 * k], pad[2 * k + 1], 0)
    return lax.pad(x, jnp.asarray(value).astype(x.dtype), sides)


def _diagonal(x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    return jnp.diagonal(x, offset, dim1, dim2)


def _as_strided(x: Any, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Any:
    grid = np.full(tuple(size), storage_offset or 0, np.int64)
    for k, (n, step) in enumerate(zip(size, stride, strict=True)):
        grid += (np.arange(n) * step).reshape((-1,) + (1,) * (len(size) - 1 - k))
    return x.reshape(-1)[grid]


def _repeat(x: Any, repeats: Sequence[int]) -> Any:
    return jnp.tile(x, tuple(repeats))


def _roll(x: Any, shifts: Any, dims: Any = ()) -> Any:
    return jnp.roll(x, shifts, tuple(dims)) if len(dims) else jnp.roll(x.reshape(-1), shifts[0]).reshape(x.shape)


def _unfold(x: Any, dimension: int, size: int, step: int) -> Any:
    if not x.ndim:
        return x.reshape(1)[:size]
    starts = np.arange(0, x.shape[dimension] - size + 1, step)
    taken = jnp.take(x, jnp.asarray(starts[:, None] + np.arange(size)), axis=dimension)
    return jnp.moveaxis(taken, dimension % x.ndim + 1, -1)


def _slice_scatter(x: Any, src: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    index = _along(x, dim, slice(start, end, step))
    return x.at[index].set(jnp.broadcast_to(src, x[index].shape).astype(x.dtype))


def _diagonal_scatter(x: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    flat = jnp.arange(math.prod(x.shape)).reshape(x.shape)
    where = jnp.diagonal(flat, offset, dim1, dim2)
    return x.reshape(-1).at[where].set(src.astype(x.dtype)).reshape(x.shape)


def _as_strided_scatter(
    x: Any, src: Any, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Any:
    places = _as_strided(jnp.arange(x.size), size, stride, storage_offset)
    return x.reshape(-1).at[places].set(src.astype(x.dtype)).reshape(x.shape)


def _full(size: Sequence[int], value: Any, *, dtype: Any = None, **_: Any) -> Any:
    return jnp.full(tuple(size), value, dtype)


def _full_like(x: Any, value: Any, *, dtype: Any = None, **_: Any) -> Any:
    return jnp.full(x.shape, value, dtype or x.dtype)


def _new(fill: Any) -> Callable[..., Any]:
    return lambda x, size, *_, dtype=None, **__: jnp.full(tuple(size), fill, dtype or x.dtype)


def _arange(*ends: Any, dtype: Any = None, **_: Any) -> Any:
    start, end, step = (0, *ends, 1) if len(ends) == 1 else (*ends, 1)[:3]
    count = max(0, math.ceil((end - start) / step))
    if dtype is not None and np.issubdtype(dtype, np.integer):
        start, step = int(start), int(step)
    whole = all(isinstance(n, int) for n in (start, step))
    made = start + np.arange(count, dtype=np.int64 if whole else np.float64) * step
    return jnp.asarray(made).astype(dtype or made.dtype)


def _linspace(start: Any, end: Any, steps: int, *, dtype: Any = None, **_: Any) -> Any:
    return jnp.linspace(start, end, steps, dtype=dtype)


def _triangle(keep: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, diagonal=0: keep(x, diagonal)


def _same(x: Any, *_: Any, **__: Any) -> Any:
    return x


_SHAPES = {
    "view": _view,
    "view_copy": _view,
    "_unsafe_view": _view,
    "reshape": _view,
    "_reshape_copy": _view,
    "resize": _resize,
    "expand": _expand,
    "expand_copy": _expand,
    "permute": lambda x, dims: jnp.transpose(x, tuple(dims)),
    "permute_copy": lambda x, dims: jnp.transpose(x, tuple(dims)),
    "t": jnp.transpose,
    "transpose": lambda x, dim0, dim1: jnp.swapaxes(x, dim0, dim1) if x.ndim else x,
    "squeeze": _squeeze,
    "squeeze_copy": _squeeze,
    "unsqueeze": jnp.expand_dims,
    "unsqueeze_copy": jnp.expand_dims,
    "slice": _slice,
    "slice_copy": _slice,
    "select": _select,
    "select_copy": _select,
    "split": _split,
    "split_with_sizes": _split,
    "split_with_sizes_copy": _split,
    "unbind": lambda x, dim=0: tuple(_select(x, dim, k) for k in range(x.shape[dim])),
    "cat": _cat,
    "stack": lambda arrays, dim=0: jnp.stack(arrays, dim),
    "flip": lambda x, dims: jnp.flip(x, tuple(dims)),
    "roll": _roll,
    "repeat": _repeat,
    "constant_pad_nd": _pad,
    "diagonal": _diagonal,
    "diagonal_copy": _diagonal,
    "as_strided": _as_strided,
    "as_strided_copy": _as_strided,
    "unfold": _unfold,
    "unfold_copy": _unfold,
    "tril": _triangle(jnp.tril),
    "triu": _triangle(jnp.triu),
    "slice_scatter": _slice_scatter,
    "select_scatter": lambda x, src, dim, index: x.at[_along(x, dim, index)].set(src.astype(x.dtype)),
    "diagonal_scatter": _diagonal_scatter,
    "sym_size": lambda x, dim: x.shape[dim],
    "sym_numel": lambda x: math.prod(x.shape),
    "sym_storage_offset": lambda x: 0,
    "_local_scalar_dense": _same,
}

_MADE = {
    "full": _full,
    "full_like": _full_like,
    "zeros": lambda size, **options: _full(size, 0, **options),
    "ones": lambda size, **options: _full(size, 1, **options),
    "zeros_like": lambda x, **options: _full_like(x, 0, **options),
    "ones_like": lambda x, **options: _full_like(x, 1, **options),
    "empty": lambda size, **options: _full(size, 0, **options),
    "empty_like": lambda x, **options: _full_like(x, 0, **options),
    "empty_strided": lambda size, stride, **options: _full(size, 0, **options),
    "empty_permuted": lambda size, layout, **options: _full(size, 0, **options),
    "new_zeros": _new(0),
    "new_ones": _new(1),
    "new_empty": _new(0),
    "new_empty_strided": lambda x, size, stride, **options: _new(0)(x, size, **options),
    "new_full": lambda x, size, value, dtype=None, **_: jnp.full(tuple(size), value, dtype or x.dtype),
    "arange": _arange,
    "linspace": _linspace,
    "scalar_tensor": lambda value, dtype=None, **_: jnp.asarray(value, dtype),
    "fill": lambda x, value: jnp.broadcast_to(jnp.asarray(value).astype(x.dtype), x.shape),
    "eye": lambda n, m=None, dtype=None, **_: jnp.eye(n, n if m is None else m, dtype=dtype),
    "tril_indices": lambda row, col, offset=0, **_: jnp.stack(jnp.tril_indices(row, offset, col)),
    "triu_indices": lambda row, col, offset=0, **_: jnp.stack(jnp.triu_indices(row, offset, col)),
}

_SAME = {
    "alias": _same,
    "clone": _same,
    "contiguous": _same,
    "detach": _same,
    "lift": _same,
    "lift_fresh": _same,
    "lift_fresh_copy": _same,
    "copy": lambda x, src, non_blocking=False: jnp.broadcast_to(src.astype(x.dtype), x.shape),
    "_assert_tensor_metadata": lambda *_, **__: None,
    "_assert_scalar": lambda *_, **__: None,
    "_assert_async": lambda *_, **__: None,
    "sym_constrain_range_for_size": lambda *_, **__: None,
}

#: The rows of this family.
ROWS: Mapping[str, Callable[..., Any]] = {
    **{f"aten.{k}": f for k, f in (_SHAPES | _MADE | _SAME).items()},
    "prims.as_strided_scatter": _as_strided_scatter,
}
