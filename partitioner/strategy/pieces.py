"""Finds values that loops read or write piece by piece, and values that never change in a loop. A value that a loop's
body only reads and passes on is moved to another layout once, before the loop. A value whose pieces are each read once
(the layers' weights under scan) gains nothing by that. The same bytes move, nothing hides them, and the whole value
stays in memory. So it costs as much as its pieces, wherever it is moved. The same holds for values that are written
piece by piece.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from shardc.costs.kernels.trips import trip_count
from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.loops.loop_counter import carried_element
from shardc.partitioner.emit.layout import AxisLayout

__all__ = ["LoopPieces", "count_repetitions", "find_pieces_read", "find_pieces_written"]


@dataclass(frozen=True, slots=True)
class LoopPieces:
    """A loop reads a value of dimensions ``whole`` only in ``count`` pieces of dimensions ``dims``."""

    whole: tuple[int, ...]
    dims: tuple[int, ...]
    count: int

    def moves(self, *layouts: AxisLayout) -> bool:
        """Whether the value can be moved between ``layouts`` piece by piece: none of them splits the dimensions that
        pieces divide."""
        cut = [d for d, (n, size) in enumerate(zip(self.whole, self.dims, strict=True)) if size < n]
        return not any(x.dims[d] for x in layouts for d in cut)


def find_pieces_read(op: Instruction, whole: tuple[int, ...], times: float) -> LoopPieces | None:
    """The pieces of its first operand that ``op`` reads in ``times`` runs; None if it reads no pieces, or more than the
    whole."""
    if op.opcode != "dynamic-slice" or times <= 1 or times * op.shape.size > math.prod(whole):
        return None
    return LoopPieces(whole, op.shape.dims, round(times))


#: Operations that read pieces of their first operand and compute nothing.
_READERS = ("dynamic-slice", "gather")


def find_pieces_written(body: Computation, index: int, times: int) -> LoopPieces | None:
    """The pieces that ``times`` runs of a loop's body write into element ``index`` of its state (layers' gradients
    under scan); None if it writes no pieces, or more than the whole."""
    made = body.root.operands[index] if body.root.opcode == "tuple" else body.root
    if made.opcode != "dynamic-update-slice" or carried_element(made.operands[0], body) != index:
        return None
    update, whole = made.operands[1].shape, made.shape.dims
    return LoopPieces(whole, update.dims, times) if times > 1 and times * update.size <= math.prod(whole) else None


def count_repetitions(module: Module) -> Mapping[Instruction, int]:
    """The known trip count of a loop, for each element of its state that the body passes on and reads only in pieces.

    Elements that take part in arithmetic are omitted: whole operands would make every device do all the work.
    """
    found: dict[Instruction, int] = {}
    for loop in module.instructions():
        if loop.opcode != "while":
            continue
        body: Computation = loop.attrs["body"]
        trips = trip_count(loop) or 1
        if trips == 1 or body.root.opcode != "tuple":
            continue
        computing = {o for i in body for o in i.operands if i.opcode not in _READERS and i is not body.root}
        for i in body:
            index = carried_element(i, body)
            if index is not None and carried_element(body.root.operands[index], body) == index and i not in computing:
                found[i] = trips
    return found
