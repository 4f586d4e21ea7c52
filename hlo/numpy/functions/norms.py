"""``np.linalg``: norms of vectors and matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from shardc.hlo.numpy.recorder import Trace
from shardc.hlo.numpy.tracer import NP, Tracer
from shardc.hlo.numpy.values import convert, lift, normal_axes, refuse

__all__ = ["FUNCTIONS"]


def _floating(x: Tracer) -> Tracer:
    return x if issubclass(x.dtype.type, np.inexact) else convert(x, np.float64)


# NumPy calls the order `ord`, so do the signatures here.


def _norm(
    recorder: Trace,
    x: Any,
    ord: Any = None,  # noqa: A002
    axis: Any = None,
    keepdims: bool = False,
) -> Any:
    value = _floating(lift(recorder, x))
    plain = ord is None or (ord in ("f", "fro") and value.ndim == 2) or (ord == 2 and value.ndim == 1)
    if axis is None and plain:
        return _two_norm(value, None, keepdims)
    axes = normal_axes(axis, value.ndim)
    if len(axes) == 1:
        return _vector_norm(value, ord, axes, keepdims)
    if len(axes) != 2:
        raise ValueError("Improper number of dimensions to norm.")
    return _matrix_norm(value, ord, axes, keepdims)


def _two_norm(x: Any, axes: Any, keepdims: bool) -> Any:
    square = NP.real(x * NP.conjugate(x)) if x.aval.dtype.is_complex else x * x
    return NP.sqrt(NP.sum(square, axis=axes, keepdims=keepdims))


def _vector_norm(x: Tracer, order: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    if order is None or order == 2:
        return _two_norm(x, axes, keepdims)
    size = NP.absolute(x)
    if order in (np.inf, -np.inf):
        return (NP.max if order > 0 else NP.min)(size, axis=axes, keepdims=keepdims)
    if order == 0:
        return NP.sum(NP.not_equal(x, 0), axis=axes, keepdims=keepdims, dtype=size.dtype)
    if isinstance(order, str):
        raise ValueError(f"Invalid norm order '{order}' for vectors")
    total = NP.sum(size if order == 1 else size**order, axis=axes, keepdims=keepdims)
    return total if order == 1 else total ** (1 / order)


def _matrix_norm(x: Tracer, order: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    if order in (None, "fro", "f"):
        return _two_norm(x, axes, keepdims)
    if order in (1, -1, np.inf, -np.inf):
        first, second = axes if order in (1, -1) else axes[::-1]
        sums = NP.sum(NP.absolute(x), axis=first, keepdims=True)
        made = (NP.max if order > 0 else NP.min)(sums, axis=second, keepdims=True)
        return made if keepdims else NP.squeeze(made, axes)
    if order in (2, -2, "nuc"):
        values = NP.linalg.svdvals(NP.moveaxis(x, axes, (-2, -1)))
        made = NP.sum(values, axis=-1) if order == "nuc" else (NP.max if order > 0 else NP.min)(values, axis=-1)
        return NP.expand_dims(made, axes) if keepdims else made
    raise ValueError("Invalid norm order for matrices.")


def _flat_norm(
    recorder: Trace,
    x: Any,
    /,
    *,
    axis: Any = None,
    keepdims: bool = False,
    ord: Any = 2,  # noqa: A002
) -> Any:
    value = _floating(lift(recorder, x))
    axes = normal_axes(axis, value.ndim)
    if len(axes) == 1 or ord == 2:
        return _vector_norm(value, ord, axes, keepdims)
    if keepdims:
        refuse(recorder, "np.linalg.vector_norm over several axes with keepdims", "reshape first")
    rest = [d for d in range(value.ndim) if d not in axes]
    moved = NP.transpose(value, (*rest, *axes))
    return _vector_norm(NP.reshape(moved, (*moved.shape[: len(rest)], -1)), ord, (len(rest),), False)


def _last_norm(
    recorder: Trace,
    x: Any,
    /,
    *,
    keepdims: bool = False,
    ord: Any = "fro",  # noqa: A002
) -> Any:
    value = _floating(lift(recorder, x))
    return _matrix_norm(value, ord, (value.ndim - 2, value.ndim - 1), keepdims)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "linalg.norm": _norm,
    "linalg.vector_norm": _flat_norm,
    "linalg.matrix_norm": _last_norm,
}
