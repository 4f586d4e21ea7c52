"""The budget of a plan: how much more memory and arithmetic it may take to send less.

Values live from where they are made to where they are read last, in program order, each form in memory of its own.
The most that is alive at once in the program that decides operation by operation is the limit, and so is its
arithmetic, but for one operation in a thousand. On a machine its memory is the limit, and arithmetic costs its time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from shardc.partitioner.emit.layout import AxisLayout, AxisTable
from shardc.partitioner.regions.region_graph import DecisionNode, Wire

__all__ = ["Budget"]

#: The part of a device's memory that a plan may fill.
_MEMORY = 0.8
#: By how much the arithmetic of a program may grow.
_MORE_WORK = 0.001

#: (first place, last place, bytes)
_Span = tuple[int, int, int]


class Budget:
    """Bytes alive at each node's place, and arithmetic, with what they may come to.

    ``memory`` is that of a device, where a machine is given.
    """

    def __init__(
        self, table: AxisTable, nodes: Sequence[DecisionNode], wires: Sequence[Wire], memory: float = 0
    ) -> None:
        self.table = table
        self.places = len(nodes) + 1
        self.alive = self._sum([s for w in wires for s in self.spans(w)])
        given = sum(self.nbytes(w, w.given) for w in wires if w.producer is None and not w.made)
        self.most = max(self.alive.max(), _MEMORY * memory - given)
        self.work = math.fsum(n.option.work * n.times for n in nodes if n.counts)
        timed = any(n.rate for n in nodes)
        self.most_work = math.inf if timed else self.work * (1 + _MORE_WORK)

    def nbytes(self, wire: Wire, layout: AxisLayout) -> int:
        """On one device."""
        return wire.nbytes * math.prod(self.table.local_dims(layout, wire.dims))

    def spans(self, wire: Wire) -> Iterator[_Span]:
        """Where the forms of a value are alive at present; what the program is given is always there."""
        if wire.made or not wire.readers:
            return
        start = wire.start()
        if wire.producer is not None:
            yield (wire.producer.index, wire.last, self.nbytes(wire, start))
        for layout, low, high in wire.wants.spans():
            if layout is not start:
                yield (low, high, self.nbytes(wire, layout))

    def spend(self, before: Sequence[_Span], after: Sequence[_Span], work: float) -> bool:
        """Whether there is room for ``after`` instead of ``before``, and for ``work`` more work. If so, it is spent."""
        if work > 0 and self.work + work > self.most_work:
            return False
        alive = self.alive + self._sum([*after, *((low, high, -n) for low, high, n in before)])
        if alive.max() > max(self.most, self.alive.max()):
            return False
        self.alive = alive
        self.work += work
        return True

    def _sum(self, spans: Sequence[_Span]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        steps = np.zeros(self.places + 1)
        if spans:
            low, high, nbytes = (np.array(x) for x in zip(*spans, strict=True))
            np.add.at(steps, low, nbytes)
            np.add.at(steps, high + 1, -nbytes)
        return np.cumsum(steps)[: self.places]
