"""Writes at the sorted places of a sort become sorts by these places.

`z[argsort(x)] = y` writes each element once. As a scatter, every device would need all places and all of y. Sorted by
the places, elements are sent once, to where they belong.
"""

from __future__ import annotations

from shardc.hlo.ir.build import key_comparator
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.make import make
from shardc.hlo.ir.types import tuple_shape
from shardc.partitioner.prepare.sorts.sorted_places import is_split, replaced, without_bounds
from shardc.partitioner.rules.sorts.columns import place_type

__all__ = ["scatters_as_sorts"]


def scatters_as_sorts(c: Computation) -> Computation:
    """``c`` with a sort in place of each such scatter into a line."""
    new: dict[Instruction, Instruction] = {}
    for i in c:
        places = _places(i) if i.opcode == "scatter" else None
        if places is not None:
            new[i] = _sorted(i, places)
    return replaced(c, new) if new else c


def _places(scatter: Instruction) -> Instruction | None:
    """The permutation that a scatter writes all elements of a split line by; None for other scatters."""
    if len(scatter.operands) != 3 or scatter.shape.is_tuple or scatter.shape.rank != 1:
        return None
    _, indices, updates = scatter.operands
    body, a = scatter.attrs["to_apply"], scatter.attrs
    if body.root is not body.parameters[1] or tuple(a["inserted_window_dims"]) != (0,) or a["update_window_dims"]:
        return None
    if updates.shape.dims != scatter.shape.dims:
        return None
    order = without_bounds(indices, scatter.shape.dims[0])
    if order.opcode != "get-tuple-element" or order.shape.dims != scatter.shape.dims:
        return None
    sort, place = order.operands[0], order.attrs["index"]
    sorts = sort.opcode == "sort" and sort.operands[place].opcode == "iota"
    return order if sorts and is_split(sort.operands[0]) else None


def _sorted(scatter: Instruction, places: Instruction) -> Instruction:
    updates, lies = scatter.operands[2], places.operands[0].operands[0].sharding
    dtype = place_type(scatter.shape.dims[0])
    keys = make("convert", places.shape.with_dtype(dtype).plain, (places,), scatter).replace(sharding=lies)
    shapes = keys.shape.plain, updates.shape.plain
    before = key_comparator("before_by_place", dtype, updates.shape.dtype)
    given = {"dimensions": (0,), "is_stable": True, "to_apply": before}
    made = make("sort", tuple_shape(*shapes), (keys, updates), scatter, **given).replace(sharding=(lies, lies))
    return make("get-tuple-element", shapes[1], (made,), scatter, index=1).replace(sharding=scatter.sharding)
