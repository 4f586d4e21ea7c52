"""Sorting one line along a split dimension by an exchange of what is in the wrong chunk.

Shards are sorted; exact splitters (`splitters`) say how much of each goes to which device; each part goes there once,
and the runs that arrive are merged. Runs stand in the order of their devices, so equal elements keep theirs and no
places travel. What a device sends another one has no bound but a shard, and programs have fixed shapes: parts are sent
in rounds of somewhat more than a k-th of a shard. Elements that lie in no order take one round; the worst takes k, as
many bytes as a gather, in no more memory. A round goes out in slices, whose buffers are small beside a shard.
Two devices exchange as much one way as the other, and swap it in place.
Leighton's columns (`columns`) send twice the shards and places, always, and take any comparator.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.sort_keys import SortKey, sort_keys
from shardc.hlo.ir.types import DType, array_shape, tuple_shape
from shardc.partitioner.emit.emitter import Emitter
from shardc.partitioner.emit.layout import Atoms, AxisTable
from shardc.partitioner.emit.repeat import Values, repeat
from shardc.partitioner.rules.dynamic import as_type
from shardc.partitioner.rules.sorts.columns import place_type, placed_operand, repeated_sort
from shardc.partitioner.rules.sorts.splitters import (
    ShardCuts,
    cut_shards,
    digit_bits,
    last_value,
    totals_before,
)
from shardc.partitioner.strategy.choose import Sends, SplitProblem
from shardc.partitioner.strategy.rule import Local, LocalSite, all_factors
from shardc.sharding.rules.factor_rule import FactorKind, FactorRule, RuleBuilder

__all__ = ["SAMPLE_SORT"]

#: Devices up to which parts are cut out one by one.
_FEW_PARTS = 16
#: Exchanges that a round's parts take, and elements that each has at least: buffers are a slice, not a shard.
_SLICES, _LEAST = 8, 1 << 15


def _keys(op: Instruction) -> tuple[SortKey, ...] | None:
    return sort_keys(op.attrs["to_apply"])


def _can_pad(keys: Iterable[SortKey]) -> bool:
    """Whether elements can be distinguished from padding."""
    return all(last_value(k) is not None for k in keys)


def _rule(op: Instruction) -> FactorRule | None:
    dims, (along,) = op.operands[0].shape.dims, op.attrs["dimensions"]
    if dims[along] < 2 or math.prod(dims) != dims[along] or _keys(op) is None:
        return None
    return _equation(dims, along, len(op.operands))


@lru_cache(maxsize=4096)
def _equation(dims: tuple[int, ...], along: int, count: int) -> FactorRule:
    b = RuleBuilder([dims] * count, [dims] * count)
    for d, n in enumerate(dims):
        kind = FactorKind.PERMUTATION if d == along else FactorKind.NEED_REPLICATION
        b.add(n, [(t, d) for t in range(2 * count)], kind)
    return b.build()


def part_size(r: int, k: int) -> int:
    """Elements of a part: eight standard deviations more than what is expected of elements in no order.

    >>> part_size(1 << 19, 2), part_size(10, 4)
    (266240, 10)
    """
    share = -(-r // k)
    return min(r, share + 8 * math.isqrt(share))


def slices_of(part: int) -> int:
    """How many exchanges send a part.

    >>> slices_of(1 << 20), slices_of(1 << 10)
    (8, 1)
    """
    return max(1, min(_SLICES, part // _LEAST))


def _narrow(op: Instruction) -> tuple[int, DType] | None:
    """The operand that is every element's place, which no key reads, and a narrower type for it; else None."""
    where = placed_operand(op)
    if where is None or where in {k.operand for k in _keys(op) or ()}:
        return None
    dtype = place_type(op.operands[where].shape.dims[op.attrs["dimensions"][0]])
    return (where, dtype) if dtype.nbytes < op.operands[where].shape.dtype.nbytes else None


