"""The values that are in a device's memory at the same time: rows of bytes over the options of variables. Places are
nodes in program order. A value takes memory from its definition to its last use, a loop's state from before the loop to
its last use after it. Values inside of a cluster take none. A common form replaces the value that it was moved from. At
a reader, the form that it reads counts instead of both. State that a loop passes on unchanged uses the memory of its
initial value. A value that is known early and smaller than its operands replaces them, since the compiler computes it
early.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from shardc.hlo.ir.opset import OPS
from shardc.partitioner.emit.layout import AxisLayout, AxisTable
from shardc.partitioner.plan.layout_problem import LayoutProblem, is_kept, is_still, pieces_moved
from shardc.partitioner.regions.region_graph import DecisionNode, Wire
from shardc.partitioner.strategy.solve.problem import MemoryUse

__all__ = ["MemorySpans"]

_Bytes = NDArray[np.float64]

#: Families of operations that compute rearrangements of what they read for themselves.
_FUSING = frozenset(("elementwise", "shape"))


@dataclass(slots=True)
class MemorySpans:
    """The memory of a problem. ``arguments`` are the borders of free arguments, ``given`` the bytes of all others: both
    stay in memory for the whole program."""

    table: AxisTable
    problem: LayoutProblem
    wires: Sequence[Wire]
    places: int
    arguments: Set[DecisionNode] = frozenset()
    given: float = 0.0
    #: (first place, last place, variable, bytes by option)
    spans: list[tuple[int, int, int, _Bytes]] = field(default_factory=list)
    _ends: dict[DecisionNode, int] = field(default_factory=dict)
    #: Where nodes run that run before their turn.
    _early: dict[DecisionNode, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._find_early()
        place = {n: (k, j) for k, c in enumerate(self.problem.clusters) for j, n in enumerate(c.members)}
        self._find_loop_ends()
        for wire in self.wires:
            if not wire.made:
                self._add(wire, place)

    def uses(self) -> tuple[MemoryUse, ...]:
        """The spans in the form of a choice problem: a row per place."""
        return tuple(MemoryUse(v, low, high + 1, nbytes) for low, high, v, nbytes in self.spans)

    def usage(self, values: Sequence[int]) -> _Bytes:
        """The bytes at each place."""
        steps = np.zeros(self.places + 1)
        for low, high, v, nbytes in self.spans:
            steps[low] += nbytes[values[v]]
            steps[high + 1] -= nbytes[values[v]]
        return self.given + np.cumsum(steps)[:-1]

    def peak(self, values: Sequence[int]) -> float:
        """The most bytes at once."""
        return float(self.usage(values).max(initial=self.given))

    # -- spans -----------------------------------------------------------------------------------------------

    def _find_early(self) -> None:
        """Nodes that are the only readers of a value after its other readers, and compute a smaller result."""
        for wire in self.wires:
            producer = wire.producer
            if wire.made or producer is None or producer in self.arguments or _is_carry(producer):
                continue
            less = [r.node for r in wire.readers if r.node is not None and _makes_less(r.node, wire, producer)]
            kept = max((r.at for r in wire.readers if r.node not in less), default=wire.last)
            late = [n for n in less if n.index > kept]
            if sum(n.results[0].nbytes for n in late) < wire.nbytes:
                self._early.update(dict.fromkeys(late, kept))

    def _find_loop_ends(self) -> None:
        """The end of the loop of each carried leaf: after all nodes that its leaves depend on, and all their
        readers."""
        ends: dict[object, int] = {}
        borders = [n for n in self._nodes() if _is_carry(n)]
        for n in borders:
            made = [w.producer.index for w in n.operands if w.producer is not None]
            read = [w.last for w in n.results[:2]]
            ends[n.op] = max(ends.get(n.op, 0), *made, *read, n.index)
        self._ends = {n: ends[n.op] for n in borders}

    def _nodes(self) -> list[DecisionNode]:
        return [n for c in self.problem.clusters for n in c.members]

    def _last(self, wire: Wire) -> int:
        """The last use of the value; a loop that passes it on unchanged uses it to the end of the loop."""
        last = max((self._early.get(r.node, r.at) if r.node is not None else r.at for r in wire.readers), default=0)
        for r in wire.readers:
            n = r.node
            if n is not None and n in self._ends:
                again = r.slot == 1
                if again or is_still(n):
                    last = max(last, self._ends[n])
                if is_still(n):
                    last = max(last, *(w.last for w in n.results))
        return last

    def _add(self, wire: Wire, place: dict[DecisionNode, tuple[int, int]]) -> None:
        problem, producer = self.problem, wire.producer
        if producer is None:
            starts: tuple[AxisLayout, ...] = (wire.given,)
            self.given += self._bytes(wire, starts)[0]
            first, variable = 0, -1
        else:
            variable, j = place[producer]
            starts = problem.members[variable][j].starts(wire.slot)
            first = self._early.get(producer, producer.index)
        inside = producer is not None and bool(problem.clusters[variable].loop_of) and producer not in self._early
        outside = {r.node for r in wire.readers if r.node is not None and place[r.node][0] != variable}
        if self._is_fused(wire):
            return
        free = producer in self.arguments
        asked = any(r.node is None for r in wire.readers)
        read = frozenset() if is_kept(wire) else self._add_reads(wire, outside, starts, place)
        if free:
            self._span(0, self.places - 1, variable, self._bytes(wire, starts), read)
        carried = producer in self._ends
        if not (wire.readers or (carried and wire.slot == 0)) or (inside and not outside and not asked):
            return
        last, common = self._last(wire), problem.common.get(wire)
        if producer is not None and not free and not self._in_place(wire, producer):
            nbytes = self._bytes(wire, starts)
            if carried and not _is_updated(producer):  # what the body makes takes its place
                self._span(self._ends[producer] + 1, self._behind(producer), variable, nbytes, read)
            end = self._end_of(producer) if carried else last
            self._span(first, first if common else max(first, end), variable, nbytes, read)
        if common is not None:
            hub, forms = common
            begin = min(r.at for r in wire.readers) if free or producer is None else first + 1
            if producer is not None and carried and wire is producer.results[-1]:
                begin = self._ends[producer] + 1
            nbytes = self._bytes(wire, forms)
            if free:
                nbytes[len(forms) // 2 :] = 0
            elif producer is not None and is_kept(wire):
                copies = len(forms) // 3
                moved = pieces_moved(wire)
                if moved is not None:
                    nbytes[copies : 2 * copies] = self._bytes(wire, forms[:copies], moved.dims)
                nbytes[2 * copies :] = 0
                begin, last, read = producer.index, self._ends[producer], frozenset()
            elif producer is None:
                nbytes[[k for k, x in enumerate(forms) if x is wire.given]] = 0
            self._span(begin, max(begin, last), hub, nbytes, read)

    def _end_of(self, carry: DecisionNode) -> int:
        """The last use of a loop's state, or its in-place update; otherwise the place where the body has computed the
        new state."""
        if _is_updated(carry):
            return max(self._ends[carry], self._behind(carry), *(w.last for w in carry.results[:2]))
        return max(w.last for w in carry.results[:2])

    def _behind(self, carry: DecisionNode) -> int:
        """The last use of the state after the loop, or the place where it takes the common form of its readers
        there."""
        return self._ends[carry] if carry.results[-1] in self.problem.common else carry.results[-1].last

    def _span(self, low: int, high: int, variable: int, nbytes: _Bytes, without: Set[int]) -> None:
        """The places from ``low`` to ``high``, without some of them."""
        for place in sorted(p for p in without if low <= p <= high):
            if low < place:
                self.spans.append((low, place - 1, variable, nbytes))
            low = place + 1
        if low <= high:
            self.spans.append((low, high, variable, nbytes))

    def _in_place(self, wire: Wire, producer: DecisionNode) -> bool:
        """Whether the value uses the memory of an operand. The second results of a carry are its first ones."""
        if producer in self._ends:
            return wire.slot > 0 or is_still(producer)
        return producer.op.opcode == "dynamic-update-slice" and len(producer.operands[0].readers) == 1

    def _is_fused(self, wire: Wire) -> bool:
        """Whether the value is a rearrangement that is fused into its only reader."""
        producer, reader = wire.producer, wire.readers[0].node if len(wire.readers) == 1 else None
        if producer is None or reader is None:
            return False
        return OPS[producer.op.opcode].family == "shape" and OPS[reader.op.opcode].family in _FUSING

    def _add_reads(
        self,
        wire: Wire,
        readers: Set[DecisionNode],
        starts: Sequence[AxisLayout],
        place: dict[DecisionNode, tuple[int, int]],
    ) -> frozenset[int]:
        """At a reader, an operand is in memory in the form that the reader takes. Returns the places where that is
        counted; other forms are not counted there. Given values stay, and only the additional bytes are added.
        """
        producer, base = wire.producer, 0.0
        if producer is None or (wire not in self.problem.common and self._in_place(wire, producer)):
            base = float(self._bytes(wire, starts).min())
        found: dict[DecisionNode, list[Sequence[AxisLayout]]] = {}
        for r in wire.readers:
            if r.node is not None and r.node in readers and r.node not in self._ends and r.node not in self._early:
                k, j = place[r.node]
                found.setdefault(r.node, []).append(self.problem.members[k][j].wants(r.slot))
        for node, wants in found.items():
            nbytes = np.zeros(len(wants[0]))
            for number, layouts in enumerate(wants):
                again = [any(x == y[k] for y in wants[:number]) for k, x in enumerate(layouts)]
                nbytes += np.where(again, 0, np.maximum(self._bytes(wire, layouts) - base, 0))
            if nbytes.any():
                self.spans.append((node.index, node.index, place[node][0], nbytes))
        return frozenset(n.index for n in found)

    def _bytes(self, wire: Wire, layouts: Sequence[AxisLayout], dims: tuple[int, ...] | None = None) -> _Bytes:
        local, dims = self.table.local_dims, dims or wire.dims
        return wire.nbytes * np.array([math.prod(local(x, dims)) for x in layouts], dtype=np.float64)


def _is_carry(node: DecisionNode) -> bool:
    return node.op.opcode == "while" and len(node.operands) == 2


def _is_updated(node: DecisionNode) -> bool:
    """Whether a loop passes this leaf on unchanged, or with parts of it updated."""
    if len(node.operands) != 2:
        return False
    made = node.operands[1].producer
    while made is not None and made is not node and made.op.opcode == "dynamic-update-slice":
        made = made.operands[0].producer
    return made is node


def _makes_less(node: DecisionNode, wire: Wire, producer: DecisionNode) -> bool:
    """Whether the node computes a smaller result from this value alone, as often as the value is made."""
    if OPS[node.op.opcode].family != "elementwise" or len(node.results) != 1 or node.times != producer.times:
        return False
    made = node.results[0]
    return made.dims == wire.dims and made.nbytes < wire.nbytes and all(w is wire or w.made for w in node.operands)
