"""A program with the arguments and results of a planned one, and propagated layouts elsewhere."""

from __future__ import annotations

from shardc.hlo.ir.custom_calls import is_constraint
from shardc.hlo.ir.ir import Computation, Instruction, Module, flow_computations, map_callees
from shardc.partitioner.emit.layout import AxisLayout
from shardc.partitioner.plan.plan_layouts import LayoutQuestion
from shardc.partitioner.regions.region_graph import Wire
from shardc.sharding.prepare.markers import enters_manual, is_reshard, leaves_manual
from shardc.sharding.propagate import propagate

__all__ = ["layouts_of", "propagate_arguments"]


def propagate_arguments(planned: Module) -> Module:
    """``planned`` with layouts propagated from its arguments and results, and from the user's constraints."""
    return propagate(_without_layouts(planned)).module


def layouts_of(question: LayoutQuestion, propagated: Module) -> dict[Wire, AxisLayout]:
    """The layouts of the values of ``question`` in ``propagated``, which is its program with other shardings."""
    named = {i.name: i for i in propagated.instructions()}
    graph, table, found = question.graph, question.context.table, dict[Wire, AxisLayout]()

    def leaves(op: Instruction) -> list[AxisLayout]:
        there = named.get(op.name)
        return [] if there is None else [table.from_sharding(s) for s in there.leaf_shardings()]

    for node in graph.rows:
        found.update(zip(node.results, leaves(node.op), strict=False))
    for op, nodes in graph.borders.items():
        for node, layout in zip(nodes, leaves(op), strict=False):
            found.update((w, layout) for w in node.results)
    given = [x for p in question.module.parameters for x in leaves(p)]
    for number, node in graph.arguments.items():
        found.update((w, given[number]) for w in node.results)
    return found


def _without_layouts(planned: Module) -> Module:
    """The program with only the shardings of arguments and results, and those of the user."""
    made: dict[Computation, Computation] = {}
    for c in planned.computations:
        new: dict[Instruction, Instruction] = {}
        for i in c:
            attrs = map_callees(i.attrs, lambda k: made.get(k, k)) if flow_computations(i) else i.attrs
            interface = c is planned.entry and (i.opcode == "parameter" or i is c.root)
            said = interface or is_constraint(i) or is_reshard(i) or enters_manual(i) or leaves_manual(i)
            operands = tuple(new[o] for o in i.operands)
            new[i] = i.replace(operands=operands, attrs=attrs, sharding=i.sharding if said else None)
        made[c] = Computation(c.name, new.values(), new[c.root])
    return planned.with_(computations=tuple(made.values()), entry=made[planned.entry])
