"""`write_loop`: iterations that were found equal, as one ``while``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import broadcast_scalar, constant, make, reshape
from shardc.hlo.ir.types import Shape, array_shape, tuple_shape
from shardc.hlo.transforms.match_iterations import Invariant, Iterations, Made, Read, SlicedRows, Varying

__all__ = ["Loop", "can_write", "varying_starts", "write_loop"]


@dataclass(slots=True)
class Loop:
    """What stands for the iterations: instructions in order, values by (instruction of the body, iteration), the stacks
    that have them in rows (all, and which iterations), and the body's instructions."""

    instructions: list[Instruction] = field(default_factory=list)
    values: dict[tuple[int, int], Instruction] = field(default_factory=dict)
    stacks: dict[int, tuple[Instruction, list[int]]] = field(default_factory=dict)
    body: list[Instruction] = field(default_factory=list)

    def add(self, made: Instruction) -> Instruction:
        self.instructions.append(made)
        return made


def varying_starts(found: Iterations, index: int) -> list[tuple[int, ...]] | None:
    """Where each iteration's ``slice`` or ``pad`` begins, per dimension; None where all do as the first one."""
    return _starts(found.of(index))


def _starts(of: Sequence[Instruction]) -> list[tuple[int, ...]] | None:
    if of[0].opcode not in ("slice", "pad"):
        return None
    key = of[0].opcode if of[0].opcode == "slice" else "padding"
    starts = [tuple(r[0] for r in i.attrs[key]) for i in of]
    return None if all(s == starts[0] for s in starts) else starts


def can_write(found: Iterations) -> bool:
    """Whether everything that differs between iterations can be written. Pads that move become updates, which have no
    interior and cut nothing off."""
    for index, first in enumerate(found.body):
        starts = varying_starts(found, index)
        if first.opcode == "pad" and starts is not None:
            rows = [r for i in found.of(index) for r in i.attrs["padding"]]
            if any(low < 0 or high < 0 or inside for low, high, inside in rows):
                return False
    return True


def write_loop(found: Iterations, used: Iterable[tuple[int, int]], now: Mapping[Instruction, Instruction]) -> Loop:
    """The loop; ``used`` are (instruction of the body, iteration) that are read behind it, ``now`` has what became of
    instructions before it."""
    return _LoopWriter(found, sorted(used), now).write()


