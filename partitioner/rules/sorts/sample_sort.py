"""Sorting one line along a split dimension by an exchange of what is in the wrong chunk.

Shards are sorted; exact splitters (`splitters`) say how much of each goes to which device; each part goes there once,
and the runs that arrive are merged. Runs stand in the order of their devices, so equal elements keep theirs and no
places travel. What a device sends another one has no bound but a shard, and programs have fixed shapes: parts are sent
in rounds of somewhat more than a k-th of a shard. Elements that lie in no order take one round; the worst takes k, as
many bytes as a gather, in no more memory. Leighton's columns (`columns`) send twice the shards and places, always, and
take any comparator.
"""

from __future__ import annotations

import math
from functools import lru_cache

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.opset import Window, WindowDim
from shardc.hlo.ir.sort_keys import SortKey, sort_keys
from shardc.hlo.ir.types import array_shape, tuple_shape
from shardc.partitioner.emit.emitter import Emitter
from shardc.partitioner.emit.layout import Atoms, AxisTable
from shardc.partitioner.rules.sorts.splitters import (
    ShardCuts,
    cut_shards,
    digit_bits,
    key_array,
    last_value,
    pick,
    repeat,
    totals_before,
)
from shardc.partitioner.strategy.choose import Sends, SplitProblem
from shardc.partitioner.strategy.rule import Local, LocalSite, all_factors
from shardc.sharding.rules.factor_rule import FactorKind, FactorRule, RuleBuilder

__all__ = ["SAMPLE_SORT"]

#: Devices up to which parts are cut out one by one.
_FEW_PARTS = 16


def _keys(op: Instruction) -> tuple[SortKey, ...] | None:
    """The keys of a sort whose elements can be told from padding."""
    keys = sort_keys(op.attrs["to_apply"])
    return keys if keys is not None and all(last_value(k) is not None for k in keys) else None


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


