"""A top-k of a split line that keeps much of it is the beginning of a sort.

The best of each shard are then most of it, so that every device would get nearly all elements. A sort sends an element
once, and what comes of it lies where it is wanted.
"""

from __future__ import annotations

from shardc.hlo.ir.build import key_comparator
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.make import make
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import DType, tuple_shape

__all__ = ["large_top"]

#: Elements of a device from which a sort is split.
_LEAST = 1 << 10


def large_top(top: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
    """The slices of a sort that take the place of a top-k, where that sends less; None for others."""
    x = operands[0]
    lies, results = x.sharding, top.sharding
    if x.shape.rank != 1 or not isinstance(lies, Sharding) or lies.unreduced or not isinstance(results, tuple):
        return None
    if not _sends_less(top, x, lies):
        return None
    places = make("iota", top.shape.elements[1].with_dims(x.shape.dims).plain, (), top, iota_dimension=0)
    lines = (x, places.replace(sharding=lies))
    shapes = tuple(i.shape.plain for i in lines)
    before = _before(shapes[0].dtype, shapes[1].dtype, largest=top.attrs.get("largest", True))
    given = {"dimensions": (0,), "is_stable": True, "to_apply": before}
    made = make("sort", tuple_shape(*shapes), lines, top, **given).replace(sharding=(lies, lies))
    parts = []
    for k, (shape, own) in enumerate(zip(shapes, results, strict=True)):
        line = make("get-tuple-element", shape, (made,), top, index=k).replace(sharding=lies)
        bounds = ((0, top.attrs["k"], 1),)
        parts.append(
            make("slice", shape.with_dims((top.attrs["k"],)), (line,), top, slice=bounds).replace(sharding=own)
        )
    return top.replace(opcode="tuple", operands=tuple(parts), attrs={})


def _sends_less(top: Instruction, x: Instruction, lies: Sharding) -> bool:
    """Whether a sort sends less than the best of all shards, or than the shards. Counted are bytes per other device: of
    a sort, and of what is then moved."""
    (n,), k, g = x.shape.dims, top.attrs["k"], lies.dims[0].extent(lies.mesh)
    shard, value = n // g, x.shape.dtype.nbytes
    both = value + top.shape.elements[1].dtype.nbytes
    if g == 1 or shard < _LEAST:
        return False
    own = top.sharding[0] if isinstance(top.sharding, tuple) else None
    split = isinstance(own, Sharding) and own.dims[0].extent(own.mesh) > 1
    moved = shard / (g - 1) + (0 if split else k / g)
    gathered = min(min(k, shard) * both, shard * value)
    return bool((shard / g + moved) * both < gathered)


def _before(values: DType, places: DType, *, largest: bool) -> Computation:
    """A comparator of values in the order of a top-k, which places do not change."""
    order = {"type": "TOTALORDER"} if values.is_float else {}
    return key_comparator("before_in_top", values, places, direction="GT" if largest else "LT", **order)
