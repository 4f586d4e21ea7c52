"""Classes of dimensions that operations connect: a batch, heads, a hidden width, wherever they occur. Two dimensions
are in one class if one factor of an operation's rule runs over both, or if a border passes one on as the other. A mesh
axis that splits a class splits all values with that class, and nothing moves between them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence, Set

from shardc.hlo.ir.opset import OPS
from shardc.partitioner.regions.region_graph import DecisionNode, Wire

__all__ = ["DimensionClass", "DimensionClasses"]

#: One dimension of the class, which stands for it: the number of a wire, and of its dimension.
DimensionClass = tuple[int, int]


class DimensionClasses:
    """The classes of the dimensions of all wires that ``nodes`` read and write. ``share`` is the share of the program's
    arithmetic that can be split along a class. ``beside`` has the other classes that some operation with arithmetic
    runs over together with it. ``contracted`` are the classes that matrix products and convolutions run over, and not,
    for example, a stack of layers.
    """

    def __init__(self, nodes: Sequence[DecisionNode]) -> None:
        self._up: dict[DimensionClass, DimensionClass] = {}
        for n in nodes:
            self._tie(n)
        self.heavy = [n for n in nodes if n.rate and n.strategies]
        self.share: dict[DimensionClass, float] = defaultdict(float)
        self.beside: dict[DimensionClass, set[DimensionClass]] = defaultdict(set)
        self.contracted: set[DimensionClass] = set()
        self._weigh()

    def of(self, wire: Wire) -> list[DimensionClass]:
        """The class of each dimension."""
        return [self._root((wire.index, d)) for d in range(len(wire.dims))]

    def of_factors(self, node: DecisionNode, strategy: int = 0) -> list[DimensionClass | None]:
        """The class of each factor of an operation; None for factors that are not the first of a dimension."""
        rule = node.strategies[strategy].problem.rule
        found: list[DimensionClass | None] = [None] * len(rule.factors)
        for wire, dims in zip(node.wires, rule.tensors, strict=True):
            for d, factors in enumerate(dims):
                if factors and wire.dims[d] > 1:
                    found[factors[0]] = self._root((wire.index, d))
        return found

    def complete(self, first: DimensionClass, among: Set[DimensionClass]) -> tuple[DimensionClass, ...]:
        """``first`` and further classes ``among`` the given ones, by their shares, that no operation uses together. One
        axis may split all of them."""
        found = [first]
        for c in self.ranked():
            if c in among and c not in found and not any(c in self.beside[d] for d in found):
                found.append(c)
        return tuple(found)

    def ranked(self) -> list[DimensionClass]:
        """The classes by their shares, the largest first."""
        return sorted(self.share, key=lambda c: (-self.share[c], c))

    def _weigh(self) -> None:
        total = 0.0
        for n in self.heavy:
            problem = n.strategies[0].problem
            work = n.rate * n.times * math.prod(f.size for f in problem.rule.factors)
            total += work
            factors = enumerate(self.of_factors(n))
            there: Set[DimensionClass] = {c for f, c in factors if c is not None and f in problem.usable}
            if OPS[n.op.opcode].family == "contraction":
                self.contracted |= there
            for c in there:
                self.share[c] += work
                self.beside[c] |= there - {c}
        for c in self.share:
            self.share[c] /= total or 1.0

    def _tie(self, node: DecisionNode) -> None:
        if node.strategies:
            first: dict[int, DimensionClass] = {}
            for wire, dims in zip(node.wires, node.strategies[0].problem.rule.tensors, strict=True):
                for d, factors in enumerate(dims):
                    if factors and wire.dims[d] > 1:
                        self._join(first.setdefault(factors[0], (wire.index, d)), (wire.index, d))
        elif node.free:
            before, *others = node.wires
            for wire in others:
                for d in range(len(wire.dims)):
                    self._join((before.index, d), (wire.index, d))

    def _root(self, key: DimensionClass) -> DimensionClass:
        self._up.setdefault(key, key)
        while self._up[key] != key:
            self._up[key] = self._up[self._up[key]]
            key = self._up[key]
        return key

    def _join(self, a: DimensionClass, b: DimensionClass) -> None:
        low, high = sorted((self._root(a), self._root(b)))
        self._up[high] = low
