"""Bringing every device the interval of a dimension that it reads: the instructions of a plan of `windows.py`.

`fetch` is the one primitive of everything that reads beyond its shard. Only the needed elements travel, by permutes;
where that is no less than everything, the dimension is gathered. What no source fills is the reader's identity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from shardc.hlo.ir.groups import AxisPairs
from shardc.hlo.ir.ir import Instruction, Origin
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.types import array_shape
from shardc.partitioner.emit.emitter import Emitter
from shardc.partitioner.emit.layout import Atoms
from shardc.partitioner.reshard.windows import (
    ExchangePlan,
    Round,
    SourceInterval,
    TargetIntervals,
    operands_to_gather,
    plan_exchange,
    plan_own,
)

__all__ = [
    "ElementIntervals",
    "Fetched",
    "SplitLine",
    "by_position",
    "count_fetched_bytes",
    "elements_read",
    "fetch",
    "fetch_dilated",
    "outputs",
    "pick",
]


@dataclass(frozen=True, slots=True)
class SplitLine:
    """The dimension ``dim`` of local arrays whose split axes are ``atoms``; ``need`` says who reads, for reports."""

    dim: int
    atoms: Atoms
    need: str


@lru_cache(maxsize=4096)
def outputs(n: int, k: int, *, first: int = 0, stride: int = 1, reach: int = 1, full: bool = False) -> TargetIntervals:
    """What k devices read that compute n outputs in equal chunks.

    Output o reads from position ``first + o * stride`` on ``reach`` positions. With ``full``, padding reads as well.
    """
    chunk = -(-n // k)
    counts = [chunk if full else min(max(n - i * chunk, 0), chunk) for i in range(k)]
    sizes = tuple((c - 1) * stride + reach if c else 0 for c in counts)
    starts = tuple(first + i * chunk * stride for i in range(k))
    return TargetIntervals(starts, sizes, (chunk - 1) * stride + reach)


def fetch(
    em: Emitter,
    line: SplitLine,
    operands: Sequence[Instruction],
    sources: Sequence[SourceInterval],
    target: TargetIntervals,
    fill: Instruction,
) -> Instruction:
    """A local array with ``target.size`` elements along the line's dimension, put together from ``sources``.

    ``sources`` are in virtual order without gaps between them; outside them there is the scalar ``fill``: everywhere
    where there are none, because all arrays are empty along the line.
    """
    dims = operands[0].shape.dims
    made = (*dims[: line.dim], target.size, *dims[line.dim + 1 :])
    if not sources:
        return em.splat(fill, made)
    arrays, kept = list(operands), em.origin
    for operand in sorted(operands_to_gather(tuple(sources), target)):
        em.origin = _origin(em, line, f"nearly all of dimension {line.dim} on every device")
        arrays[operand] = em.all_gather(arrays[operand], line.dim, line.atoms)
    sources = _known(sources, target)
    steps = plan_exchange(sources, target)
    em.origin = _origin(em, line, f"elements of neighbouring shards along dimension {line.dim}")
    parts = _sent(em, line, arrays, steps)
    em.origin = kept
    return _Assembly(em, line, parts, steps, target, fill, made).made()


def _known(sources: Sequence[SourceInterval], target: TargetIntervals) -> tuple[SourceInterval, ...]:
    """Sources after those that had better be gathered are."""
    whole = operands_to_gather(tuple(sources), target)
    k = len(target.starts)
    return tuple(replace(s, chunk=k * s.chunk, split=False) if s.operand in whole else s for s in sources)


def count_fetched_bytes(sources: Sequence[SourceInterval], target: TargetIntervals, nbytes: float) -> tuple[float, int]:
    """What one device sends in a `fetch`, an element along the dimension having ``nbytes``, and in how many calls."""
    whole = operands_to_gather(tuple(sources), target)
    chunks = {s.operand: s.chunk for s in sources}
    sent, messages = plan_exchange(_known(sources, target), target).sent
    everything = sum((len(target.starts) - 1) * chunks[o] for o in whole)
    return (sent + everything) * nbytes, messages + len(whole)


def pick(
    em: Emitter, line: SplitLine, x: Instruction, source: SourceInterval, target: TargetIntervals, fill: Instruction
) -> Instruction:
    """What of its target interval a device finds in its own shard, the scalar ``fill`` for everything else: sends
    nothing."""
    steps = plan_own(source, target)
    parts = _sent(em, line, [x], steps)
    return _Assembly(em, line, parts, steps, target, fill, _with_size(x, line.dim, target.size)).stacked()


def _with_size(x: Instruction, dim: int, size: int) -> tuple[int, ...]:
    return (*x.shape.dims[:dim], size, *x.shape.dims[dim + 1 :])


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a window reads: a local array, and the padding and dilation that the reader still has to apply.

    With ``late``, the reader finds ``more`` positions in all, and its target interval begins at position ``late``.
    """

    array: Instruction
    low: int = 0
    high: int = 0
    dilate: int = 1
    late: Instruction | None = None
    more: int = 0


