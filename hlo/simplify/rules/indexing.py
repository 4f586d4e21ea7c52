"""Dynamic slices, gathers and updates whose places or values are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from shardc.hlo.ir import Instruction
from shardc.hlo.literal import Literal
from shardc.hlo.simplify.make import broadcast_scalar, constant, make, reshape, scalar_value, splat_source

__all__ = ["RULES"]


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


def gather_of_splat(i: Instruction) -> Instruction | None:
    operand = i.operands[0]
    source = splat_source(operand) if operand.opcode == "broadcast" else None
    return broadcast_scalar(source, i.shape.dims, i) if source is not None and operand.shape.size else None


def scatter_of_nothing(i: Instruction) -> Instruction | None:
    """No updates leave the operand as it is."""
    return i.operands[0] if len(i.operands) == 3 and i.operands[2].shape.size == 0 else None


RULES: Mapping[str, tuple[Callable[[Instruction], Instruction | None], ...]] = {
    "dynamic-slice": (
        dynamic_slice_of_all,
        dynamic_slice_at_constants,
        dynamic_slice_of_update,
        dynamic_slice_of_broadcast,
        dynamic_slice_of_iota,
    ),
    "dynamic-update-slice": (update_of_all, update_of_nothing, update_by_itself),
    "gather": (gather_of_splat, gather_at_one_place),
    "scatter": (scatter_of_nothing,),
}
