"""Readers of one array that can be cut out of one array with margins."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from shardc.hlo.ir.ir import Computation, Instruction, users_of
from shardc.hlo.ir.make import make
from shardc.hlo.ir.sharding import DimSharding, Sharding
from shardc.partitioner.prepare.reads.extended import Extended, ReadLine, Shares, share_line
from shardc.partitioner.prepare.reads.sheets import build, cut, sizes
from shardc.partitioner.prepare.reads.static_reads import PlaceRun, Places, StaticRead, find_static_reads
from shardc.partitioner.reshard.halo import count_fetched_bytes, outputs
from shardc.partitioner.rules.readings import whole_source

__all__ = ["Readers", "find_readers"]

#: Most places beyond an array that are looked at one by one.
_MOST_BEYOND = 1 << 16


def find_readers(computation: Computation) -> Iterator[Readers]:
    """Those whose exchange with neighbours is worth sharing."""
    reads = find_static_reads(computation)
    users = users_of(computation) if reads else {}
    found: dict[object, list[Readers]] = {}
    for i, read in reads.items():
        inner = i is not computation.root and all(u in reads for u in users[i])
        if inner or not _is_laid_out(i) or not _is_laid_out(read.root):
            continue
        lines = _known(_line(p, n) for p, n in zip(read.places, read.root.shape.dims, strict=True))
        groups = found.setdefault((read.root, i.shape.dims, i.sharding), [])
        if lines is not None and not any(g.take(i, read, lines) for g in groups):
            groups.append(Readers(read.root, i.shape.dims))
            groups[-1].take(i, read, lines)
    for groups in found.values():
        yield from (g for g in groups if g.share())


def _is_laid_out(x: Instruction) -> bool:
    given = x.sharding
    plain = isinstance(given, Sharding) and not given.unreduced and not given.manual and not given.mesh.is_maximal
    return plain and x.opcode not in ("constant", "iota") and x.shape.is_array and x.shape.size > 0


def _known(lines: Iterable[ReadLine | None]) -> list[ReadLine] | None:
    """All of them, or none."""
    found = list(lines)
    known = [line for line in found if line is not None]
    return known if len(known) == len(found) else None


def _line(places: Places, n: int) -> ReadLine | None:
    """One reader's part of a line of ``n`` elements; None where nothing of it is in order."""
    lengths = [r.length if not r.padding and (r.step == 1 or r.length == 1) else 0 for r in places]
    number, count = lengths.index(max(lengths)), sum(r.length for r in places)
    if not lengths[number] or count - lengths[number] > _MOST_BEYOND:
        return None
    first = places[number].start - sum(r.length for r in places[:number])
    beyond: dict[int, int | None] = {}
    place = first
    for run in places:
        if run is not places[number]:
            beyond.update(_elements(run, place))
        place += run.length
    if any(0 <= p < n and element != p for p, element in beyond.items()):
        return None
    return ReadLine(n, count, first, 0, {p: element for p, element in beyond.items() if not 0 <= p < n})


def _elements(run: PlaceRun, place: int) -> Iterator[tuple[int, int | None]]:
    for k in range(run.length):
        yield place + k, None if run.padding else run.start + k * run.step


