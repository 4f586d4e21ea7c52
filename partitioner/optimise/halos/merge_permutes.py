"""What neighbours need of one array goes to them once, as wide as all readers together need it.

Shifts by 1, 2 and 3 rows send 1, 2 and 3 rows of the same array to the same devices: the 3 rows hold them all. What
goes on along the next dimension is put together from the array and from what came along the one before, for one shift
from this side and for another from that: all of it side by side is one sheet, which holds the corners as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shardc.hlo.ir.groups import AxisPairs
from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_computation, rebuild_computations
from shardc.partitioner.optimise.combine_collectives import joined_origin
from shardc.partitioner.optimise.group import in_groups
from shardc.partitioner.optimise.halos.boxes import Box, cut_box, hull, is_slice, join_boxes, moved, size_of, whole
from shardc.partitioner.optimise.keep_root import with_root_sharding

__all__ = ["MergePermutes"]


@dataclass(frozen=True, slots=True)
class MergePermutes:
    """Permutes between the same devices of overlapping parts of the same arrays, where fewer bytes are sent then."""

    name: str = "merge-permutes"
    why: str = "elements that overlap need not be sent twice"

    def run(self, module: Module) -> Module:
        after = rebuild_computations(module, _merge_all)
        return with_root_sharding(after, module.entry.root.sharding)


def _merge_all(computation: Computation, called: Mapping[Computation, Computation]) -> Computation:
    """Until nothing changes: what came along one dimension is sent along the next."""
    computation = rebuild_computation(computation, None, called)
    while True:
        merged = _merge(computation)
        if merged is computation:
            return computation
        computation = merged


@dataclass(frozen=True, slots=True)
class _Tile:
    """``box`` of an array, and where it stands."""

    array: Instruction
    box: Box
    place: Box

    @property
    def origin(self) -> tuple[int, ...]:
        """Where the array's first element stands, or would."""
        return tuple(at - low for (low, _), (at, _) in zip(self.box, self.place, strict=True))


@dataclass(frozen=True, slots=True)
class _Row:
    """Sheets side by side."""

    dim: int
    parts: tuple[_Sheet, ...]


_Sheet = _Tile | _Row


@dataclass(frozen=True, slots=True)
class _Shared:
    """Permutes that one takes the place of: what that sends, and which box of it each of them is."""

    sheet: _Sheet
    boxes: Mapping[Instruction, Box]


def _merge(computation: Computation) -> Computation:
    groups: dict[object, dict[Instruction, list[_Tile]]] = {}
    for i in computation:
        if _is_plain(i):
            tiles = _about_largest(list(_tiles(i.operands[0], whole(i), (0,) * i.shape.rank)))
            key = (i.attrs["source_target_pairs"], bool(i.attrs.get("channel_id")), tiles[0].array)
            groups.setdefault(key, {})[i] = tiles
    found = [s for group in groups.values() if len(group) > 1 for s in _shared(group)]
    found = [s for s, apart in zip(found, _independent(computation, found), strict=True) if apart]
    if not found:
        return computation
    order = in_groups(computation, [list(s.boxes) for s in found])
    if order is None:  # they need each other: one now
        found = found[:1]
        order = in_groups(computation, [list(found[0].boxes)])
    assert order is not None
    shared = {p: s for s in found for p in s.boxes}
    new: dict[Instruction, Instruction] = {}
    sent: dict[int, Instruction] = {}

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
        new[old] = old if operands is old.operands else old.replace(operands=operands)
        if old in shared:
            one = shared[old]
            if id(one) not in sent:
                x = _sheet_of(one.sheet, new, old)
                origin = joined_origin(list(one.boxes))
                sent[id(one)] = old.replace(operands=(x,), shape=x.shape.plain, origin=origin)
            new[old] = cut_box(sent[id(one)], one.boxes[old], old)
        return new[old]

    return rebuild_computation(Computation(computation.name, order, computation.root), change)


def _independent(computation: Computation, found: Sequence[_Shared]) -> list[bool]:
    """For each, whether none of its permutes needs another one of them."""
    bit = {p: 1 << n for n, s in enumerate(found) for p in s.boxes}
    needed: dict[Instruction, int] = {}
    mixed = 0
    for i in computation if found else ():
        before, own = 0, bit.get(i, 0)
        for o in i.operands:
            before |= needed[o]
        mixed |= before & own
        needed[i] = before | own
    return [not mixed >> n & 1 for n in range(len(found))]


