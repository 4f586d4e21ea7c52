"""`match_iterations`: a repeated stretch of instructions as iterations of one body, where their operands say so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import Shape

__all__ = ["Invariant", "Iterations", "Made", "ProgramLine", "Read", "SlicedRows", "Varying", "match_iterations"]

#: How many iterations back a body may read.
_BACK = 8


@dataclass(frozen=True, slots=True)
class ProgramLine:
    """The instructions of a computation in order, without parameters and constants; and what each reads: a position in
    the line, or beyond its end a number of ``outside``."""

    instructions: Sequence[Instruction]
    reads: Sequence[Sequence[int]]
    outside: Sequence[Instruction]

    def instruction(self, number: int) -> Instruction:
        count = len(self.instructions)
        return self.instructions[number] if number < count else self.outside[number - count]


@dataclass(frozen=True, slots=True)
class Made:
    """What instruction ``index`` of the body made, ``back`` iterations before (0 for the same one).

    ``first`` are what the first ``back`` iterations read instead.
    """

    index: int
    back: int
    first: tuple[Instruction, ...] = ()


@dataclass(frozen=True, slots=True)
class Invariant:
    """The same value in all iterations."""

    value: Instruction


@dataclass(frozen=True, slots=True)
class Varying:
    """A constant of each iteration."""

    values: tuple[Instruction, ...]


@dataclass(frozen=True, slots=True)
class SlicedRows:
    """A part of one array from before the loop in each iteration: ``slices`` of it, reshaped to ``shape``."""

    slices: tuple[Instruction, ...]
    shape: Shape

    @property
    def whole(self) -> Instruction:
        return self.slices[0].operands[0]


Read = Made | Invariant | Varying | SlicedRows


@dataclass(frozen=True, slots=True)
class Iterations:
    """``count`` iterations of ``period`` instructions each, from ``start`` on; ``reads`` are those of the body."""

    line: ProgramLine
    start: int
    period: int
    count: int
    reads: tuple[tuple[Read, ...], ...]

    @property
    def stop(self) -> int:
        return self.start + self.count * self.period

    @property
    def body(self) -> Sequence[Instruction]:
        """The first iteration's instructions."""
        return self.line.instructions[self.start : self.start + self.period]

    def of(self, index: int) -> Sequence[Instruction]:
        """Instruction ``index`` of the body in every iteration."""
        return self.line.instructions[self.start + index : self.stop : self.period]

    @property
    def reads_parts(self) -> bool:
        return any(isinstance(r, SlicedRows) for row in self.reads for r in row)

    @property
    def outside(self) -> list[Instruction]:
        """What is made before the loop, apart from constants of single iterations and what the first ones read."""
        reads = [r for row in self.reads for r in row]
        found = [
            r.whole if isinstance(r, SlicedRows) else r.value for r in reads if isinstance(r, Invariant | SlicedRows)
        ]
        return list(dict.fromkeys(found))

    @property
    def back(self) -> int:
        return max((r.back for row in self.reads for r in row if isinstance(r, Made)), default=0)


def match_iterations(line: ProgramLine, start: int, period: int, count: int) -> Iterations | None:
    """As many of the iterations as are equal around the middle one; None where these are fewer than two."""
    slots = [
        (index, slot, np.array([line.reads[start + t * period + index][slot] for t in range(count)]))
        for index in range(period)
        for slot in range(len(line.reads[start + index]))
    ]
    low, high = 0, count
    while high - low >= 2:
        middle = (low + high) // 2
        for index, _, numbers in slots:
            wrong = np.flatnonzero(~_fits(line, start, period, low, high, middle, index, numbers))
            if wrong.size:
                below = wrong[wrong + low <= middle]
                low, high = (low + int(below[-1]) + 1, high) if below.size else (low, low + int(wrong[0]))
                break
        else:
            reads: list[list[Read]] = [[] for _ in range(period)]
            for index, _, numbers in slots:
                reads[index].append(_read(line, start + low * period, period, numbers[low:high]))
            return Iterations(line, start + low * period, period, high - low, tuple(map(tuple, reads)))
    return None


def _kind(line: ProgramLine, numbers: NDArray[np.int64], middle: int, begin: int) -> str:
    """How iteration ``middle`` reads: ``constant``, ``same``, ``part`` or ``local``."""
    count, one = len(line.instructions), line.instruction(int(numbers[middle]))
    if one.opcode == "constant":
        return "constant"
    beside = numbers[middle + 1] if middle + 1 < len(numbers) else numbers[middle - 1]
    before = not begin <= numbers[middle] < count
    if before and numbers[middle] != beside and _slice_of(one) is not None:
        return "part"
    return "same" if before or numbers[middle] == beside else "local"


def _slice_of(x: Instruction) -> Instruction | None:
    """The ``slice`` that ``x`` is, perhaps in another shape."""
    x = x.operands[0] if x.opcode == "reshape" else x
    return x if x.opcode == "slice" else None


def _is_alike(x: Instruction, one: Instruction) -> bool:
    """Whether both read equally many elements of the same array, with the same steps."""
    a, b = _slice_of(x), _slice_of(one)
    if a is None or b is None or a.operands != b.operands or (a.shape, x.shape) != (b.shape, one.shape):
        return False
    steps = [[(stop - start, step) for start, stop, step in i.attrs["slice"]] for i in (a, b)]
    return steps[0] == steps[1]


def _fits(
    line: ProgramLine, start: int, period: int, low: int, high: int, middle: int, index: int, numbers: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether each iteration from ``low`` to ``high`` reads as iteration ``middle`` does; one element for each."""
    count, begin = len(line.instructions), start + low * period
    one = line.instruction(int(numbers[middle]))
    part = numbers[low:high]
    kind = _kind(line, part, middle - low, begin)
    if kind == "constant":
        return np.array([o.opcode == "constant" and o.shape == one.shape for o in map(line.instruction, part.tolist())])
    if kind == "part":
        outside: NDArray[np.bool_] = (part < begin) | (part >= count)
        alike: NDArray[np.bool_] = np.array([_is_alike(o, one) for o in map(line.instruction, part.tolist())])
        return outside & alike
    if kind == "same":
        value = part[middle - low]
        equal: NDArray[np.bool_] = part == value
        if begin <= value < count:  # The loop can only begin behind it.
            equal &= np.arange(low, high) * period + start > value
        return equal
    distance = part - (start + np.arange(low, high) * period)
    back = _iterations_back(int(distance[middle - low]), period)
    if back > _BACK:
        return np.zeros(high - low, bool)
    early = (np.arange(high - low) < back) & ((part < begin) | (part >= count))
    steady: NDArray[np.bool_] = distance == distance[middle - low]
    return steady | early


def _iterations_back(distance: int, period: int) -> int:
    return 0 if distance >= 0 else math.ceil(-distance / period)


def _read(line: ProgramLine, start: int, period: int, numbers: NDArray[np.int64]) -> Read:
    middle = len(numbers) // 2
    values = [line.instruction(n) for n in numbers.tolist()]
    kind = _kind(line, numbers, middle, start)
    if kind == "constant":
        same = all(v is values[0] or v.attrs["literal"] == values[0].attrs["literal"] for v in values)
        return Invariant(values[0]) if same else Varying(tuple(values))
    if kind == "same":
        return Invariant(values[0])
    if kind == "part":
        return SlicedRows(tuple(i for v in values if (i := _slice_of(v)) is not None), values[0].shape.plain)
    distance = int(numbers[middle]) - (start + middle * period)
    back = _iterations_back(distance, period)
    return Made(distance % period, back, tuple(values[:back]))