def fetch_dilated(
    em: Emitter,
    line: SplitLine,
    x: Instruction,
    n: int,
    target: TargetIntervals,
    fill: Instruction,
    place: tuple[int, int],
    *,
    late: bool = False,
) -> Fetched:
    """`fetch` from one split array of ``n`` elements, of which element e stands at ``place[0] + e * place[1]``.

    ``late`` allows that the target intervals begin at different positions of what they get: a reader of every
    position then need not have the positions between elements made.
    """
    read, size, dilate = elements_read(target, place), target.size, place[1]
    source = SourceInterval(0, x.shape.dims[line.dim], True, 0, 0, n)
    array = fetch(em, line, [x], [source], read.elements, fill)
    most, span = max(read.leads), (read.elements.size - 1) * dilate + 1
    if len(set(read.leads)) == 1 and size > most:
        return Fetched(array, most, size - most - span, dilate)
    start = by_position(em, line.atoms, {i: most - lead for i, lead in enumerate(read.leads)})
    if late:
        more = most - min(read.leads)
        return Fetched(array, most, size + more - most - span, dilate, start, more)
    array = with_padding(em, array, line.dim, (most, size - span, dilate - 1), fill)
    return Fetched(em.dynamic_slice(array, line.dim, start, size))


@dataclass(frozen=True, slots=True)
class ElementIntervals:
    """Target intervals of positions as intervals of elements: device i's first one stands at position ``leads[i]`` of
    its buffer."""

    elements: TargetIntervals
    leads: tuple[int, ...]


