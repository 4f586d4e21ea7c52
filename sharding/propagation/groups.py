"""Sharding groups: values that always lie alike are one value to propagation."""

from __future__ import annotations

import logging

from shardc.hlo.errors import AnnotationError
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.sharding import DimSharding, Sharding
from shardc.sharding.propagation.graph import Equation, PropagationGraph
from shardc.sharding.propagation.op_priorities import OpClass
from shardc.sharding.rules.reshape import identity_rule

__all__ = ["join_groups"]

log = logging.getLogger("shardc")


def join_groups(graph: PropagationGraph) -> None:
    """Put one value in the place of all members of each group; groups that share a member are one group.

    Members that were given different shardings keep them: what their readers see of them is the group. What lies on
    one device keeps to itself in a group of which nothing else is said. Raises
    `AnnotationError` where members differ in shape.
    """
    stands_for: dict[int, int] = {}
    for members in _unite(graph):
        _check_shapes(graph, members)
        spread = [s for m in members if graph.annotated[m] and not (s := graph.initial[m]).mesh.is_maximal]
        given = list(dict.fromkeys(filter(_says_something, spread)))
        if len(given) > 1:
            names = ", ".join(f"%{graph.origin[m][0].name}" for m in members)
            log.warning("members of a sharding group were given different shardings: %s", names)
            members = [_read_through(graph, m, given[0]) for m in members]
        elif given:
            graph.annotate(members[0], given[0])
        else:
            members = [m for m in members if not graph.initial[m].mesh.is_maximal]
        stands_for.update((m, members[0]) for m in members[1:])
    if stands_for:
        _replace(graph, stands_for)


def _unite(graph: PropagationGraph) -> list[list[int]]:
    """Members of each group in program order."""
    groups: list[list[int]] = []
    for members in graph.groups.values():
        new = list(dict.fromkeys(members))
        for old in [g for g in groups if not set(g).isdisjoint(new)]:
            groups.remove(old)
            new = [*old, *(m for m in new if m not in old)]
        groups.append(new)
    return groups


def _check_shapes(graph: PropagationGraph, members: list[int]) -> None:
    first = members[0]
    for m in members:
        if graph.dims[m] != graph.dims[first]:
            one, other = (graph.origin[v][0] for v in (first, m))
            raise AnnotationError(
                f"a sharding group contains %{one.name} of dimensions {list(graph.dims[first])} and %{other.name} of "
                f"dimensions {list(graph.dims[m])}",
                where=_where(other),
                fix="group only values of equal shape",
            )


def _where(i: Instruction) -> str:
    return f"%{i.name}" + (f" ({i.source})" if i.source else "")


def _says_something(sharding: Sharding) -> bool:
    return bool(sharding.replicated or sharding.unreduced or any(d.axes or d.closed for d in sharding.dims))


def _read_through(graph: PropagationGraph, member: int, like: Sharding) -> int:
    """An open value between a member and its readers."""
    instruction, leaf = graph.origin[member]
    is_open = Sharding(like.mesh, (DimSharding((), closed=False),) * like.rank)
    new = graph.add_value(instruction, leaf, list(instruction.shape.leaves())[leaf], is_open)
    place = 0
    for n, e in reversed(list(enumerate((*graph.equations, *graph.results)))):
        count = len(e.rule.operands)
        if member in e.tensors[:count]:
            place = n
            e.tensors = (*(new if v == member else v for v in e.tensors[:count]), *e.tensors[count:])
        if member in e.tensors[count:]:
            place = n + 1
            break
    graph.uses[new], graph.uses[member] = graph.uses[member], 1
    graph.group_views[member] = new
    rule = identity_rule(graph.dims[member])
    graph.equations.insert(place, Equation(instruction, rule, (member, new), OpClass.ELEMENTWISE, "group"))
    return new


def _replace(graph: PropagationGraph, stands_for: dict[int, int]) -> None:
    for e in (*graph.equations, *graph.results):
        e.tensors = tuple(stands_for.get(v, v) for v in e.tensors)
    for member, view in graph.group_views.items():
        graph.group_views[member] = stands_for.get(view, view)
    for i, values in graph.values.items():
        graph.values[i] = tuple(stands_for.get(v, v) for v in values)
