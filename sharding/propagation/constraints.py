"""Sharding constraints apply to their operands, too, as in Shardy.

A closed constraint on a value that has no sharding, and on which no other constraint disagrees, is the value's own
sharding: then its maker produces it in that layout at once. A data-flow value (a loop carry and the like) is left
open, but its other readers take it from the constraint. So do the later readers of a value at the head of a chain of
constraints take it from the end of the chain. What enters a manual computation is constrained as well. The rules are
Shardy's.
"""

from __future__ import annotations

from dataclasses import replace

from shardc.hlo.ir.custom_calls import is_constraint
from shardc.hlo.ir.sharding import Sharding
from shardc.sharding.propagation.graph import Equation, PropagationGraph
from shardc.sharding.propagation.op_priorities import OpClass
from shardc.sharding.rules.reshape import identity_rule

__all__ = ["apply_constraints"]


def apply_constraints(graph: PropagationGraph) -> None:
    """Set the initial sharding of constrained values, and who reads them, in program order."""
    _Constraints(graph).apply()


class _Constraints:
    def __init__(self, graph: PropagationGraph) -> None:
        self.graph = graph
        self.edges = {e.tensors[-1] for e in graph.equations if e.op_class is OpClass.EDGE}
        self.position = {id(e): n for n, e in enumerate(graph.equations)}
        self.readers: dict[int, list[Equation]] = {}
        for e in (*graph.equations, *graph.results):
            for v in dict.fromkeys(e.tensors[: len(e.rule.operands)]):
                self.readers.setdefault(v, []).append(e)
        self.returned = {id(e) for e in graph.results}

    def apply(self) -> None:
        for e in list(self.graph.equations):
            wanted = self.demand(e)
            if wanted is None:
                continue
            if e.border is None:
                self.follow_chain(e)
            if self.should_apply(e.tensors[0], wanted):
                self.give(e, e.tensors[0], wanted)

    def demand(self, e: Equation) -> Sharding | None:
        """What an equation demands of its operand; None if it is not a constraint."""
        if e.border is not None:
            return e.border.given if e.border.inward else None
        if not e.label and is_constraint(e.instruction) and self.graph.annotated[e.tensors[-1]]:
            return self.graph.initial[e.tensors[-1]]
        return None

    def should_apply(self, value: int, wanted: Sharding) -> bool:
        if self.graph.annotated[value] or not all(d.closed for d in wanted.dims):
            return False
        others = (self.demand(e) for e in self.readers.get(value, ()))
        return all(o is None or o == wanted for o in others)

    def give(self, e: Equation, value: int, wanted: Sharding) -> None:
        g = self.graph
        if value not in self.edges:
            g.annotate(value, wanted)
            return
        if e.border is None:
            constrained, keep = e.tensors[-1], e
        else:
            instruction, leaf = g.origin[value]
            constrained = g.add_value(instruction, leaf, list(instruction.shape.leaves())[leaf], wanted)
            g.add_equation(
                e.instruction, identity_rule(g.dims[value]), (value, constrained), OpClass.ELEMENTWISE, "enters"
            )
            keep = g.equations[-1]
        for reader in list(self.readers.get(value, ())):
            if reader is not keep:
                self.redirect(reader, value, constrained)
        self.readers[value] = [keep]
        g.uses[value] = 1
        if wanted.unreduced:
            own = g.initial[value]
            partial = replace(own, mesh=wanted.mesh, unreduced=wanted.unreduced, reduction=wanted.reduction)
            g.annotate(value, partial)

    def follow_chain(self, head: Equation) -> None:
        """Readers after a chain of constraints take its end, not the value that it begins with."""
        g, value = self.graph, head.tensors[0]
        if g.annotated[value] or self.makes_constraint(value):
            return
        if any(e is not head and self.demand(e) is not None for e in self.readers.get(value, ())):
            return
        tail = head
        while g.uses[tail.tensors[-1]] == 1:
            following = [e for e in self.readers.get(tail.tensors[-1], ()) if self.is_plain(e)]
            if not following:
                break
            tail = following[0]
        end = tail.tensors[-1]
        if tail is head or any(self.demand(e) is not None for e in self.readers.get(end, ())):
            return
        for reader in list(self.readers.get(value, ())):
            if reader is head or id(reader) in self.returned:
                continue
            if self.position.get(id(reader), -1) > self.position[id(tail)]:
                self.readers[value].remove(reader)
                self.redirect(reader, value, end)
                g.uses[value] -= 1

    def is_plain(self, e: Equation) -> bool:
        return e.border is None and self.demand(e) is not None

    def makes_constraint(self, value: int) -> bool:
        instruction, _ = self.graph.origin[value]
        return is_constraint(instruction)

    def redirect(self, reader: Equation, old: int, new: int) -> None:
        count = len(reader.rule.operands)
        operands = tuple(new if v == old else v for v in reader.tensors[:count])
        self.graph.uses[new] += sum(v == old for v in reader.tensors[:count])
        reader.tensors = (*operands, *reader.tensors[count:])
        self.readers.setdefault(new, []).append(reader)