def _is_plain(i: Instruction) -> bool:
    """A permute of one array over named axes."""
    return (
        i.opcode == "collective-permute"
        and len(i.operands) == 1
        and i.shape.size > 0
        and isinstance(i.attrs["source_target_pairs"], AxisPairs)
    )


def _tiles(x: Instruction, box: Box, at: Sequence[int]) -> Iterator[_Tile]:
    """``box`` of ``x``, whose first element stands ``at``, by the arrays that ``x`` is cut and put together from."""
    if is_slice(x):
        starts = [start for start, _, _ in x.attrs["slice"]]
        yield from _tiles(x.operands[0], tuple((a + n, b + n) for (a, b), n in zip(box, starts, strict=True)), at)
    elif x.opcode == "concatenate":
        (dim,) = x.attrs["dimensions"]
        first, begin = 0, at[dim]
        for o in x.operands:
            low, high = max(box[dim][0] - first, 0), min(box[dim][1] - first, o.shape.dims[dim])
            if low < high:
                place = (*at[:dim], begin, *at[dim + 1 :])
                yield from _tiles(o, (*box[:dim], (low, high), *box[dim + 1 :]), place)
                begin += high - low
            first += o.shape.dims[dim]
    else:
        yield _Tile(x, box, tuple((a, a + high - low) for a, (low, high) in zip(at, box, strict=True)))


def _about_largest(tiles: Sequence[_Tile]) -> list[_Tile]:
    """The largest one first, their places counted from the first element of its array."""
    largest = max(tiles, key=lambda t: size_of(t.box))
    others = [t for t in tiles if t is not largest]
    return [_Tile(t.array, t.box, moved(t.place, [-n for n in largest.origin])) for t in (largest, *others)]


def _shared(group: Mapping[Instruction, Sequence[_Tile]]) -> Iterator[_Shared]:
    """Permutes of a group that are sent as one: what holds them is one sheet, and smaller than they are."""
    places = {p: hull([t.place for t in tiles]) for p, tiles in group.items()}
    for held in join_boxes(sorted(set(places.values()))):
        members = [p for p in group if hull([held, places[p]]) == held]
        if size_of(held) >= sum(p.shape.size for p in members):
            continue
        pieces: dict[tuple[Instruction, tuple[int, ...]], list[Box]] = {}
        for p in members:
            for t in group[p]:
                pieces.setdefault((t.array, t.origin), []).append(t.place)
        tiles = []
        for (array, origin), boxes in pieces.items():
            place = hull(boxes)
            tiles.append(_Tile(array, moved(place, [-n for n in origin]), place))
        sheet = _side_by_side(tiles, held)
        if sheet is not None:
            start = [-low for low, _ in held]
            yield _Shared(sheet, {p: moved(places[p], start) for p in members})


def _side_by_side(tiles: Sequence[_Tile], box: Box) -> _Sheet | None:
    """The tiles as a sheet that fills ``box``; None where there are gaps, or one lies over another."""
    if len(tiles) == 1:
        return tiles[0] if tiles[0].place == box else None
    for dim, (first, end) in enumerate(box):
        starts = sorted({t.place[dim][0] for t in tiles} - {first})
        cuts = [n for n in starts if not any(t.place[dim][0] < n < t.place[dim][1] for t in tiles)]
        if cuts:
            parts = []
            for low, high in zip((first, *cuts), (*cuts, end), strict=True):
                inside = [t for t in tiles if low <= t.place[dim][0] < high]
                part = _side_by_side(inside, (*box[:dim], (low, high), *box[dim + 1 :])) if inside else None
                if part is None:
                    return None
                parts.append(part)
            return _Row(dim, tuple(parts))
    return None


def _sheet_of(sheet: _Sheet, new: Mapping[Instruction, Instruction], like: Instruction) -> Instruction:
    """The instructions of a sheet of rewritten arrays."""
    if isinstance(sheet, _Tile):
        return cut_box(new[sheet.array], sheet.box, like)
    pieces = [_sheet_of(part, new, like) for part in sheet.parts]
    dims = pieces[0].shape.dims
    total = sum(p.shape.dims[sheet.dim] for p in pieces)
    shape = pieces[0].shape.plain.with_dims((*dims[: sheet.dim], total, *dims[sheet.dim + 1 :]))
    return Instruction("concatenate", shape, pieces, {"dimensions": (sheet.dim,)}, metadata=like.metadata)
