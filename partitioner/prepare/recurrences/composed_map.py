"""The steps of a shard as one map, and what the maps of all shards make of the first value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.loops.step_maps import Coefficient, StepMap, materialise, plus, product
from shardc.partitioner.prepare.recurrences.shard_writer import ShardWriter, stacked, unstacked

__all__ = ["ComposedMap"]


@dataclass(frozen=True, slots=True)
class ComposedMap:
    """Steps by ``map``, going along the shards by ``step``; ``like`` is a carried value in the loop's body.

    Its values are a square matrix, row by row (none where steps only add), and behind it what is added (nothing where
    the map is a quotient, whose matrix has numerator and denominator as rows).
    """

    write: ShardWriter
    map: StepMap
    step: int
    like: Instruction

    @property
    def size(self) -> int:
        return 2 if self.map.below else len(self.map.carries)

    def begin(self) -> list[Instruction]:
        """The map that changes nothing, as values of a shard."""
        like = self.like.replace(sharding=self.write.rows.inside(self.like.axis_sharding))
        matrix = [] if self.map.adds else [int(i == j) for i in range(self.size) for j in range(self.size)]
        return [materialise(n, like) for n in (*matrix, *([] if self.map.below else [0] * self.size))]

    def after(
        self, state: Sequence[Instruction], active: Instruction | None, given: Mapping[Instruction, Instruction]
    ) -> list[Instruction]:
        """The map with one more step behind it, where that is ``active``; ``given`` has the body's values."""
        m, size = self.map, self.size

        def own(row: Sequence[Coefficient]) -> list[Coefficient]:
            return [given[c] if isinstance(c, Instruction) else c for c in row]

        if m.below:
            new = self._normalised(self._times([own((m.matrix[0][0], m.rest[0])), own(m.below)], state))
        else:
            matrix, rest = [own(row) for row in m.matrix], state[-size:]
            added = [plus(self._dot(row, rest), q, 1, rest[0]) for row, q in zip(matrix, own(m.rest), strict=True)]
            scaled = [] if m.adds else self._times(matrix, state[:-size])
            new = [*scaled, *(materialise(c, rest[0]) for c in added)]
        return [self.write.chosen(active, x, y) for x, y in zip(new, state, strict=True)]

    def _times(self, rows: Sequence[Sequence[Coefficient]], state: Sequence[Instruction]) -> list[Instruction]:
        """A square matrix times that of the state, row by row."""
        return [materialise(self._dot(row, state[j :: self.size]), state[0]) for row in rows for j in range(self.size)]

    def _dot(self, row: Sequence[Coefficient], column: Sequence[Instruction]) -> Coefficient:
        total: Coefficient = 0
        for c, x in zip(row, column, strict=True):
            scaled = product(c, x, x)
            if self.map.resets and isinstance(c, Instruction) and isinstance(scaled, Instruction):
                scaled = self._unless_zero(c, scaled, materialise(0, scaled))
            total = plus(total, scaled, 1, x)
        return total

    def _normalised(self, matrix: Sequence[Instruction]) -> list[Instruction]:
        """The same quotients of numbers up to one: products of many steps overflow."""
        largest, *others = (self.write.arithmetic("abs", x) for x in matrix)
        for x in others:
            largest = self.write.arithmetic("maximum", largest, x)
        return [self.write.arithmetic("divide", x, largest) for x in matrix]

    def copies(self, first: Sequence[Instruction]) -> tuple[list[Instruction], list[Instruction]]:
        """``first`` as all shards have it, and one copy for each shard."""
        write, rows = self.write, self.write.rows
        values = [write.constrained(x, rows.split(x.axis_sharding)) for x in first]
        stacks = []
        for x in values:
            shape = x.shape.plain.with_dims((rows.shards, *x.shape.dims))
            kept = tuple(range(1, shape.rank))
            stacks.append(write.put("broadcast", shape, (x,), stacked(x.axis_sharding), dimensions=kept))
        return values, stacks

    def begins(self, totals: Sequence[Instruction], first: Sequence[Instruction]) -> list[Instruction]:
        """What each shard begins with, by shard, of ``totals`` by shard and what is carried into the first."""
        write, rows, count = self.write, self.write.rows, len(first)
        whole = [write.constrained(t, rows.split(t.axis_sharding)) for t in totals]
        values, stacks = self.copies(first)

        def body(
            shard: Instruction, state: Sequence[Instruction], captured: Sequence[Instruction]
        ) -> list[Instruction]:
            if self.step == -1:
                shard = write.backwards(shard, rows.shards)
            new = []
            for stack, x in zip(state[count:], state[:count], strict=True):
                row = write.reshaped(x, (1, *x.shape.dims), stacked(x.axis_sharding))
                new.append(write.with_row(stack, row, shard, 0))
            own = [write.row(x, shard, 0, x.axis_sharding) for x in captured]
            own = [write.reshaped(x, x.shape.dims[1:], unstacked(x.axis_sharding)) for x in own]
            return [*self._applied(own, state[:count]), *new]

        return write.loop(rows.shards, [*values, *stacks], whole, body)[count:]

    def _applied(self, totals: Sequence[Instruction], values: Sequence[Instruction]) -> list[Instruction]:
        """What a shard makes of what is carried into it."""
        if self.map.below:
            return [self._quotient(totals, values[0])]
        rest = totals[-self.size :]
        if self.map.adds:
            return [self.write.arithmetic("add", x, b) for x, b in zip(values, rest, strict=True)]
        made = []
        for i, total in enumerate(rest):
            for j, x in enumerate(values):
                scale = totals[i * self.size + j]
                total = self._unless_zero(scale, self.write.arithmetic("add", self._scaled(scale, x), total), total)
            made.append(total)
        return made

    def _unless_zero(self, scale: Instruction, x: Instruction, otherwise: Instruction) -> Instruction:
        """``x`` where ``scale`` is not zero: what is forgotten may be no number, unless it is an integer."""
        if x.shape.dtype.is_integer:
            return x
        forgotten = self.write.compared(scale, self.write.splat(0, scale), "EQ")
        return self.write.arithmetic("select", forgotten, otherwise, x)

    def _scaled(self, a: Instruction, x: Instruction) -> Instruction:
        """``a x``, where zero stays zero although the scale of many steps may have overflowed."""
        op = self.write.arithmetic
        made = op("multiply", a, x)
        if x.shape.dtype.is_integer:
            return made
        nothing = self.write.compared(x, self.write.splat(0, x), "EQ")
        return op("select", nothing, x if x.shape.dtype.is_complex else op("multiply", op("sign", a), x), made)

    def _quotient(self, totals: Sequence[Instruction], x: Instruction) -> Instruction:
        """``(p x + q) / (r x + s)``, which of infinity is ``p / r`` if ``r`` is not zero."""
        op = self.write.arithmetic
        p, q, r, s = totals
        above, below = (self._unless_zero(a, op("add", op("multiply", a, x), b), b) for a, b in ((p, q), (r, s)))
        made = op("divide", above, below)
        endless = self.write.compared(op("abs", x), self.write.splat(np.inf, x), "EQ")
        return op("select", endless, self._unless_zero(r, op("divide", p, r), made), made)
