"""NumPy meaning: gather, scatter and dynamic slices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from shardc.hlo.evaluate.body import MONOIDS, apply_body, passed_parameter
from shardc.hlo.evaluate.interpreter import Interpreter, OpMeaning
from shardc.hlo.evaluate.ops.reduction import one_or_tuple
from shardc.hlo.evaluate.values import COMPUTE, Array, Value, cast
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.reducers import reducer_opcode

__all__ = ["ROWS", "scatter_into"]


def _starts(
    indices: Array, vector_dim: int, indexed: Sequence[int], batching: Mapping[int, int], rank: int
) -> list[Array | None]:
    """The start along each operand dimension for every index vector; None where it is always 0.

    ``batching`` maps operand dimensions to the dimension of ``indices`` they run along with.
    """
    whole = indices.astype(COMPUTE[indices.dtype], copy=False)
    if vector_dim == whole.ndim:
        whole = whole[..., None]
    vectors = np.moveaxis(whole, vector_dim, -1)
    out: list[Array | None] = [None] * rank
    for k, d in enumerate(indexed):
        column = vectors[..., k]
        if column.dtype == np.uint64:
            # Values beyond the signed range are out of bounds either way.
            column = np.minimum(column, np.uint64(np.iinfo(np.int64).max))
        out[d] = column.astype(np.int64)
    for d, along in batching.items():
        position = along - (along > vector_dim)
        shape = [1] * (vectors.ndim - 1)
        shape[position] = -1
        counts = np.arange(vectors.shape[position]).reshape(shape)
        out[d] = np.broadcast_to(counts, vectors.shape[:-1])
    return out


def _at(x: Array, positions: Sequence[int], rank: int) -> Array:
    """``x`` with its dimensions at ``positions`` of a rank-``rank`` array, size 1 elsewhere."""
    shape = [1] * rank
    for p, n in zip(positions, x.shape, strict=True):
        shape[p] = n
    return x.reshape(shape)


def _gather(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    x, indices = operands
    if 0 in i.shape.dims:
        return np.zeros(i.shape.dims, x.dtype)
    a = i.attrs
    batching = dict(zip(a.get("operand_batching_dims", ()), a.get("start_indices_batching_dims", ()), strict=True))
    starts = _starts(indices, a["index_vector_dim"], a["start_index_map"], batching, x.ndim)
    gone = {*a["collapsed_slice_dims"], *batching}
    rank = i.shape.rank
    batch = [d for d in range(rank) if d not in a["offset_dims"]]
    offsets = iter(a["offset_dims"])
    index: list[Array] = []
    for d, size in enumerate(a["slice_sizes"]):
        place = np.zeros((1,) * rank, np.int64)
        start = starts[d]
        if start is not None:
            place = _at(np.clip(start, 0, x.shape[d] - size), batch, rank)
        if d not in gone:
            place = place + _at(np.arange(size), [next(offsets)], rank)
        index.append(place)
    return np.broadcast_to(x[tuple(index)] if x.ndim else x, i.shape.dims)


def _scatter(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
    count = len(operands) // 2
    arrays, indices, updates = operands[:count], operands[count], operands[count + 1 :]
    if not (arrays[0].size and updates[0].size):
        return one_or_tuple(i, arrays)
    a = i.attrs
    batching = dict(zip(a.get("input_batching_dims", ()), a.get("scatter_indices_batching_dims", ()), strict=True))
    rank, dims = updates[0].ndim, arrays[0].shape
    starts = _starts(indices, a["index_vector_dim"], a["scatter_dims_to_operand_dims"], batching, len(dims))
    batch = [d for d in range(rank) if d not in a["update_window_dims"]]
    windows = iter(a["update_window_dims"])
    gone = {*a["inserted_window_dims"], *batching}
    index: list[Array] = []
    inside = np.ones((1,) * rank, np.bool_)
    for d, n in enumerate(dims):
        place = np.zeros((1,) * rank, np.int64)
        size = 1
        window = None if d in gone else next(windows)
        if window is not None:
            size = updates[0].shape[window]
            place = _at(np.arange(size), [window], rank)
        start = starts[d]
        if start is not None:
            begin = _at(start, batch, rank)
            # A window that sticks out anywhere is dropped as a whole.
            inside = inside & (begin >= 0) & (begin <= n - size)
            place = place + np.clip(begin, 0, max(n - size, 0))
        index.append(place)
    flat = np.ravel_multi_index(tuple(np.broadcast_to(p, updates[0].shape) for p in index), dims) if dims else None
    keep = np.broadcast_to(inside, updates[0].shape).reshape(-1)
    where = np.zeros(updates[0].size, np.int64) if flat is None else flat.reshape(-1)
    kept = [u.reshape(-1)[keep] for u in updates]
    return one_or_tuple(i, scatter_into(m, a["to_apply"], arrays, where[keep], kept))


def scatter_into(
    m: Interpreter, body: Computation, arrays: Sequence[Array], where: Array, updates: Sequence[Array]
) -> list[Array]:
    """Combine ``updates`` into the flattened positions ``where`` of ``arrays``, in order."""
    kinds = [m.storage_type(leaf.dtype) for leaf in body.root.shape.leaves()]
    opcode = reducer_opcode(body)
    if opcode is not None:
        wide = COMPUTE[kinds[0]]
        out = arrays[0].astype(wide).reshape(-1)
        MONOIDS[opcode].at(out, where, updates[0].astype(wide, copy=False))
        return [cast(out, kinds[0]).reshape(arrays[0].shape)]
    outs = [a.astype(k).reshape(-1) for a, k in zip(arrays, kinds, strict=True)]
    if len(arrays) == 1 and passed_parameter(body) == 1:
        outs[0][where] = updates[0].astype(kinds[0], copy=False)
    else:
        for turn in _turns(where):
            spots = where[turn]
            results = apply_body(m, body, [*(o[spots] for o in outs), *(u[turn] for u in updates)])
            for o, r in zip(outs, results, strict=True):
                o[spots] = r
    return [o.reshape(a.shape) for o, a in zip(outs, arrays, strict=True)]


def _turns(where: Array) -> list[Array]:
    """Update numbers in turns such that no turn touches a position twice and repeated ones keep their order."""
    order = np.argsort(where, kind="stable")
    ranked = where[order]
    new = np.concatenate([[True], ranked[1:] != ranked[:-1]]) if len(ranked) else np.zeros(0, np.bool_)
    first = np.maximum.accumulate(np.where(new, np.arange(len(ranked)), 0)) if len(ranked) else ranked
    repeat = np.arange(len(ranked)) - first
    return [np.sort(order[repeat == k]) for k in range(int(np.max(repeat)) + 1 if len(repeat) else 0)]


def _clamp(starts: Sequence[Value], dims: Sequence[int], sizes: Sequence[int]) -> tuple[slice, ...]:
    if len(starts) == 1 and starts[0].ndim == 1:
        starts = list(starts[0])
    begins = [min(max(int(s), 0), n - size) for s, n, size in zip(starts, dims, sizes, strict=True)]
    return tuple(slice(b, b + size) for b, size in zip(begins, sizes, strict=True))


def _dynamic_slice(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    x: Array = operands[0]
    return x[_clamp(operands[1:], x.shape, i.attrs["dynamic_slice_sizes"])]


def _dynamic_update_slice(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    x, update = operands[:2]
    out: Array = np.array(x)
    out[_clamp(operands[2:], x.shape, update.shape)] = update
    return out


ROWS: Mapping[str, OpMeaning] = {
    "gather": OpMeaning(_gather),
    "scatter": OpMeaning(_scatter),
    "dynamic-slice": OpMeaning(_dynamic_slice),
    "dynamic-update-slice": OpMeaning(_dynamic_update_slice),
}
