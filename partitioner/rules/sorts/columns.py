"""Sorting along a split dimension by columns (Leighton, IEEE Transactions on Computers C-34, 1985).

The shards are k columns of r elements. Sort the columns; deal every column out to all (an all-to-all); sort; bring
blocks back (an all-to-all); sort. Then every element is less than (k - 1)^2 from its place: each device sorts so many
of its last elements together with its neighbour's first ones, two permutes. That holds for r >= 2 (k - 1)^2 and k a
divisor of r, so columns are filled up with elements that come last. Nothing depends on the data.

Elements that compare equal keep their order, for which their places travel along. An operand of places (arg-sorts
have one) serves as well; equal integers on their own nobody can tell apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import ml_dtypes

from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.groups import AxisPairs
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.types import DTYPES, DType, array_shape, tuple_shape
from shardc.partitioner.emit.layout import Atoms, AxisTable
from shardc.partitioner.reshard.rechunk import rechunk, total_sent
from shardc.partitioner.strategy.choose import SplitProblem, volume
from shardc.partitioner.strategy.rule import Local, LocalSite, all_factors, always
from shardc.sharding.rules.factor_rule import FactorKind, FactorRule, RuleBuilder

__all__ = ["COLUMN_SORTS", "place_type", "placed_operand", "repeated_sort", "rows_of_columns"]

#: Bytes sent that a byte weighs which a device sorts although others do, too.
_REPEATED = 0.25


def _near(r: int, k: int) -> int:
    """So many places from their own elements are at most, once columns are dealt."""
    return min(r // 2, (k - 1) ** 2)


def rows_of_columns(n: int, k: int) -> int:
    """Elements per column when ``n`` elements lie over ``k`` devices.

    >>> rows_of_columns(4096, 8), rows_of_columns(64, 8)
    (512, 104)
    """
    least = max(-(-n // k), 2 * (k - 1) ** 2, 1)
    return -(-least // k) * k


# -- what orders elements ------------------------------------------------------------------------------------------


def _largest(dtype: DType) -> int:
    return int(ml_dtypes.iinfo(dtype.numpy).max) if dtype.kind in ("signed", "unsigned") else -1


def place_type(n: int) -> DType:
    """The narrowest type for places of ``n`` elements, of padding up to as many, and one value beyond."""
    return next(DTYPES[t] for t in ("u8", "u16", "u32", "u64") if 2 * n < _largest(DTYPES[t]))


def placed_operand(op: Instruction) -> int | None:
    """The operand that tells every element's place along the sorted dimension."""
    (dim,) = op.attrs["dimensions"]
    for i, o in enumerate(op.operands):
        if o.opcode == "iota" and o.attrs["iota_dimension"] == dim and o.shape.dims[dim] <= _largest(o.shape.dtype):
            return i
    return None


def _last_of_all(op: Instruction) -> Any:
    """A value that no other one comes after, of a single operand of integers that are simply compared; else None."""
    root, dtype = op.attrs["to_apply"].root, op.operands[0].shape.dtype
    if len(op.operands) > 1 or root.opcode != "compare" or dtype.kind not in ("signed", "unsigned"):
        return None
    sides = [o.attrs["index"] for o in root.operands if o.opcode == "parameter"]
    direction = root.attrs["direction"]
    if sorted(sides) != [0, 1] or direction not in ("LT", "GT"):
        return None
    bounds = ml_dtypes.iinfo(dtype.numpy)
    return bounds.max if (direction == "LT") == (sides == [0, 1]) else bounds.min


def _with_places(before: Computation, where: int, dtype: DType, n: int) -> Computation:
    """``before``, then the smaller place, which is operand ``where``; places from ``n`` on come after all others."""
    b = Builder(f"{before.name}_in_place")
    given = [b.parameter(p.shape) for p in before.parameters]
    if 2 * where == len(given):
        given += [b.parameter(array_shape(dtype)) for _ in range(2)]
    turned = [given[i ^ 1] for i in range(len(given))]
    first, second = (_expand(b, before, values) for values in (given, turned))
    mine, other = given[2 * where], given[2 * where + 1]
    earlier = b.add("compare", mine, other, direction="LT")
    decided = b.add("or", first, b.add("and", b.add("not", second), earlier))
    limit = b.constant(n, dtype)
    inside = [b.add("compare", place, limit, direction="LT") for place in (mine, other)]
    return b.build(b.add("select", b.add("and", *inside), decided, earlier))


