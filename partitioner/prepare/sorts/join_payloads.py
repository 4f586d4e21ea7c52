"""What is read in the order of a split sort goes along with the sort.

`y[argsort(x)]` sorts places and reads y at them: y would be gathered by every device. As one more operand of the sort
its elements are sent once, to where they belong; rows of a few elements are so many operands. A sort whose places
nobody reads any more has none. What is written at sorted places (`z[argsort(x)] = y`) is sorted by them.

Where places are sorted again (each round of a shuffle does so), y goes along with all these sorts: the last one
sorts `y[places]`, which the one before it sorts along.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.ir import (
    Computation,
    Instruction,
    Module,
    rebuild_computation,
    rebuild_computations,
    topological,
    users_of,
)
from shardc.hlo.ir.make import keep_reachable, make
from shardc.hlo.ir.sharding import DimSharding, Sharding
from shardc.hlo.ir.types import Shape, array_shape, tuple_shape
from shardc.partitioner.prepare.sorts.scatters_as_sorts import scatters_as_sorts
from shardc.partitioner.prepare.sorts.sorted_places import is_split, replaced, without_bounds, without_tests
from shardc.partitioner.prepare.sorts.turned_sorts import turned_sorts

__all__ = ["JoinPayloads"]

#: Elements of a row that go along as operands of their own.
_MOST_COLUMNS = 8


@dataclass(frozen=True, slots=True)
class JoinPayloads:
    """Gathers of split arrays in the order of one line's sort become operands of the sort."""

    name: str = "join-payloads"
    why: str = "as operands of the sort, elements are sent once, and not to every device"

    def run(self, module: Module) -> Module:
        made = rebuild_computations(module, _joined)
        return made if made is module else keep_reachable(made, made.entry)


# -- which gathers -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Payloads:
    """``gathers`` read arrays in the order of ``sort``, whose operand ``place`` are the places; ``dropped`` if nothing
    else reads those."""

    sort: Instruction
    place: int
    gathers: tuple[Instruction, ...]
    dropped: bool


def _found(c: Computation) -> Iterator[_Payloads]:
    gathers: dict[tuple[Instruction, int], list[Instruction]] = {}
    for i in c:
        if i.opcode == "gather" and (order := _order(i)) is not None:
            sort, place = order.operands[0], order.attrs["index"]
            splits = is_split(sort.operands[0]) or is_split(i)
            if splits and is_split(i.operands[0]) and sort not in topological([i.operands[0]]):
                gathers.setdefault((sort, place), []).append(i)
    users = users_of(c) if gathers else {}
    for (sort, place), found in gathers.items():
        yield _Payloads(sort, place, tuple(found), _only_for(sort, place, found, users))


def _order(gather: Instruction) -> Instruction | None:
    """The sorted places that a gather of whole rows reads by; None for other gathers."""
    y, indices, a = *gather.operands, gather.attrs
    rows = (1, *y.shape.dims[1:])
    whole = tuple(a["slice_sizes"]) == rows and tuple(a["start_index_map"]) == tuple(a["collapsed_slice_dims"]) == (0,)
    if not whole or math.prod(rows) > _MOST_COLUMNS or a.get("operand_batching_dims") or indices.shape.rank > 2:
        return None
    if tuple(a["offset_dims"]) != tuple(range(1, gather.shape.rank)) or indices.shape.size != y.shape.dims[0]:
        return None
    order = without_bounds(indices, y.shape.dims[0])
    order = order.operands[0] if order.opcode == "reverse" else order
    if order.opcode != "get-tuple-element" or order.shape.dims != y.shape.dims[:1]:
        return None
    return order if _sorts_places(order) else None


def _sorts_places(x: Instruction) -> bool:
    """Whether ``x`` holds the places from 0 on, sorted along with other operands once or several times."""
    if x.opcode != "get-tuple-element" or x.operands[0].opcode != "sort":
        return False
    sort, place = x.operands[0], x.attrs["index"]
    given = sort.operands[place]
    return not _is_read(sort, place) and (given.opcode == "iota" or _sorts_places(given))


