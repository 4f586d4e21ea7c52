"""An array with margins, in one block per shard: what neighbours have of it, and what an edge makes of its own rows.

Along a dimension that k devices share, device b reads the places from ``b * chunk + first`` on, ``chunk + reach`` of
them. Most of them are its *body*: a block of the array, with the last rows of the block before and the first rows of
the block behind. Beyond both ends of the array there are rows of the first and the last shard, mirrored or repeated, or
padding: there these two devices choose them instead. The number of the block is split, places inside are not. So the
next dimension's margins have the corners, and what is cut out of the result is there already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import make
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import DimSharding, Sharding
from shardc.hlo.ir.types import array_shape
from shardc.partitioner.prepare.reads.sheets import Sheet, build, cut, each, row, sizes
from shardc.partitioner.reshard.halo import count_fetched_bytes, elements_read, outputs
from shardc.partitioner.reshard.windows import SourceInterval

__all__ = ["Extended", "ReadLine", "Shares", "share_line"]

_WHOLE = DimSharding(())


@dataclass(frozen=True, slots=True)
class ReadLine:
    """What is read along a dimension of ``n`` elements by readers of ``count`` each.

    Each reads from its own place on, all from places ``first`` to ``first + reach``. ``beyond`` has the element that
    stands at a place outside of the array; None for padding. Places that nobody reads are not there.
    """

    n: int
    count: int
    first: int
    reach: int
    beyond: Mapping[int, int | None]

    @property
    def end(self) -> int:
        """Behind the last place that is read."""
        return self.first + self.reach + self.count

    @property
    def repeats_ends(self) -> bool:
        """Whether a place beyond the array has an element that is as near to the same end inside."""
        found = ((p, p if p < 0 else p - self.n + 1, e) for p, e in self.beyond.items())
        return any(e is not None and abs(e - (p - out)) <= abs(out) for p, out, e in found)

    def rows(self, low: int, high: int) -> list[int | None]:
        """The elements at places ``low`` to ``high``."""
        return [p if 0 <= p < self.n else self.beyond.get(p) for p in range(low, high)]


@dataclass(frozen=True, slots=True)
class Shares:
    """How k devices share a line: ``own`` elements of the array each, and ``chunk`` of what readers make.

    The body of the first one begins at place ``start``. Of its places the first ``front`` are the edge's, and of the
    last one's those from ``back`` to ``end``. In a ``ring`` these are the rows of the other end.
    """

    line: ReadLine
    k: int
    own: int
    chunk: int
    start: int
    front: int
    back: int
    end: int
    ring: bool = False

    @property
    def width(self) -> int:
        return self.chunk + self.line.reach

    @property
    def low(self) -> int:
        """Rows of the block before."""
        return self.start - self.line.first

    @property
    def high(self) -> int:
        return self.line.reach - self.low


def share_line(line: ReadLine, k: int) -> Shares | None:
    """The shares that send least; None where a device reads more than its neighbours have, an edge needs rows of
    another shard than its own, or everything sent everywhere is no more."""
    own, chunk = -(-line.n // k), -(-line.count // k)
    if line.reach > 2 * chunk or (k - 1) * chunk >= line.count or (k - 1) * own >= line.n:
        return None
    starts = {0, own - chunk, (k - 1) * (own - chunk) // 2, line.first, line.first + line.reach}
    clipped = {min(max(s, line.first, 0), max(line.first + line.reach, line.first)) for s in starts}
    found = [s for start in sorted(clipped) if (s := _shares(line, k, own, chunk, start)) is not None]
    best = min(found, key=_sent, default=None)
    return best if best is not None and _sent(best) < (k - 1) * own else None


def _shares(line: ReadLine, k: int, own: int, chunk: int, start: int) -> Shares | None:
    covered = min(line.n, start + k * chunk)
    last = (k - 1) * chunk + line.first
    front, back, end = max(start, 0) - line.first, covered - last, line.end - last
    first_rows, last_rows = line.rows(line.first, line.first + front), line.rows(covered, line.end)
    other_end = [*range(line.n + line.first, line.n), *range(line.end - line.n)]
    ring = (start, chunk) == (0, own) and [*first_rows, *last_rows] == other_end
    made = Shares(line, k, own, chunk, start, front, min(back, end), end, ring)
    inner = made.low <= chunk and made.high <= chunk and front <= chunk and back >= line.reach and front <= made.back
    last_shard = (k - 1) * own
    if not inner or (ring and front + last_shard <= line.n and made.end - made.back <= made.high):
        return made if inner else None
    inside = all(r is None or 0 <= r < own for r in first_rows)
    return made if inside and all(r is None or r >= last_shard for r in last_rows) else None


def _sent(shares: Shares) -> int:
    """Rows that a device sends."""
    k, n = shares.k, shares.line.n
    read = elements_read(outputs(k * shares.chunk, k), (-shares.start, 1)).elements
    moved, _ = count_fetched_bytes((SourceInterval(0, shares.own, True, 0, 0, n),), read, 1)
    return int(moved) + shares.low + shares.high


@dataclass(frozen=True, slots=True)
class Extended:
    """A sheet with margins, of arrays that are split as ``splits``. Dimension d of the array that it is made of is
    dimension ``at[d]``, the places inside of blocks where it is split, with the number of the block before it."""

    mesh: Mesh
    sheet: Sheet
    splits: tuple[DimSharding, ...]
    at: tuple[int, ...]
    fill: Instruction
    reader: Instruction

    @staticmethod
    def of(x: Instruction, mesh: Mesh, fill: Instruction | None, reader: Instruction) -> Extended:
        """The array itself, without margins; ``fill`` is what padding holds. What is made of it is because of
        ``reader``: it has that line of the source."""
        given = x.sharding
        assert isinstance(given, Sharding)
        if fill is None:
            zero = Literal(np.zeros((), x.shape.dtype.numpy))
            fill = make("constant", zero.shape, (), x, literal=zero)
            fill.sharding = Sharding(mesh, ())
        return Extended(mesh, x, given.dims, tuple(range(x.shape.rank)), fill, reader)

    def along(self, d: int, shares: Shares) -> Extended:
        """With the margins of a split dimension, in blocks."""
        q, k, line, chunk = self.at[d], shares.k, shares.line, shares.chunk
        source = self._blocks(d, k, shares.own, 0)
        whole = (shares.start, chunk) == (0, shares.own)
        blocks = source if whole else self._blocks(d, k, chunk, shares.start)
        parts = [blocks.sheet]
        if shares.low:
            tail = blocks._part(q + 1, chunk - shares.low, chunk)
            if shares.ring and k * chunk > line.n:
                own = source._rows(q + 1, range(line.n - shares.low, line.n), (k - 1) * shares.own)
                tail = blocks._chosen(q, k - 1, own, tail)
            parts.insert(0, blocks._moved(q, tail, 1, ring=shares.ring))
        if shares.high:
            parts.append(blocks._moved(q, blocks._part(q + 1, 0, shares.high), -1, ring=shares.ring))
        sheet = blocks._with(row(q + 1, parts))
        made = list[Sheet]()
        last, front = (k - 1) * chunk + line.first, 0 if shares.ring else shares.front
        if front:
            rows = source._rows(q + 1, line.rows(line.first, line.first + front), 0)
            made.append(sheet._chosen(q, 0, rows, sheet._part(q + 1, 0, front)))
        if front < shares.back:
            made.append(sheet._part(q + 1, front, shares.back))
        if shares.back < shares.end:
            rows = source._rows(q + 1, line.rows(last + shares.back, last + shares.end), (k - 1) * shares.own)
            if shares.ring:
                rows = [blocks._with(parts[-1])._part(q + 1, 0, shares.end - shares.back)]
            made.append(sheet._chosen(q, k - 1, rows, sheet._part(q + 1, shares.back, shares.end)))
        if max(shares.back, shares.end) < shares.width:
            made.append(sheet._part(q + 1, max(shares.back, shares.end), shares.width))
        return blocks._with(row(q + 1, made))

    def around(self, d: int, line: ReadLine) -> Extended:
        """With the edges of a dimension that is whole on every device."""
        q = self.at[d]
        low = self._rows(q, line.rows(min(line.first, 0), 0), 0)
        high = self._rows(q, line.rows(line.n, max(line.end, line.n)), 0)
        return self._with(row(q, [*low, self.sheet, *high]))

    # -- parts -----------------------------------------------------------------------------------------------------

    def _with(self, sheet: Sheet) -> Extended:
        return replace(self, sheet=sheet)

    def _add(self, opcode: str, dims: Sequence[int], *operands: Instruction, **attrs: object) -> Instruction:
        """An array that is split as this one."""
        x = operands[-1]
        made = make(opcode, x.shape.plain.with_dims(tuple(dims)), operands, x, **attrs)
        made.sharding = Sharding(self.mesh, self.splits)
        return made

    def _blocks(self, d: int, k: int, size: int, start: int) -> Extended:
        """The elements from ``start`` on in k blocks of ``size``; what there is not is anything."""
        q = self.at[d]
        splits = (*self.splits[: q + 1], _WHOLE, *self.splits[q + 1 :])
        at = tuple(p + (p >= q) for p in self.at)

        def change(x: Instruction) -> Instruction:
            dims, like = x.shape.dims, self.reader
            edges = (-start, k * size + start - dims[q], 0)
            if any(edges):
                padding = tuple(edges if p == q else (0, 0, 0) for p in range(len(dims)))
                padded = x.shape.plain.with_dims((*dims[:q], k * size, *dims[q + 1 :]))
                x, given = make("pad", padded, (x, self.fill), self.reader, padding=padding), x.sharding
                x.sharding = given
            made = make("reshape", x.shape.plain.with_dims((*dims[:q], k, size, *dims[q + 1 :])), (x,), like)
            made.sharding = Sharding(self.mesh, splits)
            return made

        return replace(self, sheet=each(self.sheet, change, lambda p: p + (p > q)), splits=splits, at=at)

    def _part(self, q: int, low: int, high: int) -> Sheet:
        """Places ``low`` to ``high`` of one dimension."""
        return cut(self.sheet, [(low, high) if p == q else (0, n) for p, n in enumerate(sizes(self.sheet))])

    def _moved(self, q: int, sheet: Sheet, by: int, *, ring: bool) -> Instruction:
        """The blocks along ``q``, each where the next one (or the one before) was; in a ring the last one is first."""
        x = build(sheet)
        if ring:
            blocks = self._with(x)
            cut_at, k = -by % x.shape.dims[q], x.shape.dims[q]
            return build(row(q, [blocks._part(q, cut_at, k), blocks._part(q, 0, cut_at)]))
        padding = tuple((by, -by, 0) if p == q else (0, 0, 0) for p in range(x.shape.rank))
        made = make("pad", x.shape.plain, (x, self.fill), x, padding=padding)
        made.sharding = x.sharding
        return made

    def _chosen(self, q: int, number: int, rows: Sequence[Sheet], others: Sheet) -> Instruction:
        """``rows`` in block ``number`` along ``q``, and ``others`` in all other blocks."""
        own, other = build(row(q + 1, rows)), build(others)
        k = other.shape.dims[q]
        place = make("iota", array_shape("s32", k), (), other, iota_dimension=0)
        literal = Literal(np.asarray(number, np.int32))
        scalar = make("constant", literal.shape, (), other, literal=literal)
        scalar.sharding = Sharding(self.mesh, ())
        wanted = make("broadcast", place.shape, (scalar,), other, dimensions=())
        mask = make("compare", array_shape("pred", k), (place, wanted), other, direction="EQ")
        place.sharding = wanted.sharding = mask.sharding = Sharding(self.mesh, (self.splits[q],))
        wide = make("broadcast", other.shape.plain.with_dtype("pred"), (mask,), other, dimensions=(q,))
        wide.sharding = Sharding(self.mesh, self.splits)
        return self._add("select", other.shape.dims, wide, own, other)

    def _rows(self, q: int, rows: Sequence[int | None], first: int) -> list[Sheet]:
        """Elements along ``q``, of which the first one has number ``first``; padding for None."""
        out, n = list[Sheet](), 0
        while n < len(rows):
            start, end, step = rows[n], n + 1, _step(rows, n)
            while step is not None and end < len(rows) and _step(rows, end - 1) == step:
                end += 1
            out.append(self._run(q, None if start is None else start - first, end - n, step if end - n > 1 else 1))
            n = end
        return out

    def _run(self, q: int, start: int | None, length: int, step: int | None) -> Sheet:
        if start is None:
            return self._repeated(q, self.fill, (), length)
        if step == 1:
            return self._part(q, start, start + length)
        if step == -1:
            x = build(self._part(q, start - length + 1, start + 1))
            return self._add("reverse", x.shape.dims, x, dimensions=(q,))
        one = build(self._part(q, start, start + 1))
        kept = tuple(p for p in range(one.shape.rank) if p != q)
        flat = make("reshape", one.shape.plain.with_dims(tuple(one.shape.dims[p] for p in kept)), (one,), one)
        flat.sharding = Sharding(self.mesh, tuple(self.splits[p] for p in kept))
        return self._repeated(q, flat, kept, length)

    def _repeated(self, q: int, x: Instruction, kept: tuple[int, ...], length: int) -> Instruction:
        """``x`` along ``q`` again and again; its dimensions are the ``kept`` ones."""
        dims = [length if p == q else n for p, n in enumerate(sizes(self.sheet))]
        return self._add("broadcast", dims, x, dimensions=kept)


def _step(rows: Sequence[int | None], n: int) -> int | None:
    """From row ``n`` to the next one: -1, 0, 1, for padding 0; None where they do not belong together."""
    if n + 1 == len(rows):
        return None
    a, b = rows[n], rows[n + 1]
    if a is None or b is None:
        return 0 if a is b else None
    return b - a if b - a in (-1, 0, 1) else None
