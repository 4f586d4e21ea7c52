"""Groups operations whose dimensions correspond, such as chains of elementwise operations, into one decision. A value
*ties* two operations if one of them has no dimension that the other lacks: every split of one is a split of the other.
Their dimensions (factors) then are the same loops of a *cluster*. Operations that can pass on partial values are tied
only to each other, so a cluster is partial as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from shardc.hlo.ir.opset import OPS
from shardc.partitioner.emit.layout import Atoms
from shardc.partitioner.regions.region_graph import DecisionNode, OpStrategy, Wire
from shardc.sharding.rules.factor_rule import FactorKind, FactorRule

__all__ = ["TiedNodes", "tie_nodes"]

#: Families of operations that are computed where their operands are read, as far as their dimensions pass through.
_LIGHT = frozenset(("elementwise", "shape", "reduction"))


@dataclass(eq=False, slots=True)
class TiedNodes:
    """Nodes that are decided together. ``loops`` are the sizes of their common loops, ``loop_of`` the loop of each
    factor of each member (-1: a factor that is never split). ``carries``: the operands of each member that may stay
    partial together; empty for a cluster that has only whole values."""

    members: list[DecisionNode] = field(default_factory=list)
    loops: list[int] = field(default_factory=list)
    loop_of: dict[DecisionNode, tuple[int, ...]] = field(default_factory=dict)
    carries: dict[DecisionNode, tuple[int, ...]] = field(default_factory=dict)

    @property
    def barred(self) -> Atoms:
        """The atoms over which a member cannot be split."""
        return tuple(sorted({a for n in self.members for a in n.barred}))


def tie_nodes(nodes: Sequence[DecisionNode]) -> list[TiedNodes]:
    """All nodes in clusters, in the order of their first members."""
    ties = _Ties(nodes)
    for node in nodes:
        if ties.light(node):
            for slot, wire in enumerate(node.operands):
                if wire.producer is not None and ties.light(wire.producer):
                    ties.tie(wire, node, slot)
    return ties.clusters()


class _Ties:
    """Union-find over nodes, and over their factors."""

    def __init__(self, nodes: Sequence[DecisionNode]) -> None:
        self.nodes = nodes
        self.partial: set[Wire] = set()
        self.group: dict[DecisionNode, tuple[int, ...]] = {}
        self._light = {n for n in nodes if _is_light(n)}
        self._up: dict[DecisionNode, DecisionNode] = {n: n for n in self._light}
        self._factor: dict[tuple[DecisionNode, int], tuple[DecisionNode, int]] = {}
        #: The loops of each cluster, by its representative: representatives of factors.
        self._loops: dict[DecisionNode, set[tuple[DecisionNode, int]]] = {}
        for n in nodes:
            self._find_partial(n)
        for n in self._light:
            keys = [(n, f) for f in _loops(n)]
            self._factor.update((k, k) for k in keys)
            self._loops[n] = set(keys)

    def light(self, node: DecisionNode) -> bool:
        return node in self._light

    def _find_partial(self, node: DecisionNode) -> None:
        """Whether the results of ``node`` may be partial sums, and which operands may then be partial."""
        for s in node.strategies:
            rule = s.problem.rule
            sums = rule.of_kind(FactorKind.REDUCTION) if rule.reduction == "sum" and not s.finished else ()
            if any(f in s.problem.usable for f in sums):
                self.partial.update(node.results)
            found = self._carried(node, s)
            if found:
                self.group[node] = found
                self.partial.update(node.results)

    def _carried(self, node: DecisionNode, strategy: OpStrategy) -> tuple[int, ...]:
        """The operands in which the node is linear, if all of them may be partial and the result is not larger. Scalar
        constants may always be."""
        size = max((_size(w) for w in node.results), default=0)
        for reduction, groups in strategy.groups:
            if reduction == "sum":
                for g in groups:
                    wires = [w for w in (node.operands[k] for k in g) if w.dims or not w.made]
                    if wires and all(w in self.partial for w in wires) and size <= 2 * max(_size(w) for w in wires):
                        return g
        return ()

    def tie(self, wire: Wire, node: DecisionNode, slot: int) -> None:
        """Tie ``node`` to the producer of ``wire``, its operand ``slot``, if one of them has no loops of its own."""
        producer = wire.producer
        assert producer is not None
        if producer.times != node.times or (producer in self.group) != (node in self.group):
            return
        if node in self.group and slot not in self.group[node]:
            return
        pairs = _pairs(producer, wire.slot, node, slot)
        if pairs is None:
            return
        a, b = self._root(producer), self._root(node)
        tied = {(self._loop((producer, f)), self._loop((node, g))) for f, g in pairs}
        if a is b or len({x for x, _ in tied}) < len(tied) or len({y for _, y in tied}) < len(tied):
            return
        if {x for x, _ in tied} < self._loops[a] and {y for _, y in tied} < self._loops[b]:
            return
        for x, y in tied:
            self._factor[y] = x
        self._up[b] = a
        self._loops[a] = self._loops[a] | {self._loop(y) for y in self._loops.pop(b)}

    def _root(self, node: DecisionNode) -> DecisionNode:
        while self._up[node] is not node:
            self._up[node] = self._up[self._up[node]]
            node = self._up[node]
        return node

    def _loop(self, key: tuple[DecisionNode, int]) -> tuple[DecisionNode, int]:
        while self._factor[key] != key:
            self._factor[key] = self._factor[self._factor[key]]
            key = self._factor[key]
        return key

    def clusters(self) -> list[TiedNodes]:
        found: dict[DecisionNode, TiedNodes] = {}
        numbers: dict[tuple[DecisionNode, int], int] = {}
        for node in self.nodes:
            cluster = found.setdefault(self._root(node) if node in self._light else node, TiedNodes())
            cluster.members.append(node)
            if node in self.group:
                cluster.carries[node] = self.group[node]
            if node not in self._light:
                continue
            rule, own = node.strategies[0].problem.rule, set(_loops(node))
            of: list[int] = []
            for f, factor in enumerate(rule.factors):
                if f not in own:
                    of.append(-1)
                    continue
                loop = self._loop((node, f))
                if loop not in numbers:
                    numbers[loop] = len(cluster.loops)
                    cluster.loops.append(factor.size)
                of.append(numbers[loop])
            cluster.loop_of[node] = tuple(of)
        return list(found.values())


def _is_light(node: DecisionNode) -> bool:
    """Whether the node has one strategy, works per dimension, and has no collectives of its own."""
    if len(node.strategies) != 1 or OPS[node.op.opcode].family not in _LIGHT:
        return False
    problem = node.strategies[0].problem
    rule = problem.rule
    simple = all(len(d) == 1 for tensor in rule.tensors for d in tensor)
    whole = any(f.size > 1 and k not in problem.usable for k, f in enumerate(rule.factors))
    return simple and problem.sends is None and not whole and not node.strategies[0].finished


def _loops(node: DecisionNode) -> Iterable[int]:
    """Factors that can be split."""
    problem = node.strategies[0].problem
    return [f for f, factor in enumerate(problem.rule.factors) if factor.size > 1 and f in problem.usable]


def _pairs(producer: DecisionNode, result: int, node: DecisionNode, slot: int) -> list[tuple[int, int]] | None:
    """The factors that a value ties together; None if it ties none."""
    left, right = _rule(producer), _rule(node)
    out: list[tuple[int, int]] = []
    for (f,), (g,) in zip(left.results[result], right.operands[slot], strict=True):
        if left.factors[f].size > 1 or right.factors[g].size > 1:
            out.append((f, g))
    return out


def _rule(node: DecisionNode) -> FactorRule:
    return node.strategies[0].problem.rule


def _size(wire: Wire) -> int:
    size = 1
    for n in wire.dims:
        size *= n
    return size
