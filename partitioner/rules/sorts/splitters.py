"""Exact splitters of an array that is sorted on each device: how much of every shard goes to which device.

The element with which a device's chunk begins is found by digits of its key, the highest first: for all values of a
digit at once, the devices add up how many of their keys are less. Of what is equal to it, the first devices' go first,
so that the order is stable and every chunk full. Nothing but counts is sent, however the values are distributed. Keys
are made of the few elements that are looked at, and never of a whole shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.sort_keys import SortKey
from shardc.hlo.ir.types import DTYPES, DType, array_shape
from shardc.hlo.transforms.key_arrays import key_array
from shardc.partitioner.emit.emitter import Emitter
from shardc.partitioner.emit.layout import Atoms
from shardc.partitioner.emit.repeat import Values, repeat

__all__ = ["ShardCuts", "cut_shards", "digit_bits", "last_value", "totals_before"]


def last_value(key: SortKey) -> object | None:
    """A value that none comes after; None where only some bits of a NaN are that."""
    dtype = key.dtype
    if dtype.is_float:
        if not key.nans_equal:
            return None
        return -np.inf if key.descending else np.nan
    if dtype.kind == "pred":
        return not key.descending
    bounds = np.iinfo(dtype.numpy)
    return int(bounds.min if key.descending else bounds.max)


# -- small parts of programs ---------------------------------------------------------------------------------------


def _compare(em: Emitter, x: Instruction, y: Instruction, direction: str) -> Instruction:
    return em.add("compare", x.shape.with_dtype(DTYPES["pred"]).plain, x, y, direction=direction)


def _binary(em: Emitter, opcode: str, x: Instruction, y: Instruction) -> Instruction:
    return em.add(opcode, x.shape.plain, x, y)


def _spread(em: Emitter, x: Instruction, dims: tuple[int, ...], at: int) -> Instruction:
    """A line along dimension ``at`` of ``dims``."""
    return em.add("broadcast", x.shape.with_dims(dims).plain, x, dimensions=(at,))


def _line(em: Emitter, count: int, dtype: DType, first: int = 0) -> Instruction:
    made = em.add("iota", array_shape(dtype, count), iota_dimension=0)
    return _binary(em, "add", made, em.splat(em.scalar(first, dtype), (count,))) if first else made


def pick(em: Emitter, x: Instruction, places: Instruction) -> Instruction:
    """The elements of a line at ``places``, which lie in it."""
    return em.add(
        "gather",
        x.shape.with_dims(places.shape.dims).plain,
        x,
        em.reshape(places, (*places.shape.dims, 1)),
        offset_dims=(),
        collapsed_slice_dims=(0,),
        start_index_map=(0,),
        index_vector_dim=1,
        slice_sizes=(1,),
    )


def totals_before(em: Emitter, x: Instruction) -> Instruction:
    """The sum of what stands before each place of the first dimension."""
    count = x.shape.dims[0]

    def moved(y: Instruction, by: int) -> Instruction:
        zeros = em.splat(em.zero(x.shape.dtype), (by, *x.shape.dims[1:]))
        return em.concatenate([zeros, em.cut(y, 0, 0, count - by)], 0)

    total, by = moved(x, 1) if count > 1 else em.splat(em.zero(x.shape.dtype), x.shape.dims), 1
    while by < count:
        total = _binary(em, "add", total, moved(total, by))
        by *= 2
    return total


def _less(em: Emitter, xs: Values, ys: Values) -> Instruction:
    """Whether ``xs`` are less than ``ys``, element by element. A later key counts where those before it are equal."""
    found: Instruction | None = None
    for x, y in zip(reversed(xs), reversed(ys), strict=True):
        less = _compare(em, x, y, "LT")
        if found is not None:
            less = _binary(em, "or", less, _binary(em, "and", _compare(em, x, y, "EQ"), found))
        found = less
    assert found is not None
    return found


def count_less(
    em: Emitter, lines: Values, keys: Sequence[SortKey], wanted: Values, *, or_equal: bool = False
) -> Instruction:
    """How many of the sorted ``lines``, one for each of ``keys``, are less than each of ``wanted``, by bisection."""
    (length,), dims = lines[0].shape.dims, wanted[0].shape.dims

    def halve(em: Emitter, number: Instruction, carried: Values, fixed: Values) -> Values:
        low, high = carried
        lines, wanted = fixed[: len(fixed) // 2], fixed[len(fixed) // 2 :]
        middle = _binary(em, "shift-right-logical", _binary(em, "add", low, high), em.splat(em.index(1), dims))
        inside = _compare(em, low, high, "LT")
        at = _binary(em, "minimum", middle, em.splat(em.index(length - 1), dims))
        found = [key_array(em, pick(em, x, at), key) for x, key in zip(lines, keys, strict=True)]
        less = em.add("not", inside.shape, _less(em, wanted, found)) if or_equal else _less(em, found, wanted)
        up = _binary(em, "and", inside, less)
        down = _binary(em, "and", inside, em.add("not", less.shape, less))
        after = _binary(em, "add", middle, em.splat(em.index(1), dims))
        return [em.select(up, after, low), em.select(down, middle, high)]

    none, all_ = (em.splat(em.index(x), dims) for x in (0, length))
    return repeat(em, length.bit_length(), [none, all_], [*lines, *wanted], halve)[0]


# -- the search ----------------------------------------------------------------------------------------------------


def digit_bits(r: int, k: int) -> int:
    """Bits of the key that one sum over ``k`` devices decides, counts for all values of them at once: eight, where
    those are few beside a shard of ``r``, for the time that a sum takes; else four, for the bytes."""
    return 8 if 1024 * (k - 1) <= r else 4


@dataclass(frozen=True, slots=True)
class ShardCuts:
    """``bounds[d, j]`` of the sorted shard of device d is where its share of device j's chunk begins; a last column has
    the sizes of the shards. The same on all devices."""

    bounds: Instruction
    devices: int


def cut_shards(em: Emitter, lines: Values, keys: Sequence[SortKey], atoms: Atoms, n: int) -> ShardCuts:
    """Where to cut the shards of ``n`` elements, sorted by ``keys``, in chunks over ``atoms``; padding is last.

    ``lines`` has the elements of each key.
    """
    k, (r,) = em.table.extent(atoms), lines[0].shape.dims
    index, m = em.index_type, k - 1
    chunks = _line(em, k, index)
    rest = _binary(em, "subtract", em.splat(em.index(n), (k,)), _scaled(em, chunks, r))
    sizes = _clamped(em, rest, em.splat(em.index(r), (k,)))
    limit = em.reshape(em.dynamic_slice(sizes, 0, em.coordinate(atoms), 1), ())
    ranks = _binary(em, "minimum", _scaled(em, _line(em, m, index, 1), r), em.splat(em.index(n), (m,)))
    found: Values = [em.splat(em.zero(kind), (m,)) for kind in map(_kind, keys)]
    for place in range(len(keys)):
        found = _find_digits(em, place, found, lines, keys, ranks, limit, atoms)
    less, upto = (
        _binary(em, "minimum", count_less(em, lines, keys, found, or_equal=e), em.splat(limit, (m,)))
        for e in (False, True)
    )
    own = em.concatenate([em.reshape(x, (1, 1, m)) for x in (less, _binary(em, "subtract", upto, less))], 1)
    whole = em.all_gather(own, 0, atoms)
    less, equal = (em.reshape(em.cut(whole, 1, i, i + 1), (k, m)) for i in range(2))
    zero = em.zero(index)
    (taken,) = em.reduce(em.reducers.get("add", index), [less], [zero], 0)
    wanted = _spread(em, _binary(em, "subtract", ranks, taken), (k, m), 1)
    mine = _clamped(em, _binary(em, "subtract", wanted, totals_before(em, equal)), equal)
    cuts = _binary(em, "add", less, mine)
    bounds = em.concatenate([em.splat(zero, (k, 1)), cuts, em.reshape(sizes, (k, 1))], 1)
    return ShardCuts(bounds, k)


def _kind(key: SortKey) -> DType:
    """The type of a key as an unsigned integer."""
    return DTYPES[f"u{8 * key.dtype.nbytes}"]


def _find_digits(
    em: Emitter,
    place: int,
    found: Values,
    lines: Values,
    keys: Sequence[SortKey],
    ranks: Instruction,
    limit: Instruction,
    atoms: Atoms,
) -> Values:
    """``found`` with all digits of key ``place``: the largest that no more than ``ranks`` elements are less than."""
    dtype, (m,) = _kind(keys[place]), ranks.shape.dims
    digit = digit_bits(lines[place].shape.dims[0], em.table.extent(atoms))
    values = (1 << digit) - 1
    grid = (m, values)

    def step(em: Emitter, number: Instruction, carried: Values, fixed: Values) -> Values:
        ranks, limit, *lines = fixed
        back = _binary(em, "multiply", em.plus(number, 1), em.index(digit))
        shift = em.add("convert", array_shape(dtype), _binary(em, "subtract", em.index(dtype.bits), back))
        digits = _binary(em, "shift-left", _line(em, values, dtype, 1), em.splat(shift, (values,)))
        wanted = [_spread(em, x, grid, 0) for x in carried]
        wanted[place] = _binary(em, "or", wanted[place], _spread(em, digits, grid, 1))
        less = count_less(em, lines, keys, [em.reshape(x, (m * values,)) for x in wanted])
        less = _binary(em, "minimum", less, em.splat(limit, less.shape.dims))
        less = em.reshape(em.all_reduce(less, atoms, "sum"), grid)
        fits = _compare(em, less, _spread(em, ranks, grid, 0), "LE")
        count = em.add("convert", array_shape(em.index_type, *grid), fits)
        (value,) = em.reduce(em.reducers.get("add", em.index_type), [count], [em.zero(em.index_type)], 1)
        value = em.add("convert", array_shape(dtype, m), value)
        chosen = _binary(em, "or", carried[place], _binary(em, "shift-left", value, em.splat(shift, (m,))))
        return [*carried[:place], chosen, *carried[place + 1 :]]

    return repeat(em, dtype.bits // digit, found, [ranks, limit, *lines], step)


def _scaled(em: Emitter, x: Instruction, by: int) -> Instruction:
    return _binary(em, "multiply", x, em.splat(em.index(by), x.shape.dims))


def _clamped(em: Emitter, x: Instruction, most: Instruction) -> Instruction:
    """At least 0 and at most ``most``."""
    zero = em.splat(em.zero(x.shape.dtype), x.shape.dims)
    return _binary(em, "minimum", _binary(em, "maximum", x, zero), most)
