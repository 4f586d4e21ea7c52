"""A program as a graph of decisions: operations with their strategies, values with what moves cost.

A `DecisionNode` decides: one operation, or one leaf that crosses a border (a loop's carry, an argument, a result).
Each of its `NodeOption`s says in which layouts it reads and gives. A `Wire` is one value between the node that makes
it and those that read it; it costs what brings it from the one layout into the others, each once however many read it.
The cost of a program is the sum over wires and over what operations send themselves, times how often each of them runs;
on a machine their arithmetic takes its time as well.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

from shardc.hlo.ir.ir import Instruction
from shardc.partitioner.emit.layout import Atoms, AxisLayout
from shardc.partitioner.reshard.moves import Cost
from shardc.partitioner.reshard.search import Resharder
from shardc.partitioner.strategy.choose import SplitChoice, SplitProblem
from shardc.partitioner.strategy.pieces import LoopPieces
from shardc.partitioner.strategy.rule import Local

__all__ = ["DecisionNode", "GraphCosts", "NodeOption", "OpStrategy", "Region", "Wants", "Wire", "WireReader", "ends"]


@dataclass(frozen=True, slots=True)
class OpStrategy:
    """One of the strategies of an operation, as a problem.

    ``groups`` are its `Local.linear` groups by reduction; ``finished`` tells that it leaves nothing partial.
    """

    local: Local
    problem: SplitProblem
    groups: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...]
    finished: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class NodeOption:
    """Layouts that a node reads and gives, and what it sends itself in doing so.

    ``strategy`` is the number of the strategy among the node's, ``choice`` what is written for it; borders have no
    choice. ``work`` is the measure of local work. Options are compared by identity.
    """

    operands: tuple[AxisLayout, ...]
    results: tuple[AxisLayout, ...]
    own: Cost = (0.0, 0)
    strategy: int = 0
    choice: SplitChoice | None = None
    work: float = 0.0


class DecisionNode:
    """One decision: ``option`` is the present one. A node with neither ``strategies`` nor ``free`` never changes.

    ``strategies`` are those of an operation; a ``free`` node is a border that may take any layout, the same on all
    sides, or only the present one and those it is ``among``. ``key`` stands for all that decides about options, so
    that equal nodes have equal ones. Atoms in ``barred`` split nothing here. ``times``: how often it runs. ``heavy``:
    doing more of it than ``work`` is no way to send less. ``counts``: it does arithmetic, at ``rate`` seconds a
    piece, or 0 where bytes count and not time.
    """

    __slots__ = (
        "_option",
        "among",
        "barred",
        "counts",
        "free",
        "heavy",
        "index",
        "key",
        "op",
        "operands",
        "rate",
        "results",
        "slots",
        "strategies",
        "times",
        "work",
    )

    def __init__(
        self,
        index: int,
        op: Instruction,
        option: NodeOption,
        *,
        key: object = None,
        strategies: tuple[OpStrategy, ...] = (),
        free: bool = False,
        among: tuple[AxisLayout, ...] = (),
        barred: Atoms = (),
        heavy: bool = False,
        counts: bool = False,
        times: float = 1,
        rate: float = 0,
    ) -> None:
        self.index = index
        self.op = op
        self._option = option
        self.key = key
        self.strategies = strategies
        self.free = free
        self.among = among
        self.barred = barred
        self.heavy = heavy
        self.counts = counts
        self.times = times
        self.rate = rate
        self.work = option.work
        self.operands: list[Wire] = []
        self.results: list[Wire] = []
        self.slots: list[int] = []

    @property
    def option(self) -> NodeOption:
        return self._option

    @option.setter
    def option(self, option: NodeOption) -> None:
        for wire, number, old, new in zip(
            self.operands, self.slots, self._option.operands, option.operands, strict=False
        ):
            if old is not new:
                wire.wants.move(number, wire.readers[number].at, old, new)
        self._option = option

    def read(self, wire: Wire) -> None:
        """Read ``wire`` next."""
        self.slots.append(wire.ask(WireReader(self, len(self.operands), at=self.index)))
        self.operands.append(wire)

    @property
    def wires(self) -> list[Wire]:
        return [*self.operands, *self.results]


@dataclass(frozen=True, slots=True)
class WireReader:
    """Who reads a wire: slot ``slot`` of a node, or something that wants it in ``layout`` whatever happens.

    ``at`` is the number of nodes before it.
    """

    node: DecisionNode | None = None
    slot: int = 0
    layout: AxisLayout | None = None
    at: int = 0

    def want(self) -> AxisLayout:
        """The layout that is asked for at present."""
        if self.node is not None:
            return self.node.option.operands[self.slot]
        assert self.layout is not None
        return self.layout


class Wants:
    """The layouts that readers of a wire ask for at present, and which readers: found without asking all of them."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        #: Numbers of readers and their places, by layout, both in order.
        self._of: dict[AxisLayout, tuple[list[int], list[int]]] = {}

    def add(self, number: int, at: int, layout: AxisLayout) -> None:
        """Reader ``number``, which has ``at`` nodes before it, asks for ``layout``."""
        for line, item in zip(self._of.setdefault(layout, ([], [])), (number, at), strict=True):
            insort(line, item)

    def move(self, number: int, at: int, old: AxisLayout, new: AxisLayout) -> None:
        """It asks for ``new`` in place of ``old``."""
        lines = self._of[old]
        for line, item in zip(lines, (number, at), strict=True):
            del line[bisect_left(line, item)]
        if not lines[0]:
            del self._of[old]
        self.add(number, at, new)

    def layouts(self) -> list[AxisLayout]:
        """What is asked for, in the order of those who ask first."""
        return sorted(self._of, key=lambda x: self._of[x][0][0]) if len(self._of) > 1 else list(self._of)

    def spans(self) -> Iterator[tuple[AxisLayout, int, int]]:
        """Each layout with the first and the last place where it is asked for."""
        for layout in self.layouts():
            places = self._of[layout][1]
            yield layout, places[0], places[-1]

    def first_without(self, some: Set[int]) -> Iterator[int]:
        """For each layout the first reader that is not among ``some``."""
        for numbers, _ in self._of.values():
            yield from itertools.islice((n for n in numbers if n not in some), 1)