class _LoopWriter:
    """State: a counter; chains of what iterations read of those before them; stacks of what is read behind the loop;
    and values from before the loop that every iteration reads."""

    def __init__(
        self, found: Iterations, used: Sequence[tuple[int, int]], now: Mapping[Instruction, Instruction]
    ) -> None:
        self.found, self.now, self.like = found, now, found.body[0]
        self.loop = Loop()
        self.start, self.step = self._counting()
        ends = (self.start, self.start + self.step * found.count)
        self.count_shape = array_shape("s32" if max(map(abs, ends)) < 1 << 31 else "s64")
        self.begin: list[Instruction] = []
        self.chains: dict[int, list[tuple[int, tuple[Instruction, ...]]]] = {}
        self.stacks: dict[int, tuple[int, list[int]]] = {}
        self.captured: dict[Instruction, int] = {}
        self.rows: dict[int, list[int]] = {}
        for index, t in used:
            self.rows.setdefault(index, []).append(t)
        self.body: list[Instruction] = []
        self.elements: dict[int, Instruction] = {}
        self.new: list[Instruction] = []

    def write(self) -> Loop:
        loop, last = self.loop, self.found.count - 1
        self._lay_out_state()
        shape = tuple_shape(*(b.shape.plain for b in self.begin))
        self.whole = make("parameter", shape, (), self.like, index=0)
        root = make("tuple", shape, self._write_body(), self.like)
        inside = Computation(f"{self.like.name}.body", [self.whole, *self.body, root], root)
        begin = loop.add(make("tuple", shape, self.begin, self.like))
        made = loop.add(make("while", shape, (begin,), self.like, condition=self._condition(shape), body=inside))
        loop.body = self.new

        def element(k: int) -> Instruction:
            return loop.add(make("get-tuple-element", shape.elements[k], (made,), self.like, index=k))

        for index, rows in self.rows.items():
            if rows == [last]:
                loop.values[index, last] = element(self.chains[index][0][0])
        for index, (k, rows) in self.stacks.items():
            stack = element(k)
            loop.stacks[index] = stack, rows
            for row, t in enumerate(rows):
                ranges = ((row, row + 1, 1), *((0, n, 1) for n in stack.shape.dims[1:]))
                dims = stack.shape.dims[1:]
                piece = make("slice", stack.shape.with_dims((1, *dims)), (stack,), self.like, slice=ranges)
                loop.values[index, t] = loop.add(reshape(loop.add(piece), dims, self.like))
        return loop

    # The state.

    def _counting(self) -> tuple[int, int]:
        """What the counter begins with, and how far it goes in an iteration: as the first that differs does."""
        for index, row in enumerate(self.found.reads):
            for read in row:
                numbers = _integers(read.values) if isinstance(read, Varying) else None
                if numbers and numbers[1] != numbers[0] and _is_line(numbers):
                    return numbers[0], numbers[1] - numbers[0]
            for along in zip(*(varying_starts(self.found, index) or ()), strict=True):
                if along[1] != along[0] and _is_line(along):
                    return along[0], along[1] - along[0]
        return 0, 1

    def _lay_out_state(self) -> None:
        last = self.found.count - 1
        self.begin.append(self.loop.add(_scalar(self.start, self.count_shape, self.like)))
        reads = {r: None for row in self.found.reads for r in row if isinstance(r, Made) and r.back}
        for read in sorted(reads, key=lambda r: -r.back):
            wanted = tuple(self.now.get(x, x) for x in reversed(read.first))
            known = self.chains.setdefault(read.index, [])
            if not any(begin[: len(wanted)] == wanted for _, begin in known):
                known.append((len(self.begin), wanted))
                self.begin += wanted
        for index, rows in self.rows.items():
            shape = self.found.body[index].shape.plain
            if rows != [last]:
                count = len(rows) + (rows[-1] != last)
                self.stacks[index] = len(self.begin), rows
                self.begin.append(self._zeros(shape.with_dims((count, *shape.dims))))
            elif index not in self.chains:
                self.chains[index] = [(len(self.begin), (self._zeros(shape),))]
                self.begin += self.chains[index][0][1]
        for value in self.found.outside:
            if value.opcode != "constant":
                self.captured[value] = len(self.begin)
                self.begin.append(self.now.get(value, value))

    def _zeros(self, shape: Shape) -> Instruction:
        zero = self.loop.add(_scalar(0, shape.with_dims(()), self.like))
        return self.loop.add(broadcast_scalar(zero, shape.dims, self.like)) if shape.dims else zero

    def _condition(self, shape: Shape) -> Computation:
        whole = make("parameter", shape, (), self.like, index=0)
        counter = make("get-tuple-element", self.count_shape, (whole,), self.like, index=0)
        limit = _scalar(self.start + self.step * self.found.count, self.count_shape, self.like)
        direction = "LT" if self.step > 0 else "GT"
        test = make("compare", array_shape("pred"), (counter, limit), self.like, direction=direction)
        return Computation(f"{self.like.name}.condition", [whole, counter, limit, test], test)

    # The body.

    def _add(self, opcode: str, shape: Shape, *operands: Instruction, **attrs: Any) -> Instruction:
        return self._put(make(opcode, shape, operands, self.like, **attrs))

    def _put(self, made: Instruction) -> Instruction:
        self.body.append(made)
        return made

    def _element(self, k: int) -> Instruction:
        if k not in self.elements:
            self.elements[k] = self._add("get-tuple-element", self.begin[k].shape.plain, self.whole, index=k)
        return self.elements[k]

    def _write_body(self) -> list[Instruction]:
        for index, old in enumerate(self.found.body):
            operands = tuple(self._operand(r) for r in self.found.reads[index])
            starts = varying_starts(self.found, index)
            self.new.append(
                self._put(old.replace(operands=operands)) if starts is None else self._move(old, operands, starts)
            )
        counter = self._element(0)
        step = self._put(_scalar(self.step, self.count_shape, self.like))
        after = [self._add("add", self.count_shape, counter, step), *map(self._element, range(1, len(self.begin)))]
        for index, chains in self.chains.items():
            for first, begin in chains:
                after[first] = self.new[index]
                for k in range(first + 1, first + len(begin)):
                    after[k] = self._element(k - 1)
        for index, (k, rows) in self.stacks.items():
            stack, value = self._element(k), self.new[index]
            row = self._number([int(np.searchsorted(rows, t)) for t in range(self.found.count)], self.count_shape)
            part = self._put(reshape(value, (1, *value.shape.dims), self.like))
            zeros = [self._number([0], self.count_shape) for _ in value.shape.dims]
            after[k] = self._add("dynamic-update-slice", stack.shape, stack, part, row, *zeros)
        return after

    def _operand(self, read: Read) -> Instruction:
        if isinstance(read, Made):
            if not read.back:
                return self.new[read.index]
            wanted = tuple(self.now.get(x, x) for x in reversed(read.first))
            first = next(k for k, begin in self.chains[read.index] if begin[: len(wanted)] == wanted)
            return self._element(first + read.back - 1)
        if isinstance(read, Invariant):
            return (
                self._put(read.value.replace())
                if read.value.opcode == "constant"
                else self._element(self.captured[read.value])
            )
        if isinstance(read, SlicedRows):
            return self._part(read)
        numbers = _integers(read.values)
        shape = read.values[0].shape
        return self._table(read.values) if numbers is None else self._number(numbers, shape)

    def _part(self, read: SlicedRows) -> Instruction:
        first, whole = read.slices[0], read.whole
        given = self._put(whole.replace()) if whole.opcode == "constant" else self._element(self.captured[whole])
        starts = _starts(read.slices)
        assert starts is not None
        made = self._move(first, (given,), starts)
        return made if made.shape.dims == read.shape.dims else self._put(reshape(made, read.shape.dims, first))

    def _move(self, old: Instruction, operands: tuple[Instruction, ...], starts: list[tuple[int, ...]]) -> Instruction:
        """A slice, or a pad, that begins elsewhere in every iteration."""
        places = [self._number(list(along), self.count_shape) for along in zip(*starts, strict=True)]
        if old.opcode == "pad":
            spread = self._put(broadcast_scalar(operands[1], old.shape.dims, old))
            return self._put(make("dynamic-update-slice", old.shape, (spread, operands[0], *places), old))
        widths = tuple(stop - start for start, stop, _ in old.attrs["slice"])
        whole = make(
            "dynamic-slice", old.shape.with_dims(widths), (operands[0], *places), old, dynamic_slice_sizes=widths
        )
        if all(s == 1 or w == 1 for (_, _, s), w in zip(old.attrs["slice"], widths, strict=True)):
            return self._put(whole)
        ranges = tuple((0, w, s) for (_, _, s), w in zip(old.attrs["slice"], widths, strict=True))
        return self._put(make("slice", old.shape, (self._put(whole),), old, slice=ranges))

    def _number(self, numbers: Sequence[int], shape: Shape) -> Instruction:
        """The iteration's number among ``numbers``, counted where they are in a line, else read from a table."""
        if all(n == numbers[0] for n in numbers):
            return self._put(_scalar(numbers[0], shape, self.like))
        step = numbers[1] - numbers[0]
        if not _is_line(numbers) or step % self.step:
            return self._table([_scalar(n, shape, self.like) for n in numbers])
        times = step // self.step
        made = self._element(0)
        if shape.dtype is not self.count_shape.dtype:
            made = self._add("convert", shape, made)
        if times != 1:
            made = self._add("multiply", shape, made, self._put(_scalar(times, shape, self.like)))
        offset = numbers[0] - times * self.start
        return self._add("add", shape, made, self._put(_scalar(offset, shape, self.like))) if offset else made

    def _table(self, values: Sequence[Instruction]) -> Instruction:
        """The iteration's constant."""
        shape = values[0].shape.plain
        table = self._put(constant(Literal(np.stack([v.attrs["literal"].array for v in values])), self.like))
        if (self.start, self.step) == (0, 1):
            place = self._element(0)
        else:
            start, step = (self._put(_scalar(n, self.count_shape, self.like)) for n in (self.start, self.step))
            place = self._add("subtract", self.count_shape, self._element(0), start)
            place = self._add("divide", self.count_shape, place, step)
        zeros = [self._put(_scalar(0, self.count_shape, self.like)) for _ in shape.dims]
        sizes = (1, *shape.dims)
        row = self._add("dynamic-slice", shape.with_dims(sizes), table, place, *zeros, dynamic_slice_sizes=sizes)
        return self._put(reshape(row, shape.dims, self.like))


def _scalar(value: int, shape: Shape, like: Instruction) -> Instruction:
    return constant(Literal(np.array(value).astype(shape.dtype.numpy)), like)


def _integers(values: Sequence[Instruction]) -> list[int] | None:
    """Integer scalars as numbers; None for other constants."""
    shape = values[0].shape
    if shape.dims or not shape.dtype.is_integer:
        return None
    return [int(v.attrs["literal"].array) for v in values]


def _is_line(numbers: Sequence[int]) -> bool:
    return all(b - a == numbers[1] - numbers[0] for a, b in pairwise(numbers))
