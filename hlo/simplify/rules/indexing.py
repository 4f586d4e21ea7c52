"""Dynamic slices, gathers and updates whose places or values are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import broadcast_scalar, constant, make, reshape, scalar_value, splat_source, transpose
from shardc.hlo.ir.opset import OPS

__all__ = ["RULES"]

#: Updates that are joined, at most: one kernel writes all of them.
_MOST_PARTS = 64


def dynamic_slice_of_all(i: Instruction) -> Instruction | None:
    operand = i.operands[0]
    return operand if operand.shape.dims == i.shape.dims else None


def dynamic_slice_at_constants(i: Instruction) -> Instruction | None:
    """Constant start indices make a static slice; starts are clamped so that the slice fits."""
    operand, *starts = i.operands
    if len(starts) != operand.shape.rank:
        return None
    values = [scalar_value(s) for s in starts]
    if any(v is None for v in values):
        return None
    bounds = []
    for value, whole, part in zip(values, operand.shape.dims, i.shape.dims, strict=True):
        low = min(max(int(value), 0), whole - part)
        bounds.append((low, low + part, 1))
    return make("slice", i.shape, (operand,), i, slice=tuple(bounds))


def update_of_all(i: Instruction) -> Instruction | None:
    operand, update = i.operands[:2]
    return update if operand.shape.dims == update.shape.dims else None


def update_of_nothing(i: Instruction) -> Instruction | None:
    operand, update = i.operands[:2]
    return operand if update.shape.size == 0 else None


def dynamic_slice_of_broadcast(i: Instruction) -> Instruction | None:
    """Where all is equal, one place is as good as another; the rest is sliced before it is broadcast."""
    inner, *starts = i.operands
    if inner.opcode != "broadcast" or len(starts) != i.shape.rank:
        return None
    source, kept = inner.operands[0], inner.attrs["dimensions"]
    part = source
    if any(source.shape.dims[n] != i.shape.dims[d] for n, d in enumerate(kept)):
        dims = tuple(i.shape.dims[d] for d in kept)
        places = (starts[d] for d in kept)
        part = make("dynamic-slice", source.shape.with_dims(dims), (source, *places), i, dynamic_slice_sizes=dims)
    return make("broadcast", i.shape, (part,), i, dimensions=kept)


def dynamic_slice_of_iota(i: Instruction) -> Instruction | None:
    """One element of a count is the place itself, within bounds; loops over ranges read such elements."""
    inner, *starts = i.operands
    if inner.opcode != "iota" or len(starts) != i.shape.rank or not inner.shape.dtype.is_integer:
        return None
    d = inner.attrs["iota_dimension"]
    start, last = starts[d], inner.shape.dims[d] - 1
    if i.shape.dims[d] != 1 or last >= 1 << (min(inner.shape.dtype.bits, start.shape.dtype.bits) - 1):
        return None
    bounds = [constant(Literal(np.asarray(v, start.shape.dtype.numpy)), i) for v in (0, last)]
    place = make("clamp", start.shape.with_dims(()), (bounds[0], start, bounds[1]), i)
    if place.shape.dtype is not i.shape.dtype:
        place = make("convert", i.shape.with_dims(()), (place,), i)
    return broadcast_scalar(place, i.shape.dims, i)


def dynamic_slice_of_update(i: Instruction) -> Instruction | None:
    """Reading back what was just written at the same place."""
    inner, *starts = i.operands
    if inner.opcode != "dynamic-update-slice" or tuple(starts) != inner.operands[2:]:
        return None
    update = inner.operands[1]
    return update if update.shape.dims == i.shape.dims else None


def update_by_itself(i: Instruction) -> Instruction | None:
    """Writing back what was read at the same place."""
    operand, update, *starts = i.operands
    read = update.opcode == "dynamic-slice" and update.operands == (operand, *starts)
    return operand if read else None


def update_of_all_parts(i: Instruction) -> Instruction | None:
    """Updates one after the other that write an array part by part along a dimension join these parts."""
    found = _known_part(i)
    if found is None or i.shape.dims[found[0]] > _MOST_PARTS * i.operands[1].shape.dims[found[0]]:
        return None
    along, parts, at = found[0], dict[int, Instruction](), i
    while found is not None and found[0] == along and len(parts) < _MOST_PARTS:
        parts.setdefault(found[1], at.operands[1])  # What is written last stays.
        at = at.operands[0]
        found = _known_part(at)
    end, pieces = 0, list[Instruction]()
    for start in sorted(parts):
        if start != end:
            return None
        pieces.append(parts[start])
        end += parts[start].shape.dims[along]
    return make("concatenate", i.shape, pieces, i, dimensions=(along,)) if end == i.shape.dims[along] else None


def _known_part(i: Instruction) -> tuple[int, int] | None:
    """The only dimension that an update writes a part of, and where that part starts, if that is known."""
    if i.opcode != "dynamic-update-slice" or len(i.operands) != 2 + i.shape.rank:
        return None
    part = i.operands[1].shape.dims
    along = [d for d, n in enumerate(i.shape.dims) if part[d] != n]
    start = scalar_value(i.operands[2 + along[0]]) if len(along) == 1 else None
    return None if start is None else (along[0], min(max(int(start), 0), i.shape.dims[along[0]] - part[along[0]]))


def gather_at_one_place(i: Instruction) -> Instruction | None:
    """A gather with a single index vector is a dynamic slice: both move a slice that does not fit inside."""
    operand, indices = i.operands
    attrs = i.attrs
    along = attrs["index_vector_dim"]
    others = [n for d, n in enumerate(indices.shape.dims) if d != along]
    if any(n != 1 for n in others) or attrs.get("operand_batching_dims") or not operand.shape.size:
        return None
    scalar = indices.shape.with_dims(())
    zero = constant(Literal(np.zeros((), scalar.dtype.numpy)), i)
    starts = [zero] * operand.shape.rank
    for k, d in enumerate(attrs["start_index_map"]):
        bounds = tuple((k, k + 1, 1) if n == along else (0, 1, 1) for n in range(indices.shape.rank))
        one = make("slice", indices.shape.with_dims((1,) * indices.shape.rank), (indices,), i, slice=bounds)
        starts[d] = reshape(one, (), i)
    sizes = tuple(attrs["slice_sizes"])
    part = make("dynamic-slice", i.shape.with_dims(sizes), (operand, *starts), i, dynamic_slice_sizes=sizes)
    return reshape(part, i.shape.dims, i)


def gather_of_neighbours(i: Instruction) -> Instruction | None:
    """A gather of rows at known places at equal distances is a slice, its rows where the index array has them."""
    operand, indices = i.operands
    attrs = i.attrs
    if len(attrs["start_index_map"]) != 1 or attrs.get("operand_batching_dims"):
        return None
    (d,) = attrs["start_index_map"]
    whole = tuple(1 if k == d else n for k, n in enumerate(operand.shape.dims))
    if tuple(attrs["collapsed_slice_dims"]) != (d,) or tuple(attrs["slice_sizes"]) != whole:
        return None
    counts = _progression(indices)
    batch = [k for k in range(i.shape.rank) if k not in attrs["offset_dims"]]
    if counts is None or len([k for k in batch if i.shape.dims[k] != 1]) != 1:
        return None
    first, stride, n = counts
    last = first + stride * (n - 1)
    if first < 0 or stride < 1 or last >= operand.shape.dims[d]:
        return None
    bounds = tuple((first, last + 1, stride) if k == d else (0, size, 1) for k, size in enumerate(operand.shape.dims))
    dims = tuple(n if k == d else size for k, size in enumerate(operand.shape.dims))
    rows = make("slice", operand.shape.with_dims(dims), (operand,), i, slice=bounds)
    others = iter(k for k in range(operand.shape.rank) if k != d)
    (place,) = (k for k in batch if i.shape.dims[k] != 1)
    order = tuple(d if k == place else next(others) for k in range(i.shape.rank) if k == place or k not in batch)
    return reshape(transpose(rows, order, i), i.shape.dims, i)


def _progression(indices: Instruction) -> tuple[int, int, int] | None:
    """(first, distance, how many) of at least two whole numbers that lie along one dimension."""
    long = [d for d, n in enumerate(indices.shape.dims) if n != 1]
    if indices.opcode == "reshape":
        return _progression(indices.operands[0])
    if len(long) != 1 or not indices.shape.size:
        return None
    n = indices.shape.size
    if indices.opcode == "iota":
        return (0, 1, n) if indices.attrs["iota_dimension"] == long[0] else None
    if indices.opcode != "constant" or indices.attrs["literal"].is_left_out:
        return None
    values = [int(v) for v in indices.attrs["literal"].array.reshape(-1)]
    stride = values[1] - values[0]
    return (values[0], stride, n) if values == [values[0] + stride * k for k in range(n)] else None


def gather_of_splat(i: Instruction) -> Instruction | None:
    operand = i.operands[0]
    source = splat_source(operand) if operand.opcode == "broadcast" else None
    return broadcast_scalar(source, i.shape.dims, i) if source is not None and operand.shape.size else None


def scatter_of_nothing(i: Instruction) -> Instruction | None:
    """No updates leave the operand as it is."""
    return i.operands[0] if len(i.operands) == 3 and i.operands[2].shape.size == 0 else None


def scatter_at_one_place(i: Instruction) -> Instruction | None:
    """One update at a known place that it fits into is written there, or what the reducer makes of old and new."""
    if len(i.operands) != 3 or i.attrs.get("input_batching_dims"):
        return None
    operand, indices, updates = i.operands
    attrs = i.attrs
    starts = _constant_starts(indices, attrs["index_vector_dim"], attrs["scatter_dims_to_operand_dims"], operand)
    inserted, windows = attrs["inserted_window_dims"], attrs["update_window_dims"]
    if starts is None or tuple(windows) != tuple(sorted(windows)):
        return None
    sizes_of_windows = iter(updates.shape.dims[d] for d in windows)
    sizes = tuple(1 if d in inserted else next(sizes_of_windows) for d in range(operand.shape.rank))
    if any(not 0 <= a <= n - b for a, b, n in zip(starts, sizes, operand.shape.dims, strict=True)):
        return None
    reducer: Computation = attrs["to_apply"]
    old, new = reducer.parameters
    written = reshape(updates, sizes, i)
    if reducer.root is not new:
        root = reducer.root
        if OPS[root.opcode].family != "elementwise" or root.attrs or set(root.operands) != {old, new}:
            return None
        bounds = tuple((a, a + b, 1) for a, b in zip(starts, sizes, strict=True))
        values = {old: make("slice", written.shape, (operand,), i, slice=bounds), new: written}
        written = make(root.opcode, written.shape, (values[o] for o in root.operands), i)
    places = [constant(Literal(np.asarray(a, np.int32)), i) for a in starts]
    return make("dynamic-update-slice", i.shape, (operand, written, *places), i)


def _constant_starts(indices: Instruction, along: int, to: Sequence[int], operand: Instruction) -> list[int] | None:
    """The only index vector, spread over the operand's dimensions, when it is constant."""
    if any(n != 1 for d, n in enumerate(indices.shape.dims) if d != along):
        return None
    value = scalar_value(indices)
    if value is not None:
        found = [int(value)] * len(to)
    elif indices.opcode == "constant" and not indices.attrs["literal"].is_left_out:
        found = [int(v) for v in indices.attrs["literal"].array.reshape(-1)]
    else:
        return None
    starts = [0] * operand.shape.rank
    for d, v in zip(to, found, strict=True):
        starts[d] = v
    return starts


RULES: Mapping[str, tuple[Callable[[Instruction], Instruction | None], ...]] = {
    "dynamic-slice": (
        dynamic_slice_of_all,
        dynamic_slice_at_constants,
        dynamic_slice_of_update,
        dynamic_slice_of_broadcast,
        dynamic_slice_of_iota,
    ),
    "dynamic-update-slice": (update_of_all, update_of_nothing, update_by_itself, update_of_all_parts),
    "gather": (gather_of_splat, gather_at_one_place, gather_of_neighbours),
    "scatter": (scatter_of_nothing, scatter_at_one_place),
}
