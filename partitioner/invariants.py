"""Values that a loop's body only reads and passes on: brought into another layout once, before the loop."""

from __future__ import annotations

from collections.abc import Mapping

from shardc.hlo.ir import Computation, Instruction, Module
from shardc.partitioner.optimise.carry import element
from shardc.partitioner.trips import trip_count

__all__ = ["repetitions"]


#: Operations that read pieces of their first operand and compute nothing.
_READERS = ("dynamic-slice", "gather")


def repetitions(module: Module) -> Mapping[Instruction, int]:
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
            index = element(i, body)
            if index is not None and element(body.root.operands[index], body) == index and i not in computing:
                found[i] = trips
    return found