def _is_read(sort: Instruction, place: int) -> bool:
    """Whether the comparator reads the operand at ``place``."""
    body = sort.attrs["to_apply"]
    read = {o for i in body for o in i.operands} | {body.root}
    return any(p in read and p.attrs["index"] // 2 == place for p in body.parameters)


def _only_for(
    sort: Instruction,
    place: int,
    gathers: Sequence[Instruction],
    users: Mapping[Instruction, Sequence[Instruction]],
) -> bool:
    """Whether every use of the places of a sort leads to these gathers alone."""
    waiting = [u for u in users.get(sort, ()) if u.opcode != "get-tuple-element" or u.attrs["index"] == place]
    ends, seen = set(gathers), set[Instruction]()
    while waiting:
        x = waiting.pop()
        if x in ends or x in seen:
            continue
        if not users.get(x) or x.shape.is_tuple:
            return False
        seen.add(x)
        waiting += users[x]
    return True


# -- doing it ------------------------------------------------------------------------------------------------------


def _joined(c: Computation, called: Mapping[Computation, Computation]) -> Computation:
    """``c`` with joined sorts, one after the other; it calls what ``called`` says."""
    c = turned_sorts(scatters_as_sorts(rebuild_computation(c, None, called)))
    found = next(_found(c), None)
    if found is not None:
        c = without_tests(c)
        found = next(_found(c), None)
    while found is not None:
        c = _PayloadJoiner(found).computation(c)
        found = next(_found(c), None)
    return c


class _PayloadJoiner:
    """One sort with what is read in its order."""

    def __init__(self, found: _Payloads) -> None:
        self.found = found
        self.like = found.sort
        lines = (self.like.operands[0], *(g.operands[0] for g in found.gathers))
        lies = next(x.sharding for x in lines if is_split(x))
        assert isinstance(lies, Sharding)
        self.lies = replace(lies, dims=lies.dims[:1])

    def computation(self, c: Computation) -> Computation:
        sort, gathers = self.found.sort, self.found.gathers
        arrays = {g: self._columns(self._before(g)) for g in gathers}
        kept = [n for n in range(len(sort.operands)) if n != self.found.place or not self.found.dropped]
        operands = [sort.operands[n] for n in kept]
        for x in (x for columns in arrays.values() for x in columns):
            if x not in operands:
                operands.append(x)
        made = self._sort(operands, kept)
        new = {g: self._read(g, [made[operands.index(x)] for x in columns]) for g, columns in arrays.items()}
        for i in c:
            if i.opcode == "get-tuple-element" and i.operands[0] is sort and i.attrs["index"] in kept:
                new[i] = made[kept.index(i.attrs["index"])]
        return replaced(c, new)

    def _before(self, gather: Instruction) -> Instruction:
        """The array that a gather reads, in the order that the sort begins with."""
        y, order = gather.operands[0], self.found.sort.operands[self.found.place]
        if order.opcode == "iota":
            return y
        attrs = {**gather.attrs, "index_vector_dim": 1}
        return self._add("gather", y.shape, y, order, **attrs)

    def _columns(self, y: Instruction) -> list[Instruction]:
        """A line of each element of the rows of ``y``."""
        if y.shape.rank == 1:
            return [y]
        n, m = y.shape.dims[0], math.prod(y.shape.dims[1:])
        flat = self._add("reshape", y.shape.with_dims((n, m)), y)
        cuts = [self._add("slice", y.shape.with_dims((n, 1)), flat, slice=((0, n, 1), (k, k + 1, 1))) for k in range(m)]
        return [self._add("reshape", y.shape.with_dims((n,)), x) for x in cuts]

    def _read(self, gather: Instruction, columns: Sequence[Instruction]) -> Instruction:
        """The sorted rows, from the end where the places are read so."""
        rows = self._rows(gather, columns)
        order = without_bounds(gather.operands[1], gather.operands[0].shape.dims[0])
        return self._add("reverse", rows.shape, rows, dimensions=(0,)) if order.opcode == "reverse" else rows

    def _rows(self, gather: Instruction, columns: Sequence[Instruction]) -> Instruction:
        if gather.shape.rank == 1:
            return columns[0]
        n = gather.shape.dims[0]
        wide = [self._add("reshape", x.shape.with_dims((n, 1)), x) for x in columns]
        flat = wide[0]
        if len(wide) > 1:
            flat = self._add("concatenate", flat.shape.with_dims((n, len(wide))), *wide, dimensions=(1,))
        return self._add("reshape", gather.shape, flat)

    def _sort(self, operands: Sequence[Instruction], kept: Sequence[int]) -> list[Instruction]:
        """The sorted ``operands``, which begin with the ``kept`` ones of the sort as it was."""
        sort, shapes = self.found.sort, [x.shape.plain for x in operands]
        attrs = {**sort.attrs, "to_apply": _comparator(sort.attrs["to_apply"], operands, kept), "is_stable": True}
        if len(operands) == 1:
            return [sort.replace(shape=shapes[0], operands=operands, attrs=attrs, sharding=self.lies)]
        lies = (self.lies,) * len(operands)
        made = sort.replace(shape=tuple_shape(*shapes), operands=operands, attrs=attrs, sharding=lies)
        return [self._add("get-tuple-element", s, made, index=k) for k, s in enumerate(shapes)]

    def _add(self, opcode: str, shape: Shape, *operands: Instruction, **attrs: object) -> Instruction:
        made = make(opcode, shape.plain, operands, self.like, **attrs)
        dims = (self.lies.dims[0], *(DimSharding(),) * (made.shape.rank - 1))
        return made.replace(sharding=replace(self.lies, dims=dims))


def _comparator(body: Computation, operands: Sequence[Instruction], kept: Sequence[int]) -> Computation:
    """``body`` for other operands, which begin with those that are ``kept``."""
    b = Builder(f"{body.name}_with_payloads")
    given = [b.parameter(array_shape(x.shape.dtype)) for x in operands for _ in range(2)]
    places = {n: k for k, n in enumerate(kept)}
    values = [given[2 * places.get(p.attrs["index"] // 2, 0) + p.attrs["index"] % 2] for p in body.parameters]
    new = dict(zip(body.parameters, values, strict=True))
    for i in body:
        if i.opcode != "parameter":
            new[i] = b.append(i.replace(operands=tuple(new[o] for o in i.operands)))
    return b.build(new[body.root])
