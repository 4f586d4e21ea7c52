"""The costs of a region as tables between variables: lower bounds, made exact where a solution uses them.

Finding what a reshard costs takes a search; a lower bound does not. The network starts from bounds, and what its
cheapest solution makes use of is made exact, until a solution is exact as a whole: then nothing is cheaper. Where the
bounds alone say that nothing beats the present decisions, no search takes place at all.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardc.partitioner.emit.layout import AxisLayout
from shardc.partitioner.regions.region_graph import DecisionNode, GraphCosts, NodeOption, Region, Wire, WireReader
from shardc.partitioner.reshard.price import Bytes
from shardc.partitioner.strategy.solve.eliminate import CostTable
from shardc.partitioner.strategy.solve.solve import SolveLimits
from shardc.partitioner.strategy.solve.solve_tables import solve_tables

__all__ = ["RegionNetwork"]

#: Layouts in one set of forms of a value, unless it has more already; values with more ends than this have such sets.
_FORMS = 3
#: How often a network is solved before what was found by then is taken, and how much work that may be each time.
_TRIES = 24
_LIMITS = SolveLimits(near=0, columns=3_000, nodes=20, rounds=20, parts=0)
#: On a machine options are many, and linear programs take most of the time there for no better regions.
_LIMITS_OF_SECONDS = SolveLimits(columns=0, rounds=20)

#: What an option means for one wire: the layout that it gives, and per reader the one that it wants; None: not its own.
_View = tuple[AxisLayout | None, tuple[AxisLayout | None, ...]]


@dataclass(slots=True)
class _Edge:
    """One wire's costs: ``table`` over ``kinds`` of its variables' values, of which ``index`` tells each value's.

    ``entry`` gives (start, wants) at a place of the table; ``place`` is the factor's in the network.
    """

    wire: Wire
    variables: tuple[int, ...]
    index: tuple[NDArray[np.intp], ...]
    table: NDArray[np.float64]
    exact: NDArray[np.bool_]
    entry: Callable[[tuple[int, ...]], tuple[AxisLayout, list[AxisLayout]]]
    place: int = -1

    def factor(self) -> CostTable:
        return CostTable(self.variables, self.table[np.ix_(*self.index)])


class RegionNetwork:
    """Decisions of a region's nodes among ``options``, the present ones first.

    ``compute_penalty`` is what an element costs that is computed in addition, in bytes to send; infinite: there are
    none.
    """

    def __init__(
        self, costs: GraphCosts, region: Region, options: Sequence[tuple[NodeOption, ...]], compute_penalty: float
    ) -> None:
        self.costs = costs
        self.compute_penalty = compute_penalty
        self.region, self.options = region, options
        nodes = region.nodes
        self.sizes: list[int] = []
        self.present: list[int] = []
        self.factors: list[CostTable] = []
        self.choices = {n: o for n, o in zip(nodes, options, strict=True) if len(o) > 1}
        self.variable = {n: self._variable(len(o)) for n, o in self.choices.items()}
        self.edges: list[_Edge] = []
        by_bytes = isinstance(costs.resharder.price, Bytes)
        self.weight, self.limits = (1e-3, _LIMITS) if by_bytes else (1e-12, _LIMITS_OF_SECONDS)
        for n, o in self.choices.items():
            self.factors.append(CostTable((self.variable[n],), np.array([self._own(n, x) for x in o])))
        for wire in dict.fromkeys(w for n in self.choices for w in n.wires):
            if not wire.made:
                self._add_wire(wire)

    def solve(self) -> tuple[NodeOption, ...] | None:
        """Options that together cost less than the present ones; None where there are none."""
        present = list(self.present)
        self._settle(present)
        before = self._total(present)
        best, least = present, before
        for _ in range(_TRIES):
            found = solve_tables(self.sizes, self.factors, best, self.limits)
            if found == best or self._total(found) >= least:
                break
            settled = self._settle(found)
            cost = self._total(found)
            if cost < least:
                best, least = found, cost
            if not settled:
                break
        if best is present:
            return None
        values = {n: best[v] for n, v in self.variable.items()}
        return tuple(o[values.get(n, 0)] for n, o in zip(self.region.nodes, self.options, strict=True))

    def _variable(self, size: int, present: int = 0) -> int:
        """A new variable of so many values."""
        self.sizes.append(size)
        self.present.append(present)
        return len(self.sizes) - 1

    def _total(self, values: Sequence[int]) -> float:
        return math.fsum(float(f.table[tuple(values[v] for v in f.variables)]) for f in self.factors)

    def _settle(self, values: Sequence[int]) -> bool:
        """Make exact what ``values`` make use of; whether anything was not."""
        changed = False
        for edge in self.edges:
            at = tuple(int(index[values[v]]) for index, v in zip(edge.index, edge.variables, strict=True))
            if edge.exact[at]:
                continue
            start, wants = edge.entry(at)
            edge.table[at] = self._scalar(self.costs.of(edge.wire, start, wants))
            edge.exact[at] = changed = True
            self.factors[edge.place] = edge.factor()
        return changed

    def _scalar(self, cost: tuple[float, float]) -> float:
        """One number: a collective weighs less than any byte or nanosecond that counts."""
        return cost[0] + cost[1] * self.weight

    def _own(self, node: DecisionNode, option: NodeOption) -> float:
        """What an option costs by itself; one that changes nothing for the better is not worth it."""
        own = self._scalar((option.own[0] * node.times, option.own[1] * node.times))
        own += node.rate * option.work * node.times
        if option is node.option:
            return own
        own += 1e-3 * self.weight
        if node.counts and not node.rate and self.compute_penalty < math.inf:
            own += self.compute_penalty * node.times * (option.work - node.option.work)
        return own

    # -- values ----------------------------------------------------------------------------------------------

    def _add_wire(self, wire: Wire) -> None:
        """The costs of a wire between those of its ends that have a choice."""
        readers = self.region.readers[wire]
        here = [n for n in dict.fromkeys(self.region.ends(wire)) if n in self.choices]
        views = [_views(wire, readers, n, self.choices[n]) for n in here]
        if len(here) > _FORMS:
            self._add_forms(wire, dict(zip(here, views, strict=True)))
            return
        kinds = [list(dict.fromkeys(v)) for v in views]
        place = {n: k for k, n in enumerate(here)}

        def entry(at: tuple[int, ...]) -> tuple[AxisLayout, list[AxisLayout]]:
            start = None if wire.producer not in place else kinds[place[wire.producer]][at[place[wire.producer]]][0]
            wants = [
                (None if r.node not in place else kinds[place[r.node]][at[place[r.node]]][1][k]) or r.want()
                for k, r in enumerate(readers)
            ]
            return start or wire.start(), wants

        index = tuple(_index(k, v) for k, v in zip(kinds, views, strict=True))
        self._add_edge(wire, tuple(self.variable[n] for n in here), index, [len(k) for k in kinds], entry)

    def _add_edge(
        self,
        wire: Wire,
        variables: tuple[int, ...],
        index: tuple[NDArray[np.intp], ...],
        shape: Sequence[int],
        entry: Callable[[tuple[int, ...]], tuple[AxisLayout, list[AxisLayout]]],
    ) -> None:
        table, exact = np.zeros(shape), np.ones(shape, bool)
        for at in itertools.product(*map(range, shape)):
            cost, exact[at] = self.costs.bound(wire, *entry(at))
            table[at] = self._scalar(cost)
        if table.any():
            edge = _Edge(wire, variables, index, table, exact, entry, len(self.factors))
            self.factors.append(edge.factor())
            self.edges.append(edge)

    def _add_forms(self, wire: Wire, views: Mapping[DecisionNode, Sequence[_View]]) -> None:
        """Through the set of layouts into which the value is brought: each reader's must be one of them."""
        seen = self.region.readers[wire]
        readers = [n for n in views if any(r.node is n for r in seen)]
        asked = {n: [frozenset(x for x in v[1] if x is not None) for v in views[n]] for n in readers}
        layouts = list(dict.fromkeys(x for n in readers for v in views[n] for x in v[1] if x is not None))
        present = frozenset[AxisLayout]().union(*(asked[n][0] for n in readers))
        sets = list(_sets(layouts, present))
        forms = self._variable(len(sets), sets.index(present))
        producer = wire.producer if wire.producer in views else None
        given = [wire.start()] if producer is None else [o.results[wire.slot] for o in self.choices[producer]]
        starts = list(dict.fromkeys(given))
        fixed = [r.want() for r in seen if r.node not in views]

        def entry(at: tuple[int, ...]) -> tuple[AxisLayout, list[AxisLayout]]:
            chosen = sets[at[-1]]
            return starts[at[0]] if len(at) > 1 else starts[0], [*fixed, *(x for x in layouts if x in chosen)]

        every = np.arange(len(sets))
        if producer is None:
            self._add_edge(wire, (forms,), (every,), [len(sets)], entry)
        else:
            variables = (self.variable[producer], forms)
            self._add_edge(wire, variables, (_index(starts, given), every), [len(starts), len(sets)], entry)
        for n in readers:
            fits = [[0.0 if need <= chosen else np.inf for chosen in sets] for need in asked[n]]
            self.factors.append(CostTable((self.variable[n], forms), np.array(fits)))


def _index(kinds: Sequence[object], values: Sequence[object]) -> NDArray[np.intp]:
    """Where each of ``values`` is among ``kinds``."""
    return np.array([kinds.index(v) for v in values], np.intp)


def _views(wire: Wire, readers: Sequence[WireReader], node: DecisionNode, options: Sequence[NodeOption]) -> list[_View]:
    return [
        (
            o.results[wire.slot] if wire.producer is node else None,
            tuple(o.operands[r.slot] if r.node is node else None for r in readers),
        )
        for o in options
    ]


def _sets(layouts: Sequence[AxisLayout], present: frozenset[AxisLayout]) -> Iterator[frozenset[AxisLayout]]:
    """Sets of a few of ``layouts``; the present one is among them."""
    most = _FORMS if len(layouts) <= 8 else _FORMS - 1
    for size in range(1, most + 1):
        yield from map(frozenset, itertools.combinations(layouts, size))
    if len(present) > most:
        yield present
