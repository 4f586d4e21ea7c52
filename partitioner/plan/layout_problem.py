"""The whole program as one problem: a variable per cluster, and a table of costs per value that passes between
clusters. A value with several readers is first moved to one *common form*, which is a variable too, and from there to
each reader. So a value is moved once for all its readers, and taking a part of it costs nothing more. The cost of a
move is its lower bound in bytes or, on a machine, the time of the direct way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from shardc.costs.ops.table import instruction_flops
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.opset import OPS
from shardc.partitioner.emit.layout import AxisLayout
from shardc.partitioner.plan.node_options import ClusterOptions, MemberOptions
from shardc.partitioner.plan.overlap import BesideMoves, exposed
from shardc.partitioner.plan.tie_nodes import TiedNodes
from shardc.partitioner.regions.region_graph import DecisionNode, NodeOption, Wire
from shardc.partitioner.reshard.price import Seconds
from shardc.partitioner.reshard.search import Resharder
from shardc.partitioner.rewrite.preferred_partials import partial_of, with_partial
from shardc.partitioner.strategy.pieces import LoopPieces
from shardc.partitioner.strategy.solve.problem import MemoryUse, PairCost
from shardc.partitioner.strategy.values import PartialAxes

__all__ = ["LayoutProblem", "build_problem", "is_kept", "is_still", "pieces_moved"]

#: What is moved in a loop is moved so many times at least, where nobody knows how often the loop runs.
_SOME_RUNS = 2

_Costs = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FlopsLimit:
    """A device does at most so many operations; ``flops`` are those of each cluster, by option."""

    most: float
    flops: tuple[_Costs, ...]

    def is_met(self, values: Sequence[int]) -> bool:
        """Whether a choice does no more."""
        return math.fsum(float(f[k]) for f, k in zip(self.flops, values, strict=False)) <= self.most

    def uses(self, row: int) -> list[MemoryUse]:
        """The limit as a row of a choice problem."""
        return [MemoryUse(v, row, row + 1, f) for v, f in enumerate(self.flops) if f.any()]


@dataclass(slots=True)
class LayoutProblem:
    """``costs`` per option of each variable, ``pairs`` of variables, and the limit of operations, if there is one.

    The first variables are the clusters, in order; ``common`` has the variables of common forms and their layouts.
    """

    clusters: list[TiedNodes]
    members: list[list[MemberOptions]]
    costs: list[_Costs] = field(default_factory=list)
    pairs: list[PairCost] = field(default_factory=list)
    common: dict[Wire, tuple[int, tuple[AxisLayout, ...]]] = field(default_factory=dict)
    limit: FlopsLimit | None = None

    def options(self, values: Sequence[int]) -> dict[DecisionNode, NodeOption]:
        """The options of each node."""
        return {
            n: m.options[values[k]]
            for k, (cluster, members) in enumerate(zip(self.clusters, self.members, strict=True))
            for n, m in zip(cluster.members, members, strict=True)
        }

    def flops(self) -> list[_Costs]:
        """The number of operations per device for each cluster, by option."""
        return [
            np.sum([_flops(n, m) for n, m in zip(c.members, members, strict=True)], axis=0)
            for c, members in zip(self.clusters, self.members, strict=True)
        ]

    def within_arithmetic(self, most: float) -> LayoutProblem:
        """The same problem with a limit on the operations of a device, and without options that exceed it even if all
        other clusters do their minimum.

        If that minimum already exceeds ``most``, there is no limit: then the program will have other operations than
        these."""
        flops, costs = self.flops(), list(self.costs)
        room = most - sum(float(f.min()) for f in flops)
        if room < 0:
            return self
        for k, done in enumerate(flops):
            if done.max() - done.min() > room:
                costs[k] = np.where(done - done.min() > room, np.inf, costs[k])
        return replace(self, costs=costs, limit=FlopsLimit(most, tuple(flops)))


def build_problem(
    resharder: Resharder,
    clusters: list[TiedNodes],
    options: ClusterOptions,
    wires: Sequence[Wire],
    arguments: Set[DecisionNode] = frozenset(),
    overlap: BesideMoves | None = None,
    joined: Mapping[Wire, int] | None = None,
    reductions: Mapping[Wire, float] | None = None,
) -> LayoutProblem:
    """The problem of a program whose nodes are in ``clusters``; ``arguments`` are the borders of free arguments;
    ``overlap`` hides moves (None: no move is hidden); ``joined`` returns the number of values that are moved together
    with one, ``reductions`` how often partial sums are reduced that loops add up. The common forms of a free argument
    appear twice: as copies, then as the argument itself. Those of a state that a loop passes on unchanged appear three
    times: as copies, as copies of its pieces one by one, then as the state itself.
    """
    return _Builder(resharder, clusters, options, arguments, overlap, joined or {}, reductions or {}).build(wires)


class _Builder:
    def __init__(
        self,
        resharder: Resharder,
        clusters: list[TiedNodes],
        options: ClusterOptions,
        arguments: Set[DecisionNode],
        overlap: BesideMoves | None,
        joined: Mapping[Wire, int],
        reductions: Mapping[Wire, float],
    ) -> None:
        self.resharder = resharder
        self.arguments = arguments
        self.collective = options.collective
        self.problem = LayoutProblem(clusters, [options.of(c) for c in clusters])
        self.place = {n: (k, j) for k, c in enumerate(clusters) for j, n in enumerate(c.members)}
        self.overlap = overlap
        self.joined = joined
        self.reductions = reductions
        self._beside: dict[Wire, tuple[float, float]] = {}
        self._tables: dict[object, _Costs] = {}
        self._runs = _count_runs(self.place)
        price = resharder.price
        self.second_per_byte = price.second_per_byte if isinstance(price, Seconds) else 0.0
        self.launch_seconds = price.launch_seconds if isinstance(price, Seconds) else 0.0
        for c, members in zip(clusters, self.problem.members, strict=True):
            own = [m.own * n.times for n, m in zip(c.members, members, strict=True)]
            self.problem.costs.append(np.sum(own, axis=0))

    def build(self, wires: Sequence[Wire]) -> LayoutProblem:
        for wire in wires:
            if not wire.made:
                self._add(wire)
        return self.problem

    def _add(self, wire: Wire) -> None:
        problem = self.problem
        source = None if wire.producer is None else self.place[wire.producer]
        starts = (wire.given,) if source is None else problem.members[source[0]][source[1]].starts(wire.slot)
        asked: dict[int, dict[tuple[AxisLayout, ...], None]] = {}
        fixed: dict[AxisLayout, None] = {}
        for r in wire.readers:
            if r.node is None:
                fixed[r.want()] = None
                continue
            k, j = self.place[r.node]
            wants = problem.members[k][j].wants(r.slot)
            if source is not None and k == source[0]:
                problem.costs[k] += self._diagonal(wire, starts, wants)
            else:
                asked.setdefault(k, {})[wants] = None
        product = wire.producer is not None and _is_product(wire.producer)
        if source is not None and (asked or fixed) and not _is_read_by_one_product(wire):
            self._read_and_write(wire, source[0], starts)
        for k, sets in asked.items():
            for wants in sets if len(asked) > 1 or fixed or not product else ():
                self._read_and_write(wire, k, wants)
        if len(asked) + len(fixed) <= 1 and not (asked and (is_kept(wire) or _begins_state(wire))):
            self._connect(wire, None if source is None else source[0], starts, asked, fixed)
        else:
            self._share(wire, None if source is None else source[0], starts, asked, fixed)

    def _share(
        self,
        wire: Wire,
        source: int | None,
        starts: tuple[AxisLayout, ...],
        asked: dict[int, dict[tuple[AxisLayout, ...], None]],
        fixed: dict[AxisLayout, None],
    ) -> None:
        """By way of a common form."""
        problem = self.problem
        pool = dict.fromkeys((*starts, *fixed, *(x for sets in asked.values() for wants in sets for x in wants)))
        forms = tuple(pool)
        hub, table = len(problem.costs), self._table(wire, starts, forms)
        if wire.producer in self.arguments or is_kept(wire):
            # The value itself, or a copy in another layout beside it, which takes memory; less where only pieces do.
            same = np.array([[a is b for b in forms] for a in starts])
            pieces = self._can_move_pieces(wire, starts, forms) if is_kept(wire) else ~same & False
            ways = (
                [~same & ~pieces, same] if wire.producer in self.arguments else [~same & ~pieces, ~same & pieces, same]
            )
            forms, table = forms * len(ways), np.hstack([np.where(way, table, np.inf) for way in ways])
        problem.costs.append(np.zeros(len(forms)))
        problem.common[wire] = (hub, forms)
        if source is None:
            problem.costs[hub] += table[0]
        else:
            problem.pairs.append(PairCost(source, hub, table))
        self._connect(wire, hub, forms, asked, fixed)

    def _connect(
        self,
        wire: Wire,
        source: int | None,
        starts: tuple[AxisLayout, ...],
        asked: dict[int, dict[tuple[AxisLayout, ...], None]],
        fixed: dict[AxisLayout, None],
    ) -> None:
        """Connect the source of the wire to each reader separately."""
        problem = self.problem
        if source is not None and fixed:
            problem.costs[source] += self._table(wire, starts, tuple(fixed)).sum(axis=1)
        for k, sets in asked.items():
            times = self._times_moved(wire, problem.clusters[k].members[0])
            tables = [self._table(wire, starts, wants, times) for wants in sets]
            table = tables[0] if len(tables) == 1 else np.sum(tables, axis=0)
            if source is None:
                problem.costs[k] += table[0]
            else:
                problem.pairs.append(PairCost(source, k, table))

    def _times_moved(self, wire: Wire, reader: DecisionNode) -> float:
        """The number of moves for a reader. A value that never changes in a loop keeps its initial layout there. Its
        copies are common forms, which memory counts. All other values cost as if each iteration moved them."""
        loops = [n.op for n in (wire.producer if is_kept(wire) else None, reader) if n is not None and is_still(n)]
        return max([wire.times, *(max(_SOME_RUNS * wire.times, self._runs[op]) for op in loops)])

    # -- tables ----------------------------------------------------------------------------------------------

    def _read_and_write(self, wire: Wire, variable: int, layouts: tuple[AxisLayout, ...]) -> None:
        """Add the time in which a cluster that is one kernel reads or writes the value. Products are not such kernels.
        The caller leaves out values that are fused with a product."""
        if not self.second_per_byte or not self.problem.clusters[variable].loop_of:
            return
        local, rate = self.resharder.table.local_dims, wire.nbytes * self.second_per_byte * wire.times
        self.problem.costs[variable] += rate * np.array([math.prod(local(x, wire.dims)) for x in layouts])

    def _diagonal(self, wire: Wire, starts: Sequence[AxisLayout], wants: Sequence[AxisLayout]) -> _Costs:
        rows, row = _kinds(starts)
        columns, column = _kinds(wants)
        return self._moves(wire, tuple(rows), tuple(columns), wire.times)[row, column]

    def _table(
        self, wire: Wire, starts: tuple[AxisLayout, ...], wants: tuple[AxisLayout, ...], times: float | None = None
    ) -> _Costs:
        """The costs of all moves, ``times`` the cost of one where they move the whole value. Equal tables are one
        array."""
        times = wire.times if times is None else times
        beside = self._seconds_beside(wire)
        joined = self.joined.get(wire, 1)
        often = (times, wire.times, pieces_moved(wire), self.reductions.get(wire))
        key = (wire.dims, wire.nbytes, often, beside, joined, self._is_cut(wire), starts, wants)
        found = self._tables.get(key)
        if found is None:
            rows, row = _kinds(starts)
            columns, column = _kinds(wants)
            found = self._tables[key] = self._moves(wire, tuple(rows), tuple(columns), times)[np.ix_(row, column)]
        return found

    def _seconds_beside(self, wire: Wire) -> tuple[float, float]:
        found = self._beside.get(wire)
        if found is None:
            found = self._beside[wire] = (0.0, 0.0) if self.overlap is None else self.overlap.seconds_of(wire)
        return found

    def _moves(self, wire: Wire, starts: tuple[AxisLayout, ...], wants: tuple[AxisLayout, ...], times: float) -> _Costs:
        """The costs of all moves between distinct layouts: of the wire or, if possible, of its pieces."""
        whole, pieces = self._seconds_beside(wire)
        found = self._exposed(wire, wire.dims, starts, wants, whole) * times
        moved = pieces_moved(wire)
        if moved is not None:
            apart = self._exposed(wire, moved.dims, starts, wants, pieces)
            can = self._can_move_pieces(wire, starts, wants)
            found = np.where(can, apart * (wire.times * moved.count), found)
        if wire in self.reductions:
            found = np.minimum(found, self._moves_of_sums(wire, starts, wants, times))
        return found

    def _moves_of_sums(
        self, wire: Wire, starts: tuple[AxisLayout, ...], wants: tuple[AxisLayout, ...], times: float
    ) -> _Costs:
        """The costs of moves of partial values that a loop adds up: each time as far as they stay partial, and behind
        the loop the reduction of the sums."""
        table, joined = self.resharder.table, self.joined.get(wire, 1)
        found, rows = np.full((len(starts), len(wants)), np.inf), dict[PartialAxes, list[int]]()
        for k, start in enumerate(starts):
            partial = partial_of(start)
            if partial is not None:
                rows.setdefault(partial, []).append(k)
        for partial, row in rows.items():
            sums = tuple(x if x.unreduced else with_partial(table, x, partial) for x in wants)
            inside = self._exposed(wire, wire.dims, tuple(starts[k] for k in row), sums, self._seconds_beside(wire)[0])
            pairs = zip(sums, wants, strict=True)
            behind = np.array([self.resharder.expect(wire.dims, wire.nbytes, a, b, joined) for a, b in pairs])
            found[row] = inside * times + (behind + self.collective * (behind > 0)) * self.reductions[wire]
        return found

    def _can_move_pieces(
        self, wire: Wire, starts: Sequence[AxisLayout], wants: Sequence[AxisLayout]
    ) -> NDArray[np.bool_]:
        pieces = pieces_moved(wire)
        return np.array([[pieces is not None and pieces.moves(a, b) for b in wants] for a in starts])

    def _exposed(
        self,
        wire: Wire,
        dims: tuple[int, ...],
        starts: tuple[AxisLayout, ...],
        wants: tuple[AxisLayout, ...],
        beside: float,
    ) -> _Costs:
        moves = self.resharder.expect_all(dims, wire.nbytes, starts, wants, self.joined.get(wire, 1))
        moves = moves + self.collective * (moves > 0)
        found = moves if self.overlap is None else exposed(moves, beside)
        return found + self._cut(wire, dims, starts, wants) * (moves == 0) if self._is_cut(wire) else found

    def _is_cut(self, wire: Wire) -> bool:
        """Whether a kernel must cut a smaller part out of the value, because no reader can do that itself."""
        light = (r.node is not None and self.problem.clusters[self.place[r.node][0]].loop_of for r in wire.readers)
        return self.second_per_byte > 0 and not all(light)

    def _cut(
        self, wire: Wire, dims: tuple[int, ...], starts: tuple[AxisLayout, ...], wants: tuple[AxisLayout, ...]
    ) -> _Costs:
        """The cost of such a kernel."""
        local = self.resharder.table.local_dims
        nbytes = wire.nbytes * np.array([math.prod(local(x, dims)) for x in wants])
        other = np.array([[a is not b for b in wants] for a in starts])
        return other * (2 * nbytes * self.second_per_byte + self.launch_seconds)


def is_kept(wire: Wire) -> bool:
    """Whether the value is an element of a loop's state that the loop's body reads and never changes."""
    node = wire.producer
    return node is not None and wire.slot == 1 and node.op.opcode == "while" and is_still(node)


def is_still(node: DecisionNode) -> bool:
    """Whether a loop passes this leaf of its state on unchanged."""
    return node.op.opcode == "while" and len(node.operands) == 2 and node.operands[1].producer is node


def pieces_moved(wire: Wire) -> LoopPieces | None:
    """The pieces of the value that loops move one by one, inside of their bodies."""
    return None if _begins_state(wire) else wire.pieces


def _begins_state(wire: Wire) -> bool:
    """Whether the value is the initial value of a loop's state that the loop passes on unchanged."""
    return any(r.node is not None and r.slot == 0 and is_still(r.node) for r in wire.readers)


