"""What neighbours need of one array goes to them once, as wide as all readers together need it.

Shifts by 1, 2 and 3 rows send 1, 2 and 3 rows of the same array to the same devices: the 3 rows hold them all. What
goes on to the next dimension is put together from the array and what came along the one before; what each of the two
gives is sent once as well, so that corners cost no more than themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shardc.hlo.ir.groups import AxisPairs
from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_computation, rebuild_computations
from shardc.partitioner.optimise.combine_collectives import joined_origin
from shardc.partitioner.optimise.keep_root import with_root_sharding

__all__ = ["MergePermutes"]

#: Per dimension the first element, and the one after the last.
_Box = tuple[tuple[int, int], ...]
#: Who sends to whom, and whether over a channel.
_Route = tuple[AxisPairs, bool]


@dataclass(frozen=True, slots=True)
class MergePermutes:
    """Permutes between the same devices of overlapping parts of the same arrays, where fewer bytes are sent then."""

    name: str = "merge-permutes"
    why: str = "what overlaps need not be sent twice"

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
class _SentBox:
    """A box of an array that goes some way."""

    route: _Route
    array: Instruction
    box: _Box


def _merge(computation: Computation) -> Computation:
    parts = {i: _parts(i) for i in computation if _is_plain(i)}
    hulls = _hulls(part for found in parts.values() for part in found)
    members = _worthwhile(parts, hulls)
    if not members:
        return computation
    new: dict[Instruction, Instruction] = {}
    sent: dict[_SentBox, Instruction] = {}

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
        if old in members:
            made = received(old, old.operands[0], _whole(old), old)
        else:
            made = old if operands is old.operands else old.replace(operands=operands)
        new[old] = made
        return made

    def received(permute: Instruction, x: Instruction, box: _Box, like: Instruction) -> Instruction:
        """``box`` of ``x`` as it comes from where ``permute`` has it from."""
        inner = list(_inside(x, box))
        if inner != [(x, box)]:
            pieces = [received(permute, o, b, like) for o, b in inner]
            return pieces[0] if len(pieces) == 1 else _concatenate(pieces, x.attrs["dimensions"], like)
        hull = hulls[_SentBox(_route(permute), x, box)]
        if hull not in sent:
            sent[hull] = permute.replace(
                operands=(_cut(new[x], hull.box, like),),
                shape=x.shape.plain.with_dims(_sizes(hull.box)),
                origin=joined_origin(members[permute]),
            )
        at = tuple((low - start, high - start) for (low, high), (start, _) in zip(box, hull.box, strict=True))
        return _cut(sent[hull], at, like)

    return rebuild_computation(computation, change)


def _is_plain(i: Instruction) -> bool:
    """A permute of one array over named axes."""
    return (
        i.opcode == "collective-permute"
        and len(i.operands) == 1
        and i.shape.is_array
        and isinstance(i.attrs["source_target_pairs"], AxisPairs)
    )


def _route(permute: Instruction) -> _Route:
    return permute.attrs["source_target_pairs"], bool(permute.attrs.get("channel_id"))


def _whole(x: Instruction) -> _Box:
    return tuple((0, n) for n in x.shape.dims)


def _sizes(box: _Box) -> tuple[int, ...]:
    return tuple(high - low for low, high in box)


def _size(box: _Box) -> int:
    return math.prod(_sizes(box))


def _parts(permute: Instruction) -> list[_SentBox]:
    """What is sent, as parts of the arrays that it is cut and put together from."""
    route = _route(permute)

    def found(x: Instruction, box: _Box) -> Iterator[_SentBox]:
        for o, inner in _inside(x, box):
            if o is x:
                yield _SentBox(route, x, inner)
            else:
                yield from found(o, inner)

    return list(found(permute.operands[0], _whole(permute)))


def _inside(x: Instruction, box: _Box) -> Iterator[tuple[Instruction, _Box]]:
    """``box`` of ``x`` as boxes of its operands, where it is a slice of one, or has several side by side."""
    if x.opcode == "slice" and all(stride == 1 for _, _, stride in x.attrs["slice"]):
        starts = (start for start, _, _ in x.attrs["slice"])
        yield x.operands[0], tuple((low + n, high + n) for (low, high), n in zip(box, starts, strict=True))
    elif x.opcode == "concatenate":
        (dim,) = x.attrs["dimensions"]
        at = 0
        for o in x.operands:
            n = o.shape.dims[dim]
            low, high = max(box[dim][0] - at, 0), min(box[dim][1] - at, n)
            if low < high:
                yield o, (*box[:dim], (low, high), *box[dim + 1 :])
            at += n
    else:
        yield x, box


def _hulls(parts: Iterator[_SentBox]) -> dict[_SentBox, _SentBox]:
    """For each part the one that is sent in its place: parts of one array that go the same way are joined as long as
    what holds them is no larger than they are."""
    boxes: dict[tuple[_Route, Instruction], dict[_Box, None]] = {}
    for p in parts:
        boxes.setdefault((p.route, p.array), {})[p.box] = None
    found: dict[_SentBox, _SentBox] = {}
    for (route, array), own in boxes.items():
        joined = _join_boxes(sorted(own))
        for box in own:
            hull = next(h for h in joined if _hull(h, box) == h)
            found[_SentBox(route, array, box)] = _SentBox(route, array, hull)
    return found


def _join_boxes(boxes: Sequence[_Box]) -> list[_Box]:
    joined: list[_Box] = []
    for box in boxes:
        n = 0
        while n < len(joined):
            hull = _hull(joined[n], box)
            if _size(hull) <= _size(joined[n]) + _size(box):
                box, n = hull, 0
                joined = [b for b in joined if _hull(hull, b) != hull]
            else:
                n += 1
        joined.append(box)
    return joined


def _hull(a: _Box, b: _Box) -> _Box:
    return tuple((min(p, r), max(q, s)) for (p, q), (r, s) in zip(a, b, strict=True))


def _worthwhile(
    parts: Mapping[Instruction, Sequence[_SentBox]], hulls: Mapping[_SentBox, _SentBox]
) -> dict[Instruction, list[Instruction]]:
    """Permutes that send less together, each with all those that it is sent with."""
    group: dict[Instruction, list[Instruction]] = {p: [p] for p in parts}
    first: dict[_SentBox, Instruction] = {}
    for permute, found in parts.items():
        for part in found:
            other = group[first.setdefault(hulls[part], permute)]
            own = group[permute]
            if other is not own:
                other += own
                for p in own:
                    group[p] = other
    out: dict[Instruction, list[Instruction]] = {}
    for permute, members in group.items():
        if len(members) > 1 and permute is members[0]:
            sent = {hulls[part] for p in members for part in parts[p]}
            if sum(_size(h.box) for h in sent) < sum(p.shape.size for p in members):
                out.update(dict.fromkeys(members, members))
    return out


def _cut(x: Instruction, box: _Box, like: Instruction) -> Instruction:
    """``box`` of ``x``, said to be for ``like``."""
    if box == _whole(x):
        return x
    bounds = tuple((low, high, 1) for low, high in box)
    return Instruction("slice", x.shape.plain.with_dims(_sizes(box)), (x,), {"slice": bounds}, metadata=like.metadata)


def _concatenate(pieces: Sequence[Instruction], dimensions: tuple[int, ...], like: Instruction) -> Instruction:
    (dim,) = dimensions
    dims = pieces[0].shape.dims
    total = sum(p.shape.dims[dim] for p in pieces)
    shape = pieces[0].shape.plain.with_dims((*dims[:dim], total, *dims[dim + 1 :]))
    return Instruction("concatenate", shape, tuple(pieces), {"dimensions": dimensions}, metadata=like.metadata)
