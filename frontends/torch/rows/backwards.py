"""Operators of PyTorch's backward whose forward has a row: the derivative that JAX makes of that row."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from shardc.frontends.torch.rows.in_32_bits import in_32_bits
from shardc.frontends.torch.rows.indexing import embedding_bag
from shardc.frontends.torch.rows.products import distance_backward, grouped_product
from shardc.frontends.torch.rows.reductions import segments
from shardc.frontends.torch.rows.sampling import grid_sample
from shardc.hlo.errors import UnsupportedError

__all__ = ["ROWS"]

Row = Callable[..., Any]


def _derivative(forward: Row, *at: Any) -> Callable[[Any], tuple[Any, ...]]:
    """From the gradient of the result of ``forward`` to those of ``at``."""
    pulled: Callable[[Any], tuple[Any, ...]] = jax.vjp(forward, *at)[1]
    return pulled


def _grid_sample(gradient: Any, x: Any, grid: Any, interpolation: int, *options: Any) -> tuple[Any, ...]:
    """The last option says which gradients are asked for; PyTorch reads no other."""
    *kinds, _ = options
    if interpolation > 1:
        raise UnsupportedError("the gradient of bicubic samples is not supported", fix="use the mode bilinear")
    return _derivative(lambda a, g: grid_sample(a, g, interpolation, *kinds), x, grid)(gradient)


def _edge_padding(gradient: Any, x: Any, padding: Sequence[int]) -> Any:
    """``padding`` is that of the last dimension, then of the one before it."""
    ends = [(padding[k], padding[k + 1]) for k in range(0, len(padding), 2)][::-1]
    before = [(0, 0)] * (x.ndim - len(ends))
    inner = [
        slice(max(-low, 0), n - max(-high, 0)) for n, (low, high) in zip(x.shape[len(before) :], ends, strict=True)
    ]
    outer = [*before, *((max(low, 0), max(high, 0)) for low, high in ends)]
    return _derivative(lambda a: jnp.pad(a[(..., *inner)], outer, mode="edge"), x)(gradient)[0]


def _pooled(count: int) -> Row:
    """``places`` are in the last ``count`` dimensions of ``x``, counted through."""

    def row(gradient: Any, x: Any, places: Any) -> Any:
        rows = math.prod(x.shape[: x.ndim - count])
        made = jnp.zeros((rows, math.prod(x.shape[x.ndim - count :])), gradient.dtype)
        at = jnp.arange(rows)[:, None], places.reshape(rows, -1)
        return made.at[at].add(gradient.reshape(rows, -1)).reshape(x.shape)

    return row


def _pair_distance(gradient: Any, x: Any, p: float, distance: Any) -> Any:
    """Each pair stands for two: a matrix of distances has it on both sides of its diagonal."""
    above = jnp.triu_indices(x.shape[0], 1)
    square = jnp.zeros((x.shape[0], x.shape[0]), gradient.dtype)
    gradients, distances = (square.at[above].set(v) for v in (gradient, distance))
    return distance_backward(gradients + gradients.T, x, x, p, distances + distances.T)


def _weight_norm(gradient: Any, v: Any, g: Any, norms: Any, dim: int) -> tuple[Any, ...]:
    axes = tuple(k for k in range(v.ndim) if k != dim)

    def forward(v: Any, g: Any) -> Any:
        return v * (g / jnp.sqrt(jnp.sum(v * v, axis=axes, keepdims=True)))

    return _derivative(forward, v, g)(gradient)


def _segments(
    gradient: Any, made: Any, x: Any, reduce: str, *, lengths: Any = None, offsets: Any = None, axis: int = 0,
    initial: Any = None,
) -> Any:  # fmt: skip
    def forward(a: Any) -> Any:
        return segments(a, reduce, lengths=lengths, offsets=offsets, axis=axis, initial=initial)

    return _derivative(forward, x)(gradient)[0]


def _embedding_bag(
    gradient: Any, indices: Any, offsets: Any, bag: Any, size: Any, largest: Any, count: int, scale: bool, mode: int,
    sparse: bool, weights: Any, padding_idx: int = -1,
) -> Any:  # fmt: skip
    if scale or sparse:
        raise UnsupportedError(
            "the gradient of an embedding bag that is sparse or scaled by frequency is not supported",
            fix="pass sparse=False and scale_grad_by_freq=False",
        )
    table = jnp.zeros((count, gradient.shape[1]), gradient.dtype)
    if mode == 2:  # the rows of the largest are known
        used = (size > 0)[:, None]
        columns = jnp.broadcast_to(jnp.arange(gradient.shape[1]), gradient.shape)
        return table.at[largest, columns].add(jnp.where(used, gradient, 0))
    ends = offsets.shape[0] != gradient.shape[0]

    def forward(table: Any) -> Any:
        return embedding_bag(table, indices, offsets, False, mode, False, weights, ends, padding_idx)[0]

    return _derivative(forward, table)(gradient)[0]


def _weights_of_bags(
    gradient: Any, table: Any, indices: Any, offsets: Any, bag: Any, mode: int, padding_idx: int = -1
) -> Any:
    ends = offsets.shape[0] != gradient.shape[0]

    def forward(weights: Any) -> Any:
        return embedding_bag(table, indices, offsets, False, mode, False, weights, ends, padding_idx)[0]

    return _derivative(forward, jnp.zeros(indices.shape, gradient.dtype))(gradient)[0]


def _grouped(a: Any, b: Any, offsets: Any, gradient: Any) -> tuple[Any, ...]:
    return _derivative(lambda a, b: grouped_product(a, b, offsets), a, b)(gradient)


_TABLE: dict[str, Row] = {
    "grid_sampler_2d_backward": _grid_sample,
    "grid_sampler_3d_backward": _grid_sample,
    "replication_pad1d_backward": _edge_padding,
    "replication_pad2d_backward": _edge_padding,
    "replication_pad3d_backward": _edge_padding,
    "adaptive_max_pool2d_backward": _pooled(2),
    "adaptive_max_pool3d_backward": _pooled(3),
    "_pdist_backward": _pair_distance,
    "_weight_norm_interface_backward": _weight_norm,
    "_segment_reduce_backward": _segments,
    "_embedding_bag_backward": _embedding_bag,
    "_embedding_bag_per_sample_weights_backward": _weights_of_bags,
}

#: The rows of this family.
ROWS: Mapping[str, Row] = {
    **{f"aten.{k}": f for k, f in in_32_bits(_TABLE).items()},
    "transformers.grouped_mm_fallback_backward": _grouped,
}