def _sends(op: Instruction, rule: FactorRule) -> Sends:
    """One exchange of parts; counts for all values of each digit of the keys."""
    keys = _keys(op) or ()
    nbytes = sum(k.dtype.nbytes for k in keys)
    narrow = _narrow(op)
    saved = op.operands[narrow[0]].shape.dtype.nbytes - narrow[1].nbytes if narrow else 0

    def sends(table: AxisTable, problem: SplitProblem, factors: tuple[Atoms, ...]) -> tuple[float, int]:
        (along,) = problem.rule.of_kind(FactorKind.PERMUTATION)
        k, n = table.extent(factors[along]), problem.rule.factors[along].size
        if k == 1:
            return repeated_sort(table, problem, factors)
        if table.is_uneven(factors[along], n) and not _can_pad(keys):
            return (math.inf, 0)
        r = -(-n // k)
        digit, part = digit_bits(r, k), part_size(r, k)
        digits = 8 * nbytes // digit
        counts = 2 * (k - 1) / k * digits * (k - 1) * ((1 << digit) - 1) * 4 + (k - 1) * 2 * (k - 1) * 4
        sent = (k - 1) * part * (sum(size for _, size, _ in problem.results) - saved)
        return (sent + counts, len(problem.results) + digits + 1)

    return sends


def _emit(site: LocalSite) -> Values:
    (dim,) = site.op.attrs["dimensions"]
    atoms = site.operand_atoms(0, dim)
    if not atoms:
        return site.emit()
    em, keys = site.em, _keys(site.op)
    assert keys is not None
    n, dims = site.operand_dims(0)[dim], site.operands[0].shape.dims
    uneven = em.table.is_uneven(atoms, n)
    padded = keys if uneven else ()
    fills = {k.operand: em.scalar(last_value(k), k.dtype) for k in padded}  # type: ignore[arg-type]
    r = dims[dim]
    lines, before = [], site.op.attrs["to_apply"]
    for i, x in enumerate(site.operands):
        x = site.masked(i, (dim,), fills[i]) if i in fills else x
        lines.append(em.reshape(x, (r,)))
    narrow = _narrow(site.op)
    if narrow is not None:
        where, dtype = narrow
        lines[where] = as_type(em, lines[where], dtype)
        before = _retyped(before, where, dtype)
    lines = _sorted(em, lines, before)
    cuts = cut_shards(em, [lines[k.operand] for k in keys], keys, atoms, n)
    lines = (_swapped if cuts.devices == 2 else _exchanged)(em, lines, cuts, atoms)
    if uneven:
        inside = _inside(em, r, atoms, n)
        for i, fill in fills.items():
            lines[i] = em.select(inside, lines[i], em.splat(fill, (r,)))
    made = _sorted(em, lines, before)
    return [em.reshape(as_type(em, x, s.dtype), dims) for x, s in zip(made, site.shapes, strict=True)]


def _retyped(before: Computation, where: int, dtype: DType) -> Computation:
    """A comparator whose parameters of operand ``where``, which it does not read, are of another type."""
    new: dict[Instruction, Instruction] = {}
    for i in before:
        if i.opcode == "parameter" and i.attrs["index"] // 2 == where:
            new[i] = i.replace(shape=array_shape(dtype))
        else:
            new[i] = i.replace(operands=tuple(new[o] for o in i.operands))
    return Computation(f"{before.name}_with_{dtype}", new.values(), new[before.root])


def _inside(em: Emitter, r: int, atoms: Atoms, n: int) -> Instruction:
    """Which places of a chunk are no padding."""
    places = em.global_index((r,), 0, atoms)
    return em.add("compare", array_shape("pred", r), places, em.splat(em.index(n), (r,)), direction="LT")


def _sorted(em: Emitter, lines: Values, before: Computation) -> Values:
    if len(lines) == 1:
        return [em.add("sort", lines[0].shape.plain, *lines, dimensions=(0,), is_stable=True, to_apply=before)]
    shape = tuple_shape(*(x.shape.plain for x in lines))
    made = em.add("sort", shape, *lines, dimensions=(0,), is_stable=True, to_apply=before)
    return [em.add("get-tuple-element", x.shape.plain, made, index=i) for i, x in enumerate(lines)]


# -- the exchange --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Runs:
    """What the devices have of this one's chunk: ``starts`` in their shards, ``counts``, and ``begins`` in the chunk.

    Parts of ``part`` elements are read and written whole: where one would end behind its shard of ``r`` it begins as
    much earlier, and chunks have room for a part at both ends.
    """

    r: int
    part: int
    starts: Instruction
    counts: Instruction
    begins: Instruction

    @property
    def arrays(self) -> Values:
        return [self.starts, self.counts, self.begins]

    def within(self, arrays: Values) -> _Runs:
        """The same inside of a loop."""
        return _Runs(self.r, self.part, *arrays)

    def empty(self, em: Emitter, like: Instruction) -> Instruction:
        return em.splat(em.zero(like.shape.dtype), (self.r + 2 * self.part,))

    def put(self, em: Emitter, chunks: Values, parts: Values, run: Instruction, number: Instruction) -> Values:
        """``chunks`` with part ``number`` of a run."""
        gone = em.add("multiply", number.shape, number, em.index(self.part))
        start, count, begin = (_element(em, x, run) for x in self.arrays)
        start = _binary(em, "add", start, gone)
        early = _binary(em, "subtract", start, _binary(em, "minimum", start, em.index(self.r - self.part)))
        early = _binary(em, "minimum", early, em.index(self.part))
        left = _binary(em, "subtract", count, gone)
        places = em.add("iota", array_shape(em.index_type, self.part), iota_dimension=0)
        within = _binary(em, "subtract", places, em.splat(early, (self.part,)))
        inside = _binary(
            em,
            "and",
            _is(em, within, em.splat(em.index(0), (self.part,)), "GE"),
            _is(em, within, em.splat(left, (self.part,)), "LT"),
        )
        to = _binary(em, "minimum", _binary(em, "add", begin, gone), em.index(self.r))
        to = _binary(em, "subtract", em.plus(to, self.part), early)
        out = []
        for chunk, part in zip(chunks, parts, strict=True):
            there = em.dynamic_slice(chunk, 0, to, self.part)
            out.append(em.add("dynamic-update-slice", chunk.shape, chunk, em.select(inside, part, there), to))
        return out


def _exchanged(em: Emitter, lines: Values, cuts: ShardCuts, atoms: Atoms) -> Values:
    """This device's chunk: the runs that the devices have of it, one after the other."""
    k, (r,), me = cuts.devices, lines[0].shape.dims, em.coordinate(atoms)
    slices = slices_of(part_size(r, k))
    part = -(-part_size(r, k) // slices)
    first, past = em.cut(cuts.bounds, 1, 0, k), em.cut(cuts.bounds, 1, 1, k + 1)
    sizes = _binary(em, "subtract", past, first)
    starts, counts = (em.reshape(em.dynamic_slice(x, 1, me, 1), (k,)) for x in (first, sizes))
    runs = _Runs(r, part, starts, counts, totals_before(em, counts))
    own = em.add("divide", me.shape, em.plus(_element(em, counts, me), part - 1), em.index(part))

    def keep(em: Emitter, number: Instruction, chunks: Values, fixed: Values) -> Values:
        inside, me = runs.within(fixed[:3]), em.coordinate(atoms)
        gone = em.add("multiply", number.shape, number, em.index(part))
        at = _binary(em, "add", _element(em, inside.starts, me), gone)
        return inside.put(em, chunks, [em.dynamic_slice(x, 0, at, part) for x in fixed[3:]], me, number)

    def exchange(em: Emitter, number: Instruction, chunks: Values, fixed: Values) -> Values:
        starts, sent = fixed[3], fixed[4:]
        gone = em.add("multiply", number.shape, number, em.index(part))
        at = _binary(em, "add", starts, em.splat(gone, (k,)))
        arrived = [em.all_to_all(_parts(em, x, at, part), 0, atoms) for x in sent]

        def put(em: Emitter, run: Instruction, chunks: Values, fixed: Values) -> Values:
            number, *fixed = fixed
            parts = [em.reshape(em.dynamic_slice(x, 0, run, 1), (part,)) for x in fixed[3:]]
            return runs.within(fixed[:3]).put(em, chunks, parts, run, number)

        return repeat(em, k, chunks, [number, *fixed[:3], *arrived], put)

    def round_of(em: Emitter, number: Instruction, chunks: Values, fixed: Values) -> Values:
        def step(em: Emitter, slice_: Instruction, chunks: Values, fixed: Values) -> Values:
            before, *fixed = fixed
            return exchange(em, _binary(em, "add", before, slice_), chunks, fixed)

        if slices == 1:
            return exchange(em, number, chunks, fixed)
        before = em.add("multiply", number.shape, number, em.index(slices))
        return repeat(em, slices, chunks, [before, *fixed], step)

    others = _is(em, em.add("iota", counts.shape, iota_dimension=0), em.splat(me, (k,)), "NE")
    others_counts = em.select(others, counts, em.splat(em.zero(em.index_type), (k,)))
    mine = em.reshape(em.dynamic_slice(first, 0, me, 1), (k,))
    chunks = repeat(em, own, [runs.empty(em, x) for x in lines], [*runs.arrays, *lines], keep)
    given = [starts, others_counts, runs.begins, mine, *lines]
    chunks = repeat(em, _most_parts(em, sizes, part * slices), chunks, given, round_of)
    return [em.cut(x, 0, part, part + r) for x in chunks]


def _swapped(em: Emitter, lines: Values, cuts: ShardCuts, atoms: Atoms) -> Values:
    """This one's chunk of two devices, in the place of its shard.

    One sends what its shard ends with, the other what its shard begins with: as much, and in the order of the devices
    each run stands where the other one was. Windows of a slice are swapped, the last one as early as it has to lie
    within the runs; what was swapped before is kept. Only runs shorter than a window may stand elsewhere in it.
    """
    (r,), index, me = lines[0].shape.dims, em.index_type, em.coordinate(atoms)
    slices = slices_of(part_size(r, 2))
    part = -(-part_size(r, 2) // slices)
    other = em.add("subtract", me.shape, em.index(1), me)
    middle = em.reshape(em.cut(cuts.bounds, 1, 1, 2), (2,))
    count = em.reshape(em.cut(middle, 0, 1, 2), ())
    starts = em.concatenate([em.cut(middle, 0, 0, 1), em.splat(em.zero(index), (1,))], 0)
    mine, theirs = _element(em, starts, me), _element(em, starts, other)

    def step(em: Emitter, number: Instruction, lines: Values, fixed: Values) -> Values:
        count, mine, theirs, other = fixed
        gone = em.add("multiply", number.shape, number, em.index(part))
        last = _binary(em, "maximum", em.plus(count, -part), em.index(0))
        begin = _binary(em, "minimum", gone, last)
        at, early = _window(em, _binary(em, "add", mine, begin), r - part)
        _, their_early = _window(em, _binary(em, "add", theirs, begin), r - part)
        turn = em.plus(_binary(em, "subtract", their_early, early), part)
        places = em.add("iota", array_shape(index, part), iota_dimension=0)
        of_run = _binary(em, "add", places, em.splat(_binary(em, "subtract", begin, early), (part,)))
        left = _is(em, of_run, em.splat(gone, (part,)), "GE")
        inside = _binary(em, "and", left, _is(em, of_run, em.splat(count, (part,)), "LT"))
        out = []
        for x in lines:
            own = em.dynamic_slice(x, 0, at, part)
            row = em.reshape(own, (1, part))
            arrived = em.all_to_all(em.concatenate([row, row], 0), 0, atoms)
            from_other = em.reshape(em.dynamic_slice(arrived, 0, other, 1), (part,))
            turned = em.dynamic_slice(em.concatenate([from_other] * 3, 0), 0, turn, part)
            out.append(em.add("dynamic-update-slice", x.shape, x, em.select(inside, turned, own), at))
        return out

    rounds = em.add("divide", count.shape, em.plus(count, part - 1), em.index(part))
    return repeat(em, rounds, lines, [count, mine, theirs, other], step)


def _window(em: Emitter, wanted: Instruction, last: int) -> tuple[Instruction, Instruction]:
    """Where a window lies that would begin at ``wanted``, and by how much that is earlier."""
    at = _binary(em, "minimum", wanted, em.index(last))
    return at, _binary(em, "subtract", wanted, at)


def _binary(em: Emitter, opcode: str, x: Instruction, y: Instruction) -> Instruction:
    return em.add(opcode, x.shape.plain, x, y)


def _element(em: Emitter, x: Instruction, at: Instruction) -> Instruction:
    return em.reshape(em.dynamic_slice(x, 0, at, 1), ())


def _is(em: Emitter, x: Instruction, y: Instruction, direction: str) -> Instruction:
    return em.add("compare", array_shape("pred", *x.shape.dims), x, y, direction=direction)


def _most_parts(em: Emitter, counts: Instruction, part: int) -> Instruction:
    """How many parts the largest exchange between two devices has."""
    k, index = counts.shape.dims[0], em.index_type
    row, column = (em.add("iota", counts.shape.plain, iota_dimension=d) for d in range(2))
    sent = em.select(_is(em, row, column, "NE"), counts, em.splat(em.zero(index), (k, k)))
    body = em.reducers.get("maximum", index)
    most = em.add("reduce", array_shape(index), sent, em.zero(index), dimensions=(0, 1), to_apply=body)
    return em.add("divide", most.shape, em.plus(most, part - 1), em.index(part))


def _parts(em: Emitter, x: Instruction, starts: Instruction, part: int) -> Instruction:
    """One part from each of ``starts`` on; what would end behind ``x`` begins as much earlier."""
    (k,) = starts.shape.dims
    if k <= _FEW_PARTS:
        cut = [em.dynamic_slice(x, 0, em.reshape(em.cut(starts, 0, j, j + 1), ()), part) for j in range(k)]
        return em.concatenate([em.reshape(y, (1, part)) for y in cut], 0)
    return em.add(
        "gather",
        x.shape.with_dims((k, part)).plain,
        x,
        em.reshape(starts, (k, 1)),
        offset_dims=(1,),
        collapsed_slice_dims=(),
        start_index_map=(0,),
        index_vector_dim=1,
        slice_sizes=(part,),
    )


SAMPLE_SORT = Local(
    "shards cut at exact splitters, each part sent where it belongs, runs merged",
    _emit,
    all_factors,
    rule=_rule,
    sends=_sends,
    sends_by="all-to-all",
)
"""A way for the sort of one line whose comparator has keys."""