class Wire:
    """One value of global ``dims``, made by result ``slot`` of ``producer`` or lying in ``given``.

    ``made``: it is made afresh in any layout, so that no move costs. ``times``: how often its moves run: that of the
    innermost loop in which it changes. ``preferred`` is its propagated layout. ``pieces``: all that loops read of it.
    ``wants`` follows what the ``readers`` ask for at present; ``last`` is the place of the last one.
    """

    __slots__ = (
        "dims",
        "given",
        "index",
        "last",
        "made",
        "nbytes",
        "pieces",
        "preferred",
        "producer",
        "readers",
        "slot",
        "times",
        "wants",
    )

    def __init__(
        self, index: int, dims: tuple[int, ...], nbytes: int, given: AxisLayout, preferred: AxisLayout
    ) -> None:
        self.index = index
        self.dims = dims
        self.nbytes = nbytes
        self.given = given
        self.preferred = preferred
        self.producer: DecisionNode | None = None
        self.slot = 0
        self.made = False
        self.times: float = 1
        self.pieces: LoopPieces | None = None
        self.readers: list[WireReader] = []
        self.wants = Wants()
        self.last = 0

    def ask(self, reader: WireReader) -> int:
        """``reader`` is the next one; its number."""
        number = len(self.readers)
        self.readers.append(reader)
        self.wants.add(number, reader.at, reader.want())
        self.last = max(self.last, reader.at)
        return number

    def start(self) -> AxisLayout:
        """The layout in which it is made at present."""
        return self.given if self.producer is None else self.producer.option.results[self.slot]


class Region:
    """Some nodes, in order, and what can be seen of a program from them.

    ``readers`` are those of each wire: the nodes of the region, and of others the first that asks for each layout;
    costs depend on no more. It holds for the options that the nodes outside have at present.
    """

    def __init__(self, nodes: Sequence[DecisionNode]) -> None:
        self.nodes = nodes
        self.wires = list(dict.fromkeys(w for n in nodes for w in n.wires))
        own: dict[Wire, set[int]] = {w: set() for w in self.wires}
        for n in nodes:
            for w, number in zip(n.operands, n.slots, strict=True):
                own[w].add(number)
        self.readers = {
            w: [w.readers[k] for k in sorted((*mine, *w.wants.first_without(mine)))] for w, mine in own.items()
        }

    def ends(self, wire: Wire) -> Iterator[DecisionNode]:
        """Who makes a wire and who reads it, as far as it is seen from here."""
        return ends(wire, self.readers[wire])


def moved(wire: Wire, layouts: Sequence[AxisLayout]) -> tuple[tuple[int, ...], float]:
    """The dimensions of what is moved between ``layouts``, and how often: the wire, or its pieces."""
    pieces = wire.pieces
    if pieces is not None and pieces.moves(*layouts):
        return pieces.dims, wire.times * pieces.count
    return wire.dims, wire.times


