"""Where updates and reads are that is known before the program runs: indices made of constants."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from shardc.hlo.evaluate import evaluate_computation
from shardc.hlo.ir.ir import Computation, Instruction, topological
from shardc.hlo.ir.opset import OPS

__all__ = ["Edges", "edges_of_read", "edges_of_update", "known_vectors"]

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
    rows = np.ascontiguousarray(np.moveaxis(wide, vector, -1))
    return rows.reshape(math.prod(rows.shape[:-1]), rows.shape[-1])


def edges_of_update(update: Instruction, operands: Sequence[Instruction]) -> Edges | None:
    """Where a dynamic-update-slice, or a scatter of one window, with these operands writes; None where that is not
    known, or the window does not fit and is not written."""
    if update.opcode == "dynamic-update-slice":
        return _edges_of_starts(operands[2:], update.shape.dims, operands[1].shape.dims)
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


def edges_of_read(read: Instruction, operands: Sequence[Instruction]) -> Edges | None:
    """What a dynamic-slice, or a gather of one window, with these operands leaves out; None where that is not known."""
    if read.opcode == "dynamic-slice":
        return _edges_of_starts(operands[1:], operands[0].shape.dims, read.shape.dims)
    a = read.attrs
    if a.get("operand_batching_dims") or math.prod(read.shape.dims) != math.prod(a["slice_sizes"]):
        return None
    found = known_vectors(operands[1], a["index_vector_dim"])
    if found is None or len(found) != 1:
        return None
    first = dict(zip(a["start_index_map"], found[0].tolist(), strict=True))
    sizes = zip(operands[0].shape.dims, a["slice_sizes"], strict=True)
    lows = [(min(max(first.get(d, 0), 0), n - size), size, n) for d, (n, size) in enumerate(sizes)]
    return tuple((low, n - low - size) for low, size, n in lows)


def _edges_of_starts(given: Sequence[Instruction], dims: tuple[int, ...], window: tuple[int, ...]) -> Edges | None:
    """Of a window that is moved inside where it would reach beyond."""
    starts = [_known(o) for o in given]
    known = [int(v) for s in starts if s is not None for v in s.reshape(-1)]
    if len(known) != len(dims):
        return None
    lows = [min(max(start, 0), n - size) for n, size, start in zip(dims, window, known, strict=True)]
    return tuple((low, n - low - size) for low, n, size in zip(lows, dims, window, strict=True))


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
