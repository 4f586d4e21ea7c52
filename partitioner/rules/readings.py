"""What the devices read along a dimension that an operation moves elements along, and what bringing it there costs.

A *reading* is plain data: given the number of devices it says which sources make up the dimension and which interval
each device needs. An operation is written by its readings and its cost is theirs, so that the choice of how to
split it knows what is sent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from shardc.hlo.ir.opset import WindowDim
from shardc.partitioner.emit.layout import Atoms, AxisTable
from shardc.partitioner.reshard.halo import count_fetched_bytes, elements_read, outputs
from shardc.partitioner.reshard.windows import SourceInterval, TargetIntervals
from shardc.partitioner.strategy.choose import SplitProblem

__all__ = [
    "DimensionReading",
    "Exchanges",
    "Joined",
    "KernelPart",
    "Mirror",
    "Outputs",
    "Part",
    "Touching",
    "whole_source",
]

#: Which operand the sources count from, the sources, and the target intervals.
Part = tuple[int, tuple[SourceInterval, ...], TargetIntervals]


class DimensionReading(Protocol):
    """How one dimension is read by ``k`` devices: one part per array that is fetched."""

    def parts(self, k: int) -> Iterator[Part]: ...


def whole_source(n: int, k: int, at: int = 0) -> SourceInterval:
    """All of one split array of ``n`` elements."""
    return SourceInterval(0, -(-n // k), True, 0, at, n)


@dataclass(frozen=True, slots=True)
class Outputs:
    """``count`` outputs in equal chunks read ``n`` elements of operand ``operand``.

    Output o reads ``reach`` positions from ``first + o * stride`` on, element e is at ``low + e * dilate``.
    """

    n: int
    count: int
    first: int = 0
    stride: int = 1
    reach: int = 1
    low: int = 0
    dilate: int = 1
    operand: int = 0

    @staticmethod
    def of_window(w: WindowDim, n: int, count: int, operand: int = 0) -> Outputs:
        reach = (w.size - 1) * w.rhs_dilate + 1
        return Outputs(n, count, 0, w.stride, reach, w.pad_low, w.lhs_dilate, operand)

    @property
    def place(self) -> tuple[int, int]:
        return self.low, self.dilate

    def target(self, k: int) -> TargetIntervals:
        return outputs(self.count, k, first=self.first, stride=self.stride, reach=self.reach)

    def parts(self, k: int) -> Iterator[Part]:
        yield self.operand, (whole_source(self.n, k),), elements_read(self.target(k), self.place).elements


@dataclass(frozen=True, slots=True)
class KernelPart:
    """What a part of a window's positions meets of ``n`` elements over all ``count`` outputs."""

    n: int
    count: int
    window: WindowDim

    def target(self, k: int) -> TargetIntervals:
        """A reversed kernel's first part meets the input's end."""
        w = self.window
        target = outputs(w.size, k, stride=w.rhs_dilate, reach=(self.count - 1) * w.stride + 1, full=True)
        if not w.reversal:
            return target
        chunk = -(-w.size // k)
        return TargetIntervals(
            tuple((w.size - (i + 1) * chunk) * w.rhs_dilate for i in range(k)), target.sizes, target.size
        )

    @property
    def place(self) -> tuple[int, int]:
        return self.window.pad_low, self.window.lhs_dilate

    def parts(self, k: int) -> Iterator[Part]:
        yield 0, (whole_source(self.n, k),), elements_read(self.target(k), self.place).elements


@dataclass(frozen=True, slots=True)
class Mirror:
    """The mirror image of ``n`` elements."""

    n: int

    def target(self, k: int) -> TargetIntervals:
        chunk = -(-self.n // k)
        starts = tuple(self.n - (i + 1) * chunk for i in range(k))
        return TargetIntervals(starts, tuple(chunk if i * chunk < self.n else 0 for i in range(k)), chunk)

    def parts(self, k: int) -> Iterator[Part]:
        yield 0, (whole_source(self.n, k),), self.target(k)


@dataclass(frozen=True, slots=True)
class Joined:
    """Parts (operand, first element, length) one after another, of operands of ``sizes`` elements.

    Operands in ``made`` are made where they are needed.
    """

    sizes: tuple[int, ...]
    pieces: tuple[tuple[int, int, int], ...]
    made: frozenset[int] = frozenset()

    @property
    def length(self) -> int:
        return sum(length for _, _, length in self.pieces)

    def sources(self, k: int) -> tuple[tuple[int, SourceInterval], ...]:
        """(Which piece, its source); those of ``made`` operands are whole."""
        out, at = [], 0
        for number, (i, start, length) in enumerate(self.pieces):
            if length:
                split = i not in self.made
                chunk = -(-self.sizes[i] // k) if split else length
                out.append((number, SourceInterval(i, chunk, split, start if split else 0, at, length)))
            at += length
        return tuple(out)

    def parts(self, k: int) -> Iterator[Part]:
        sources = tuple(s for _, s in self.sources(k))
        if sources:
            yield 0, sources, outputs(self.length, k)


@dataclass(frozen=True, slots=True)
class Touching:
    """Of ``n`` elements every device has its part: the windows that reach into it, and all that those read."""

    n: int
    count: int
    window: WindowDim

    def windows(self, k: int) -> list[tuple[int, int]]:
        """(First, after the last) window for every device; the first does not begin after the device's part.

        There may be gaps between windows.
        """
        w, chunk, out = self.window, -(-self.n // k), []
        for i in range(k):
            low, high = i * chunk, (i + 1) * chunk
            reaching, before = -((w.size - 1 - low - w.pad_low) // w.stride), (low + w.pad_low) // w.stride
            out.append((min(reaching, before), (high - 1 + w.pad_low) // w.stride + 1))
        return out

    def source(self, k: int) -> TargetIntervals:
        """The windows' elements of the source."""
        windows, chunk = self.windows(k), -(-self.n // k)
        most = max(last - first for first, last in windows)
        sizes = tuple(most if i * chunk < self.n else 0 for i in range(k))
        return TargetIntervals(tuple(first for first, _ in windows), sizes, most)

    def before(self, k: int) -> list[int]:
        """Elements that each device reads before its own first one."""
        w, chunk = self.window, -(-self.n // k)
        return [i * chunk - (first * w.stride - w.pad_low) for i, (first, _) in enumerate(self.windows(k))]

    def elements(self, k: int) -> TargetIntervals:
        """What the windows read."""
        w, chunk, source = self.window, -(-self.n // k), self.source(k)
        size = max((source.size - 1) * w.stride + w.size, max(self.before(k)) + chunk)
        starts = tuple(first * w.stride - w.pad_low for first in source.starts)
        return TargetIntervals(starts, tuple(size if n else 0 for n in source.sizes), size)

    def parts(self, k: int) -> Iterator[Part]:
        yield 1, (whole_source(self.count, k),), self.source(k)
        yield 0, (whole_source(self.n, k),), self.elements(k)


@dataclass(frozen=True, slots=True)
class Exchanges:
    """What an operation sends to bring every device what it reads: (factor, dimension of operands, reading)."""

    readings: tuple[tuple[int, int, DimensionReading], ...]

    def __call__(self, table: AxisTable, problem: SplitProblem, factors: tuple[Atoms, ...]) -> tuple[float, int]:
        wire, messages = 0.0, 0
        for factor, dim, reading in self.readings:
            k = table.extent(factors[factor])
            if k == 1:
                continue
            for operand, sources, target in reading.parts(k):
                sent, rounds = count_fetched_bytes(sources, target, _line(table, problem, factors, operand, dim))
                wire, messages = wire + sent, messages + rounds
        return wire, messages


def _line(table: AxisTable, problem: SplitProblem, factors: tuple[Atoms, ...], operand: int, dim: int) -> float:
    """Bytes on one device of an operand's elements at one position of a dimension."""
    tensor, x = problem.rule.operands[operand], problem.operands[operand]
    split = [table.extent(a for f in indices for a in factors[f]) for indices in tensor]
    return x.nbytes * math.prod(-(-n // k) for d, (n, k) in enumerate(zip(x.dims, split, strict=True)) if d != dim)
