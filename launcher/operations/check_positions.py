"""`check_positions`: plain positions that are outside of an array are an error before anything runs, as in NumPy."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shardc.launcher.operations.method import Method

__all__ = ["check_positions"]

_ITEMS = (operator.getitem, operator.setitem)
_TAKES = (np.take, Method("take"))


def check_positions(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise NumPy's IndexError for positions in NumPy arrays: it indexes zeros of this shape, which take no memory.

    Programs clamp positions, since most are known only when they run.
    """
    if function in _ITEMS and _plain_positions(args[1]):
        key = args[1] if isinstance(args[1], tuple) else (args[1],)
        rest = 0 if any(i is None or i is Ellipsis for i in key) else _rank(key)
        shape = args[0].shape
        _zeros(shape if not rest else shape[:rest] + (1,) * (len(shape) - rest))[key]
    elif function in _TAKES and len(args) > 1 and _plain_positions(args[1]):
        axis = args[2] if len(args) > 2 else kwargs.get("axis")
        if len(args) < 4 and kwargs.get("mode", "raise") == "raise":
            size = args[0].size if axis is None else args[0].shape[axis]
            _zeros((size,))[np.asarray(args[1])]


def _zeros(shape: tuple[int, ...]) -> Any:
    return np.broadcast_to(np.zeros((), np.int8), shape)


def _plain_positions(key: Any) -> bool:
    """Whether NumPy arrays of integers are in the key, and no other arrays."""
    items = key if isinstance(key, tuple) else (key,)
    arrays = [i for i in items if hasattr(i, "dtype") and i.ndim]
    return bool(arrays) and all(isinstance(a, np.ndarray) for a in arrays) and any(a.dtype.kind in "iu" for a in arrays)


def _rank(key: tuple[Any, ...]) -> int:
    """How many dimensions the items of the key are for."""
    return sum(i.ndim if isinstance(i, np.ndarray) and i.dtype == bool else not isinstance(i, bool) for i in key)