def _expand(b: Builder, body: Computation, operands: Sequence[Instruction]) -> Instruction:
    """The value of a computation on ``operands``, its instructions written once more."""
    new: dict[Instruction, Instruction] = {p: operands[p.attrs["index"]] for p in body.parameters}
    for i in body:
        if i.opcode != "parameter":
            new[i] = b.append(i.replace(operands=tuple(new[o] for o in i.operands)))
    return new[body.root]


# -- the rule ------------------------------------------------------------------------------------------------------


def _rule(op: Instruction, *, places: bool) -> FactorRule | None:
    needs_places = _last_of_all(op) is None and placed_operand(op) is None
    if needs_places != places:
        return None
    return _equation(op.operands[0].shape.dims, op.attrs["dimensions"][0], len(op.operands))


@lru_cache(maxsize=4096)
def _equation(dims: tuple[int, ...], along: int, count: int) -> FactorRule:
    """All arrays are alike."""
    b = RuleBuilder([dims] * count, [dims] * count)
    for d, n in enumerate(dims):
        kind = FactorKind.PERMUTATION if d == along else FactorKind.PASS_THROUGH
        b.add(n, [(t, d) for t in range(2 * count)], kind)
    return b.build()


def repeated_sort(table: AxisTable, problem: SplitProblem, factors: tuple[Atoms, ...]) -> tuple[float, int]:
    """What it weighs that devices sort the same elements, which were split: work and memory that a gather costs and its
    bytes do not tell."""
    rule = problem.rule
    split = max(math.prod(table.extent(atoms) for atoms in o.layouts[0].dims) for o in problem.operands)
    whole, mine = math.prod(f.size for f in rule.factors), volume(table, rule, factors)
    more = max(0.0, mine - whole / split)
    return (_REPEATED * more * sum(o.nbytes for o in problem.operands if not o.free), 0)


