"""Operators made of products: matrices, convolutions, distances, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from shardc.frontends.torch.rows.in_32_bits import in_32_bits
from shardc.hlo.errors import UnsupportedError

__all__ = ["ROWS", "distance_backward", "grouped_product"]

Row = Callable[..., Any]


def _added(product: Row) -> Row:
    """``beta x + alpha (a b)``."""

    def row(x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
        made = product(a, b)
        made = made if alpha == 1 else made * alpha
        return made if beta == 0 else made + (x if beta == 1 else x * beta)

    return row


def _product(a: Any, b: Any) -> Any:
    return jnp.matmul(a, b)


def _linear(x: Any, weight: Any, bias: Any = None) -> Any:
    made = _product(x, weight.T)
    return made if bias is None else made + bias


def _per_dimension(values: Sequence[int], count: int) -> list[int]:
    return [*values] if len(values) == count else [values[0]] * count


def _convolution(
    x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any,
    groups: int,
) -> Any:  # fmt: skip
    """Batch and channels first, then ``weight.ndim - 2`` dimensions; ``x`` may lack the batch."""
    count = weight.ndim - 2
    if x.ndim == count + 1:
        parts = (stride, padding, dilation, transposed, output_padding, groups)
        return _convolution(x[None], weight, bias, *parts)[0]
    stride, padding, dilation = (_per_dimension(v, count) for v in (stride, padding, dilation))
    options: dict[str, Any] = {"feature_group_count": groups, "rhs_dilation": dilation}
    if transposed:
        extra = _per_dimension(output_padding, count)
        reach = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        sides = [(r - p, r - p + e) for r, p, e in zip(reach, padding, extra, strict=True)]
        grouped = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
        weight = jnp.swapaxes(grouped, 1, 2).reshape(-1, weight.shape[0] // groups, *weight.shape[2:])
        weight = jnp.flip(weight, tuple(range(2, weight.ndim)))
        made = lax.conv_general_dilated(x, weight, [1] * count, sides, lhs_dilation=stride, **options)
    else:
        made = lax.conv_general_dilated(x, weight, stride, [(p, p) for p in padding], **options)
    return made if bias is None else made + bias.reshape(-1, *[1] * count)


def _convolution_backward(
    gradient: Any, x: Any, weight: Any, bias_sizes: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int, output_mask: Sequence[bool],
) -> tuple[Any, Any, Any]:  # fmt: skip
    def forward(a: Any, b: Any) -> Any:
        return _convolution(a, b, None, stride, padding, dilation, transposed, output_padding, groups)

    of_x, of_weight = jax.vjp(forward, x, weight)[1](gradient)
    others = tuple(k for k in range(gradient.ndim) if k != gradient.ndim - weight.ndim + 1)
    of_bias = jnp.sum(gradient, axis=others)
    return tuple(g if wanted else None for g, wanted in zip((of_x, of_weight, of_bias), output_mask, strict=True))  # type: ignore[return-value]


def _distance(a: Any, b: Any, p: float, compute_mode: Any = None) -> Any:
    difference = jnp.abs(a[..., :, None, :] - b[..., None, :, :])
    return _norm(difference, p)


def distance_backward(gradient: Any, a: Any, b: Any, p: float, distance: Any) -> Any:
    """The gradient of ``a``: nothing comes from pairs of distance 0."""
    difference, far = a[..., :, None, :] - b[..., None, :, :], distance[..., None]
    if p == 0:
        return jnp.zeros_like(a)
    if p == float("inf"):
        slope = jnp.sign(difference) * (jnp.abs(difference) == far)
    elif p == 1:
        slope = jnp.sign(difference)
    else:
        slope = jnp.sign(difference) * (jnp.abs(difference) / jnp.where(far == 0, 1, far)) ** (p - 1)
    return jnp.sum(jnp.where(far == 0, 0, slope) * gradient[..., None], axis=-2)


def _norm(difference: Any, p: float) -> Any:
    if p == 0:
        return jnp.sum(difference != 0, axis=-1).astype(difference.dtype)
    if p == float("inf"):
        return jnp.max(difference, axis=-1, initial=0)
    if p == 1:
        return jnp.sum(difference, axis=-1)
    if p == 2:
        return jnp.sqrt(jnp.sum(difference * difference, axis=-1))
    return jnp.sum(difference**p, axis=-1) ** (1 / p)


def _pair_distance(x: Any, p: float = 2.0) -> Any:
    rows, columns = jnp.triu_indices(x.shape[0], 1)
    return _norm(jnp.abs(x[rows] - x[columns]), p)


def _trilinear(
    a: Any, b: Any, c: Any, expand1: Any, expand2: Any, expand3: Any, sumdim: Any, unroll_dim: int = 1
) -> Any:
    """The product of three arrays, each with dimensions added, summed over some."""
    return jnp.sum(
        jnp.expand_dims(a, tuple(expand1)) * jnp.expand_dims(b, tuple(expand2)) * jnp.expand_dims(c, tuple(expand3)),
        axis=tuple(sumdim),
    )


def grouped_product(a: Any, b: Any, offsets: Any) -> Any:
    """Rows of ``a``, each times the matrix of its group in ``b``; groups end at ``offsets``, and rows behind are 0."""
    rows = jnp.arange(a.shape[0])
    group = jnp.searchsorted(offsets, rows, side="right")
    made = jnp.einsum("sk,skn->sn", a, b.at[group].get(mode="clip"))
    return jnp.where((group < offsets.shape[0])[:, None], made, 0)


def _attention(
    query: Any, key: Any, value: Any, dropout_p: float = 0.0, is_causal: bool = False, *, attn_mask: Any = None,
    scale: float | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    """Attention, and the logarithms of the sums by which a softmax divides."""
    if dropout_p:
        raise UnsupportedError(
            f"attention with dropout_p={dropout_p} is not supported",
            fix="pass dropout_p=0, and apply torch.nn.functional.dropout to the result",
        )
    exact = jnp.result_type(query.dtype, jnp.float32)
    scores = jnp.matmul(query, jnp.swapaxes(key, -1, -2), preferred_element_type=exact)
    scores = scores * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        scores = jnp.where(jnp.tri(*scores.shape[-2:], dtype=bool), scores, -jnp.inf)
    scores = scores if attn_mask is None else scores + attn_mask
    return jnp.matmul(jax.nn.softmax(scores, -1).astype(value.dtype), value), jax.nn.logsumexp(scores, -1)


_TABLE: dict[str, Row] = {
    "mm": _product,
    "bmm": _product,
    "mv": _product,
    "dot": _product,
    "matmul": _product,
    "addmm": _added(_product),
    "baddbmm": _added(_product),
    "addmv": _added(_product),
    "addbmm": _added(lambda a, b: jnp.sum(_product(a, b), axis=0)),
    "linear": _linear,
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
}

#: What would round more than once.
_MANY: dict[str, Row] = {
    "addr": _added(jnp.outer),
    "_cdist_forward": _distance,
    "_cdist_backward": distance_backward,
    "_pdist_forward": _pair_distance,
    "linalg_cross": lambda a, b, dim=-1: jnp.cross(a, b, axis=dim),
    "trace": jnp.trace,
    "_trilinear": _trilinear,
}

#: The rows of this family.
ROWS: Mapping[str, Row] = {
    **{f"aten.{k}": f for k, f in (_TABLE | in_32_bits(_MANY)).items()},
    "transformers.grouped_mm_fallback": grouped_product,
}
