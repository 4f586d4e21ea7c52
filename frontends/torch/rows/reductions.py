"""Operators that reduce, scan or order the elements of dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardc.frontends.torch.rows.in_32_bits import in_32_bits

__all__ = ["ROWS", "segments"]

Row = Callable[..., Any]


def _dims(x: Any, dim: Any) -> tuple[int, ...] | None:
    """The dimensions that ``dim`` names: a number, some, or all for None and an empty list."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return None
    return tuple(d % max(x.ndim, 1) for d in ([dim] if isinstance(dim, int) else dim)) if x.ndim else None


def _over(function: Row) -> Row:
    def row(x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        return function(x if dtype is None else x.astype(dtype), axis=_dims(x, dim), keepdims=keepdim)

    return row


def _mean(x: Any, axis: Any, keepdims: bool) -> Any:
    return jnp.mean(x, axis=axis, keepdims=keepdims)


def _variance(x: Any, dim: Any = None, correction: Any = None, keepdim: bool = False) -> tuple[Any, Any]:
    axis = _dims(x, dim)
    count = x.size if axis is None else math.prod(x.shape[a] for a in axis)
    mean = jnp.mean(x, axis=axis, keepdims=True)
    distance = jnp.abs(x - mean) if jnp.iscomplexobj(x) else x - mean
    total = jnp.sum(distance * distance, axis=axis, keepdims=keepdim)
    degrees = max(0.0, count - (1 if correction is None else correction))
    shown = mean if keepdim else mean.reshape(total.shape)
    return total / degrees if degrees else total / jnp.zeros((), total.dtype), shown


def _var(x: Any, dim: Any = None, unbiased: Any = True, keepdim: bool = False, *, correction: Any = None) -> Any:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    return _variance(x, dim, int(unbiased) if correction is None else correction, keepdim)[0]


def _var_mean(x: Any, dim: Any = None, unbiased: Any = True, keepdim: bool = False, *, correction: Any = None) -> Any:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    return _variance(x, dim, int(unbiased) if correction is None else correction, keepdim)


def _extreme(reduce: Row, locate: Row) -> Row:
    """``max`` and ``min``: of all elements, or of a dimension with the places."""

    def row(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if dim is None:
            return reduce(x)
        if not x.ndim:
            return x, jnp.zeros((), jnp.int64)
        return reduce(x, axis=dim, keepdims=keepdim), locate(x, axis=dim, keepdims=keepdim)

    return row


def _located(locate: Row) -> Row:
    def row(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if not x.ndim:
            return jnp.zeros((), jnp.int64)
        found = locate(x, axis=dim)
        if not keepdim:
            return found
        return found.reshape((1,) * x.ndim) if dim is None else jnp.expand_dims(found, dim)

    return row


def _softmax(function: Row) -> Row:
    def row(x: Any, dim: int, half_to_float: bool = False) -> Any:
        return function(x.astype(jnp.float32) if half_to_float else x, axis=dim) if x.ndim else function(x[None])[0]

    return row


def _softmax_backward(gradient: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    product = gradient * output
    return product - output * jnp.sum(product, axis=dim, keepdims=True) if output.ndim else product * 0


def _log_softmax_backward(gradient: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    total = jnp.sum(gradient, axis=dim, keepdims=True) if output.ndim else gradient
    return gradient - jnp.exp(output) * total


def _scan(function: Row) -> Row:
    """A running sum or product: integers in 64 bits, narrow floats in 32, as PyTorch accumulates them."""

    def row(x: Any, dim: int, *, dtype: Any = None) -> Any:
        x = x if dtype is None else x.astype(dtype)
        if not x.ndim:
            return x
        if not jnp.issubdtype(x.dtype, jnp.inexact):
            return function(x.astype(jnp.int64), axis=dim % x.ndim).astype(dtype or jnp.int64)
        return function(x.astype(_accumulator(x.dtype)), axis=dim % x.ndim).astype(x.dtype)

    return row


def _accumulator(dtype: Any) -> Any:
    return jnp.promote_types(dtype, jnp.float32) if jnp.issubdtype(dtype, jnp.floating) else dtype


def _running(better: Row) -> Row:
    """``cummax`` and ``cummin``: the last of equal elements counts."""

    def row(x: Any, dim: int) -> tuple[Any, Any]:
        if not x.ndim:
            return x, jnp.zeros((), jnp.int64)
        places = lax.broadcasted_iota(jnp.int64, x.shape, dim % x.ndim)

        def combine(a: Any, b: Any) -> Any:
            later = better(b[0], a[0]) | jnp.isnan(b[0])
            later = later & ~(jnp.isnan(a[0]) & ~jnp.isnan(b[0]))
            return jnp.where(later, b[0], a[0]), jnp.where(later, b[1], a[1])

        values, found = lax.associative_scan(combine, (x, places), axis=dim % x.ndim)
        return values, found

    return row


def _norm(x: Any, p: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    axis = _dims(x, dim)
    size = jnp.abs(x if dtype is None else x.astype(dtype))
    p = 2 if p is None else p
    if p == math.inf:
        return jnp.max(size, axis=axis, keepdims=keepdim)
    if p == -math.inf:
        return jnp.min(size, axis=axis, keepdims=keepdim)
    if p == 0:
        return jnp.sum(size != 0, axis=axis, keepdims=keepdim)
    if p == 1:
        return jnp.sum(size, axis=axis, keepdims=keepdim)
    if p == 2:
        return jnp.sqrt(jnp.sum(size * size, axis=axis, keepdims=keepdim))
    return jnp.sum(size**p, axis=axis, keepdims=keepdim) ** (1.0 / p)


def segments(
    x: Any, reduce: str, *, lengths: Any = None, indices: Any = None, offsets: Any = None, axis: int = 0,
    unsafe: bool = False, initial: Any = None,
) -> Any:  # fmt: skip
    """Parts of the dimension ``axis``, which lie one behind another, reduced; dimensions before it have parts of their
    own. A part begins with ``initial``, by which an empty one is known."""
    ends = jnp.cumsum(lengths, axis=-1) if offsets is None else offsets[..., 1:]
    count, before = ends.shape[-1], math.prod(x.shape[:axis])
    rows = x.reshape(before, x.shape[axis], -1)
    places = jnp.arange(x.shape[axis])
    part = jax.vmap(lambda e: jnp.searchsorted(e, places, side="right"))(ends.reshape(before, count))
    function = getattr(jax.ops, f"segment_{'sum' if reduce == 'mean' else reduce}")
    made = jax.vmap(lambda v, p: function(v, p, count))(rows, part)
    if initial is not None:
        made = {"sum": jnp.add, "mean": jnp.add, "prod": jnp.multiply, "max": jnp.maximum, "min": jnp.minimum}[reduce](
            made, initial
        )
    if reduce == "mean":
        size = jnp.diff(ends.reshape(before, count), axis=-1, prepend=0)[..., None].astype(x.dtype)
        empty = jnp.asarray(jnp.nan if initial is None else initial, x.dtype)
        made = jnp.where(size > 0, made / jnp.maximum(size, 1), empty)
    return made.reshape(*x.shape[:axis], count, *x.shape[axis + 1 :])


def _hash(x: Any, dim: Any = (), *, keepdim: bool = False, mode: int = 0) -> Any:
    """The bits of elements in 64 bits, each bit the parity of its count."""
    wide = x.astype(jnp.float64 if jnp.issubdtype(x.dtype, jnp.floating) else jnp.int64)
    bits = lax.bitcast_convert_type(wide, jnp.uint64)
    axes = _dims(x, dim) or tuple(range(x.ndim))
    made = lax.reduce(bits, np.uint64(0), lax.bitwise_xor, axes)
    return jnp.expand_dims(made, axes) if keepdim else made


def _logcumsumexp(x: Any, dim: int) -> Any:
    return lax.cumlogsumexp(x.astype(_accumulator(x.dtype)), axis=dim % x.ndim).astype(x.dtype) if x.ndim else x


def _transform() -> Row:
    """A discrete Fourier transform; ``normalization`` 0: none, 1: by the square root, 2: by the count."""

    def row(x: Any, dim: Any, normalization: int, forward: bool) -> Any:
        function = jnp.fft.fftn if forward else jnp.fft.ifftn
        count = math.prod(x.shape[d] for d in dim)
        return function(x, axes=tuple(dim)) * _factor(normalization, count, 1.0 if forward else count)

    return row


def _factor(normalization: int, count: int, plain: float) -> float:
    """What a transform that has a factor 1 / ``plain`` already is multiplied with."""
    return float({0: 1.0, 1: 1.0 / math.sqrt(count), 2: 1.0 / count}[normalization] * plain)


def _real_transform(x: Any, dim: Any, normalization: int, onesided: bool) -> Any:
    count = math.prod(x.shape[d] for d in dim)
    made = jnp.fft.rfftn(x, axes=tuple(dim)) if onesided else jnp.fft.fftn(x, axes=tuple(dim))
    return made * _factor(normalization, count, 1.0)


def _to_real_transform(x: Any, dim: Any, normalization: int, last_dim_size: int) -> Any:
    sizes = [*(x.shape[d] for d in dim[:-1]), last_dim_size]
    count = math.prod(sizes)
    made = jnp.fft.irfftn(x, s=sizes, axes=tuple(dim))
    return made * _factor(normalization, count, float(count))


_TABLE: dict[str, Row] = {
    "sum": _over(jnp.sum),
    "mean": _over(_mean),
    "prod": _over(jnp.prod),
    "amax": _over(jnp.max),
    "amin": _over(jnp.min),
    "any": _over(jnp.any),
    "all": _over(jnp.all),
    "nansum": _over(jnp.nansum),
    "count_nonzero": lambda x, dim=None: jnp.count_nonzero(x, axis=_dims(x, dim)),
    "max": _extreme(jnp.max, jnp.argmax),
    "min": _extreme(jnp.min, jnp.argmin),
    "argmax": _located(jnp.argmax),
    "argmin": _located(jnp.argmin),
    "cumsum": _scan(lax.cumsum),
    "cumprod": _scan(lax.cumprod),
    "hash_tensor": _hash,
    "logcumsumexp": _logcumsumexp,
    "cummax": _running(jnp.greater_equal),
    "cummin": _running(jnp.less_equal),
    "_fft_c2c": _transform(),
    "_fft_r2c": _real_transform,
    "_fft_c2r": _to_real_transform,
}

#: What would round more than once.
_MANY: dict[str, Row] = {
    "logsumexp": lambda x, dim, keepdim=False: jax.nn.logsumexp(x, axis=_dims(x, dim), keepdims=keepdim),
    "var": _var,
    "var_mean": _var_mean,
    "std": lambda *args, **kwargs: jnp.sqrt(_var(*args, **kwargs)),
    "_softmax": _softmax(jax.nn.softmax),
    "_log_softmax": _softmax(jax.nn.log_softmax),
    "_softmax_backward_data": _softmax_backward,
    "_log_softmax_backward_data": _log_softmax_backward,
    "segment_reduce": segments,
    "linalg_vector_norm": _norm,
}

#: The rows of this family.
ROWS: Mapping[str, Row] = {f"aten.{k}": f for k, f in (_TABLE | in_32_bits(_MANY)).items()}
