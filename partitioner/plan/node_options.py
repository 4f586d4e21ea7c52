"""The options of clusters: every assignment of mesh axes to their loops, with the strategy of each member."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from shardc.costs.kernels.kernel_model import busy_seconds
from shardc.costs.kernels.traffic import instruction_traffic
from shardc.costs.kernels.work import instruction_work
from shardc.costs.machines.device import Device
from shardc.costs.ops.table import OP_COSTS
from shardc.hlo.ir.opset import OPS
from shardc.partitioner.emit.layout import Atoms, AxisLayout
from shardc.partitioner.plan.axis_blocks import assignments
from shardc.partitioner.plan.tie_nodes import TiedNodes
from shardc.partitioner.regions.decision_graph import settle
from shardc.partitioner.regions.region_graph import DecisionNode, NodeOption, Wire
from shardc.partitioner.reshard.price import Seconds
from shardc.partitioner.rewrite.context import Context
from shardc.partitioner.strategy.choose import SplitChoice, lay_out, legal
from shardc.partitioner.unreduced.linear import PASSING
from shardc.sharding.rules.factor_rule import FactorRule

__all__ = ["TIE_PER_COLLECTIVE", "TIE_PER_ITERATION", "ClusterOptions", "MemberOptions"]

_Factors = tuple[Atoms, ...]

#: A dimension of operations is split where its parts together are at most so much longer.
_MOST_PADDED = 4 / 3

#: What an iteration of a product, and a collective, cost where bytes count and not time: they decide ties.
TIE_PER_ITERATION = 1e-3
TIE_PER_COLLECTIVE = 1e-3
#: The same for what is held between steps and iterations, as a share of the time that it takes to read it.
TIE_PER_BYTE = 1e-4


@dataclass(frozen=True, slots=True, eq=False)
class MemberOptions:
    """The strategy of one node under each option of its cluster. Equal nodes share one object. ``own`` is the node's
    own cost for one run."""

    options: tuple[NodeOption, ...]
    own: NDArray[np.float64]
    _starts: dict[int, tuple[AxisLayout, ...]] = field(default_factory=dict)
    _wants: dict[int, tuple[AxisLayout, ...]] = field(default_factory=dict)

    def starts(self, result: int) -> tuple[AxisLayout, ...]:
        """The layouts of result ``result``; the same tuple each time."""
        found = self._starts.get(result)
        if found is None:
            found = self._starts[result] = tuple(o.results[result] for o in self.options)
        return found

    def wants(self, operand: int) -> tuple[AxisLayout, ...]:
        """The layouts in which operand ``operand`` is read; the same tuple each time."""
        found = self._wants.get(operand)
        if found is None:
            found = self._wants[operand] = tuple(o.operands[operand] for o in self.options)
        return found


@dataclass(slots=True)
class ClusterOptions:
    """Makes options, which assign axes in ``blocks``; ``collective`` is the fixed cost that is added for each
    collective."""

    context: Context
    blocks: tuple[Atoms, ...]
    collective: float
    _known: dict[object, list[MemberOptions]] = field(default_factory=dict)
    _members: dict[object, MemberOptions] = field(default_factory=dict)
    _chosen: dict[object, list[_Factors]] = field(default_factory=dict)

    def of(self, cluster: TiedNodes) -> list[MemberOptions]:
        """One `MemberOptions` per member, all with the same number of options."""
        first = cluster.members[0]
        if len(cluster.members) == 1 and not cluster.loop_of:
            return [self._border(first) if first.free else self._alone(first, cluster.carries.get(first, ()))]
        barred = cluster.barred
        chosen = self._assignments(tuple(cluster.loops), bool(cluster.carries), barred)
        return [self._member(n, cluster, chosen, barred) for n in cluster.members]

    def most(self, cluster: TiedNodes) -> int:
        """An estimate of the number of options before they are made: that of the largest strategy, in any order of
        axes."""
        places = len(cluster.loops)
        if not cluster.loop_of:
            node = cluster.members[0]
            rules = [s.problem.rule.factors for s in node.strategies]
            places = max((len(f) for f in rules), default=max((len(w.dims) for w in node.results), default=0))
        return int((places + 1 + bool(cluster.carries)) ** len(self.blocks))

    # -- borders ---------------------------------------------------------------------------------------------

    def _border(self, node: DecisionNode) -> MemberOptions:
        """Every layout that a border may have, the same on all sides."""
        wire = node.results[0] if node.results else node.operands[0]
        sides = (len(node.option.operands), len(node.option.results))
        key = (wire.dims, wire.nbytes, sides, node.option, node.among, node.barred)
        found = self._members.get(key)
        if found is None:
            present = (node.option.results or node.option.operands)[0]
            layouts = dict.fromkeys((present, *(node.among or self._layouts(wire.dims, node.barred))))
            options = [node.option, *(NodeOption((x,) * sides[0], (x,) * sides[1]) for x in list(layouts)[1:])]
            held = [wire.nbytes * math.prod(self.context.table.local_dims(x, wire.dims)) for x in layouts]
            found = self._members[key] = MemberOptions(tuple(options), np.array(held) * self._tie_per_byte)
        return found

    @property
    def _tie_per_byte(self) -> float:
        """The small cost of a byte that a border holds on a machine: of layouts with equal cost, the smaller one is
        better."""
        price = self.context.resharder.price
        return TIE_PER_BYTE / price.machine.device.memory_bandwidth if isinstance(price, Seconds) else 0.0

    def _layouts(self, dims: tuple[int, ...], barred: Atoms) -> Iterator[AxisLayout]:
        table, blocks = self.context.table, self._blocks_without(barred)
        for factors in assignments(blocks, len(dims), lambda d, atoms: dims[d] % table.extent(atoms) == 0):
            yield table.layout(factors)

    # -- operations alone ------------------------------------------------------------------------------------

    def _alone(self, node: DecisionNode, group: tuple[int, ...]) -> MemberOptions:
        """The present option, then all assignments of axes to factors, by each of its strategies."""
        key = (node.strategies, node.option, group, *self._shapes(node))
        found = self._members.get(key)
        if found is None:
            options = [node.option, *self._splits(node, group)]
            options = list({(o.operands, o.results, o.strategy): o for o in reversed(options)}.values())[::-1]
            found = self._priced(options, self._price_of_work(node))
            found = self._members[key] = replace(found, own=found.own + self._waits(node, found.options))
        return found

    def _waits(self, node: DecisionNode, options: Sequence[NodeOption]) -> NDArray[np.float64]:
        """The time that a separate kernel takes beyond its arithmetic, since its reads and writes have their own
        rate. A border is no kernel."""
        price, cost = self.context.resharder.price, OP_COSTS[node.op.opcode]
        if not isinstance(price, Seconds) or cost.free or node.option.choice is None:
            return np.zeros(len(options))
        local, work = self.context.table.local_dims, self._price_of_work(node)
        if cost.products(node.op) and all(len(o.operands) == len(node.op.operands) for o in options):
            seconds = self._product_seconds(node, options, price.machine.device)
            return np.array([s - work * o.work for s, o in zip(seconds, options, strict=True)])

        def nbytes(wires: Sequence[Wire], layouts: Sequence[AxisLayout]) -> list[float]:
            return [w.nbytes * math.prod(local(x, w.dims)) for w, x in zip(wires, layouts, strict=True)]

        found: list[float] = []
        for option in options:
            read, written = nbytes(node.operands, option.operands), sum(nbytes(node.results, option.results))
            if node.op.opcode in ("dynamic-update-slice", "scatter") and len(read) > 1:
                new = read[1] if node.op.opcode == "dynamic-update-slice" else read[-1]
                read[0], written = 0.0 if node.op.opcode == "dynamic-update-slice" else new, new
            elif cost.samples and read:
                read[0] = min(read[0], written)
            moved = (sum(read) + written) * price.second_per_byte
            found.append(max(0.0, moved - work * option.work))
        return np.array(found)

    def _product_seconds(self, node: DecisionNode, options: Sequence[NodeOption], device: Device) -> Iterator[float]:
        """The time of a device's part of a product: small and narrow parts do not fill the matrix unit."""
        local, op, known = self.context.table.local_dims, node.op, dict[object, float]()
        for option in options:
            sides = [*zip(node.operands, option.operands, strict=True), *zip(node.results, option.results, strict=True)]
            dims = tuple(local(x, w.dims) for w, x in sides)
            if dims not in known:
                parts = tuple(o.replace(shape=o.shape.with_dims(d)) for o, d in zip(op.operands, dims, strict=False))
                part = op.replace(operands=parts, shape=op.shape.with_dims(dims[-1]))
                known[dims] = busy_seconds(device, instruction_work(part, instruction_traffic(part)))
            yield known[dims]

    def _price_of_work(self, node: DecisionNode) -> float:
        """The price of one iteration of an operation that is not fused into another kernel."""
        return (node.rate or TIE_PER_ITERATION) if node.counts else 0.0

    def _splits(self, node: DecisionNode, group: tuple[int, ...]) -> Iterator[NodeOption]:
        table, blocks = self.context.table, self._blocks_without(node.barred)
        for number, strategy in enumerate(node.strategies):
            rule, usable = strategy.problem.rule, strategy.problem.usable
            loops = [f for f, factor in enumerate(rule.factors) if f in usable and factor.size > 1]
            carries = bool(group) and OPS[node.op.opcode].family in PASSING

            def fits(place: int, atoms: Atoms, rule: FactorRule = rule, loops: Sequence[int] = loops) -> bool:
                return place == len(loops) or _fits(rule.factors[loops[place]].size, table.extent(atoms))

            for chosen in assignments(blocks, len(loops) + carries, fits):
                factors: list[Atoms] = [()] * len(rule.factors)
                for f, atoms in zip(loops, chosen, strict=False):
                    factors[f] = atoms
                if legal(table, rule, factors) != tuple(factors):
                    continue
                yield self._option(node, number, tuple(factors), group, chosen[-1] if carries else ())

    # -- members of clusters ---------------------------------------------------------------------------------

    def _assignments(self, loops: tuple[int, ...], carries: bool, barred: Atoms) -> list[_Factors]:
        found = self._chosen.get((loops, carries, barred))
        if found is None:
            table, blocks = self.context.table, self._blocks_without(barred)

            def fits(place: int, atoms: Atoms) -> bool:
                return place == len(loops) or _fits(loops[place], table.extent(atoms))

            found = list(assignments(blocks, len(loops) + carries, fits))
            self._chosen[loops, carries, barred] = found
        return found

    def _member(self, node: DecisionNode, cluster: TiedNodes, chosen: list[_Factors], barred: Atoms) -> MemberOptions:
        of, group = cluster.loop_of[node], cluster.carries.get(node, ())
        key = (node.strategies, of, group, tuple(cluster.loops), barred, *self._shapes(node))
        found = self._members.get(key)
        if found is None:
            options = [
                self._option(node, 0, tuple(c[k] if k >= 0 else () for k in of), group, c[-1] if group else ())
                for c in chosen
            ]
            found = self._members[key] = self._priced(options, 0.0)
        return found

    # -- both ------------------------------------------------------------------------------------------------

    def _blocks_without(self, barred: Atoms) -> tuple[Atoms, ...]:
        return tuple(b for b in self.blocks if not set(barred).intersection(b))

    def _shapes(self, node: DecisionNode) -> tuple[object, ...]:
        return tuple((w.dims, w.nbytes, w.preferred) for w in node.results), node.rate, node.heavy

    def _option(
        self, node: DecisionNode, number: int, factors: _Factors, group: tuple[int, ...], carried: Atoms
    ) -> NodeOption:
        strategy, preferred = node.strategies[number], tuple(w.preferred for w in node.results)
        carry = (group if carried else (), tuple(sorted(carried)), "sum")
        operands, results = lay_out(self.context.table, strategy.problem.rule, factors, carry)
        choice = SplitChoice(factors, operands, results, carry[1], (0.0, 0))
        return settle(self.context, strategy, number, choice, preferred)

    def _priced(self, options: Sequence[NodeOption], work: float) -> MemberOptions:
        own = [o.own[0] + self.collective * o.own[1] + work * o.work for o in options]
        return MemberOptions(tuple(options), np.array(own))


def _fits(size: int, parts: int) -> bool:
    """Whether this number of parts is nearly even."""
    return -(-size // parts) * parts <= _MOST_PADDED * size