def _count_runs(nodes: Iterable[DecisionNode]) -> Mapping[Instruction, float]:
    """The number of runs of each loop's body: that of the values that change in it."""
    runs: dict[Instruction, float] = {}
    for n in nodes:
        if n.op.opcode == "while":
            runs[n.op] = max(runs.get(n.op, 1.0), *(w.times for w in n.results[1:2]), 1.0)
    return runs


def _flops(node: DecisionNode, members: MemberOptions) -> _Costs:
    """The operations of a node on a device, in each of its options."""
    whole = instruction_flops(node.op) * node.times if node.strategies else 0.0
    if not whole:
        return np.zeros(len(members.options))
    return whole * np.array([_share(node, o) for o in members.options])


def _share(node: DecisionNode, option: NodeOption) -> float:
    """The share of an operation's iterations that one device executes."""
    factors = node.strategies[option.strategy].problem.rule.factors
    return option.work / max(math.prod(f.size for f in factors), 1)


def _is_product(node: DecisionNode) -> bool:
    return OPS[node.op.opcode].family == "contraction"


def _is_read_by_one_product(wire: Wire) -> bool:
    readers = [r.node for r in wire.readers]
    return len(readers) == 1 and readers[0] is not None and _is_product(readers[0])


def _kinds(layouts: Sequence[AxisLayout]) -> tuple[list[AxisLayout], list[int]]:
    """The distinct layouts, and for each layout the index of its distinct one."""
    number: dict[AxisLayout, int] = {}
    index = [number.setdefault(x, len(number)) for x in layouts]
    return list(number), index
