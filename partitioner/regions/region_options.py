"""What the nodes of a region may decide: options made from the layouts in which their values may lie.

Every wire has a pool of layouts: that in which it lies, those that are asked for, the propagated one, and what the
neighbours' options suggest, handed on through operations whose dimensions pass through, as often as it takes from one
end of the region to the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from shardc.partitioner.emit.layout import Atoms, AxisLayout
from shardc.partitioner.regions.decision_graph import settle
from shardc.partitioner.regions.region_graph import DecisionNode, NodeOption, OpStrategy, Region, Wire
from shardc.partitioner.rewrite.context import Context
from shardc.partitioner.strategy.choose import SplitChoice, assign, lay_out, move_away

__all__ = ["Options"]

#: Layouts per wire and options per node; those found first stay.
_POOL = 6
_MOST = 14

#: (operands that stay partial, over which atoms, with which reduction)
_Carry = tuple[tuple[int, ...], Atoms, str]


class Options:
    """Makes options; equal nodes with equal pools have equal ones."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._made: dict[object, tuple[NodeOption, ...]] = {}
        self._settled: dict[object, NodeOption] = {}

    def of_region(self, region: Region, *, strict: bool = False) -> list[tuple[NodeOption, ...]]:
        """Options of each node of a region, the present one first.

        With ``strict`` only those that neither work more nor make larger values than the present ones.
        """
        nodes = region.nodes
        pools = {wire: _first(self.context, wire) for wire in region.wires if not wire.made}
        found: dict[DecisionNode, tuple[NodeOption, ...]] = {}
        changed = set(nodes)
        for _ in range(4):
            again, changed = changed, set()
            for node in (*nodes, *reversed(nodes)):
                if node not in again and node not in changed:
                    continue
                found[node] = self._of_node(node, pools)
                for wire, layout in _suggest(node, found[node]):
                    pool = pools.get(wire)
                    if pool is not None and layout not in pool and len(pool) < _POOL:
                        pool.append(layout)
                        changed.update(n for n in region.ends(wire) if n in found)
            if not changed:
                break
        return [self._thrifty(node, found[node]) if strict else found[node] for node in nodes]

    def _thrifty(self, node: DecisionNode, options: Sequence[NodeOption]) -> tuple[NodeOption, ...]:
        present = node.option
        most = self._sizes(node, present)
        return tuple(o for o in options if o is present or (o.work <= present.work and self._sizes(node, o) <= most))

    def _sizes(self, node: DecisionNode, option: NodeOption) -> int:
        """Elements that a node leaves on a device."""
        local = self.context.table.local_dims
        return sum(math.prod(local(x, w.dims)) for x, w in zip(option.results, node.results, strict=False))

    def _of_node(self, node: DecisionNode, pools: dict[Wire, list[AxisLayout]]) -> tuple[NodeOption, ...]:
        own = tuple(tuple(pools.get(w, ())) for w in node.wires)
        work = node.work if node.heavy else None
        key = (node.key, node.option, own, work, node.free, node.barred, bool(node.strategies))
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = tuple(self._make(node, own))
        return found

    def _make(self, node: DecisionNode, pools: Sequence[tuple[AxisLayout, ...]]) -> list[NodeOption]:
        out = [node.option]
        if node.free:
            sides = (len(node.option.operands), len(node.option.results))
            open_to = (x for pool in pools for x in pool if not x.unreduced and x.used.isdisjoint(node.barred))
            pool = dict.fromkeys((node.option.results[0], *open_to))
            out.extend(NodeOption((x,) * sides[0], (x,) * sides[1]) for x in list(pool)[1:])
        seen = {(node.option.strategy, node.option.operands, node.option.results)}
        for number, strategy in enumerate(node.strategies):
            for factors, carry in self._assignments(node, strategy, pools):
                option = self._option(node, number, factors, carry)
                same = (number, option.operands, option.results)
                if same in seen or (node.heavy and option.work > node.work):
                    continue
                seen.add(same)
                out.append(option)
        return out[:_MOST]

    def _assignments(
        self, node: DecisionNode, strategy: OpStrategy, pools: Sequence[tuple[AxisLayout, ...]]
    ) -> Iterator[tuple[tuple[Atoms, ...], _Carry]]:
        """Axes per factor as each layout of each tensor would have it, alone or before the others."""
        table, problem = self.context.table, strategy.problem
        present = [*node.option.operands, *node.option.results]
        carries: list[_Carry] = [((), (), "sum"), *_carries(strategy, pools)]
        tensors = _different(strategy, present, pools)
        for carry in carries:
            for t in tensors:
                rest = tuple(u for u in tensors if u != t)
                for layout in pools[t]:
                    layouts = list(present)
                    layouts[t] = layout
                    for order in ((t,), (t, *rest)) if rest else ((t,),):
                        factors = assign(table, problem, layouts, order, carry[1])
                        yield factors, carry
                        away = move_away(table, problem, factors, carry[1], (t, layout))
                        if away is not factors:
                            yield away, carry

    def _option(self, node: DecisionNode, number: int, factors: tuple[Atoms, ...], carry: _Carry) -> NodeOption:
        strategy, preferred = node.strategies[number], tuple(w.preferred for w in node.results)
        kind = (strategy.local, strategy.problem.rule, strategy.problem.usable, strategy.finished, number)
        key = (kind, factors, carry, preferred, tuple(w.nbytes for w in node.results))
        found = self._settled.get(key)
        if found is None:
            operands, results = lay_out(self.context.table, strategy.problem.rule, factors, carry)
            choice = SplitChoice(factors, operands, results, carry[1], (0.0, 0))
            found = self._settled[key] = settle(self.context, strategy, number, choice, preferred)
        return found


def _different(
    strategy: OpStrategy, present: Sequence[AxisLayout], pools: Sequence[tuple[AxisLayout, ...]]
) -> list[int]:
    """Tensors whose layouts have a say: two of those that are alike, since what a third one says was said before.

    All those are alike that must be whole.
    """
    alike: dict[object, list[int]] = {}
    tensors, usable = strategy.problem.rule.tensors, strategy.problem.usable
    for t, pool in enumerate(pools):
        if pool and present[t].dims:
            split = any(f in usable for dim in tensors[t] for f in dim)
            same = alike.setdefault((tensors[t], present[t], pool) if split else None, [])
            if len(same) < 2:
                same.append(t)
    return sorted(t for same in alike.values() for t in same)


def _first(context: Context, wire: Wire) -> list[AxisLayout]:
    """Where a wire lies, what is asked for, what propagation gave."""
    start = wire.start()
    pool = dict.fromkeys((start, wire.preferred, context.table.reduced(start), *wire.wants.layouts()))
    return list(pool)[:_POOL]


def _carries(strategy: OpStrategy, pools: Sequence[tuple[AxisLayout, ...]]) -> Iterator[_Carry]:
    """Partial layouts of operands in which the strategy is linear."""
    for reduction, groups in strategy.groups:
        for group in dict.fromkeys(groups):
            layouts = (layout for i in group for layout in pools[i] if layout.reduction == reduction)
            yield from ((group, axes, reduction) for axes in dict.fromkeys(x.unreduced for x in layouts) if axes)


def _suggest(node: DecisionNode, options: Sequence[NodeOption]) -> Iterator[tuple[Wire, AxisLayout]]:
    for option in options:
        yield from zip(node.operands, option.operands, strict=False)
        yield from zip(node.results, option.results, strict=False)
