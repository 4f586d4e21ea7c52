"""What slices, pads, joins, reversals and repeated rows take of one array: known places, dimension by dimension.

A shift of an array with mirrored edges is an array whose element (i, j) is element (p[i], q[j]) of the other one. The
lists of places are *runs*: they rise or fall by one, or repeat one place, or are padding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from shardc.hlo.ir.ir import Instruction

__all__ = ["PlaceRun", "Places", "StaticRead", "find_static_reads"]

#: More runs along one dimension are no edge any more, and are taken as they are.
_MOST_RUNS = 32


@dataclass(frozen=True, slots=True)
class PlaceRun:
    """``length`` places from ``start`` on, ``step`` (-1, 0, 1) from one to the next; or so much padding."""

    start: int
    length: int
    step: int
    padding: bool = False

    def cut(self, low: int, high: int) -> PlaceRun:
        return PlaceRun(self.start + low * self.step, high - low, self.step, self.padding)

    def turned(self) -> PlaceRun:
        """From last to first."""
        return PlaceRun(self.start + (self.length - 1) * self.step, self.length, -self.step, self.padding)

    def joined(self, other: PlaceRun) -> PlaceRun | None:
        """Both as one run, ``other`` behind; None where they are not one."""
        if self.padding or other.padding:
            return PlaceRun(0, self.length + other.length, 0, True) if self.padding and other.padding else None
        step = other.start - (self.start + (self.length - 1) * self.step)
        fits = step in (-1, 0, 1) and all(r.length == 1 or r.step == step for r in (self, other))
        return PlaceRun(self.start, self.length + other.length, step) if fits else None


#: Runs one after another.
Places = tuple[PlaceRun, ...]


@dataclass(frozen=True, slots=True)
class StaticRead:
    """The places of ``root`` along each dimension; ``fill`` is the constant that padding holds."""

    root: Instruction
    places: tuple[Places, ...]
    fill: Instruction | None = None

    def at(self, dim: int, places: Places) -> StaticRead:
        """With other places along one dimension."""
        return StaticRead(self.root, (*self.places[:dim], places, *self.places[dim + 1 :]), self.fill)


def find_static_reads(instructions: Iterable[Instruction]) -> Mapping[Instruction, StaticRead]:
    """What each instruction reads of the array that it is made of in the end; others are left out."""
    found: dict[Instruction, StaticRead] = {}

    def known(x: Instruction) -> StaticRead:
        if x in found:
            return found[x]
        return StaticRead(x, tuple((PlaceRun(0, n, 1),) if n else () for n in x.shape.dims))

    for i in instructions:
        rule = _RULES.get(i.opcode)
        read = rule(i, known) if rule is not None and i.shape.size else None
        if read is not None and all(len(p) <= _MOST_RUNS for p in read.places):
            found[i] = read
    return found


_Known = Callable[[Instruction], StaticRead]


def _cut(places: Places, low: int, high: int) -> Places:
    out, at = [], 0
    for run in places:
        first, end = max(low - at, 0), min(high - at, run.length)
        if first < end:
            out.append(run.cut(first, end))
        at += run.length
    return tuple(out)


def _join(parts: Iterable[Places]) -> Places:
    out: list[PlaceRun] = []
    for run in (r for places in parts for r in places):
        both = out[-1].joined(run) if out else None
        if both is None:
            out.append(run)
        else:
            out[-1] = both
    return tuple(out)


def _slice(i: Instruction, known: _Known) -> StaticRead | None:
    read = known(i.operands[0])
    for d, (start, limit, stride) in enumerate(i.attrs["slice"]):
        if stride != 1:
            return None
        read = read.at(d, _cut(read.places[d], start, limit))
    return read


def _pad(i: Instruction, known: _Known) -> StaticRead | None:
    read, fill = known(i.operands[0]), i.operands[1]
    for d, (low, high, interior) in enumerate(i.attrs["padding"]):
        n = i.operands[0].shape.dims[d]
        if interior or fill.opcode != "constant" or read.fill not in (None, fill):
            return None
        parts = [_cut(read.places[d], max(-low, 0), n - max(-high, 0))]
        if low > 0:
            parts.insert(0, (PlaceRun(0, low, 0, True),))
        if high > 0:
            parts.append((PlaceRun(0, high, 0, True),))
        read = read.at(d, _join(parts))
    padded = any(low > 0 or high > 0 for low, high, _ in i.attrs["padding"])
    return StaticRead(read.root, read.places, fill) if padded else read


def _concatenate(i: Instruction, known: _Known) -> StaticRead | None:
    (dim,) = i.attrs["dimensions"]
    first, *others = [known(o) for o in i.operands if o.shape.dims[dim]]
    for other in others:
        if other.root is not first.root or other.fill is not first.fill or other.at(dim, ()) != first.at(dim, ()):
            return None
    return first.at(dim, _join(r.places[dim] for r in (first, *others)))


def _reverse(i: Instruction, known: _Known) -> StaticRead | None:
    read = known(i.operands[0])
    for d in i.attrs["dimensions"]:
        read = read.at(d, _join((r.turned(),) for r in reversed(read.places[d])))
    return read


def _repeat(i: Instruction, known: _Known) -> StaticRead | None:
    """A row that is repeated: a broadcast of what had dimensions of one element."""
    kept, x = i.attrs["dimensions"], i.operands[0]
    row = x.operands[0] if x.opcode == "reshape" else x
    repeated = tuple(1 if d not in kept else n for d, n in enumerate(i.shape.dims))
    if list(kept) != sorted(kept) or row.shape.dims != repeated or len(kept) == i.shape.rank:
        return None
    read = known(row)
    for d, n in enumerate(i.shape.dims):
        if d not in kept:
            (run,) = read.places[d]
            read = read.at(d, (PlaceRun(run.start, n, 0, run.padding),))
    return read


_RULES: Mapping[str, Callable[[Instruction, _Known], StaticRead | None]] = {
    "slice": _slice,
    "pad": _pad,
    "concatenate": _concatenate,
    "reverse": _reverse,
    "broadcast": _repeat,
}