def ends(wire: Wire, readers: Iterable[WireReader] | None = None) -> Iterator[DecisionNode]:
    """Who makes a wire, and who reads it: all, or some ``readers``."""
    if wire.producer is not None:
        yield wire.producer
    yield from (r.node for r in (wire.readers if readers is None else readers) if r.node is not None)


#: Dimensions and bytes per element of what is moved, where it lies, and the layouts that it is asked for in, in order.
_Moved = tuple[tuple[int, ...], int, AxisLayout, tuple[AxisLayout, ...]]
#: What is less by rounding is not less.
_LESS = 1 - 1e-9


class GraphCosts:
    """What wires and nodes cost, remembered."""

    def __init__(self, resharder: Resharder) -> None:
        self.resharder = resharder
        self._known: dict[_Moved, tuple[Cost, AxisLayout | None]] = {}

    def total(self, nodes: Iterable[DecisionNode], wires: Iterable[Wire]) -> tuple[float, float]:
        """Of some nodes and wires at present."""
        wire, count = 0.0, 0.0
        for node in nodes:
            if node.option.own[1]:
                wire += node.option.own[0] * node.times
                count += node.option.own[1] * node.times
            if node.rate:
                wire += node.rate * node.option.work * node.times
        for w in wires:
            more = self.present(w)
            wire, count = wire + more[0], count + more[1]
        return (wire, count)

    def present(self, wire: Wire) -> tuple[float, float]:
        """Of a wire at present."""
        if wire.made:
            return (0.0, 0)
        start = wire.start()
        return self.of(wire, start, wire.wants.layouts())

    def of(self, wire: Wire, start: AxisLayout, wants: Sequence[AxisLayout]) -> tuple[float, float]:
        """What it costs to bring a wire from ``start`` into all of ``wants``, in order."""
        others = tuple(dict.fromkeys(x for x in wants if x is not start))
        if wire.made or not others:
            return (0.0, 0)
        dims, times = moved(wire, (start, *others))
        (cost, count), _ = self._cheapest((dims, wire.nbytes, start, others))
        return (cost * times, count * times)

    def common(self, wire: Wire) -> AxisLayout | None:
        """The form that a wire is brought into first at present, where that is not what is asked for first."""
        start = wire.start()
        others = tuple(x for x in wire.wants.layouts() if x is not start)
        return None if wire.made else self._cheapest((moved(wire, (start, *others))[0], wire.nbytes, start, others))[1]

    def _cheapest(self, key: _Moved) -> tuple[Cost, AxisLayout | None]:
        """What moves cost in the best order: that in which layouts are asked for, or one of them before all others."""
        found = self._known.get(key)
        if found is None:
            dims, nbytes, start, wants = key
            found = self._moves(dims, nbytes, start, wants), None
            if found[0][1] > 1:
                for x in wants[1:]:
                    cost = self._moves(dims, nbytes, start, (x, *wants))
                    if cost[0] < found[0][0] * _LESS:
                        found = cost, x
            self._known[key] = found
        return found

    def _moves(self, dims: tuple[int, ...], nbytes: int, start: AxisLayout, wants: Sequence[AxisLayout]) -> Cost:
        """The cheapest move into each layout in order, from what there is by then."""
        resharder = self.resharder
        forms = [start]
        wire, count = 0.0, 0
        for want in wants:
            if want in forms:
                continue
            source = resharder.start(dims, nbytes, forms, want)
            path = resharder.path(dims, nbytes, source, want)
            wire, count = wire + path.cost[0], count + path.cost[1]
            forms.extend(step.after for step in path.steps)
        return (wire, count)

    def bound(self, wire: Wire, start: AxisLayout, wants: Sequence[AxisLayout]) -> tuple[tuple[float, float], bool]:
        """What bringing a wire from ``start`` into ``wants`` costs at least, and whether that is what it costs."""
        others = tuple(dict.fromkeys(x for x in wants if x is not start))
        dims, times = moved(wire, (start, *others))
        if wire.made or not others or (dims, wire.nbytes, start, others) in self._known:
            return self.of(wire, start, others), True
        least, count = 0.0, 0
        at_least = self.resharder.at_least
        for want in others:
            more = min(at_least(dims, wire.nbytes, x, want) for x in (start, *others) if x is not want)
            least, count = least + more, count + (more > 0)
        return (least * times, count * times), False