def _sends(table: AxisTable, problem: SplitProblem, factors: tuple[Atoms, ...], *, places: bool) -> tuple[float, int]:
    """Two exchanges of shards, one shard between neighbours, and what makes columns chunks again."""
    (along,) = problem.rule.of_kind(FactorKind.PERMUTATION)
    k, n = table.extent(factors[along]), problem.rule.factors[along].size
    if k == 1:
        return repeated_sort(table, problem, factors)
    lines = 1
    for f, (factor, atoms) in enumerate(zip(problem.rule.factors, factors, strict=True)):
        lines *= 1 if f == along else -(-factor.size // table.extent(atoms))
    r = rows_of_columns(n, k)
    sizes = [nbytes for _, nbytes, _ in problem.results]
    ends, permutes = total_sent(n, k, r, -(-n // k))
    near, place = _near(r, k), place_type(r * k).nbytes if places else 0
    sent = (2 * r * (k - 1) / k + near) * (sum(sizes) + place) + (near + ends) * sum(sizes)
    return (lines * sent, (4 + permutes) * len(sizes) + 3 * places)


# -- the instructions ----------------------------------------------------------------------------------------------


def _emit(site: LocalSite) -> list[Instruction]:
    (dim,) = site.op.attrs["dimensions"]
    atoms = site.operand_atoms(0, dim)
    if not atoms:
        return site.emit()
    k, n = site.em.table.extent(atoms), site.operand_dims(0)[dim]
    r = rows_of_columns(n, k)
    columns, before = _columns(site, dim, r)
    sort = _SortedColumns(site, dim, atoms, r, before)
    made = sort.by_neighbours(sort.dealt(columns))
    return [rechunk(site.em, x, n, (dim, atoms, -(-n // k))) for x in made[: len(site.shapes)]]


def _columns(site: LocalSite, dim: int, r: int) -> tuple[list[Instruction], Computation]:
    """The operands in columns of ``r``, filled up with what comes last, and what orders their elements."""
    em, op, before = site.em, site.op, site.op.attrs["to_apply"]
    n = site.operand_dims(0)[dim]
    last = _last_of_all(op)
    if last is not None:
        return [_fill(site, 0, dim, r, last)], before
    where = placed_operand(op)
    if where is not None:
        dtype = op.operands[where].shape.dtype
        fill = {where: _largest(dtype)}
        columns = [_fill(site, i, dim, r, fill.get(i)) for i in range(len(op.operands))]
        return columns, _with_places(before, where, dtype, n)
    atoms = site.operand_atoms(0, dim)
    dtype = place_type(r * em.table.extent(atoms))
    places = em.global_index(site.operands[0].shape.dims, dim, atoms, dtype)
    columns = [_fill(site, i, dim, r, None) for i in range(len(op.operands))]
    columns.append(_extend(site, places, dim, r, _largest(dtype)))
    return columns, _with_places(before, len(op.operands), dtype, n)


def _fill(site: LocalSite, operand: int, dim: int, r: int, value: Any) -> Instruction:
    """An operand in a column of ``r``; padding is ``value``, or does not matter."""
    x = site.operands[operand]
    if value is not None:
        x = site.masked(operand, (dim,), site.em.scalar(value, x.shape.dtype))
    return _extend(site, x, dim, r, 0 if value is None else value)


def _extend(site: LocalSite, x: Instruction, dim: int, r: int, value: Any) -> Instruction:
    more = r - x.shape.dims[dim]
    if not more:
        return x
    dims = (*x.shape.dims[:dim], more, *x.shape.dims[dim + 1 :])
    return site.em.concatenate([x, site.em.splat(site.em.scalar(value, x.shape.dtype), dims)], dim)


@dataclass(frozen=True, slots=True)
class _SortedColumns:
    """Columns of ``r`` elements along ``dim``, one per device over ``atoms``, in the order of ``before``."""

    site: LocalSite
    dim: int
    atoms: Atoms
    r: int
    before: Computation

    def dealt(self, columns: list[Instruction]) -> list[Instruction]:
        """Elements less than half a column from their places."""
        columns = self.exchanged(self.sorted(columns), by_element=True)
        return self.sorted(self.exchanged(self.sorted(columns), by_element=False))

    def by_neighbours(self, columns: list[Instruction]) -> list[Instruction]:
        """Each device puts what it and the device before it have of the boundary between them in order."""
        em, dim, r = self.site.em, self.dim, self.r
        k = em.table.extent(self.atoms)
        near = _near(r, k)
        first = [em.cut(x, dim, 0, near) for x in columns]
        last = [em.cut(x, dim, r - near, r) for x in columns]
        both = zip([self.shifted(x, 1) for x in last], first, strict=True)
        mixed = self.sorted([em.concatenate(list(pair), dim) for pair in both])
        out = []
        for column, x, low, high in zip(columns, mixed, first, last, strict=True):
            kept = em.select(self.is_at(0, low), low, em.cut(x, dim, near, 2 * near))
            back = self.shifted(em.cut(x, dim, 0, near), -1)
            between = [em.cut(column, dim, near, r - near)] if 2 * near < r else []
            out.append(em.concatenate([kept, *between, em.select(self.is_at(k - 1, high), high, back)], dim))
        return out

    def sorted(self, columns: list[Instruction]) -> list[Instruction]:
        shape = tuple_shape(*(x.shape.plain for x in columns)) if len(columns) > 1 else columns[0].shape.plain
        em = self.site.em
        made = em.add("sort", shape, *columns, dimensions=(self.dim,), is_stable=False, to_apply=self.before)
        if len(columns) == 1:
            return [made]
        return [em.add("get-tuple-element", x.shape.plain, made, index=i) for i, x in enumerate(columns)]

    def exchanged(self, columns: list[Instruction], *, by_element: bool) -> list[Instruction]:
        """Of each column, every k-th element (or a block of them) to every device."""
        em, dim = self.site.em, self.dim
        k = em.table.extent(self.atoms)
        out = []
        for x in columns:
            before, after = x.shape.dims[:dim], x.shape.dims[dim + 1 :]
            parts = (self.r // k, k) if by_element else (k, self.r // k)
            x = em.all_to_all(em.reshape(x, (*before, *parts, *after)), dim + by_element, self.atoms)
            out.append(em.reshape(x, (*before, self.r, *after)))
        return out

    def shifted(self, x: Instruction, by: int) -> Instruction:
        """What the device ``by`` before has."""
        table = self.site.em.table
        k = table.extent(self.atoms)
        pairs = tuple((i, i + by) for i in range(k) if 0 <= i + by < k)
        return self.site.em.permute(x, AxisPairs(table.mesh, table.axes(self.atoms), pairs))

    def is_at(self, position: int, like: Instruction) -> Instruction:
        em = self.site.em
        here = em.add("compare", array_shape("pred"), em.coordinate(self.atoms), em.index(position), direction="EQ")
        return em.splat(here, like.shape.dims)


#: Ways to sort along a split dimension: with places that travel along, and where they need not.
COLUMN_SORTS = tuple(
    Local(
        "columns dealt out and merged",
        _emit,
        all_factors,
        rule=partial(_rule, places=places),
        sends=always(partial(_sends, places=places)),
        sends_by="all-to-all",
    )
    for places in (False, True)
)
