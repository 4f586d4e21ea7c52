"""Operators that read or write elements at places that are values themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from shardc.frontends.torch.rows.in_32_bits import in_32_bits, widened
from shardc.hlo.errors import UnsupportedError

__all__ = ["ROWS", "embedding_bag"]

#: Places are inside of the array, as PyTorch checks.
_INSIDE = "promise_in_bounds"


def _key(x: Any, indices: Sequence[Any]) -> tuple[Any, ...]:
    """The places as an index of NumPy's kind."""
    if any(i is not None and i.dtype == bool for i in indices):
        raise UnsupportedError(
            "the number of elements selected by a mask depends on values",
            fix="use torch.where(mask, x, other), which keeps the shape",
        )
    return tuple(slice(None) if i is None else i for i in indices)


def _index(x: Any, indices: Sequence[Any]) -> Any:
    return x.at[_key(x, indices)].get(mode=_INSIDE)


def _combined(x: Any, key: Any, method: str, values: Any) -> Any:
    """``x`` with ``values`` set, added, multiplied in at places; truth values are or-ed and and-ed."""
    if x.dtype == bool:
        method = {"add": "max", "multiply": "min"}.get(method, method)
    return getattr(x.at[key], method)(values, mode=_INSIDE)


def _index_put(x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    values = values.astype(x.dtype)
    masks = [i for i in indices if i is not None and i.dtype == bool]
    if masks:
        return _masked_put(x, indices, values, accumulate)
    return _combined(x, _key(x, indices), "add" if accumulate else "set", values)


def _masked_put(x: Any, indices: Sequence[Any], values: Any, accumulate: bool) -> Any:
    """Values that are the same for all elements that one mask, of the first dimensions, chooses."""
    mask = indices[0]
    if len(indices) != 1 or mask is None or (values.ndim > x.ndim - mask.ndim and values.shape[0] != 1):
        _key(x, indices)
    if values.ndim > x.ndim - mask.ndim:
        values = values[0]
    chosen = mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim))
    return jnp.where(chosen, x + values if accumulate else jnp.broadcast_to(values, x.shape), x)


def _index_select(x: Any, dim: int, index: Any) -> Any:
    if not x.ndim:
        return x
    return jnp.take(x, index.reshape(-1), axis=dim, mode="clip")


def _grid(index: Any, dim: int) -> tuple[Any, ...]:
    """For each element of ``index`` its own place, but along ``dim`` what ``index`` says."""
    return tuple(index if k == dim else lax.broadcasted_iota(index.dtype, index.shape, k) for k in range(index.ndim))


