"""A program as a graph of decisions: operations with their ways, values with what their moves cost.

A `Node` decides: one operation, or one leaf that crosses a border (a loop's carry, an argument, a result). Each of its
`Option`s says in which layouts it reads and gives. A `Wire` is one value between the node that makes it and those that
read it; it costs what brings it from the one layout into the others, each once however many read it. The cost of a
program is the sum over wires and over what operations send themselves, times how often each of them runs; on a machine
their arithmetic takes its time as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from shardc.hlo.ir import Instruction
from shardc.partitioner.choose import Choice, Problem
from shardc.partitioner.invariants import Pieces
from shardc.partitioner.layout import Layout
from shardc.partitioner.moves import Cost
from shardc.partitioner.reshard import Resharder
from shardc.partitioner.rules.rule import Local

__all__ = ["Costs", "Node", "Option", "Reader", "Way", "Wire", "ends"]


@dataclass(frozen=True, slots=True)
class Way:
    """One of the ways to do an operation as a problem.

    ``groups`` are its `Local.linear` groups by reduction; ``finished`` tells that it leaves nothing partial.
    """

    local: Local
    problem: Problem
    groups: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...]
    finished: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """Layouts that a node reads and gives, and what it sends itself in doing so.

    ``way`` is the place of the way among the node's, ``choice`` what is written for it; borders have no choice.
    ``work`` is the measure of local work. Options are compared by identity.
    """

    operands: tuple[Layout, ...]
    results: tuple[Layout, ...]
    own: Cost = (0.0, 0)
    way: int = 0
    choice: Choice | None = None
    work: float = 0.0


class Node:
    """One decision: ``option`` is the present one. A node with neither ``ways`` nor ``free`` never changes.

    ``ways`` are those of an operation; a ``free`` node is a border that may take any layout, the same on all sides.
    ``key`` stands for all that decides about options, so that equal nodes have equal ones. ``times``: how often it
    runs. ``heavy``: doing more of it than ``work`` is no way to send less. ``counts``: it does arithmetic, at ``rate``
    seconds a piece, or 0 where bytes count and not time.
    """

    __slots__ = (
        "counts",
        "free",
        "heavy",
        "index",
        "key",
        "op",
        "operands",
        "option",
        "rate",
        "results",
        "times",
        "ways",
        "work",
    )

    def __init__(
        self,
        index: int,
        op: Instruction,
        option: Option,
        *,
        key: object = None,
        ways: tuple[Way, ...] = (),
        free: bool = False,
        heavy: bool = False,
        counts: bool = False,
        times: float = 1,
        rate: float = 0,
    ) -> None:
        self.index = index
        self.op = op
        self.option = option
        self.key = key
        self.ways = ways
        self.free = free
        self.heavy = heavy
        self.counts = counts
        self.times = times
        self.rate = rate
        self.work = option.work
        self.operands: list[Wire] = []
        self.results: list[Wire] = []

    @property
    def wires(self) -> list[Wire]:
        return [*self.operands, *self.results]


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads a wire: slot ``slot`` of a node, or something that wants it in ``layout`` whatever happens.

    ``at`` is the number of nodes before it.
    """

    node: Node | None = None
    slot: int = 0
    layout: Layout | None = None
    at: int = 0

    def want(self) -> Layout:
        """The layout that is asked for at present."""
        if self.node is not None:
            return self.node.option.operands[self.slot]
        assert self.layout is not None
        return self.layout


class Wire:
    """One value of global ``dims``, made by result ``slot`` of ``producer`` or lying in ``given``.

    ``made``: it is made afresh in any layout, so that no move costs. ``times``: how often its moves run: that of the
    innermost loop in which it changes. ``wished`` is its propagated layout. ``pieces``: all that loops read of it.
    """

    __slots__ = ("dims", "given", "index", "made", "nbytes", "pieces", "producer", "readers", "slot", "times", "wished")

    def __init__(self, index: int, dims: tuple[int, ...], nbytes: int, given: Layout, wished: Layout) -> None:
        self.index = index
        self.dims = dims
        self.nbytes = nbytes
        self.given = given
        self.wished = wished
        self.producer: Node | None = None
        self.slot = 0
        self.made = False
        self.times: float = 1
        self.pieces: Pieces | None = None
        self.readers: list[Reader] = []

    def start(self) -> Layout:
        """The layout in which it is made at present."""
        return self.given if self.producer is None else self.producer.option.results[self.slot]


def moved(wire: Wire, layouts: Sequence[Layout]) -> tuple[tuple[int, ...], float]:
    """The dimensions of what is moved between ``layouts``, and how often: the wire, or its pieces."""
    pieces = wire.pieces
    if pieces is not None and pieces.moves(*layouts):
        return pieces.dims, wire.times * pieces.count
    return wire.dims, wire.times


def ends(wire: Wire) -> Iterator[Node]:
    """Who makes a wire, and who reads it."""
    if wire.producer is not None:
        yield wire.producer
    yield from (r.node for r in wire.readers if r.node is not None)


class Costs:
    """What wires and nodes cost, remembered."""

    def __init__(self, resharder: Resharder) -> None:
        self.resharder = resharder
        self._known: dict[tuple[tuple[int, ...], int, Layout, tuple[Layout, ...]], Cost] = {}

    def total(self, nodes: Iterable[Node], wires: Iterable[Wire]) -> tuple[float, float]:
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
        return self.of(wire, start, [r.want() for r in wire.readers])

    def of(self, wire: Wire, start: Layout, wants: Sequence[Layout]) -> tuple[float, float]:
        """What it costs to bring a wire from ``start`` into all of ``wants``, in order."""
        others = tuple(dict.fromkeys(x for x in wants if x is not start))
        if wire.made or not others:
            return (0.0, 0)
        dims, times = moved(wire, (start, *others))
        key = (dims, wire.nbytes, start, others)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._moves(*key)
        return (found[0] * times, found[1] * times)

    def _moves(self, dims: tuple[int, ...], nbytes: int, start: Layout, wants: Sequence[Layout]) -> Cost:
        """The cheapest move into each layout from what there is by then."""
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

    def bound(self, wire: Wire, start: Layout, wants: Sequence[Layout]) -> tuple[tuple[float, float], bool]:
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
