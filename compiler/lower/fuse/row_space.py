"""Rows: where the members of a fused computation lie in one common space of indices, its frame.

The frame of a kernel that reduces is what its reductions read: ``f32[8,256,512]`` summed over its last dimension has
rows of 512 elements, and 8 x 256 of them. Every member that is computed at the frame's own indices has a *spot*: the
frame dimension that each of its dimensions runs along. Dimensions of one element run along none and are left out, so
that ``[2048,1]`` and ``[2048]`` are the same. Members that are read at other indices have no spot.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from shardc.compiler.lower.fuse.fusion_rules import is_alias, is_elementwise, is_lookup, long_dims, reads_in_place
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.reducers import identity_of

__all__ = ["RowFrame", "Spot", "frame_of", "is_row_reduction", "roots_of", "spot_in", "spots_in"]

#: For each dimension of more than one element the frame dimension that it runs along.
Spot = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RowFrame:
    """Sizes of the frame's dimensions (all above one), and which of them reductions run over, in order."""

    dims: tuple[int, ...]
    reduced: tuple[int, ...] = ()

    @property
    def kept_dims(self) -> tuple[int, ...]:
        return tuple(d for d in range(len(self.dims)) if d not in self.reduced)

    @property
    def full(self) -> Spot:
        """The spot of values that have an element for every index."""
        return tuple(range(len(self.dims)))

    @property
    def rows(self) -> int:
        return math.prod(self.dims[d] for d in self.kept_dims)

    @property
    def columns(self) -> int:
        return math.prod(self.dims[d] for d in self.reduced)

    @property
    def walks_rows(self) -> bool:
        """Whether the reductions run over the last dimensions."""
        return self.reduced != () and self.reduced == self.full[-len(self.reduced) :]


def roots_of(computation: Computation) -> tuple[Instruction, ...]:
    """What a computation gives: the elements of its root, where that is a tuple."""
    root = computation.root
    return root.operands if root.opcode == "tuple" else (root,)


def is_row_reduction(i: Instruction) -> bool:
    """Whether the reduction can run beside others in one loop. It needs one operand, and a reducer that may take
    elements in any order."""
    if i.opcode != "reduce" or not i.shape.is_array:
        return False
    return identity_of(i.attrs["to_apply"], i.operands[0].shape.dtype) is not None


def frame_of(computation: Computation) -> RowFrame | None:
    """The frame that all results of a computation lie in: from its largest reduction, else from the results."""
    reductions = [i for i in computation if is_row_reduction(i)]
    if not reductions:
        frame = RowFrame(long_dims(roots_of(computation)[0].shape.dims))
    else:
        largest = max(reductions, key=lambda i: i.operands[0].shape.size)
        dims = largest.operands[0].shape.dims
        run = [d for d, n in enumerate(dims) if n != 1]
        frame = RowFrame(long_dims(dims), tuple(run.index(d) for d in sorted(largest.attrs["dimensions"]) if d in run))
        if not frame.reduced:
            return None
    if 0 in frame.dims or any(spot_in(r.shape.dims, frame) is None for r in roots_of(computation)):
        return None
    return frame


def spot_in(dims: tuple[int, ...], frame: RowFrame) -> Spot | None:
    """Where a result lies: an element for every index of the frame, or one for every row."""
    run = long_dims(dims)
    if run == frame.dims:
        return frame.full
    return frame.kept_dims if frame.reduced and run == tuple(frame.dims[d] for d in frame.kept_dims) else None


def spots_in(computation: Computation, frame: RowFrame) -> dict[Instruction, Spot | None]:
    """The spot of every member that the results need, None for those read at other indices or at several spots."""
    spots: dict[Instruction, Spot | None] = {}

    def read(i: Instruction, spot: Spot | None) -> None:
        spots[i] = spot if spots.get(i, spot) == spot else None

    for r in roots_of(computation):
        read(r, spot_in(r.shape.dims, frame))
    for i in reversed(computation.instructions):
        if i in spots:
            for o, spot in zip(i.operands, _operand_spots(i, spots[i], frame), strict=True):
                read(o, spot)
    return spots


def _operand_spots(i: Instruction, spot: Spot | None, frame: RowFrame) -> tuple[Spot | None, ...]:
    nowhere: tuple[Spot | None, ...] = (None,) * len(i.operands)
    if spot is None:
        return nowhere
    if is_elementwise(i):
        return tuple(spot if o.shape.dims == i.shape.dims else () if not o.shape.dims else None for o in i.operands)
    if is_alias(i):
        return (spot if long_dims(i.operands[0].shape.dims) == long_dims(i.shape.dims) else None,)
    if i.opcode == "broadcast":
        at = _by_dimension(i, spot)
        dims = zip(i.attrs["dimensions"], i.operands[0].shape.dims, strict=True)
        return (tuple(at[d] for d, n in dims if n != 1),)
    if i.opcode == "transpose":
        by = {d: at for at, d in enumerate(i.attrs["dimensions"])}
        at = _by_dimension(i, spot)
        return (tuple(at[by[d]] for d, n in enumerate(i.operands[0].shape.dims) if n != 1),)
    if is_lookup(i):
        return (None, spot if reads_in_place(i, i.operands[1]) else None)
    if i.opcode == "reduce":
        inside = _reduced_spot(i, spot, frame)
        return nowhere if inside is None else (inside, ())
    return nowhere


def _by_dimension(i: Instruction, spot: Spot) -> Mapping[int, int]:
    """The frame dimension of each dimension of more than one element."""
    return dict(zip((d for d, n in enumerate(i.shape.dims) if n != 1), spot, strict=True))


def _reduced_spot(i: Instruction, spot: Spot, frame: RowFrame) -> Spot | None:
    """Where a reduction's operand lies, if it runs over the frame's own reduced dimensions."""
    if not is_row_reduction(i) or not frame.reduced or set(spot) & set(frame.reduced):
        return None
    dims, over = i.operands[0].shape.dims, set(i.attrs["dimensions"])
    sizes = tuple(n for d, n in enumerate(dims) if d in over and n != 1)
    if sizes != tuple(frame.dims[d] for d in frame.reduced):
        return None
    kept, reduced = iter(spot), iter(frame.reduced)
    return tuple(next(reduced if d in over else kept) for d, n in enumerate(dims) if n != 1)
