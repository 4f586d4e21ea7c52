"""Of a sort whose beginning is all that anybody reads, each shard sends only its own beginning.

The first k of all are among the first k of each shard: sort the shards, keep k of each, sort those. A sort is stable,
and the shards stand in order, so equal elements keep theirs. The same holds for the end. An approximate top-k is the
beginning of a sort; that it need not be exact is no reason to gather what an exact one need not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_module
from shardc.hlo.ir.sharding import DimSharding, Sharding
from shardc.hlo.ir.types import Shape, tuple_shape
from shardc.hlo.transforms.known_custom_calls import expand_custom_call
from shardc.partitioner.prepare.sorts.large_tops import large_top

__all__ = ["SortBeginnings"]


@dataclass(frozen=True, slots=True)
class SortBeginnings:
    """Sorts along evenly split dimensions of which one end is read; approximate top-k becomes such a sort, and one that
    keeps much of a split line becomes a sort of all."""

    name: str = "sort-beginnings"
    why: str = "to find a few elements the others need not be sent"

    def run(self, module: Module) -> Module:
        module = rebuild_module(module, _expand, {"custom-call"})
        module = rebuild_module(module, large_top, {"topk"})
        ends = {sort: end for c in module.computations for sort, end in _ends(c)}
        return rebuild_module(module, _Ends(ends).change) if ends else module


def _expand(call: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
    """The sort that an approximate top-k is; its arrays lie as the first operand does."""
    if call.attrs["custom_call_target"] != "ApproxTopK":
        return None
    body = expand_custom_call(call)
    whole = operands[0].sharding
    if body is None or not isinstance(whole, Sharding):
        return None
    results = call.sharding if isinstance(call.sharding, tuple) else (call.sharding,)
    placed = dict(zip(body.root.operands if call.shape.is_tuple else (body.root,), results, strict=True))
    new = dict(zip(body.parameters, operands, strict=True))
    for i in body:
        if i.opcode != "parameter":
            own = placed.get(i, (whole,) * len(list(i.shape.leaves())) if i.shape.is_tuple else whole)
            new[i] = i.replace(operands=tuple(new[o] for o in i.operands), sharding=own, metadata=call.metadata)
    return new[body.root]


# -- which sorts ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _End:
    """``count`` elements are read of a dimension over ``shards``, at its beginning or its end."""

    dim: int
    count: int
    shards: int
    last: bool

    def slice(self, n: int) -> tuple[int, int, int]:
        return (n - self.count, n, 1) if self.last else (0, self.count, 1)


def _ends(c: Computation) -> Iterator[tuple[Instruction, _End]]:
    sorts = [i for i in c if i.opcode == "sort" and i is not c.root]
    if not sorts:
        return
    readers: dict[Instruction, list[Instruction]] = {}
    for i in c:
        for o in i.operands:
            readers.setdefault(o, []).append(i)
    for sort in sorts:
        end = _end(sort, readers, c.root)
        if end is not None:
            yield sort, end


def _end(sort: Instruction, readers: Mapping[Instruction, list[Instruction]], root: Instruction) -> _End | None:
    """Which end of a sort its readers read, where that is worth it."""
    (dim,) = sort.attrs["dimensions"]
    n, sharding = sort.operands[0].shape.dims[dim], sort.operands[0].sharding
    leaves = readers.get(sort, []) if sort.shape.is_tuple else [sort]
    if not isinstance(sharding, Sharding) or any(
        x is root or x.opcode not in ("get-tuple-element", "sort") for x in leaves
    ):
        return None
    slices = [r for x in leaves for r in readers.get(x, [])]
    if not slices or any(r.opcode != "slice" for r in slices):
        return None
    bounds = [r.attrs["slice"][dim] for r in slices]
    shards = sharding.dims[dim].extent(sharding.mesh)
    for last in (False, True):
        count = max(n - low if last else high for low, high, _ in bounds)
        # Worth it when the shards' ends are fewer than what the cheapest exchange of whole shards would send.
        if shards > 1 and n % shards == 0 and count * shards * shards < n:
            return _End(dim, count, shards, last)
    return None


# -- doing it ------------------------------------------------------------------------------------------------------


class _Ends:
    """Changes sorts, and with them the places that their readers read."""

    def __init__(self, ends: Mapping[Instruction, _End]) -> None:
        self.ends = ends

    def change(self, old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if old in self.ends:
            return _of_ends(old, operands, self.ends[old])
        if old.opcode == "get-tuple-element" and old.operands[0] in self.ends:
            return old.replace(operands=operands, shape=operands[0].shape.elements[old.attrs["index"]])
        if old.opcode == "slice":
            source = old.operands[0]
            sort = source.operands[0] if source.opcode == "get-tuple-element" else source
            if sort in self.ends:
                return _shift(old, operands[0], self.ends[sort])
        return None


def _shift(old: Instruction, x: Instruction, end: _End) -> Instruction:
    bounds = list(old.attrs["slice"])
    low, high, step = bounds[end.dim]
    fewer = old.operands[0].shape.dims[end.dim] - x.shape.dims[end.dim] if end.last else 0
    bounds[end.dim] = (low - fewer, high - fewer, step)
    return old.replace(operands=(x,), attrs={**old.attrs, "slice": tuple(bounds)})


def _of_ends(sort: Instruction, operands: tuple[Instruction, ...], end: _End) -> Instruction:
    """The shards sorted, their ends put together and sorted again."""
    dim = end.dim
    parts = []
    for x in operands:
        dims, split = x.shape.dims, _split_sort(sort)
        shards = (*dims[:dim], end.shards, dims[dim] // end.shards, *dims[dim + 1 :])
        axes = (*split.dims[: dim + 1], DimSharding(), *split.dims[dim + 1 :])
        parts.append(_made(sort, "reshape", x.shape.with_dims(shards), x, replace(split, dims=axes)))
    ends = []
    for x in _sort(sort, parts, dim + 1):
        bounds = tuple(end.slice(n) if d == dim + 1 else (0, n, 1) for d, n in enumerate(x.shape.dims))
        assert isinstance(x.sharding, Sharding)
        few = x.shape.with_dims(tuple(high - low for low, high, _ in bounds))
        cut = _made(sort, "slice", few, x, x.sharding).replace(attrs={"slice": bounds})
        together = (*few.dims[:dim], math.prod(few.dims[dim : dim + 2]), *few.dims[dim + 2 :])
        whole = replace(x.sharding, dims=(*x.sharding.dims[:dim], DimSharding(), *x.sharding.dims[dim + 2 :]))
        ends.append(_made(sort, "reshape", few.with_dims(together), cut, whole))
    made = _sort(sort, ends, dim)
    return made[0].operands[0] if sort.shape.is_tuple else made[0]


def _split_sort(sort: Instruction) -> Sharding:
    """How the first operand lies: the others follow it."""
    first = sort.operands[0].sharding
    assert isinstance(first, Sharding)
    return replace(first, unreduced=())


def _made(sort: Instruction, opcode: str, shape: Shape, x: Instruction, sharding: Sharding) -> Instruction:
    return sort.replace(opcode=opcode, shape=shape.plain, operands=(x,), attrs={}, sharding=sharding)


def _sort(sort: Instruction, arrays: list[Instruction], dim: int) -> list[Instruction]:
    """The arrays sorted together; of several, the elements of the sort."""
    shapes = [x.shape.plain for x in arrays]
    several = sort.shape.is_tuple
    placed = tuple(x.sharding for x in arrays)
    made = sort.replace(
        shape=tuple_shape(*shapes) if several else shapes[0],
        operands=tuple(arrays),
        attrs={**sort.attrs, "dimensions": (dim,), "is_stable": True},
        sharding=placed if several else placed[0],
    )
    if not several:
        return [made]
    return [
        sort.replace(opcode="get-tuple-element", shape=s, operands=(made,), attrs={"index": i}, sharding=p)
        for i, (s, p) in enumerate(zip(shapes, placed, strict=True))
    ]
