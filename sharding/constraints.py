"""Sharding constraints (custom call ``Sharding``): they say how their operand should lie, too.

A closed constraint on a value that has no annotation, and on which no other constraint disagrees, is the value's own
sharding: then its maker produces it in that layout at once. Data-flow values (loop carries and the like) are left
open, so that one use does not decide for all places.
"""

from __future__ import annotations

from shardc.sharding.graph import Equation, Graph
from shardc.sharding.prepare import is_constraint
from shardc.sharding.schedule import OpClass

__all__ = ["apply_constraints"]


def apply_constraints(graph: Graph) -> None:
    """Set the initial sharding of constrained values, in program order."""
    constraints = [
        e for e in graph.equations if is_constraint(e.instruction) and not e.label and graph.annotated[e.tensors[-1]]
    ]
    by_operand: dict[int, list[Equation]] = {}
    for e in constraints:
        by_operand.setdefault(e.tensors[0], []).append(e)
    for operand, users in by_operand.items():
        if graph.annotated[operand] or _is_edge(operand, graph):
            continue
        wanted = graph.initial[users[0].tensors[-1]]
        agree = all(graph.initial[e.tensors[-1]] == wanted for e in users)
        if agree and all(d.closed for d in wanted.dims):
            graph.initial[operand] = wanted
            graph.annotated[operand] = True


def _is_edge(value: int, graph: Graph) -> bool:
    maker = graph.maker[value]
    return maker >= 0 and graph.equations[maker].op_class is OpClass.EDGE
