"""`unique` with a size that is given, which is what traced values need."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardc.hlo.errors import InputError

__all__ = ["unique"]


def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """`numpy.unique`; with ``size`` exactly that many values, as in `jax.numpy.unique`, so that it can be traced.

    Where there are fewer values, ``fill_value`` is repeated, by default the least value, with its index and a count of
    0. If there are more, the greatest are left out. Raises `InputError` for ``size`` with ``axis``, or with an
    empty array.

    >>> values, counts = np.unique(np.array([3, 1, 3]), return_counts=True, size=4)
    >>> values.tolist(), counts.tolist()
    ([1, 3, 1, 1], [1, 2, 0, 0])
    """
    if size is None:
        whole: Any = np.unique
        return whole(ar, return_index, return_inverse, return_counts, axis, equal_nan=equal_nan)
    if axis is not None:
        raise InputError(
            "np.unique cannot take axis= together with size=", fix="omit axis=: unique rows cannot have a fixed number"
        )
    shape, x = np.shape(ar), np.ravel(ar)
    if not x.size:
        raise InputError("np.unique(size=) needs at least one element", fix="omit size= for empty arrays")
    order = np.argsort(x, stable=True) if return_index or return_inverse else None
    ordered = np.sort(x) if order is None else np.take(x, order)
    new = ordered[1:] != ordered[:-1]
    if equal_nan and x.dtype.kind in "fc":
        new = new & ~(np.isnan(ordered[1:]) & np.isnan(ordered[:-1]))
    first = np.concatenate([np.ones_like(new, shape=(1,)), new])
    # The first of their kind in front, in order: a sort, so that between devices elements go to their places alone.
    front = np.argsort(~first, stable=True)
    is_value = np.arange(size, like=x) < np.sum(first)

    def firsts(values: Any, fill: Any) -> Any:
        made = np.take(values, front)[:size]
        return np.where(is_value, np.pad(made, (0, size - len(made))), fill)

    found = [firsts(ordered, ordered[0] if fill_value is None else np.asarray(fill_value).astype(x.dtype))]
    if order is not None and return_index:
        found.append(firsts(order, order[0]))
    if order is not None and return_inverse:
        place = np.cumsum(first) - 1
        inverse = np.zeros_like(place)
        inverse[order] = place
        found.append(np.reshape(inverse, shape))
    if return_counts:
        found.append(_counts(front, np.sum(first), len(x), size))
    return found[0] if len(found) == 1 else tuple(found)


def _counts(front: Any, found: Any, count: int, size: int) -> Any:
    """How many of ``count`` sorted elements are equal, of each of ``size`` values, whose first places are in front."""
    starts = front[: size + 1]
    starts = np.pad(starts, (0, size + 1 - len(starts)))
    return np.diff(np.where(np.arange(size + 1, like=front) < found, starts, count))
