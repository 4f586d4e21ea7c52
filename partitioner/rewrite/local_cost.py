"""What one run of a local computation sends."""

from __future__ import annotations

from shardc.costs.kernels.trips import likely_trips
from shardc.hlo.ir.groups import AxisGroups, AxisPairs
from shardc.hlo.ir.ir import Computation, Instruction, called_computations
from shardc.hlo.ir.opset import COLLECTIVES
from shardc.partitioner.reshard.moves import Cost, total_cost
from shardc.partitioner.rewrite.context import Context

__all__ = ["SOME_TRIPS", "collectives_cost"]

#: How often a loop of unknown length is taken to run, where it matters whether it does so more than once.
SOME_TRIPS = 4


def collectives_cost(context: Context, computation: Computation) -> Cost:
    """What one run of a local computation costs in collectives: loops multiply, every branch counts."""
    found = context.spent.get(computation)
    if found is None:
        found = context.spent[computation] = total_cost(_of(context, i) for i in computation)
    return found


def _of(context: Context, i: Instruction) -> Cost:
    if i.opcode in COLLECTIVES:
        groups = i.attrs.get("replica_groups", i.attrs.get("source_target_pairs"))
        table = context.table
        over_axes = isinstance(groups, AxisGroups | AxisPairs)
        atoms = table.atoms(groups.axes) if over_axes else tuple(range(table.count))
        opcode = i.opcode.removesuffix("-start")
        return (sum(context.resharder.price.collective(opcode, s.nbytes, atoms) for s in i.shape.leaves()), 1)
    if i.opcode not in ("while", "conditional", "call"):
        return (0.0, 0)
    times = likely_trips(i, SOME_TRIPS) if i.opcode == "while" else 1
    wire, count = total_cost(collectives_cost(context, c) for _, c in called_computations(i))
    return times * wire, times * count
