"""Sorting rows by an arbitrary comparator, vectorised."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from shardc.hlo.evaluate.arithmetic import total_order
from shardc.hlo.evaluate.body import apply_body
from shardc.hlo.evaluate.interpreter import Interpreter
from shardc.hlo.evaluate.values import COMPUTE, Array
from shardc.hlo.ir.ir import Computation, Instruction

__all__ = ["sort_rows"]

Less = Callable[[Array, Array], Array]


def sort_rows(m: Interpreter, comparator: Computation, rows: Sequence[Array]) -> list[Array]:
    """Sort the last dimension of each array in ``rows`` together, stably; ``comparator`` says "comes before"."""
    size = rows[0].shape[-1]
    if size < 2 or rows[0].size == 0:
        return list(rows)
    order = _by_one_key(m, comparator, rows)
    if order is None:
        order = _by_network(m, comparator, rows)
    return [np.take_along_axis(r, order, axis=-1) for r in rows]


def _by_one_key(m: Interpreter, comparator: Computation, rows: Sequence[Array]) -> Array | None:
    """The order for comparators that compare one function of both elements with LT or GT; None for others."""
    root = comparator.root
    if root.opcode != "compare" or root.attrs["direction"] not in ("LT", "GT"):
        return None
    a, b = root.operands
    ascending = root.attrs["direction"] == "LT"
    if not _is_mirrored(a, b, 0):
        a, b, ascending = b, a, not ascending
        if not _is_mirrored(a, b, 0):
            return None
    both = [r for r in rows for _ in range(2)]
    (key,) = apply_body(m, Computation(comparator.name, comparator.instructions, a), both)
    key = np.broadcast_to(key, rows[0].shape)
    if a.shape.dtype.is_float and root.attrs.get("type") == "TOTALORDER":
        key = total_order(key)
    else:
        key = key.astype(COMPUTE[key.dtype], copy=False)
        if key.dtype.kind == "c" or np.isnan(key).any():
            return None
    if ascending:
        return np.argsort(key, axis=-1, kind="stable")
    # Reversing before and after keeps equal elements in order of position.
    return np.asarray(key.shape[-1] - 1 - np.argsort(key[..., ::-1], axis=-1, kind="stable")[..., ::-1])


def _is_mirrored(a: Instruction, b: Instruction, depth: int) -> bool:
    """Whether ``b`` computes from the second elements what ``a`` computes from the first."""
    if depth > 8 or a.opcode != b.opcode or len(a.operands) != len(b.operands) or a.shape != b.shape:
        return False
    if a.opcode == "parameter":
        first, second = int(a.attrs["index"]), int(b.attrs["index"])
        return first % 2 == 0 and second == first + 1
    return a.attrs == b.attrs and all(
        _is_mirrored(x, y, depth + 1) for x, y in zip(a.operands, b.operands, strict=True)
    )


def _by_network(m: Interpreter, comparator: Computation, rows: Sequence[Array]) -> Array:
    """Bitonic sorting of positions: each round compares half of a row with the other half at once.

    Rows are filled up to a power of two with positions that come last; equal elements go by position, which
    makes the result that of a stable sort.
    """
    size = rows[0].shape[-1]
    width = 1 << (size - 1).bit_length()
    order = np.broadcast_to(np.arange(width), (*rows[0].shape[:-1], width)).copy()

    def before(a: Array, b: Array) -> Array:
        values = [np.take_along_axis(r, np.minimum(p, size - 1), axis=-1) for r in rows for p in (a, b)]
        swapped = [v for k in range(0, len(values), 2) for v in (values[k + 1], values[k])]
        less = np.broadcast_to(apply_body(m, comparator, values)[0], a.shape)
        more = np.broadcast_to(apply_body(m, comparator, swapped)[0], a.shape)
        real = np.where(less == more, a < b, less)
        return np.where((a < size) & (b < size), real, a < b)

    positions = np.arange(width)
    block = 2
    while block <= width:
        distance = block // 2
        while distance >= 1:
            low = positions[positions & distance == 0]
            a, b = order[..., low], order[..., low + distance]
            keep = before(a, b) == (low & block == 0)
            order[..., low], order[..., low + distance] = np.where(keep, a, b), np.where(keep, b, a)
            distance //= 2
        block *= 2
    return order[..., :size]