@dataclass(slots=True)
class Readers:
    """Reads of ``root`` with equal ``dims`` and layout that find the same beyond its edges.

    ``places`` says where each begins along every dimension, ``lines`` what all of them read, ``shares`` how devices
    share the split dimensions, but those that are gathered.
    """

    root: Instruction
    dims: tuple[int, ...]
    places: dict[Instruction, tuple[int, ...]] = field(default_factory=dict)
    lines: Sequence[ReadLine] = ()
    fill: Instruction | None = None
    shares: dict[int, Shares] = field(default_factory=dict)
    gathered: set[int] = field(default_factory=set)

    def take(self, reader: Instruction, read: StaticRead, lines: Sequence[ReadLine]) -> bool:
        """Make it one of them, unless it finds something else beyond the array."""
        joined = _known(_joined(a, b) for a, b in zip(self.lines or lines, lines, strict=True))
        fills = [f.attrs["literal"].array.tobytes() for f in (self.fill, read.fill) if f is not None]
        if joined is None or len(set(fills)) > 1:
            return False
        self.lines, self.fill = joined, self.fill or read.fill
        self.places[reader] = tuple(line.first for line in lines)
        return True

    def share(self) -> bool:
        """Whether one exchange for all readers gains over one for each, and an exchange with neighbours is enough.

        Where the array is cut evenly, rolls and pads stand side by side alike on all devices: no need for more.
        """
        given = self.root.sharding
        assert isinstance(given, Sharding)
        split = {d: k for d in range(len(self.dims)) if (k := self._count(d)) > 1}
        if [d.axes for d in given.dims] != [d.axes for d in self._layout.dims]:
            return False
        lines = [(self.lines[d], k) for d, k in split.items()]
        edges = any(line.repeats_ends for line, _ in lines)
        if not edges and all(line.n == line.count and line.n % k == 0 for line, k in lines if line.reach):
            return False
        for d, k in split.items():
            shares = share_line(self.lines[d], k)
            if shares is not None:
                self.shares[d] = shares
            elif edges and self._sent_apart(d, k) >= (k - 1) * -(-self.lines[d].n // k):
                self.gathered.add(d)
            else:
                return False
        return edges or any(line.n != line.count for line, _ in lines) or self._is_wide(split)

    def _is_wide(self, split: Mapping[int, int]) -> bool:
        """Whether readers reach into corners, or several of them into the same neighbour's rows."""
        if any(sum(place[d] != 0 for d in split) > 1 for place in self.places.values()):
            return True
        return any(self._sent_apart(d, split[d]) > s.low + s.high for d, s in self.shares.items())

    def _sent_apart(self, d: int, k: int) -> float:
        """Rows along a dimension that a device sends if each reader fetches its own, edges left out."""
        line, source = self.lines[d], whole_source(self.lines[d].n, k)
        targets = (outputs(line.count, k, first=first) for first in sorted({p[d] for p in self.places.values()}))
        return sum(count_fetched_bytes((source,), target, 1)[0] for target in targets)

    @property
    def _layout(self) -> Sharding:
        given = next(iter(self.places)).sharding
        assert isinstance(given, Sharding)
        return given

    @property
    def _gathering(self) -> Sharding:
        """The layout in which what is gathered is whole."""
        dims = (DimSharding(()) if d in self.gathered else s for d, s in enumerate(self._layout.dims))
        return replace(self._layout, dims=tuple(dims))

    def _count(self, d: int) -> int:
        """How many devices share a dimension."""
        return math.prod(a.extent(self._layout.mesh) for a in self._layout.dims[d].axes)

    def extended(self, root: Instruction) -> Extended:
        """The array with all margins, split dimensions first: edges that each device makes need not be sent."""
        made = Extended.of(_laid_out(root, self._gathering), self._layout.mesh, self.fill, next(iter(self.places)))
        for d, shares in self.shares.items():
            made = made.along(d, shares)
        for d, line in enumerate(self.lines):
            if d not in self.shares and line.beyond:
                made = made.around(d, line)
        return made

    def read(self, made: Extended, reader: Instruction) -> Instruction:
        """What takes the place of a reader."""
        bounds, whole = [(0, n) for n in sizes(made.sheet)], list[int]()
        for d, place in enumerate(self.places[reader]):
            line, shares = self.lines[d], self.shares.get(d)
            first, size = (min(line.first, 0), line.count) if shares is None else (line.first, shares.chunk)
            first = 0 if shares is None and not line.beyond else first
            bounds[made.at[d]] = (place - first, place - first + size)
            whole.append(size if shares is None else size * shares.k)
        part = build(cut(made.sheet, bounds))
        part = self._as_reader("reshape", part, tuple(whole), reader)
        part = self._as_reader("slice", part, self.dims, reader, slice=tuple((0, n, 1) for n in self.dims))
        return _laid_out(part, self._layout)

    def _as_reader(
        self, opcode: str, x: Instruction, dims: tuple[int, ...], reader: Instruction, **attrs: object
    ) -> Instruction:
        """``x`` with other dimensions, split like the reader where it is split."""
        if x.shape.dims == dims:
            return x
        made = make(opcode, reader.shape.plain.with_dims(dims), (x,), reader, **attrs)
        made.sharding = self._gathering
        return made


def _laid_out(x: Instruction, sharding: Sharding) -> Instruction:
    given = x.sharding
    if isinstance(given, Sharding) and [d.axes for d in given.dims] == [d.axes for d in sharding.dims]:
        return x
    made = make("custom-call", x.shape.plain, (x,), x, custom_call_target="Sharding")
    made.sharding = sharding
    return made


def _joined(a: ReadLine, b: ReadLine) -> ReadLine | None:
    """Both, unless they differ in what is beyond the array."""
    known: Mapping[int, int | None] = a.beyond
    if any(known.get(p, element) != element for p, element in b.beyond.items()):
        return None
    low, high = min(a.first, b.first), max(a.first + a.reach, b.first + b.reach)
    return ReadLine(a.n, a.count, low, high - low, {**a.beyond, **b.beyond})
