"""Sharding constraints (custom call ``Sharding``): they say how their operand should lie, too.

A closed constraint on a value that has no annotation, and on which no other constraint disagrees, is the value's own
sharding: then its maker produces it in that layout at once. Data-flow values (loop carries and the like) are left
open, so that one use does not decide for all places.
"""

from __future__ import annotations

from shardc.sharding.graph import Equation, Graph
from shardc.sharding.schedule import OpClass

__all__ = ["apply_constraints"]


def apply_constraints(graph: Graph) -> None:
    """Set the initial sharding of constrained values, in program order."""
    constraints = [e for e in graph.equations if _is_constraint(e, graph)]
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


def _is_constraint(e: Equation, graph: Graph) -> bool:
    i = e.instruction
    return (
        i.opcode == "custom-call" and i.attrs.get("custom_call_target") == "Sharding" and graph.annotated[e.tensors[-1]]
    )


def _is_edge(value: int, graph: Graph) -> bool:
    maker = graph.maker[value]
    return maker >= 0 and graph.equations[maker].op_class is OpClass.EDGE
