"""Samples of an array at places that are values: grids, and windows at random places."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from shardc.frontends.torch.rows.in_32_bits import in_32_bits

__all__ = ["ROWS", "grid_sample"]

Row = Callable[..., Any]

#: Numbers of PyTorch for how a grid is read, and for what lies outside.
_NEAREST, _BORDER, _REFLECTION = 1, 1, 2


def _place(coordinate: Any, n: int, outside: int, align: bool) -> Any:
    """Where among ``n`` elements a coordinate between -1 and 1 lies."""
    at = (coordinate + 1) / 2 * (n - 1) if align else ((coordinate + 1) * n - 1) / 2
    if outside == _REFLECTION:
        low, span = (0.0, float(n - 1)) if align else (-0.5, float(n))
        distance = jnp.abs(at - low)
        rest = jnp.mod(distance, span) if span else jnp.zeros_like(at)
        turned = jnp.floor(distance / (span or 1.0)) % 2 == 1
        at = jnp.where(turned, span - rest, rest) + low
    if outside in (_BORDER, _REFLECTION):
        at = jnp.clip(at, 0, n - 1)
    return jnp.where(jnp.isfinite(at), at, -100.0)


def grid_sample(x: Any, grid: Any, interpolation: int, outside: int, align: bool) -> Any:
    """``x`` [N, C, *sizes] at the places ``grid`` [N, *places, rank], whose last dimension begins with the last size.

    The sum over the corners around each place, with their weights; corners outside of the array are zero.
    """
    sizes, rank = x.shape[2:], x.ndim - 2
    at = [_place(grid[..., rank - 1 - k], n, outside, align) for k, n in enumerate(sizes)]
    flat = x.reshape(*x.shape[:2], -1)
    made = jnp.zeros((*x.shape[:2], *grid.shape[1:-1]), x.dtype)
    nearest = interpolation == _NEAREST
    low = [jnp.round(a) if nearest else jnp.floor(a) for a in at]
    for corner in [(0,) * rank] if nearest else itertools.product((0, 1), repeat=rank):
        inside, number = jnp.ones((), bool), jnp.zeros((), jnp.int64)
        weight = jnp.ones((), x.dtype)
        for a, first, step, n in zip(at, low, corner, sizes, strict=True):
            where = first.astype(jnp.int64) + step
            inside &= (where >= 0) & (where < n)
            number = number * n + jnp.clip(where, 0, n - 1)
            weight *= 1 if nearest else (a - first if step else first + 1 - a)
        taken = jnp.take_along_axis(flat, number.reshape(x.shape[0], 1, -1), axis=2)
        made += jnp.where(inside, weight, 0)[:, None] * taken.reshape(made.shape)
    return made


def _starts(sample: Any, n: int, out: int, size: int) -> Any:
    """The first element of each of ``out`` windows of ``size`` among ``n``; ``sample`` [N, C] moves them."""
    if out == 1:
        return jnp.full((*sample.shape, 1), n - size, jnp.int64)
    step = jnp.asarray(n - size, sample.dtype) / (out - 1)
    numbers = jnp.arange(out, dtype=sample.dtype)
    first = jnp.floor((numbers + sample[..., None]) * step) - jnp.floor(sample[..., None] * step)
    return jnp.where(numbers == out - 1, n - size, first).astype(jnp.int64)


def _fractional_pool(count: int) -> Row:
    """The largest of each window, and its place in the dimensions that are pooled, counted through."""

    def row(x: Any, size: Sequence[int], output_size: Sequence[int], samples: Any) -> tuple[Any, Any]:
        wide = x if x.ndim == count + 2 else x[None]
        numbers = jnp.zeros(samples.shape[:2], jnp.int64)
        order = range(count - 1, -1, -1) if count == 2 else range(count)  # in two dimensions, the width comes first
        for k, (n, out, s) in enumerate(zip(wide.shape[2:], output_size, size, strict=True)):
            first = _starts(samples[..., order[k]], n, out, s)[..., None] + np.arange(s)
            numbers = numbers[..., None, None] * n + first.reshape(*first.shape[:2], *(1,) * (2 * k), out, s)
        axes = (0, 1, *range(2, 2 + 2 * count, 2), *range(3, 3 + 2 * count, 2))
        places = numbers.transpose(axes).reshape(*wide.shape[:2], math.prod(output_size), math.prod(size))
        flat = wide.reshape(*wide.shape[:2], -1)
        taken = jnp.take_along_axis(flat, places.reshape(*flat.shape[:2], -1), axis=2).reshape(places.shape)
        best = jnp.argmax(taken, axis=-1, keepdims=True)
        shape = (*x.shape[: x.ndim - count], *output_size)
        return tuple(jnp.take_along_axis(v, best, axis=-1).reshape(shape) for v in (taken, places))

    return row


def _fractional_pool_backward(gradient: Any, x: Any, size: Any, output_size: Any, places: Any) -> Any:
    rows = math.prod(x.shape[: x.ndim - len(output_size)])
    flat, where = gradient.reshape(rows, -1), places.reshape(rows, -1)
    made = jnp.zeros((rows, x.size // rows), gradient.dtype)
    return made.at[jnp.arange(rows)[:, None], where].add(flat).reshape(x.shape)


_TABLE: dict[str, Row] = {
    "fractional_max_pool2d": _fractional_pool(2),
    "fractional_max_pool3d": _fractional_pool(3),
}

#: What adds up.
_SUMS: dict[str, Row] = {
    "grid_sampler_3d": grid_sample,
    "fractional_max_pool2d_backward": _fractional_pool_backward,
    "fractional_max_pool3d_backward": _fractional_pool_backward,
}

#: The rows of this family.
ROWS: Mapping[str, Row] = {f"aten.{k}": f for k, f in (_TABLE | in_32_bits(_SUMS)).items()}
