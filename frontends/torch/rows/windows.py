"""Pools, normalisation and resampling, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardc.frontends.torch.rows.in_32_bits import in_32_bits

__all__ = ["ROWS"]

Row = Callable[..., Any]


def _each(values: Any, count: int) -> list[int]:
    given = [values] if isinstance(values, int) else list(values)
    return given if len(given) == count else given * count


def _sides(n: int, size: int, step: int, padding: int, spread: int, ceil: bool) -> tuple[int, int, int]:
    """Padding before and after a dimension of length ``n``, and how many windows there are."""
    reach = spread * (size - 1) + 1
    room = n + 2 * padding - reach
    count = (math.ceil(room / step) if ceil else room // step) + 1
    if ceil and (count - 1) * step >= n + padding:
        count -= 1
    return padding, (count - 1) * step + reach - n - padding, count


def _window(
    x: Any, size: Any, step: Any, padding: Any, dilation: Any, ceil: bool, count: int
) -> tuple[list[int], list[int], list[int], list[tuple[int, int]]]:
    size, spread = _each(size, count), _each(dilation, count)
    step, around = (_each(step, count) if step else size), _each(padding, count)
    tail = x.shape[x.ndim - count :]
    found = [_sides(n, k, s, p, d, ceil) for n, k, s, p, d in zip(tail, size, step, around, spread, strict=True)]
    before = x.ndim - count
    sides = [(0, 0)] * before + [(low, high) for low, high, _ in found]
    return [1] * before + size, [1] * before + step, [1] * before + spread, sides


def _reduced(x: Any, start: Any, function: Any, window: Any) -> Any:
    """A reduction over windows; where padding after a dimension is negative, what no window reaches is left out."""
    size, step, spread, sides = window
    cut = [slice(0, n + min(0, high)) for n, (_, high) in zip(x.shape, sides, strict=True)]
    kept = [(low, max(0, high)) for low, high in sides]
    return lax.reduce_window(x[tuple(cut)], start, function, size, step, kept, window_dilation=spread)


def _least(dtype: Any) -> Any:
    return np.array(-np.inf if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo(dtype).min, dtype)


def _max_values(count: int) -> Row:
    def row(x: Any, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False) -> Any:
        window = _window(x, kernel, stride, padding, dilation, ceil_mode, count)
        return _reduced(x, _least(x.dtype), lax.max, window)

    return row


def _max_pool(count: int) -> Row:
    """Values, and for each the place in the dimensions that are pooled, counted through."""

    def row(
        x: Any, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> tuple[Any, Any]:
        values = _max_values(count)(x, kernel, stride, padding, dilation, ceil_mode)
        tail = x.shape[x.ndim - count :]
        numbers = jnp.broadcast_to(jnp.arange(math.prod(tail), dtype=jnp.int64).reshape(tail), x.shape)
        size, step, spread, sides = _window(x, kernel, stride, padding, dilation, ceil_mode, count)
        best, place = jnp.full(values.shape, _least(x.dtype)), jnp.zeros(values.shape, jnp.int64)
        for offset in np.ndindex(*size):
            at = [o * d - low for o, d, (low, _) in zip(offset, spread, sides, strict=True)]
            taken = _shifted(x, at, step, values.shape, _least(x.dtype))
            where = _shifted(numbers, at, step, values.shape, 0)
            better = (taken > best) | jnp.isnan(taken)
            best, place = jnp.where(better, taken, best), jnp.where(better, where, place)
        return values, place

    return row


def _shifted(x: Any, at: Sequence[int], step: Sequence[int], shape: Sequence[int], fill: Any) -> Any:
    """Elements ``at + k step`` for the places ``k`` of ``shape``; ``fill`` where there are none."""
    ends = [a + (n - 1) * s + 1 for a, n, s in zip(at, shape, step, strict=True)]
    sides = [(max(0, -a), max(0, e - n), 0) for a, e, n in zip(at, ends, x.shape, strict=True)]
    padded = lax.pad(x, jnp.asarray(fill, x.dtype), sides)
    starts = [a + low for a, (low, _, _) in zip(at, sides, strict=True)]
    stops = [e + low for e, (low, _, _) in zip(ends, sides, strict=True)]
    return lax.slice(padded, starts, stops, list(step))


def _max_pool_backward(count: int) -> Row:
    def row(
        gradient: Any, x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, indices: Any
    ) -> Any:
        tail = x.shape[x.ndim - count :]
        rows = math.prod(x.shape[: x.ndim - count])
        flat, where = gradient.reshape(rows, -1), indices.reshape(rows, -1)
        made = jnp.zeros((rows, math.prod(tail)), gradient.dtype)
        return made.at[lax.broadcasted_iota(where.dtype, where.shape, 0), where].add(flat).reshape(x.shape)

    return row


def _avg_pool(count: int) -> Row:
    def row(
        x: Any, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> Any:  # fmt: skip
        window = _window(x, kernel, stride, padding, 1, ceil_mode, count)
        total = _reduced(x, np.array(0, x.dtype), lax.add, window)
        if divisor_override is not None:
            return total / divisor_override
        return total / _counts(x, window, _each(padding, count), count_include_pad, count).astype(x.dtype)

    return row


def _counts(x: Any, window: Any, padding: Sequence[int], with_padding: bool, count: int) -> Any:
    """How many elements each window has: of the array, or of the array with its padding."""
    made = np.ones((), np.int64)
    for k, p in zip(range(x.ndim - count, x.ndim), padding, strict=True):
        size, step, (low, high), n = window[0][k], window[1][k], window[3][k], x.shape[k]
        starts = np.arange((n + low + high - size) // step + 1) * step - low
        first, last = (-p, n + p) if with_padding else (0, n)
        made = made[..., None] * (np.minimum(starts + size, last) - np.maximum(starts, first))
    return jnp.asarray(made)


def _backward_of(forward: Row) -> Row:
    """The gradient of a pool whose backward operator has the gradient, the input and the options."""
    return lambda gradient, x, *options: jax.vjp(lambda v: forward(v, *options), x)[1](gradient)[0]


def _mixed(x: Any, matrices: Sequence[Any]) -> Any:
    """``x`` with its last dimensions multiplied by one matrix [out, in] each."""
    for k, matrix in enumerate(reversed(matrices)):
        axis = x.ndim - 1 - k
        x = jnp.moveaxis(jnp.tensordot(x, jnp.asarray(matrix, x.dtype), axes=(axis, 1)), -1, axis)
    return x


def _adaptive_matrix(n: int, out: int) -> Any:
    matrix = np.zeros((out, n))
    for k in range(out):
        low, high = k * n // out, -(-(k + 1) * n // out)
        matrix[k, low:high] = 1 / (high - low)
    return matrix


def _adaptive_pool(x: Any, output_size: Sequence[int]) -> Any:
    tail = x.shape[x.ndim - len(output_size) :]
    return _mixed(x, [_adaptive_matrix(n, out) for n, out in zip(tail, output_size, strict=True)])


def _adaptive_max_pool(x: Any, output_size: Sequence[int]) -> tuple[Any, Any]:
    """The largest of each part, and its place in the dimensions that are pooled, counted through."""
    count = len(output_size)
    tail = x.shape[x.ndim - count :]
    flat = x.reshape(*x.shape[: x.ndim - count], -1)
    inside = np.ones((1, 1), bool)
    for n, out in zip(tail, output_size, strict=True):
        part = _adaptive_matrix(n, out) > 0
        inside = (inside[:, None, :, None] & part[None, :, None, :]).reshape(inside.shape[0] * out, inside.shape[1] * n)
    masked = jnp.where(jnp.asarray(inside), flat[..., None, :], _least(x.dtype))
    place = jnp.argmax(masked, axis=-1)
    shape = (*x.shape[: x.ndim - count], *output_size)
    return jnp.take_along_axis(flat, place, axis=-1).reshape(shape), place.reshape(shape)


def _sources(n: int, out: int, align: bool, scale: float | None) -> Any:
    """Where each of ``out`` samples lies among ``n`` elements."""
    places = np.arange(out, dtype=np.float64)
    if align:
        return places * ((n - 1) / (out - 1) if out > 1 else 0.0)
    return (places + 0.5) * (1 / scale if scale else n / out) - 0.5


def _linear_matrix(n: int, out: int, align: bool, scale: float | None) -> Any:
    at = np.maximum(_sources(n, out, align, scale), 0)
    low = np.minimum(np.floor(at).astype(int), n - 1)
    high, part = np.minimum(low + 1, n - 1), at - low
    matrix = np.zeros((out, n))
    np.add.at(matrix, (np.arange(out), low), 1 - part)
    np.add.at(matrix, (np.arange(out), high), part)
    return matrix


def _cubic_matrix(n: int, out: int, align: bool, scale: float | None) -> Any:
    at = _sources(n, out, align, scale)
    low = np.floor(at).astype(int)
    matrix = np.zeros((out, n))
    for k in range(-1, 3):
        d, a = np.abs(at - (low + k)), -0.75
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        np.add.at(matrix, (np.arange(out), np.clip(low + k, 0, n - 1)), np.where(d <= 1, near, far))
    return matrix


def _nearest_matrix(n: int, out: int, exact: bool, scale: float | None) -> Any:
    step = np.float32(1 / scale) if scale else np.float32(n / out)
    at = np.floor((np.arange(out, dtype=np.float32) + np.float32(0.5 if exact else 0)) * step)
    matrix = np.zeros((out, n))
    matrix[np.arange(out), np.minimum(at.astype(int), n - 1)] = 1
    return matrix


def _smooth_matrix(filter_: Callable[[Any], Any], reach: int) -> Row:
    """Samples that are means of all elements that fall together where the array becomes smaller."""

    def matrix(n: int, out: int, align: bool, scale: float | None) -> Any:
        step = ((n - 1) / (out - 1) if out > 1 else 0.0) if align else 1 / scale if scale else n / out
        wide = max(step, 1.0)
        center, places = step * (np.arange(out) + 0.5)[:, None], np.arange(n)
        first = np.maximum(np.floor(center - reach * wide + 0.5), 0)
        last = np.minimum(np.floor(center + reach * wide + 0.5), n)
        weights = np.where((places >= first) & (places < last), filter_((places - center + 0.5) / wide), 0)
        return weights / weights.sum(axis=1, keepdims=True)

    return matrix


def _triangle(at: Any) -> Any:
    return np.maximum(1 - np.abs(at), 0)


def _smooth_cubic(at: Any) -> Any:
    d, a = np.abs(at), -0.5
    near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d < 1, near, np.where(d < 2, far, 0))


def _lanczos(at: Any) -> Any:
    return np.where(np.abs(at) < 3, np.sinc(at) * np.sinc(at / 3), 0)


def _sizes(x: Any, count: int, output_size: Any, scales: Any) -> tuple[list[int], list[float | None]]:
    tail = x.shape[x.ndim - count :]
    if output_size is not None:
        return list(output_size), [None] * count
    return [int(n * s) for n, s in zip(tail, scales, strict=True)], list(scales)


def _resampled(matrix: Row, count: int, *, aligns: bool) -> Row:
    """An overload ``vec`` has scales as one list, the others one argument for each dimension."""

    def row(x: Any, output_size: Any, *options: Any) -> Any:
        align, scales = (bool(options[0]), options[1:]) if aligns else (False, options)
        scales = tuple(scales[0]) if scales and isinstance(scales[0], (list, tuple)) else scales
        known = [s for s in scales if s is not None]
        sizes, factors = _sizes(x, count, output_size, known)
        factors = known if len(known) == count else factors
        tail = x.shape[x.ndim - count :]
        return _mixed(x, [matrix(n, o, align, s) for n, o, s in zip(tail, sizes, factors, strict=True)])

    return row


def _resampled_backward(forward: Row) -> Row:
    def row(gradient: Any, output_size: Any, input_size: Any, *options: Any) -> Any:
        like = jax.ShapeDtypeStruct(tuple(input_size), gradient.dtype)
        return jax.linear_transpose(lambda v: forward(v, output_size, *options), like)(gradient)[0]

    return row


def _batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, momentum: float, eps: float
) -> tuple[Any, ...]:
    """The result, mean and reciprocal deviation of the batch, and the new running mean and variance."""
    axes = tuple(k for k in range(x.ndim) if k != 1)
    shape = (1, -1) + (1,) * (x.ndim - 2)
    wide = x.astype(jnp.result_type(x.dtype, jnp.float32))
    if training:
        at = jnp.mean(wide, axis=axes)
        spread = jnp.mean(jnp.square(wide - at.reshape(shape)), axis=axes)
        count = math.prod(x.shape[k] for k in axes)
        new_mean = None if mean is None else momentum * at + (1 - momentum) * mean
        new_variance = None if variance is None else (
            momentum * spread * (count / max(count - 1, 1)) + (1 - momentum) * variance
        )  # fmt: skip
    else:
        at, spread, new_mean, new_variance = mean, variance, mean, variance
    factor = lax.rsqrt(spread + eps)
    made = (wide - at.reshape(shape)) * factor.reshape(shape)
    made = made if weight is None else made * weight.reshape(shape)
    made = (made if bias is None else made + bias.reshape(shape)).astype(x.dtype)
    saved = (at, factor) if training else (jnp.zeros((0,), wide.dtype),) * 2
    return made, *saved, new_mean, new_variance


def _layer_norm(x: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any]:
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    wide = x.astype(jnp.result_type(x.dtype, jnp.float32))
    mean = jnp.mean(wide, axis=axes, keepdims=True)
    factor = lax.rsqrt(jnp.mean(jnp.square(wide - mean), axis=axes, keepdims=True) + eps)
    made = (wide - mean) * factor
    made = made if weight is None else made * weight
    return (made if bias is None else made + bias).astype(x.dtype), mean, factor


def _group_norm(
    x: Any, weight: Any, bias: Any, n: int, channels: int, rest: int, group: int, eps: float
) -> tuple[Any, Any, Any]:
    wide = x.astype(jnp.result_type(x.dtype, jnp.float32)).reshape(n, group, -1)
    mean = jnp.mean(wide, axis=2, keepdims=True)
    factor = lax.rsqrt(jnp.mean(jnp.square(wide - mean), axis=2, keepdims=True) + eps)
    made = ((wide - mean) * factor).reshape(x.shape)
    shape = (1, channels) + (1,) * (x.ndim - 2)
    made = made if weight is None else made * weight.reshape(shape)
    made = made if bias is None else made + bias.reshape(shape)
    return made.astype(x.dtype), mean[..., 0], factor[..., 0]


_NEAREST = {k: _resampled(lambda n, o, _, s: _nearest_matrix(n, o, False, s), k, aligns=False) for k in (1, 2, 3)}
_EXACT = {k: _resampled(lambda n, o, _, s: _nearest_matrix(n, o, True, s), k, aligns=False) for k in (1, 2, 3)}
_LINEAR = {k: _resampled(_linear_matrix, k, aligns=True) for k in (1, 2, 3)}
_CUBIC = _resampled(_cubic_matrix, 2, aligns=True)
#: Samples that are elements as they are.
_CHOOSING = {
    **{f"upsample_nearest{k}d": row for k, row in _NEAREST.items()},
    **{f"_upsample_nearest_exact{k}d": row for k, row in _EXACT.items()},
}
#: Samples that are means of elements.
_MIXING = {
    "upsample_linear1d": _LINEAR[1],
    "upsample_bilinear2d": _LINEAR[2],
    "upsample_trilinear3d": _LINEAR[3],
    "upsample_bicubic2d": _CUBIC,
    "_upsample_bilinear2d_aa": _resampled(_smooth_matrix(_triangle, 1), 2, aligns=True),
    "_upsample_bicubic2d_aa": _resampled(_smooth_matrix(_smooth_cubic, 2), 2, aligns=True),
    "_upsample_lanczos2d_aa": _resampled(_smooth_matrix(_lanczos, 3), 2, aligns=True),
}

_TABLE: dict[str, Row] = {
    **_CHOOSING,
    "max_pool2d_with_indices": _max_pool(2),
    "max_pool3d_with_indices": _max_pool(3),
    "adaptive_max_pool2d": _adaptive_max_pool,
    "adaptive_max_pool3d": _adaptive_max_pool,
}

#: What would round more than once.
_MANY: dict[str, Row] = {
    **_MIXING,
    **{f"{name}_backward": _resampled_backward(row) for name, row in (_CHOOSING | _MIXING).items()},
    "max_pool2d_with_indices_backward": _max_pool_backward(2),
    "max_pool3d_with_indices_backward": _max_pool_backward(3),
    "avg_pool2d": _avg_pool(2),
    "avg_pool3d": _avg_pool(3),
    "avg_pool2d_backward": _backward_of(_avg_pool(2)),
    "avg_pool3d_backward": _backward_of(_avg_pool(3)),
    "_adaptive_avg_pool2d": _adaptive_pool,
    "_adaptive_avg_pool3d": _adaptive_pool,
    "_adaptive_avg_pool2d_backward": lambda gradient, x: _backward_of(_adaptive_pool)(
        gradient, x, gradient.shape[x.ndim - 2 :]
    ),
    "_adaptive_avg_pool3d_backward": lambda gradient, x: _backward_of(_adaptive_pool)(
        gradient, x, gradient.shape[x.ndim - 3 :]
    ),
    "native_layer_norm": _layer_norm,
    "native_group_norm": _group_norm,
    "_native_batch_norm_legit_functional": _batch_norm,
    "_native_batch_norm_legit": lambda x, w, b, *rest: _batch_norm(
        x, w, b, *(rest if len(rest) == 5 else (None, None, *rest))
    )[:3],
    "_native_batch_norm_legit_no_training": lambda x, w, b, mean, var, momentum, eps: _batch_norm(
        x, w, b, mean, var, False, momentum, eps
    )[:3],
}

#: The rows of this family.
ROWS: Mapping[str, Row] = {f"aten.{k}": f for k, f in (_TABLE | in_32_bits(_MANY)).items()}
