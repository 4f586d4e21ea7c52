"""A recurrence as loops over the rows of each shard.

For each map of a step, a loop composes the steps of a shard's rows, from which follows what each shard begins with;
maps that read what others carry come after those. Then the loop itself goes along each shard's rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from shardc.hlo.ir.ir import Instruction, topological, users_of
from shardc.hlo.ir.sharding import DimSharding, Sharding
from shardc.hlo.ir.types import array_shape
from shardc.hlo.loops.loop_counter import carried_element
from shardc.hlo.loops.recurrence import CarriedValue, Recurrence, RowAccess
from shardc.hlo.loops.step_maps import StepMap
from shardc.partitioner.prepare.recurrences.composed_map import ComposedMap
from shardc.partitioner.prepare.recurrences.shard_writer import ShardWriter, SharedRows, stacked, unstacked

__all__ = ["write_shard_loops"]

#: ``step(state, (row, whether there is an iteration at it), the body's values)`` gives the state behind a row.
_RowStep = Callable[
    [Sequence[Instruction], tuple[Instruction, Instruction | None], Mapping[Instruction, Instruction]],
    Sequence[Instruction],
]


def write_shard_loops(
    found: Recurrence, maps: Sequence[StepMap], rows: SharedRows, start: Sequence[Instruction]
) -> tuple[Instruction, ...]:
    """The state behind the loop that begins with ``start``."""
    loops = _ShardLoops(found, ShardWriter(rows, found.loop), start)
    for m in maps:
        loops.begin(m)
    return loops.results()


@dataclass(slots=True)
class _ShardLoops:
    """``begins`` has what each shard begins with, by carried value."""

    found: Recurrence
    write: ShardWriter
    start: Sequence[Instruction]
    begins: dict[int, Instruction] = field(default_factory=dict)

    def begin(self, m: StepMap) -> None:
        """What each shard begins with of the values of a map."""
        carries = self.found.carries
        composed = ComposedMap(self.write, m, self.found.step, carries[m.carries[0]].after)
        first = [self._first(carries[k]) for k in m.carries]
        if m.keeps:
            self.begins.update(zip(m.carries, composed.copies(first)[1], strict=True))
            return
        values = m.coefficients

        def step(
            state: Sequence[Instruction],
            at: tuple[Instruction, Instruction | None],
            given: Mapping[Instruction, Instruction],
        ) -> list[Instruction]:
            return composed.after(state, at[1], given)

        _, made = self._along_rows(self._carries_of(values), values, composed.begin(), step)
        totals = [self.write.leave_stacked(x) for x in made]
        self.begins.update(zip(m.carries, composed.begins(totals, first), strict=True))

    def _carries_of(self, values: Sequence[Instruction]) -> list[int]:
        """The carried values that values of the body, and these in turn, are made of."""
        carries = self.found.carries
        out: set[int] = set()
        work = [*values]
        while work:
            needed = {*topological(work)}
            new = {k for k, c in enumerate(carries) if k not in out and not needed.isdisjoint(c.before)}
            out |= new
            work = [carries[k].after for k in new]
        return sorted(out)

    def _first(self, c: CarriedValue) -> Instruction:
        """What is carried into the first iteration."""
        x, row = self.start[c.element], c.row
        if row is None:
            return x
        ranges = enumerate(x.shape.dims)
        bounds = tuple((row.first, row.first + 1, 1) if d == row.dim else (0, n, 1) for d, n in ranges)
        sharding = self.write.rows.split(c.after.axis_sharding)
        return self.write.put("slice", c.after.shape.plain, (x,), sharding, slice=bounds)

    def results(self) -> tuple[Instruction, ...]:
        """The state behind the loop: it goes along each shard's rows."""
        found, write, rows = self.found, self.write, self.write.rows
        values = [w.at.operands[1] for w in found.writes]
        arrays = [self._rows_of(w) for w in found.writes]
        carried, made = self._along_rows(range(len(found.carries)), values, arrays, self._write_rows)
        out, count = list(self.start), found.counter
        counter = out[count.index]
        out[count.index] = write.number(count.start + count.step * found.trips, counter.shape, counter.axis_sharding)
        last = rows.shards - 1 if found.step == 1 else 0
        for c, x in zip(found.carries, carried, strict=True):
            if c.row is None:
                bounds = ((last, last + 1, 1), *((0, n, 1) for n in x.shape.dims))
                free = rows.split(x.axis_sharding)
                shape = x.shape.plain.with_dims((1, *x.shape.dims))
                one = write.put("slice", shape, (write.leave_stacked(x),), stacked(free), slice=bounds)
                out[c.element] = write.reshaped(one, x.shape.dims, free)
        for w, x in zip(found.writes, made, strict=True):
            size = w.at.shape.dims[w.dim]
            out[w.element] = write.padded(write.leave(x, w.dim), w.dim, w.first - rows.first, size)
        return tuple(out)

    def _rows_of(self, at: RowAccess) -> Instruction:
        """An array as a shard has it, its rows at the places of the iterations that read or write them."""
        rows = self.write.rows
        x = self.write.padded(self.start[at.element], at.dim, rows.first - at.first, rows.of_shard * rows.shards)
        return self.write.enter(x, at.dim)

    def _write_rows(
        self,
        state: Sequence[Instruction],
        at: tuple[Instruction, Instruction | None],
        given: Mapping[Instruction, Instruction],
    ) -> list[Instruction]:
        """The written arrays behind a row."""
        row, active = at
        made = []
        for w, x in zip(self.found.writes, state, strict=True):
            value = given[w.at.operands[1]]
            if active is not None:
                value = self.write.chosen(active, value, self.write.row(x, row, w.dim, value.axis_sharding))
            made.append(self.write.with_row(x, value, row, w.dim))
        return made

    def _along_rows(
        self, carried: Sequence[int], values: Sequence[Instruction], begin: Sequence[Instruction], step: _RowStep
    ) -> tuple[list[Instruction], list[Instruction]]:
        """Carried values and ``begin`` behind a shard's rows; ``step`` is given ``values`` and these carried values."""
        found, write = self.found, self.write
        carries = [found.carries[k] for k in carried]
        starts = [self._own(self.begins[k]) for k in carried]
        if not starts and not begin:
            return [], []
        roots = [*values, *(c.after for c in carries)]
        reads, whole = self._read(roots)
        captured = [self._shard(), *map(self._rows_of, reads)]
        captured += [write.enter(self.start[i.attrs["index"]]) for i in whole]

        def body(j: Instruction, state: Sequence[Instruction], captured: Sequence[Instruction]) -> list[Instruction]:
            given: dict[Instruction, Instruction] = {}
            row = j if found.step == 1 else write.backwards(j, write.rows.of_shard)
            active = self._iteration(row, captured[0], given)
            for r, x in zip(reads, captured[1:], strict=False):
                given[r.at] = write.row(x, row, r.dim, write.rows.inside(r.at.axis_sharding))
            given.update(zip(whole, captured[1 + len(reads) :], strict=True))
            before = state[: len(carries)]
            for c, x in zip(carries, before, strict=True):
                given.update(dict.fromkeys(c.before, x))
            self._replay(given, roots)
            after = [write.chosen(active, given[c.after], x) for c, x in zip(carries, before, strict=True)]
            return [*after, *step(state[len(carries) :], (row, active), given)]

        made = write.loop(write.rows.of_shard, [*starts, *begin], captured, body)
        return made[: len(starts)], made[len(starts) :]

    def _own(self, begins: Instruction) -> Instruction:
        """A shard's part of what shards begin with."""
        x = self.write.enter(begins, 0)
        return self.write.reshaped(x, x.shape.dims[1:], unstacked(x.axis_sharding))

    def _read(self, roots: Sequence[Instruction]) -> tuple[list[RowAccess], list[Instruction]]:
        """Which rows, and which elements of the state as a whole, the body's values ``roots`` are made of."""
        found = self.found
        needed = {*topological(roots)}
        before = {b for c in found.carries for b in c.before}
        reads = [r for r in found.reads if r.at in needed]
        by_rows = {r.at for r in (*found.reads, *found.writes)} | before | {found.body.root}
        users = users_of(found.body)
        kept = [i for i in found.body if i in needed and carried_element(i, found.body) in found.kept]
        return reads, [i for i in kept if not by_rows.issuperset(users[i])]

    def _shard(self) -> Instruction:
        """Which of the shards this one is."""
        rows = self.write.rows
        split = Sharding(rows.mesh, (DimSharding(rows.axes),))
        counted = self.write.put("iota", array_shape("s32", rows.shards), (), split, iota_dimension=0)
        own = self.write.enter(counted, 0)
        return self.write.reshaped(own, (), replace(own.axis_sharding, dims=()))

    def _iteration(
        self, row: Instruction, shard: Instruction, given: dict[Instruction, Instruction]
    ) -> Instruction | None:
        """Whether there is an iteration at this row. None where there is one at every row. ``given`` gets its
        counter."""
        found, write, rows = self.found, self.write, self.write.rows

        def number(n: int) -> Instruction:
            return write.number(n, row.shape, row.axis_sharding)

        at = write.arithmetic("add", write.arithmetic("multiply", shard, number(rows.of_shard)), row)
        ends = (at, number(rows.first)) if found.step == 1 else (number(rows.first), at)
        iteration = write.arithmetic("subtract", *ends)
        for i in found.body:
            if carried_element(i, found.body) == found.counter.index:
                wide = write.put("convert", i.shape.plain, (iteration,), row.sharding)
                step, start = (
                    write.number(n, i.shape, row.axis_sharding) for n in (found.counter.step, found.counter.start)
                )
                given[i] = write.arithmetic("add", write.arithmetic("multiply", wide, step), start)
        if found.trips == rows.of_shard * rows.shards:
            return None
        inside = write.compared(iteration, number(0), "GE"), write.compared(iteration, number(found.trips), "LT")
        return write.arithmetic("and", *inside)

    def _replay(self, given: dict[Instruction, Instruction], roots: Sequence[Instruction]) -> None:
        """The body's values on a shard."""
        for i in topological(roots):
            if i not in given and i.opcode != "parameter" and all(o in given for o in i.operands):
                sharding = self.write.rows.inside(i.axis_sharding)
                given[i] = i.replace(operands=tuple(given[o] for o in i.operands), sharding=sharding)