def _sends(op: Instruction, rule: FactorRule) -> Sends:
    """One exchange of parts; counts for all values of each digit of the keys."""
    nbytes = sum(k.dtype.nbytes for k in _keys(op) or ())

    def sends(table: AxisTable, problem: SplitProblem, factors: tuple[Atoms, ...]) -> tuple[float, int]:
        (along,) = problem.rule.of_kind(FactorKind.PERMUTATION)
        k, n = table.extent(factors[along]), problem.rule.factors[along].size
        if k == 1:
            return (0.0, 0)
        r = -(-n // k)
        digit, part = digit_bits(r, k), part_size(r, k)
        digits = 8 * nbytes // digit
        counts = 2 * (k - 1) / k * digits * (k - 1) * ((1 << digit) - 1) * 4 + (k - 1) * 2 * (k - 1) * 4
        sent = (k - 1) * part * sum(size for _, size, _ in problem.results)
        return (sent + counts, len(problem.results) + digits + 1)

    return sends


def _emit(site: LocalSite) -> list[Instruction]:
    (dim,) = site.op.attrs["dimensions"]
    atoms = site.operand_atoms(0, dim)
    if not atoms:
        return site.emit()
    em, keys = site.em, _keys(site.op)
    assert keys is not None
    n, dims = site.operand_dims(0)[dim], site.operands[0].shape.dims
    fills = {k.operand: em.scalar(last_value(k), k.dtype) for k in keys}  # type: ignore[arg-type]
    r = dims[dim]
    lines = []
    for i, x in enumerate(site.operands):
        x = site.masked(i, (dim,), fills[i]) if i in fills else x
        lines.append(em.reshape(x, (r,)))
    lines = _sorted(site, lines)
    cuts = cut_shards(em, [key_array(em, lines[k.operand], k) for k in keys], atoms, n)
    lines = _exchanged(em, lines, cuts, atoms)
    if em.table.is_uneven(atoms, n):
        inside = _inside(em, r, atoms, n)
        for i, fill in fills.items():
            lines[i] = em.select(inside, lines[i], em.splat(fill, (r,)))
    return [em.reshape(x, dims) for x in _sorted(site, lines)]


def _inside(em: Emitter, r: int, atoms: Atoms, n: int) -> Instruction:
    """Which places of a chunk are no padding."""
    places = em.global_index((r,), 0, atoms)
    return em.add("compare", array_shape("pred", r), places, em.splat(em.index(n), (r,)), direction="LT")


def _sorted(site: LocalSite, lines: list[Instruction]) -> list[Instruction]:
    em, attrs = site.em, {**site.op.attrs, "dimensions": (0,), "is_stable": True}
    if len(lines) == 1:
        return [em.add("sort", lines[0].shape.plain, lines[0], **attrs)]
    made = em.add("sort", tuple_shape(*(x.shape.plain for x in lines)), *lines, **attrs)
    return [em.add("get-tuple-element", x.shape.plain, made, index=i) for i, x in enumerate(lines)]


# -- the exchange --------------------------------------------------------------------------------------------------


def _exchanged(em: Emitter, lines: list[Instruction], cuts: ShardCuts, atoms: Atoms) -> list[Instruction]:
    """This device's chunk: the runs that the devices have of it, one after the other."""
    k, (r,) = cuts.devices, lines[0].shape.dims
    part, index, me = part_size(r, k), em.index_type, em.coordinate(atoms)
    first, past = em.cut(cuts.bounds, 1, 0, k), em.cut(cuts.bounds, 1, 1, k + 1)
    counts = em.add("subtract", first.shape.plain, past, first)
    turns = _most_parts(em, counts, part)
    received = em.reshape(em.dynamic_slice(counts, 1, me, 1), (k,))
    begins = totals_before(em, received)
    ends = em.add("add", begins.shape, begins, received)
    starts = em.reshape(em.dynamic_slice(first, 0, me, 1), (k,))
    places = em.add("iota", array_shape(index, r), iota_dimension=0)
    run = _run_of(em, places, ends)
    within = em.add("subtract", places.shape, places, pick(em, begins, run))
    own_start = em.reshape(em.dynamic_slice(starts, 0, me, 1), ())
    mine = em.add("add", within.shape, within, em.splat(own_start, (r,)))
    out = [pick(em, x, _limited(em, mine, r)) for x in lines]

    def step(
        em: Emitter, number: Instruction, carried: list[Instruction], fixed: list[Instruction]
    ) -> list[Instruction]:
        starts, run, within, *lines = fixed
        gone = em.add("multiply", number.shape, number, em.index(part))
        starts = em.add("add", starts.shape, starts, em.splat(gone, (k,)))
        at = em.add("subtract", within.shape, within, em.splat(gone, (r,)))
        arrives = em.add(
            "and",
            array_shape("pred", r),
            _is(em, at, em.splat(em.index(0), (r,)), "GE"),
            _is(em, at, em.splat(em.index(part), (r,)), "LT"),
        )
        other = _is(em, run, em.splat(em.coordinate(atoms), (r,)), "NE")
        arrives = em.add("and", arrives.shape, arrives, other)
        base = em.add("multiply", run.shape, run, em.splat(em.index(part), (r,)))
        place = _limited(em, em.add("add", at.shape, at, base), k * part)
        made = []
        for x, before in zip(lines, carried, strict=True):
            sent = em.all_to_all(_parts(em, x, starts, part), 0, atoms)
            made.append(em.select(arrives, pick(em, em.reshape(sent, (k * part,)), place), before))
        return made

    longer = [em.resize(x, 0, r + part) for x in lines]
    return repeat(em, turns, out, [starts, run, within, *longer], step)


def _is(em: Emitter, x: Instruction, y: Instruction, direction: str) -> Instruction:
    return em.add("compare", array_shape("pred", *x.shape.dims), x, y, direction=direction)


def _limited(em: Emitter, places: Instruction, size: int) -> Instruction:
    """Places that lie in a line of ``size``."""
    zero, last = (em.splat(em.index(x), places.shape.dims) for x in (0, size - 1))
    return em.add("minimum", places.shape, em.add("maximum", places.shape, places, zero), last)


def _most_parts(em: Emitter, counts: Instruction, part: int) -> Instruction:
    """How many parts the largest exchange between two devices has."""
    k, index = counts.shape.dims[0], em.index_type
    row, column = (em.add("iota", counts.shape.plain, iota_dimension=d) for d in range(2))
    sent = em.select(_is(em, row, column, "NE"), counts, em.splat(em.zero(index), (k, k)))
    body = em.reducers.get("maximum", index)
    most = em.add("reduce", array_shape(index), sent, em.zero(index), dimensions=(0, 1), to_apply=body)
    return em.add("divide", most.shape, em.plus(most, part - 1), em.index(part))


def _run_of(em: Emitter, places: Instruction, ends: Instruction) -> Instruction:
    """The run that each place lies in: how many end before it; the last one for padding."""
    (k,), (r,), index = ends.shape.dims, places.shape.dims, em.index_type
    if k > _FEW_PARTS:
        ones = em.splat(em.index(1), (k - 1,))
        marks = em.add(
            "scatter",
            array_shape(index, r),
            em.splat(em.index(0), (r,)),
            em.reshape(em.cut(ends, 0, 0, k - 1), (k - 1, 1)),
            ones,
            update_window_dims=(),
            inserted_window_dims=(0,),
            scatter_dims_to_operand_dims=(0,),
            index_vector_dim=1,
            to_apply=em.reducers.get("add", index),
        )
        upto = Window((WindowDim(r, pad_low=r - 1),))
        add = em.reducers.get("add", index)
        return em.add("reduce-window", marks.shape, marks, em.zero(index), window=upto, to_apply=add)
    total: Instruction | None = None
    for run in range(k - 1):
        end = em.reshape(em.cut(ends, 0, run, run + 1), ())
        after = em.add("convert", places.shape, _is(em, places, em.splat(end, (r,)), "GE"))
        total = after if total is None else em.add("add", places.shape, total, after)
    assert total is not None
    return total


def _parts(em: Emitter, x: Instruction, starts: Instruction, part: int) -> Instruction:
    """One part from each of ``starts`` on."""
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
)
"""A way for the sort of one line whose comparator has keys."""