def _gather(x: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    if not x.ndim:
        return jnp.broadcast_to(x, index.shape)
    if not index.size:  # of any rank
        return jnp.zeros(index.shape, x.dtype)
    index = index if index.ndim else index.reshape(1)
    dim = dim % x.ndim
    if all(n == m for k, (n, m) in enumerate(zip(x.shape, index.shape, strict=True)) if k != dim):
        return jnp.take_along_axis(x, index, axis=dim, mode=_INSIDE)
    return x.at[_grid(index, dim)].get(mode=_INSIDE)


def _scatter(x: Any, dim: int, index: Any, src: Any, *, reduce: str | None = None) -> Any:
    """``src`` is a number, or an array of which as much is taken as ``index`` has places."""
    names = {None: "set", "add": "add", "sum": "add", "multiply": "multiply", "prod": "multiply", "amax": "max",
             "amin": "min"}  # fmt: skip
    whole = x.shape
    if not index.size:  # of any rank
        return x
    x, index = (x, index) if x.ndim else (x.reshape(1), index.reshape(1))
    index = index if index.ndim else index.reshape(1)
    source = jnp.asarray(src).astype(x.dtype)
    if source.ndim or not whole:
        source = source.reshape(1) if source.ndim < x.ndim else source
        source = source[tuple(slice(0, n) for n in index.shape)] if source.size != 1 else source
    return _combined(x, _grid(index, dim % x.ndim), names[reduce], source).reshape(whole)


def _scatter_reduce(x: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> Any:
    start = {"sum": 0, "mean": 0, "prod": 1, "amax": _least(x.dtype), "amin": _greatest(x.dtype)}[reduce]
    if reduce == "mean":
        ones = _scatter(jnp.zeros(x.shape, jnp.int64), dim, index, jnp.ones(src.shape, jnp.int64), reduce="add")
        touched = ones > 0
        total = _scatter(x if include_self else jnp.where(touched, 0, x), dim, index, src, reduce="add")
        count = jnp.maximum(ones + (1 if include_self else 0), 1)
        whole = jnp.issubdtype(x.dtype, jnp.integer)
        return jnp.where(touched, jnp.floor_divide(total, count) if whole else total / count.astype(x.dtype), x)
    if include_self:
        return _scatter(x, dim, index, src, reduce=reduce)
    touched = _scatter(jnp.zeros(x.shape, bool), dim, index, True)
    return _scatter(jnp.where(touched, jnp.asarray(start, x.dtype), x), dim, index, src, reduce=reduce)


def _least(dtype: Any) -> Any:
    if jnp.issubdtype(dtype, jnp.inexact):
        return -jnp.inf
    return False if dtype.kind == "b" else jnp.iinfo(dtype).min


def _greatest(dtype: Any) -> Any:
    if jnp.issubdtype(dtype, jnp.inexact):
        return jnp.inf
    return True if dtype.kind == "b" else jnp.iinfo(dtype).max


def _embedding(weight: Any, indices: Any, *_: Any, **__: Any) -> Any:
    return weight.at[indices].get(mode=_INSIDE, wrap_negative_indices=False)


def _embedding_backward(
    gradient: Any, indices: Any, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Any:
    if scale_grad_by_freq:
        counts = jnp.zeros(num_weights, gradient.dtype).at[indices].add(1, mode=_INSIDE)
        gradient = gradient / counts[indices][..., None]
    gradient = jnp.where((indices == padding_idx)[..., None], jnp.zeros((), gradient.dtype), gradient)
    return jnp.zeros((num_weights, gradient.shape[-1]), gradient.dtype).at[indices].add(gradient, mode=_INSIDE)


def _index_along(method: str) -> Callable[..., Any]:
    """``index_add``, ``index_copy``: whole slices along a dimension."""

    def row(x: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
        whole, source = x.shape, source.astype(x.dtype)
        x = x if x.ndim else x.reshape(1)
        source = source if source.ndim else source.reshape(1)
        key = (slice(None),) * (dim % x.ndim) + (index.reshape(-1),)
        scaled = source if alpha == 1 else (source * alpha).astype(x.dtype)
        return _combined(x, key, method, scaled).reshape(whole)

    return row


def _index_fill(x: Any, dim: int, index: Any, value: Any) -> Any:
    if not x.ndim:
        return jnp.asarray(value).astype(x.dtype)
    return x.at[(slice(None),) * (dim % x.ndim) + (index.reshape(-1),)].set(jnp.asarray(value).astype(x.dtype))


def _masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    x, mask = jnp.broadcast_arrays(x, mask)
    if not source.size:  # then no element is chosen
        return x
    places = jnp.cumsum(mask.reshape(-1)) - 1
    taken = source.reshape(-1)[jnp.clip(places, 0, source.size - 1)]
    return jnp.where(mask, taken.reshape(x.shape).astype(x.dtype), x)


def _take(x: Any, index: Any) -> Any:
    return x.reshape(-1).at[index].get(mode=_INSIDE)


def _put(x: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    values, flat = source.reshape(-1).astype(x.dtype), x.reshape(-1)
    return _combined(flat, index.reshape(-1), "add" if accumulate else "set", values).reshape(x.shape)


def _index_reduce(x: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True) -> Any:
    """Whole slices along a dimension, reduced."""
    whole = x.shape
    x, source = (v if v.ndim else v.reshape(1) for v in (x, source))
    shape = tuple(-1 if k == dim % x.ndim else 1 for k in range(x.ndim))
    where = jnp.broadcast_to(index.reshape(shape), source.shape)
    return _scatter_reduce(x, dim, where, source, reduce, include_self=include_self).reshape(whole)


def embedding_bag(
    weight: Any, indices: Any, offsets: Any, scale_grad_by_freq: bool = False, mode: int = 0, sparse: bool = False,
    per_sample_weights: Any = None, include_last_offset: bool = False, padding_idx: int = -1,
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    """Rows of bags put together: ``mode`` 0 adds, 1 takes the mean, 2 the largest. Each index lies in one bag.

    Then what PyTorch's own backward reads: the bag of each index, which fast sums leave out; how many indices each bag
    has, not counted by sums; and the indices of the largest.
    """
    bags = offsets.shape[0] - (1 if include_last_offset else 0)
    places = jnp.arange(indices.shape[0])
    bag = jnp.searchsorted(offsets[:bags], places, side="right") - 1
    inside = (indices != padding_idx)[:, None]
    rows = weight.at[indices].get(mode="clip")
    rows = rows if per_sample_weights is None else widened(rows) * widened(per_sample_weights)[:, None]
    count = jnp.zeros(bags, jnp.int64).at[bag].add(inside[:, 0])
    made = jnp.zeros((bags, weight.shape[1]), weight.dtype)
    if mode == 2:
        best = jnp.full_like(made, -jnp.inf).at[bag].max(jnp.where(inside, rows, -jnp.inf))
        largest = jnp.where(inside & (rows == best[bag]), places[:, None], places.size)
        first = jnp.full(made.shape, places.size, places.dtype).at[bag].min(largest)
        there = first < places.size
        return jnp.where(there, best, 0), bag, count, jnp.where(there, indices.at[first].get(mode="clip"), 0)
    made = widened(made).at[bag].add(widened(jnp.where(inside, rows, 0)))
    if mode == 1:
        return made / jnp.maximum(count, 1)[:, None].astype(made.dtype), bag, count, count
    fast = weight.dtype in (jnp.float32, jnp.float16) and padding_idx < 0
    return made, bag[:0] if fast else bag, jnp.zeros_like(count), jnp.zeros_like(count)


def _nonzero_static(x: Any, *, size: int, fill_value: int = -1) -> Any:
    found = jnp.nonzero(jnp.atleast_1d(x), size=size, fill_value=fill_value)
    return jnp.stack(found[: x.ndim], -1) if x.ndim else jnp.zeros((size, 0), jnp.int64)


_TABLE: dict[str, Callable[..., Any]] = {
    "index": _index,
    "_unsafe_index": _index,
    "index_put": _index_put,
    "_unsafe_index_put": _index_put,
    "_index_put_impl": lambda x, indices, values, accumulate=False, unsafe=False: _index_put(
        x, indices, values, accumulate
    ),
    "index_select": _index_select,
    "index_copy": _index_along("set"),
    "index_fill": _index_fill,
    "gather": _gather,
    "scatter": _scatter,
    "embedding": _embedding,
    "embedding_dense_backward": _embedding_backward,
    "masked_scatter": _masked_scatter,
    "take": _take,
    "put": _put,
    "_embedding_bag": embedding_bag,
    "_embedding_bag_forward_only": embedding_bag,
    "nonzero_static": _nonzero_static,
}

#: What adds up.
_SUMS: dict[str, Callable[..., Any]] = {
    "index_add": _index_along("add"),
    "scatter_add": lambda x, dim, index, src: _scatter(x, dim, index, src, reduce="add"),
    "scatter_reduce": _scatter_reduce,
    "index_reduce": _index_reduce,
}

#: The rows of this family.
ROWS: Mapping[str, Callable[..., Any]] = {f"aten.{k}": f for k, f in (_TABLE | in_32_bits(_SUMS)).items()}
