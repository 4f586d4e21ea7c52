"""Where updates go that are known before the program runs: start indices and index vectors made of constants."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardc.hlo.evaluate import evaluate_computation
from shardc.hlo.ir.ir import Computation, Instruction, topological
from shardc.hlo.ir.opset import OPS

__all__ = ["Edges", "edges_of_update", "known_vectors"]

#: Elements before and after a window along each dimension.
Edges = tuple[tuple[int, int], ...]

#: What indices are made of, besides arithmetic.
_MADE = frozenset(("constant", "broadcast", "reshape", "transpose", "concatenate", "slice", "iota"))
_MOST = 1 << 24


def known_vectors(indices: Instruction, vector: int) -> np.ndarray | None:
    """Index vectors, one per row, in the order of the other dimensions; ``vector`` is the dimension along them."""
    values = _known(indices)
    if values is None:
        return None
    wide = values.astype(np.int64).reshape((*values.shape, 1) if vector == values.ndim else values.shape)
    return np.ascontiguousarray(np.moveaxis(wide, vector, -1)).reshape(-1, wide.shape[vector])


def edges_of_update(update: Instruction, operands: Sequence[Instruction]) -> Edges | None:
    """Where a dynamic-update-slice, or a scatter of one window, with these operands writes; None where that is not
    known, or the window does not fit and is not written."""
    if update.opcode == "dynamic-update-slice":
        return _edges_of_slice(update, operands)
    a, windows = update.attrs, operands[2].shape
    if len(operands) != 3 or len(a["update_window_dims"]) != windows.rank or a.get("input_batching_dims"):
        return None
    found = known_vectors(operands[1], a["index_vector_dim"])
    if found is None or len(found) != 1:
        return None
    first = dict(zip(a["scatter_dims_to_operand_dims"], found[0].tolist(), strict=True))
    sizes = iter(windows.dims)
    edges = []
    for d, n in enumerate(update.shape.dims):
        size = 1 if d in a["inserted_window_dims"] else next(sizes)
        low = first.get(d, 0)
        if low < 0 or low + size > n:
            return None
        edges.append((low, n - low - size))
    return tuple(edges)


def _edges_of_slice(update: Instruction, operands: Sequence[Instruction]) -> Edges | None:
    starts = [_known(o) for o in operands[2:]]
    known = [int(v) for s in starts if s is not None for v in s.reshape(-1)]
    if len(known) != update.shape.rank:
        return None
    edges = []
    for n, size, start in zip(update.shape.dims, operands[1].shape.dims, known, strict=True):
        low = min(max(start, 0), n - size)
        edges.append((low, n - low - size))
    return tuple(edges)


def _known(x: Instruction) -> np.ndarray | None:
    """The value of integers that are made of constants."""
    stack, seen = [x], {x}
    while stack:
        i = stack.pop()
        made = i.opcode in _MADE or OPS[i.opcode].family == "elementwise"
        if not made or not i.shape.is_array or i.shape.size > _MOST or _is_left_out(i):
            return None
        new = [o for o in i.operands if o not in seen]
        stack += new
        seen.update(new)
    sources = topological([x])
    return np.asarray(evaluate_computation(Computation("indices", sources, x), []))


def _is_left_out(i: Instruction) -> bool:
    return i.opcode == "constant" and i.attrs["literal"].is_left_out
