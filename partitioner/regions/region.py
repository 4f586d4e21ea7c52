"""Local search over connected regions of operations whose layouts disagree, each solved as a whole.

First every operation decides by itself (`dry_run`). Where that pays for a move, the operations around it are decided
together: their options (`region_options`) make a network of costs (`region_network`), which the solver of choices
solves. Its decisions are kept when they cost less, fewer bytes (or seconds) first, then fewer collectives. All else
stays as it was, so that no region makes a program dearer. Equal regions, such as those of equal layers, are decided
once.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from shardc.hlo.ir.ir import Instruction, Module
from shardc.partitioner.emit.layout import AxisLayout
from shardc.partitioner.regions.decision_graph import DecisionGraph
from shardc.partitioner.regions.dry_run import build_decision_graph
from shardc.partitioner.regions.region_budget import Budget
from shardc.partitioner.regions.region_graph import DecisionNode, GraphCosts, NodeOption, Region, Wire, ends
from shardc.partitioner.regions.region_network import RegionNetwork
from shardc.partitioner.regions.region_options import Options
from shardc.partitioner.reshard.price import Bytes
from shardc.partitioner.rewrite.body import partition_computation
from shardc.partitioner.rewrite.context import Context
from shardc.partitioner.strategy.cause import RegionDecision
from shardc.partitioner.strategy.decisions import LayoutPlan, PlannedSplit
from shardc.partitioner.strategy.rule import PartitionRow

__all__ = ["Search", "make_plan"]

#: Operations per region, and how many readers of one value a region spreads to.
_NODES = 40
_SPREAD = 6
#: An operation with more values than this belongs to one region of each round; to the others it is as it lies.
_CROWDED = 128
#: How often a value that costs something may start a region.
_ROUNDS = 4
#: The part of its time that a region on a machine may take to be decided anew: models are no finer.
_SAVING = 0.998
#: What an element that is computed in addition costs, in bytes to send: tried in turn until the budget allows the plan;
#: infinite forbids any growth.
_COMPUTE_PENALTIES = (0.25, 2.0, math.inf)


def make_plan(
    context: Context, rules: Mapping[str, PartitionRow], module: Module, parameters: Sequence[tuple[AxisLayout, ...]]
) -> LayoutPlan:
    """Decisions for a whole module whose entry takes ``parameters``: as the context has them, if they were chosen for
    the whole program, else improved region by region.

    Which states of loops and results of branches are partial is found by writing the program once (`accumulate`).
    """
    if any(i.opcode in ("while", "conditional") for i in module.instructions()):
        partition_computation(context, rules, module.entry, parameters, context.layouts(module.entry.root))
    graph = build_decision_graph(context, rules, module, parameters)
    search = Search(context, graph.nodes, graph.wires)
    if not context.plan.decisions:
        search.run()
    return search.plan(graph)


@dataclass(slots=True)
class Search:
    """The search over the graph of a program; ``why`` has every node that it changes."""

    context: Context
    nodes: Sequence[DecisionNode]
    wires: Sequence[Wire]
    why: dict[DecisionNode, RegionDecision] = field(default_factory=dict)
    costs: GraphCosts = field(init=False)
    budget: Budget = field(init=False)
    options: Options = field(init=False)
    _known: dict[object, tuple[NodeOption, ...] | None] = field(default_factory=dict)
    _crowds: dict[Wire, list[DecisionNode]] = field(default_factory=dict)
    _seen: set[DecisionNode] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.costs = GraphCosts(self.context.resharder)
        self.options = Options(self.context)
        self.budget = Budget(self.context.table, self.nodes, self.wires, self.context.resharder.price.memory())

    def run(self) -> None:
        """Improve until no region around a value that costs something can be improved."""
        settled: set[Wire] = set()
        work = [w for w in self.wires if self._pays(w)]
        for _ in range(_ROUNDS):
            again: dict[Wire, None] = {}
            self._seen.clear()
            for wire in work:
                if wire in settled or not self._pays(wire):
                    continue
                nodes, inner = self._region(wire)
                changed = self._improve(Region(nodes)) if nodes else []
                settled.add(wire)
                if not changed:
                    settled.update(w for n in inner for w in n.wires if inner.issuperset(ends(w)))
                for w in (w for n in changed for w in n.wires):
                    settled.discard(w)
                    again[w] = None
            work = sorted(again, key=lambda w: w.index)
            if not work:
                break

    def plan(self, graph: DecisionGraph) -> LayoutPlan:
        """What is decided at present for the operations and borders of ``graph``."""
        decisions: dict[Instruction, PlannedSplit] = {}
        for node, row in graph.rows.items():
            option = node.option
            if node.strategies and option.choice is not None:
                strategy = node.strategies[option.strategy]
                sources = tuple(w.start() for w in node.operands)
                decisions[node.op] = PlannedSplit(row, sources, strategy.local, strategy.problem.rule, option.choice)
        layouts = {op: tuple(n.option.operands[0] for n in nodes) for op, nodes in graph.borders.items()}
        common: dict[Instruction, dict[int, AxisLayout]] = {}
        for wire, (op, leaf) in graph.places.items():
            form = self.costs.common(wire)
            if form is not None:
                common.setdefault(op, {})[leaf] = form
        return LayoutPlan(decisions, layouts, common, {n.op: why for n, why in self.why.items()})

    def _pays(self, wire: Wire) -> bool:
        """Whether the value, or the operation that makes it, sends anything at present."""
        own = wire.producer is not None and wire.producer.option.own[1] > 0
        return own or self.costs.present(wire)[1] > 0

    def _improve(self, region: Region) -> list[DecisionNode]:
        """Decide a region anew, within the budget; the nodes that changed."""
        signature = _signature(region)
        for compute_penalty in _COMPUTE_PENALTIES:
            key = (signature, compute_penalty)
            if key not in self._known:
                self._known[key] = self.decided(region, compute_penalty)
            found = self._known[key]
            changed = self._take(region, found) if found is not None else []
            if changed or found is None:
                return changed
        return []

    def _take(self, region: Region, options: Sequence[NodeOption]) -> list[DecisionNode]:
        """Take ``options`` if the budget allows, and tell why; the nodes that changed."""
        nodes, wires = region.nodes, region.wires
        spans = [s for w in wires for s in self.budget.spans(w)]
        cost, present = self._cost(region), [n.option for n in nodes]
        work = sum((o.work - n.option.work) * n.times for n, o in zip(nodes, options, strict=True) if n.counts)
        _set(nodes, options)
        if not self.budget.spend(spans, [s for w in wires for s in self.budget.spans(w)], work):
            _set(nodes, present)
            return []
        unit = "B" if isinstance(self.context.resharder.price, Bytes) else "s"
        told = RegionDecision(len(nodes), self._cost(region)[0], cost[0], unit)
        changed = [n for n, o in zip(nodes, present, strict=True) if n.option is not o]
        self.why.update(dict.fromkeys(changed, told))
        return changed

    def _cost(self, region: Region) -> tuple[float, float]:
        return self.costs.total(region.nodes, region.wires)

    def decided(self, region: Region, compute_penalty: float) -> tuple[NodeOption, ...] | None:
        """Options for a region that together cost less than the present ones; None if there are none.

        ``compute_penalty`` is what an element costs that is computed in addition, in bytes to send.
        """
        options = self.options.of_region(region, strict=compute_penalty == math.inf)
        if all(len(o) == 1 for o in options):
            return None
        best = RegionNetwork(self.costs, region, options, compute_penalty).solve()
        if best is None:
            return None
        present = tuple(n.option for n in region.nodes)
        before = self._cost(region)
        _set(region.nodes, best)
        after = self._cost(region)
        _set(region.nodes, present)
        if not isinstance(self.context.resharder.price, Bytes) and after[0] > _SAVING * before[0]:
            return None
        return best if _less(after, before) else None

    # -- regions ---------------------------------------------------------------------------------------------

    def _region(self, wire: Wire) -> tuple[list[DecisionNode], set[DecisionNode]]:
        """The operations that can decide near ``wire``, in program order, and those of them that lie well inside."""
        found: dict[DecisionNode, None] = {}
        work = list(dict.fromkeys(ends(wire)))
        for node in work:
            if len(found) == _NODES:
                break
            if node in found or node in self._seen or not (node.strategies or node.free):
                continue
            found[node] = None
            if len(node.operands) + len(node.results) > _CROWDED:
                self._seen.add(node)
            for w in node.wires:
                if not w.made and (w.dims or w.start().unreduced):
                    work.extend(self._near(w, node))
        inner = set(list(found)[: _NODES // 2]) if len(found) == _NODES else set(found)
        return sorted(found, key=lambda n: n.index), inner

    def _near(self, wire: Wire, node: DecisionNode) -> Iterator[DecisionNode]:
        """Who makes a wire and who reads it: of many, those nearest to ``node`` in the program."""
        if wire.producer is not None and wire.producer is not node:
            yield wire.producer
        if len(wire.readers) > 2 * _SPREAD:
            readers = self._nearest(wire, node)
        else:
            readers = [r.node for r in wire.readers if r.node is not None and r.node is not node]
        if len(readers) > _SPREAD:
            readers = sorted(readers, key=lambda n: (abs(n.index - node.index), n.index))[:_SPREAD]
        yield from readers

    def _nearest(self, wire: Wire, node: DecisionNode) -> list[DecisionNode]:
        """Readers among which those are that are nearest to ``node``: enough on both sides of it."""
        crowd = self._crowds.get(wire)
        if crowd is None:
            crowd = self._crowds[wire] = sorted(
                (r.node for r in wire.readers if r.node is not None), key=lambda n: n.index
            )
        low = bisect_left(crowd, node.index, key=lambda n: n.index)
        high = bisect_right(crowd, node.index, key=lambda n: n.index)
        return [*crowd[max(0, low - _SPREAD) : low], *crowd[high : high + _SPREAD]]


def _set(nodes: Sequence[DecisionNode], options: Sequence[NodeOption]) -> None:
    for node, option in zip(nodes, options, strict=True):
        node.option = option


def _less(a: tuple[float, float], b: tuple[float, float]) -> bool:
    """Whether ``a`` is cheaper by more than rounding."""
    slack = 1e-9 * max(abs(a[0]), abs(b[0]))
    return a[0] < b[0] - slack or (a[0] <= b[0] + slack and a[1] < b[1] - 1e-6)


def _signature(region: Region) -> object:
    """Equal for regions in which everything that decides is equal."""
    nodes = region.nodes
    place = {n: k for k, n in enumerate(nodes)}
    wires = {w: k for k, w in enumerate(region.wires)}
    rows = tuple(
        (
            n.key,
            n.option,
            n.times,
            n.rate,
            n.free,
            n.barred,
            n.heavy and n.work,
            bool(n.strategies),
            tuple(wires[w] for w in n.wires),
        )
        for n in nodes
    )
    edges = tuple(
        (
            w.dims,
            w.nbytes,
            w.made,
            w.times,
            w.pieces,
            w.preferred,
            place.get(w.producer, w.start()) if w.producer is not None else w.given,
            w.slot,
            tuple((place[r.node], r.slot) if r.node in place else r.want() for r in region.readers[w]),
        )
        for w in wires
        if not w.made
    )
    return rows, edges
