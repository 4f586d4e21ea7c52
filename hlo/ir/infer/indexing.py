"""Shape inference: gather, scatter and dynamic slices."""

from __future__ import annotations

from collections.abc import Sequence

from shardc.hlo.ir.infer.reduction import reducer_types, tuple_of
from shardc.hlo.ir.infer.rule import Attrs, ShapeRule, Shapes, fail, need_array, need_dims
from shardc.hlo.ir.types import Shape

__all__ = ["RULES"]


def _batch_sizes(indices: Shape, vector_dim: int) -> list[int]:
    if not need_array(indices, "indices").dtype.is_integer:
        fail(f"indices have element type {indices.dtype}")
    if not 0 <= vector_dim <= indices.rank:
        fail(f"index_vector_dim {vector_dim} does not fit indices {indices}")
    return [n for d, n in enumerate(indices.dims) if d != vector_dim]


def _need_vector(indices: Shape, vector_dim: int, count: int) -> None:
    width = indices.dims[vector_dim] if vector_dim < indices.rank else 1
    if width != count:
        fail(f"index vectors have {width} entries, {count} dimensions are indexed")


def _gather(shapes: Shapes, attrs: Attrs) -> Shape:
    operand, indices = need_array(shapes[0]), shapes[1]
    sizes: Sequence[int] = attrs["slice_sizes"]
    batching: Sequence[int] = attrs.get("operand_batching_dims", ())
    gone = {*attrs["collapsed_slice_dims"], *batching}
    vector_dim = attrs["index_vector_dim"]
    batch = _batch_sizes(indices, vector_dim)
    _need_vector(indices, vector_dim, len(attrs["start_index_map"]))
    need_dims(attrs["start_index_map"], operand.rank, "start_index_map")
    need_dims((*attrs["collapsed_slice_dims"], *batching), operand.rank, "collapsed and batching dimensions")
    if len(sizes) != operand.rank:
        fail(f"slice_sizes has {len(sizes)} entries, operand has rank {operand.rank}")
    for d, n in enumerate(sizes):
        if not 0 <= n <= operand.dims[d] or (d in gone and n > 1):
            fail(f"slice size {n} of a dimension of size {operand.dims[d]}", d)
    window = [n for d, n in enumerate(sizes) if d not in gone]
    offsets = attrs["offset_dims"]
    if len(offsets) != len(window):
        fail(f"offset_dims {tuple(offsets)} must name {len(window)} result dimensions")
    need_dims(offsets, len(window) + len(batch), "offset_dims")
    rest, inner = iter(batch), iter(window)
    out = operand.with_dims(tuple(next(inner if d in offsets else rest) for d in range(len(batch) + len(window))))
    if out.size and any(sizes[d] == 0 for d in gone):
        fail(f"slices of {tuple(sizes)} have no element for a result of {out}")
    return out


def _scatter(shapes: Shapes, attrs: Attrs) -> Shape:
    count, odd = divmod(len(shapes) - 1, 2)
    if odd or count < 1:
        fail("scatter takes n operands, indices and n updates")
    operands, indices, updates = shapes[:count], shapes[count], shapes[count + 1 :]
    first = need_array(operands[0])
    gone = (*attrs["inserted_window_dims"], *attrs.get("input_batching_dims", ()))
    need_dims(gone, first.rank, "inserted and batching dimensions")
    need_dims(attrs["scatter_dims_to_operand_dims"], first.rank, "scatter_dims_to_operand_dims")
    vector_dim = attrs["index_vector_dim"]
    batch = _batch_sizes(indices, vector_dim)
    _need_vector(indices, vector_dim, len(attrs["scatter_dims_to_operand_dims"]))
    window = [d for d in range(first.rank) if d not in gone]
    for o, u in zip(operands, updates, strict=True):
        if need_array(o).dims != first.dims:
            fail(f"scattered operands differ in shape: {first} and {o}")
        _check_update(first, need_array(u, "update"), attrs["update_window_dims"], window, batch)
    types = reducer_types(attrs, updates, [o.with_dims(()) for o in operands])
    return tuple_of([Shape(t.dtype, first.dims) for t in types])


def _check_update(
    operand: Shape, update: Shape, window_dims: Sequence[int], window: Sequence[int], batch: Sequence[int]
) -> None:
    if update.rank != len(window_dims) + len(batch) or len(window_dims) != len(window):
        fail(f"update {update} does not have {len(window)} window and {len(batch)} scatter dimensions")
    need_dims(window_dims, update.rank, "update_window_dims")
    for d, u in zip(window, window_dims, strict=True):
        if update.dims[u] > operand.dims[d]:
            fail(f"update window of size {update.dims[u]} exceeds operand dimension {d} of {operand}", u)
    sizes = [n for d, n in enumerate(update.dims) if d not in window_dims]
    if sizes != list(batch):
        fail(f"scatter dimensions of update {update} have sizes {sizes}, the indices {list(batch)}")


def _check_starts(operand: Shape, starts: Shapes) -> None:
    if len(starts) == 1 and starts[0].rank == 1 and operand.rank != 1:
        if starts[0].dims != (operand.rank,):
            fail(f"start indices {starts[0]} for an operand of rank {operand.rank}")
        return
    if len(starts) != operand.rank and not (len(starts) == 1 and starts[0].dims == (operand.rank,)):
        fail(f"{len(starts)} start indices for an operand of rank {operand.rank}")
    for d, s in enumerate(starts):
        if not need_array(s, "start index").dtype.is_integer:
            fail(f"start index {s} is not an integer", d)


def _dynamic_slice(shapes: Shapes, attrs: Attrs) -> Shape:
    operand, sizes = need_array(shapes[0]), attrs["dynamic_slice_sizes"]
    _check_starts(operand, shapes[1:])
    if len(sizes) != operand.rank:
        fail(f"dynamic_slice_sizes has {len(sizes)} entries, operand has rank {operand.rank}")
    for d, n in enumerate(sizes):
        if not 0 <= n <= operand.dims[d]:
            fail(f"slice of size {n} from a dimension of size {operand.dims[d]}", d)
    return operand.with_dims(tuple(sizes))


def _dynamic_update_slice(shapes: Shapes, attrs: Attrs) -> Shape:
    if len(shapes) < 2:
        fail("dynamic-update-slice takes an operand, an update and start indices")
    operand, update = need_array(shapes[0]), need_array(shapes[1], "update")
    _check_starts(operand, shapes[2:])
    if update.dtype.kind != operand.dtype.kind or update.rank != operand.rank:
        fail(f"update {update} does not fit operand {operand}")
    for d, n in enumerate(update.dims):
        if n > operand.dims[d]:
            fail(f"update of size {n} exceeds a dimension of size {operand.dims[d]}", d)
    return operand.plain


RULES = {
    "gather": ShapeRule(_gather),
    "scatter": ShapeRule(_scatter),
    "dynamic-slice": ShapeRule(_dynamic_slice),
    "dynamic-update-slice": ShapeRule(_dynamic_update_slice),
}
