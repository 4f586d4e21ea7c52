"""What loops read and write of values piece by piece, and which of their values never change.

A value that a loop's body only reads and passes on is brought into another layout once, before the loop. What is read
piece by piece, each piece once (the layers' weights under scan), gains nothing by that: the same bytes move, nothing
hides them, and the whole is held. So it costs what its pieces cost, wherever it is moved. Likewise what is written
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
    """``count`` pieces of ``dims`` of a value with the dimensions ``whole`` are all that is read of it."""

    whole: tuple[int, ...]
    dims: tuple[int, ...]
    count: int

    def moves(self, *layouts: AxisLayout) -> bool:
        """May the value be moved between ``layouts`` piece by piece? None of them splits what pieces are cut from."""
        cut = [d for d, (n, size) in enumerate(zip(self.whole, self.dims, strict=True)) if size < n]
        return not any(x.dims[d] for x in layouts for d in cut)


def find_pieces_read(op: Instruction, whole: tuple[int, ...], times: float) -> LoopPieces | None:
    """What ``op`` reads in ``times`` runs of its first operand; None unless that is pieces, no more than all of it."""
    if op.opcode != "dynamic-slice" or times <= 1 or times * op.shape.size > math.prod(whole):
        return None
    return LoopPieces(whole, op.shape.dims, round(times))


#: Operations that read pieces of their first operand and compute nothing.
_READERS = ("dynamic-slice", "gather")


def find_pieces_written(body: Computation, index: int, times: int) -> LoopPieces | None:
    """What ``times`` runs of a loop's body write into element ``index`` of its state (layers' gradients under scan);
    None unless that is pieces, no more than all of it."""
    made = body.root.operands[index] if body.root.opcode == "tuple" else body.root
    if made.opcode != "dynamic-update-slice" or carried_element(made.operands[0], body) != index:
        return None
    update, whole = made.operands[1].shape, made.shape.dims
    return LoopPieces(whole, update.dims, times) if times > 1 and times * update.size <= math.prod(whole) else None


def count_repetitions(module: Module) -> Mapping[Instruction, int]:
    """How often a loop is known to run, for each carried element that its body passes on and only reads pieces of.

    Elements that take part in arithmetic are left out: whole, they would make every device do all of it.
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