@lru_cache(maxsize=4096)
def elements_read(target: TargetIntervals, place: tuple[int, int]) -> ElementIntervals:
    """``place`` is (position of the first element, positions from one to the next)."""
    low, dilate = place
    leads = tuple((low - start) % dilate for start in target.starts)
    starts = tuple(-((low - start) // dilate) for start in target.starts)
    sizes = tuple(max(-(-(n - lead) // dilate), 0) for n, lead in zip(target.sizes, leads, strict=True))
    read = {lead for lead, n in zip(leads, target.sizes, strict=True) if n}
    if len(read) == 1:
        leads = tuple(read) * len(leads)
    return ElementIntervals(TargetIntervals(starts, sizes, max(*sizes, 1)), leads)


def with_padding(
    em: Emitter, x: Instruction, dim: int, padding: tuple[int, int, int], fill: Instruction
) -> Instruction:
    """Pad one dimension by (low, high, interior) ``fill``; low and high may be negative."""
    if padding == (0, 0, 0):
        return x
    low, high, interior = padding
    dims = list(x.shape.dims)
    dims[dim] = low + max((dims[dim] - 1) * (interior + 1) + 1, 0) + high
    config = tuple(padding if d == dim else (0, 0, 0) for d in range(len(dims)))
    return em.add("pad", x.shape.with_dims(tuple(dims)), x, fill, padding=config)


def by_position(em: Emitter, atoms: Atoms, values: Mapping[int, int]) -> Instruction:
    """An index scalar that is ``values[i]`` on the device at position i over ``atoms``; absent ones do not matter."""
    known = sorted(values.items())
    if len({v for _, v in known}) == 1:
        return em.index(known[0][1])
    (i, a), (j, b) = known[0], known[1]
    step = (b - a) // (j - i)
    if all(v == a + step * (p - i) for p, v in known):
        return em.plus(em.scale(em.coordinate(atoms), step), a - step * i)
    k = em.table.extent(atoms)
    index = em.index_type
    table = np.zeros(k, index.numpy)
    for p, v in known:
        table[p] = v
    constant = em.add("constant", array_shape(index, k), literal=Literal(table))
    one = em.add("dynamic-slice", array_shape(index, 1), constant, em.coordinate(atoms), dynamic_slice_sizes=(1,))
    return em.reshape(one, ())


def _origin(em: Emitter, line: SplitLine, what: str) -> Origin:
    return Origin(f"{line.need} {what}", "halo", "", em.table.axis_names(tuple(sorted(line.atoms))))


def _sent(em: Emitter, line: SplitLine, arrays: Sequence[Instruction], steps: ExchangePlan) -> list[Instruction]:
    """The elements of each round on the devices that receive them."""
    banks: dict[tuple[int, ...], Instruction] = {}
    made = []
    for r in steps.rounds:
        bank = tuple(r.base)
        if bank not in banks:
            banks[bank] = em.concatenate([arrays[o] for o in bank], line.dim)
        made.append(_send(em, line, banks[bank], r))
    return made


def _send(em: Emitter, line: SplitLine, x: Instruction, r: Round) -> Instruction:
    if r.size != x.shape.dims[line.dim]:
        if len(set(r.first.values())) == 1:
            first = next(iter(r.first.values()))
            x = em.cut(x, line.dim, first, first + r.size)
        else:
            x = em.dynamic_slice(x, line.dim, by_position(em, line.atoms, r.first), r.size)
    if r.own:
        return x
    return em.permute(x, AxisPairs(em.table.mesh, em.table.axes(line.atoms), r.pairs))


# -- putting parts together ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Assembly:
    """The parts of a plan's rounds on the way into the buffer, whose local dimensions are ``dims``."""

    em: Emitter
    line: SplitLine
    parts: Sequence[Instruction]
    steps: ExchangePlan
    target: TargetIntervals
    fill: Instruction
    dims: tuple[int, ...]

    def made(self) -> Instruction:
        """Parts side by side, if every part has places that no other one takes on any device; else one over another."""
        if not self.steps.apart:
            return self.stacked()
        pieces: list[Instruction] = []
        end = 0
        for spot in self.steps.spots:
            pieces += self._gap(spot.low - end)
            part = self.parts[spot.round]
            pieces.append(self.em.cut(part, self.line.dim, spot.low - spot.offset, spot.high - spot.offset))
            end = spot.high
        pieces += self._gap(self.target.size - end)
        if not pieces:  # an interval of no elements
            return self.em.splat(self.fill, self.dims)
        joined = self.em.concatenate(pieces, self.line.dim)
        below, above = self.steps.zero_strays if _is_zero(self.fill) else self.steps.strays
        if not (below or above):
            return joined
        lows = dict(enumerate(low for low, _ in self.steps.filled)) if below else None
        highs = dict(enumerate(high for _, high in self.steps.filled)) if above else None
        return self._over(joined, lows, highs, self.em.splat(self.fill, self.dims))

    def _gap(self, size: int) -> list[Instruction]:
        dim = self.line.dim
        return [self.em.splat(self.fill, (*self.dims[:dim], size, *self.dims[dim + 1 :]))] if size else []

    def stacked(self) -> Instruction:
        """Every part is put over the fill where its device wants it."""
        return self._write_parts(self.steps.order) if self.steps.order is not None else self._select()

    def _write_parts(self, order: Sequence[int]) -> Instruction:
        """Part after part written into the fill; those of other devices beyond its end."""
        em, dim, size = self.em, self.line.dim, self.target.size
        rounds = self.steps.rounds
        offsets = [{p.device: r.offset(p) for p in r.pieces} for r in rounds]
        low = max(0, -min(o for placed in offsets for o in placed.values()))
        end = max(size, *(o + r.size for placed, r in zip(offsets, rounds, strict=True) for o in placed.values()))
        everywhere = len(self.target.starts)
        if any(len(placed) < everywhere for placed in offsets):
            end = max(end, size + max(r.size for r in rounds))
        made = em.splat(self.fill, (*self.dims[:dim], low + end, *self.dims[dim + 1 :]))
        for n in order:
            places = {i: low + offsets[n].get(i, size) for i in range(everywhere)}
            start = by_position(em, self.line.atoms, places)
            starts = [start if d == dim else em.index(0) for d in range(len(self.dims))]
            made = em.add("dynamic-update-slice", made.shape, made, self.parts[n], *starts)
        return em.cut(made, dim, low, low + size)

    def _select(self) -> Instruction:
        """Part after part laid over the fill where its device wants it."""
        em, size = self.em, self.target.size
        made = em.splat(self.fill, self.dims)
        for part, r in zip(self.parts, self.steps.rounds, strict=True):
            offsets = {p.device: r.offset(p) for p in r.pieces}
            low, high = max(*offsets.values(), 0), max(size - min(offsets.values()) - r.size, 0)
            if len(set(offsets.values())) == 1:
                offset = min(offsets.values())
                part = with_padding(em, part, self.line.dim, (offset, size - offset - r.size, 0), self.fill)
            else:
                part = with_padding(em, part, self.line.dim, (low, high, 0), self.fill)
                start = by_position(em, self.line.atoms, {i: low - o for i, o in offsets.items()})
                part = em.dynamic_slice(part, self.line.dim, start, size)
            nowhere = dict.fromkeys(range(len(self.target.starts)), 0)
            lows = {**nowhere, **{p.device: p.place for p in r.pieces}}
            highs = {**nowhere, **{p.device: p.place + p.length for p in r.pieces}}
            made = self._over(part, lows, highs, made)
        return made

    def _over(
        self, x: Instruction, lows: Mapping[int, int] | None, highs: Mapping[int, int] | None, other: Instruction
    ) -> Instruction:
        """``x`` between two positions that each device knows (no limit: not asked), ``other`` elsewhere."""
        em = self.em
        mask: Instruction | None = None
        shape = array_shape("pred", self.target.size)
        for limits, direction in ((lows, "GE"), (highs, "LT")):
            free = 0 if direction == "GE" else self.target.size
            if limits is None or all(v == free for v in limits.values()):
                continue
            place = em.add("iota", array_shape(em.index_type, self.target.size), iota_dimension=0)
            limit = em.splat(by_position(em, self.line.atoms, limits), place.shape.dims)
            inside = em.add("compare", shape, place, limit, direction=direction)
            mask = inside if mask is None else em.add("and", shape, mask, inside)
        if mask is None:
            return x
        mask = em.add("broadcast", array_shape("pred", *self.dims), mask, dimensions=(self.line.dim,))
        return em.select(mask, x, other)


def _is_zero(x: Instruction) -> bool:
    return x.opcode == "constant" and not any(x.attrs["literal"].array.tobytes())
