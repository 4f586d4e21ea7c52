"""Of a split sort of which a few known places are read (a median, quantiles), those are found by counting digits.

Digit by digit, the highest first, elements are counted by the digit behind those that are known of the wanted one: a
scatter of ones. The counts say what its next digit is. Devices add up counts and send nothing else. Of two neighbouring
places the second is the least element that is more than the first, or its equal. Zeros that the comparator takes as
equal come out as +0, NaNs as one NaN.

A sort that is not split stays. What reads it at known numbers becomes slices, which tell compilers what those are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shardc.hlo.ir.build import binary_computation
from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_module, topological
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import keep_reachable, make
from shardc.hlo.ir.opset import Window, WindowDim
from shardc.hlo.ir.sharding import DimSharding, Sharding
from shardc.hlo.ir.sort_keys import SortKey, leading_places, sort_keys
from shardc.hlo.ir.types import DTYPES, DType, Shape, array_shape, tuple_shape
from shardc.hlo.transforms.key_arrays import element_array, key_array
from shardc.partitioner.prepare.known_places import edges_of_read, known_vectors

__all__ = ["SelectPlaces"]

_DIGIT = 8
_VALUES = 1 << _DIGIT
#: Searches that share the passes over the elements.
_MOST_SEARCHES = 8
_COUNT = DTYPES["s32"]
_READERS = ("slice", "dynamic-slice", "gather")


@dataclass(frozen=True, slots=True)
class SelectPlaces:
    """Sorts of one array by numbers, of which slices of a few places are read, where counts are fewer than elements."""

    name: str = "select-places"
    why: str = "to find a few places of a split array, devices send counts only and sort nothing"

    def run(self, module: Module) -> Module:
        found = {s.sort: s for c in module.computations for s in _searches(c)}
        if not found:
            return module
        made = rebuild_module(module, _Selecting(found).change, {"sort", *_READERS})
        return keep_reachable(made, made.entry)


# -- which sorts ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _PlaceSearch:
    """The ``places`` that are read of a sort; the ``leading`` ones are searched, the others come next to one."""

    sort: Instruction
    key: SortKey
    places: tuple[int, ...]

    @property
    def dim(self) -> int:
        (dim,) = self.sort.attrs["dimensions"]
        return int(dim)

    @property
    def shards(self) -> int:
        """Of the sorted dimension."""
        sharding = self.sort.operands[0].sharding
        assert isinstance(sharding, Sharding)
        return sharding.dims[self.dim].extent(sharding.mesh)

    @property
    def leading(self) -> tuple[int, ...]:
        return leading_places(self.places)


def _searches(c: Computation) -> Iterator[_PlaceSearch]:
    sorts = [i for i in c if i.opcode == "sort" and i is not c.root and len(i.operands) == 1]
    readers: dict[Instruction, list[Instruction]] = {s: [] for s in sorts}
    for i in c if sorts else ():
        for o in i.operands:
            if o in readers:
                readers[o].append(i)
    for sort in sorts:
        keys, read = sort_keys(sort.attrs["to_apply"]), [_places(r, sort) for r in readers[sort]]
        if keys is None or not read or None in read or sum(len(r or ()) for r in read) > 4 * _MOST_SEARCHES:
            continue
        search = _PlaceSearch(sort, keys[0], tuple(sorted({p for r in read for p in r or ()})))
        if _is_worth_it(search) and (search.shards > 1 or any(r.opcode != "slice" for r in readers[sort])):
            yield search


def _places(reader: Instruction, sort: Instruction) -> Sequence[int] | None:
    """The places of the sorted dimension that are read; None where they are not known."""
    (dim,) = sort.attrs["dimensions"]
    if reader.opcode == "slice":
        return range(*reader.attrs["slice"][dim])
    if reader.opcode == "dynamic-slice" and sort not in reader.operands[1:]:
        edges = edges_of_read(reader, reader.operands)
        return None if edges is None else range(edges[dim][0], sort.shape.dims[dim] - edges[dim][1])
    if reader.opcode == "gather" and reader.operands[1] is not sort:
        a = reader.attrs
        dims = tuple(a["start_index_map"])
        found = known_vectors(reader.operands[1], a["index_vector_dim"])
        if found is None or dim not in dims or a["slice_sizes"][dim] != 1 or a.get("operand_batching_dims"):
            return None
        last: int = sort.shape.dims[dim] - 1
        return [int(v) for v in np.clip(found[:, dims.index(dim)], 0, last)]
    return None


def _is_worth_it(search: _PlaceSearch) -> bool:
    """Whether the counts, sent there and back, are no more bytes than the keys of a shard, and than the end that is
    read."""
    x, searches = search.sort.operands[0], len(search.leading)
    if not isinstance(x.sharding, Sharding) or not searches or x.sharding.unreduced:
        return False
    if search.shards == 1:
        return True
    n = x.shape.dims[search.dim]
    counts = 2 * _VALUES * _COUNT.nbytes * searches
    end = min(search.places[-1] + 1, n - search.places[0])
    small = searches <= _MOST_SEARCHES and n < np.iinfo(np.int32).max
    return small and counts <= min(n // search.shards, end)


# -- doing it ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Selecting:
    """Sorts become the wanted places alone, and slices of them pieces of these."""

    found: Mapping[Instruction, _PlaceSearch]

    def change(self, old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if old in self.found:
            search = self.found[old]
            if search.shards == 1:
                return _cut_out(old.replace(operands=operands), search)
            return _Selection(search, operands[0]).selected()
        if old.opcode in _READERS and old.operands[0] in self.found:
            return _read(old, operands, self.found[old.operands[0]])
        return None


def _cut_out(sort: Instruction, search: _PlaceSearch) -> Instruction:
    """The places of a sort, along the dimension that it sorted."""
    dims = sort.shape.dims
    parts = []
    for place in search.places:
        bounds = tuple((place, place + 1, 1) if d == search.dim else (0, n, 1) for d, n in enumerate(dims))
        one = sort.shape.with_dims(tuple(1 if d == search.dim else n for d, n in enumerate(dims))).plain
        parts.append(make("slice", one, (sort,), sort, slice=bounds).replace(sharding=sort.sharding))
    if len(parts) == 1:
        return parts[0]
    whole = sort.shape.with_dims(tuple(len(parts) if d == search.dim else n for d, n in enumerate(dims))).plain
    return make("concatenate", whole, parts, sort, dimensions=(search.dim,)).replace(sharding=sort.sharding)


def _read(old: Instruction, operands: Sequence[Instruction], search: _PlaceSearch) -> Instruction:
    """What a reader of the sorted array reads, of the places alone."""
    read = _places(old, search.sort)
    assert read is not None
    at = [search.places.index(p) for p in read]
    if old.opcode == "gather":
        return _gathered(old, operands, search, at)
    if old.opcode == "slice":
        bounds = list(old.attrs["slice"])
    else:
        edges = edges_of_read(old, old.operands) or ()
        bounds = [(low, n - high, 1) for (low, high), n in zip(edges, search.sort.shape.dims, strict=True)]
    parts = []
    dims = tuple(1 if d == search.dim else n for d, n in enumerate(old.shape.dims))
    for k in at:
        bounds[search.dim] = (k, k + 1, 1)
        part = {"opcode": "slice", "shape": old.shape.with_dims(dims), "operands": operands[:1]}
        parts.append(old.replace(**part, attrs={"slice": tuple(bounds)}))
    if len(parts) == 1:
        return parts[0]
    return old.replace(opcode="concatenate", operands=tuple(parts), attrs={"dimensions": (search.dim,)})


def _gathered(
    old: Instruction, operands: Sequence[Instruction], search: _PlaceSearch, at: Sequence[int]
) -> Instruction:
    """A gather of the places that it reads, which have other numbers."""
    indices, vector = operands[1], old.attrs["index_vector_dim"]
    found = known_vectors(indices, vector)
    assert found is not None
    found[:, old.attrs["start_index_map"].index(search.dim)] = at
    dims = indices.shape.dims
    batch = dims[:vector] + dims[vector + 1 :]
    literal = np.moveaxis(found.reshape(*batch, -1), -1, vector).reshape(dims).astype(indices.shape.dtype.numpy)
    known = make("constant", indices.shape.plain, (), old, literal=Literal(literal)).replace(sharding=indices.sharding)
    return old.replace(operands=(operands[0], known))


@dataclass(frozen=True, slots=True)
class _LayoutWriter:
    """Writes instructions whose first dimensions lie as ``leading``, all others whole."""

    like: Instruction
    whole: Sharding
    leading: tuple[DimSharding, ...]

    def lies(self, shape: Shape) -> Sharding:
        leading = self.leading if shape.rank >= len(self.leading) else ()
        return replace(self.whole, dims=(*leading, *(DimSharding(),) * (shape.rank - len(leading))))

    def add(self, opcode: str, shape: Shape, *operands: Instruction, **attrs: Any) -> Instruction:
        return make(opcode, shape.plain, operands, self.like, **attrs).replace(sharding=self.lies(shape))

    def scalar(self, value: ArrayLike, dtype: DType) -> Instruction:
        """A constant, which is whole everywhere."""
        literal = Literal(np.asarray(value, dtype.numpy))
        whole = replace(self.whole, dims=(DimSharding(),) * literal.shape.rank)
        return make("constant", literal.shape, (), self.like, literal=literal).replace(sharding=whole)

    def splat(self, scalar: Instruction, dims: tuple[int, ...]) -> Instruction:
        return self.add("broadcast", scalar.shape.with_dims(dims), scalar, dimensions=()) if dims else scalar

    def constant(self, value: int, shape: Shape) -> Instruction:
        """Copies of a number."""
        return self.splat(self.scalar(value, shape.dtype), shape.dims)

    def binary(self, opcode: str, x: Instruction, y: Instruction | int) -> Instruction:
        return self.add(opcode, x.shape, x, y if isinstance(y, Instruction) else self.constant(y, x.shape))

    def compare(self, x: Instruction, y: Instruction | int, direction: str) -> Instruction:
        y = y if isinstance(y, Instruction) else self.constant(y, x.shape)
        return self.add("compare", x.shape.with_dtype(DTYPES["pred"]), x, y, direction=direction)

    def select(self, where: Instruction, x: Instruction, y: Instruction) -> Instruction:
        return self.add("select", x.shape, where, x, y)

    def convert(self, x: Instruction, dtype: Any) -> Instruction:
        return x if x.shape.dtype is dtype else self.add("convert", x.shape.with_dtype(dtype), x)

    def spread(self, x: Instruction, dims: Sequence[int], along: Sequence[int]) -> Instruction:
        return self.add("broadcast", x.shape.with_dims(tuple(dims)), x, dimensions=tuple(along))

    def reduce(self, opcode: str, x: Instruction, dim: int, start: int) -> Instruction:
        dims = tuple(n for d, n in enumerate(x.shape.dims) if d != dim)
        body = binary_computation(opcode, x.shape.dtype, f"select_{opcode}")
        one = self.constant(start, array_shape(x.shape.dtype))
        return self.add("reduce", x.shape.with_dims(dims), x, one, dimensions=(dim,), to_apply=body)


class _Selection:
    """The instructions of one search; arrays of what is searched have the other dimensions first, searches last."""

    def __init__(self, search: _PlaceSearch, x: Instruction) -> None:
        self.search, self.x = search, x
        self.others = [d for d in range(x.shape.rank) if d != search.dim]
        self.rows = tuple(x.shape.dims[d] for d in self.others)
        self.count = len(search.leading)
        assert isinstance(x.sharding, Sharding)
        whole = replace(x.sharding, dims=())
        self.of_elements = _LayoutWriter(search.sort, whole, x.sharding.dims)
        self.of_counts = _LayoutWriter(search.sort, whole, tuple(x.sharding.dims[d] for d in self.others))
        self.kind = DTYPES[f"u{8 * x.shape.dtype.nbytes}"]

    def selected(self) -> Instruction:
        """The places, along the dimension that was sorted."""
        w, search = self.of_counts, self.search
        known, left, same = self._searched()
        keys: list[Instruction] = []
        for place in search.places:
            j = max(j for j, first in enumerate(search.leading) if first <= place)
            key = self._cut(known, j)
            if place > search.leading[j]:
                equal = w.compare(self._cut(same, j), w.binary("add", self._cut(left, j), 1), "GT")
                key = w.select(equal, key, self._next(key))
            keys.append(w.add("reshape", key.shape.with_dims((*self.rows, 1)), key))
        made = keys[0]
        if len(keys) > 1:
            shape = made.shape.with_dims((*self.rows, len(keys)))
            made = w.add("concatenate", shape, *keys, dimensions=(len(self.rows),))
        made = element_array(w, made, search.key)
        if search.dim == len(self.rows):
            return made
        order = [*range(search.dim), len(self.rows), *range(search.dim, len(self.rows))]
        dims = tuple(made.shape.dims[d] for d in order)
        layout = replace(w.whole, dims=tuple(w.lies(made.shape).dims[d] for d in order))
        return w.add("transpose", made.shape.with_dims(dims), made, dimensions=tuple(order)).replace(sharding=layout)

    def _cut(self, x: Instruction, j: int) -> Instruction:
        """What search ``j`` has, of arrays of all searches."""
        bounds = (*((0, n, 1) for n in self.rows), (j, j + 1, 1))
        w = self.of_counts
        one = w.add("slice", x.shape.with_dims((*self.rows, 1)), x, slice=bounds)
        return w.add("reshape", x.shape.with_dims(self.rows), one)

    def _over_elements(self, x: Instruction) -> Instruction:
        return self.of_elements.spread(x, self.x.shape.dims, self.others)

    def _next(self, key: Instruction) -> Instruction:
        """The least key that is more than ``key``."""
        w = self.of_elements
        keys = key_array(w, self.x, self.search.key)
        last = (1 << self.kind.bits) - 1
        more = w.select(w.compare(keys, self._over_elements(key), "GT"), keys, w.constant(last, keys.shape))
        return self.of_counts.reduce("minimum", more, self.search.dim, last)

    # -- the loop over digits ------------------------------------------------------------------------------------------

    def _searched(self) -> tuple[Instruction, Instruction, Instruction]:
        """Of each search the key, how many of its equals come before it, and how many equals there are."""
        w = self.of_counts
        searches = (*self.rows, self.count)
        ranks = w.scalar(self.search.leading, _COUNT)
        start = [
            self.x,
            w.constant(0, array_shape(_COUNT)),
            w.constant(0, array_shape(self.kind, *searches)),
            w.spread(ranks, searches, [len(self.rows)]),
            w.constant(0, array_shape(_COUNT, *searches)),
        ]
        placed = tuple(i.sharding for i in start)
        state = tuple_shape(*(i.shape.plain for i in start))

        def inside() -> list[Instruction]:
            given = w.add("parameter", state, index=0).replace(sharding=placed)
            return [
                w.add("get-tuple-element", s, given, index=k).replace(sharding=p)
                for k, (s, p) in enumerate(zip(state.elements, placed, strict=True))
            ]

        x, number, *carried = inside()
        made = w.add("tuple", state, x, w.binary("add", number, 1), *self._step(x, number, *carried))
        made = made.replace(sharding=placed)
        body = Computation("select_digit", topological([made]), made)
        test = w.compare(inside()[1], self.kind.bits // _DIGIT, "LT")
        condition = Computation("more_digits", topological([test]), test)
        begin = w.add("tuple", state, *start).replace(sharding=placed)
        loop = w.add("while", state, begin, condition=condition, body=body).replace(sharding=placed)
        known, left, same = (
            w.add("get-tuple-element", state.elements[k], loop, index=k).replace(sharding=placed[k]) for k in (2, 3, 4)
        )
        return known, left, same

    def _step(
        self, x: Instruction, number: Instruction, known: Instruction, left: Instruction, same: Instruction
    ) -> list[Instruction]:
        """The next digit of every search."""
        w = self.of_counts
        back = w.binary("multiply", w.binary("add", number, 1), _DIGIT)
        shift = w.convert(w.binary("subtract", w.constant(self.kind.bits, array_shape(_COUNT)), back), self.kind)
        last = len(self.rows) + 1
        totals = self._running(self._counted(x, shift, known))
        ranks = w.spread(left, totals.shape.dims, range(last))
        fits = w.compare(totals, ranks, "LE")
        value = w.reduce("add", w.convert(fits, _COUNT), last, 0)
        before = w.reduce("maximum", w.select(fits, totals, w.constant(0, totals.shape)), last, 0)
        most = int(np.iinfo(np.int32).max)
        upto = w.reduce("minimum", w.select(fits, w.constant(most, totals.shape), totals), last, most)
        wider = w.binary("shift-left", known, _DIGIT)
        return [
            w.binary("or", wider, w.convert(value, self.kind)),
            w.binary("subtract", left, before),
            w.binary("subtract", upto, before),
        ]

    def _counted(self, x: Instruction, shift: Instruction, known: Instruction) -> Instruction:
        """How many elements that begin as a search does have each value of the digit from bit ``shift`` on."""
        e, w = self.of_elements, self.of_counts
        up = e.binary("shift-right-logical", key_array(e, x, self.search.key), e.spread(shift, x.shape.dims, ()))
        digit = e.convert(e.binary("and", up, _VALUES - 1), _COUNT)
        begins = e.binary("shift-right-logical", up, _DIGIT)
        at = e.constant(self.count * _VALUES, digit.shape)
        for j in reversed(range(self.count)):
            here = e.compare(begins, self._over_elements(self._cut(known, j)), "EQ")
            at = e.select(here, e.binary("add", digit, j * _VALUES) if j else digit, at)
        rows = len(self.rows)
        counts = w.add(
            "scatter",
            array_shape(_COUNT, *self.rows, self.count * _VALUES),
            w.constant(0, array_shape(_COUNT, *self.rows, self.count * _VALUES)),
            at,
            e.constant(1, digit.shape),
            update_window_dims=(),
            inserted_window_dims=(rows,),
            scatter_dims_to_operand_dims=(rows,),
            input_batching_dims=tuple(range(rows)),
            scatter_indices_batching_dims=tuple(self.others),
            index_vector_dim=x.shape.rank,
            to_apply=binary_computation("add", _COUNT, "select_count"),
        )
        each = w.add("reshape", array_shape(_COUNT, *self.rows, self.count, _VALUES), counts)
        return self._of_first(each, known) if self.count > 1 else each

    def _of_first(self, counts: Instruction, known: Instruction) -> Instruction:
        """Searches that have the same so far are counted as the first of them."""
        w, rows = self.of_counts, len(self.rows)
        pair = (*self.rows, self.count, self.count)
        batch = list(range(rows))
        one, other = (w.spread(known, pair, [*batch, d]) for d in (rows, rows + 1))
        place = w.add("iota", array_shape(_COUNT, *pair), iota_dimension=rows + 1)
        alike = w.select(w.compare(one, other, "EQ"), place, w.constant(self.count, place.shape))
        first = w.spread(w.reduce("minimum", alike, rows + 1, self.count), pair, [*batch, rows])
        chosen = w.compare(first, place, "EQ")
        all_ = (*pair, _VALUES)
        there = w.spread(counts, all_, [*batch, rows + 1, rows + 2])
        picked = w.select(w.spread(chosen, all_, [*batch, rows, rows + 1]), there, w.constant(0, there.shape))
        return w.reduce("add", picked, rows + 1, 0)

    def _running(self, x: Instruction) -> Instruction:
        """Totals up to each place of the last dimension."""
        n = x.shape.dims[-1]
        window = Window((*(WindowDim(1) for _ in x.shape.dims[:-1]), WindowDim(n, pad_low=n - 1)))
        start = self.of_counts.constant(0, array_shape(_COUNT))
        body = binary_computation("add", _COUNT, "select_total")
        return self.of_counts.add("reduce-window", x.shape, x, start, window=window, to_apply=body)
