"""LU factorisation with partial pivoting of a square matrix whose rows are split (right-looking, as ScaLAPACK's: Choi,
Dongarra, Ostrouchov, Petitet, Walker, Whaley, "The design and implementation of the ScaLAPACK LU, QR, and Cholesky
factorization routines", Scientific Programming 5, 1996).

An all-to-all gives each device a few columns of every panel of columns, with all their rows. Panel by panel, devices
gather it and factor it alike, so pivots are found in whole columns: they are LAPACK's. Then each device swaps rows of
its own columns and updates them. Rows above a panel are not sent: after each quarter of the panels the first rows are
put aside. At last an all-to-all brings rows back. Missing rows and columns become those of the identity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import array_shape
from shardc.partitioner.emit.emitter import Emitter
from shardc.partitioner.emit.layout import Atoms, AxisTable
from shardc.partitioner.emit.repeat import Values, repeat
from shardc.partitioner.rules.matrices.cholesky import count_failed
from shardc.partitioner.rules.matrices.matrix_writer import MatrixWriter
from shardc.partitioner.rules.matrices.split_rows import LEAST_BLOCK, pass_or_permute, rows_equation, split_rows, told
from shardc.partitioner.strategy.choose import SplitProblem
from shardc.partitioner.strategy.rule import Local, LocalSite, always
from shardc.sharding.rules.custom_call import LEAST_ROWS
from shardc.sharding.rules.factor_rule import FactorRule

__all__ = ["BLOCKED_LU", "STAGES", "Panels", "panel_sends"]

#: After every such part of the panels, finished rows are put aside.
STAGES = 4


@dataclass(frozen=True, slots=True)
class Panels:
    """``count`` panels of ``width`` columns from each of ``devices``."""

    devices: int
    count: int
    width: int

    @classmethod
    def of(cls, n: int, devices: int) -> Panels:
        """About as many as devices, of ``n`` columns."""
        count = STAGES * -(-devices // STAGES)
        return cls(devices, count, -(-n // (devices * count)))

    @property
    def columns(self) -> int:
        """Of one panel."""
        return self.devices * self.width

    @property
    def own(self) -> int:
        """Columns of a device."""
        return self.count * self.width

    @property
    def n(self) -> int:
        """Of the matrix that is filled up."""
        return self.devices * self.own

    def gathered(self) -> int:
        """Elements that a device sends while panels are gathered, without the rows that are put aside."""
        heights = sum(self.n - s * self.n // STAGES for s in range(STAGES))
        return (self.devices - 1) * self.width * (self.count // STAGES) * heights


def _rule(op: Instruction) -> FactorRule | None:
    """Rows are split in the matrix and its factors."""
    shapes, dims = tuple(op.shape.leaves()), op.operands[0].shape.dims
    if len(dims) != 2:
        return None
    return rows_equation(dims, tuple(s.dims for s in shapes)) if dims[0] == dims[1] >= LEAST_ROWS else None


def panel_sends(table: AxisTable, problem: SplitProblem, factors: tuple[Atoms, ...]) -> tuple[float, int]:
    """Two all-to-alls between rows and columns, and the gathers of the panels' rows that are not put aside."""
    atoms, size = split_rows(table, problem, factors)
    n, k = problem.operands[0].dims[-1], table.extent(atoms)
    if k == 1:
        return (0.0, 0)
    if n < k * LEAST_BLOCK:
        return (math.inf, 0)
    p, c = Panels.of(n, k), -(-n // k)
    return float(size * (p.gathered() + 2 * (k - 1) * c * p.own)), p.count + 2


# -- between rows and columns ------------------------------------------------------------------------------------------


def _to_columns(em: Emitter, x: Instruction, atoms: Atoms, p: Panels) -> Instruction:
    """All rows of own columns from all columns of own rows."""
    c = x.shape.dims[0]
    x = em.reshape(em.resize(x, 1, p.n), (c, p.count, p.devices, p.width))
    x = em.all_to_all(em.transpose(x, (2, 0, 1, 3)), 0, atoms)
    return em.reshape(x, (p.devices * c, p.own))


def _to_rows(em: Emitter, x: Instruction, atoms: Atoms, p: Panels, c: int) -> Instruction:
    """All columns of ``c`` own rows from all rows of own columns."""
    x = em.reshape(em.resize(x, 0, p.devices * c), (p.devices, c, p.count, p.width))
    x = em.transpose(em.all_to_all(x, 0, atoms), (1, 2, 0, 3))
    return em.reshape(x, (c, p.n))


def _filled_up(em: Emitter, x: Instruction, atoms: Atoms, p: Panels, n: int) -> Instruction:
    """Own columns with as many rows, and the identity behind row and column ``n``."""
    w = MatrixWriter(em)
    x = em.resize(x, 0, p.n)
    if p.n == n:
        return x
    at, local = w.index(x, -2), w.index(x, -1)
    number = w.binary("divide", local, w.number(p.width, local))
    place = w.binary("add", local, w.binary("multiply", number, w.number((p.devices - 1) * p.width, local)))
    start = em.scale(em.coordinate(atoms), p.width)
    column = w.binary("add", place, em.splat(start, place.shape.dims))
    same = w.select(w.compare(at, column, "EQ"), w.number(1, x))
    inside = em.add("maximum", at.shape, at, column)
    return em.select(w.compare(inside, w.number(n, at), "LT"), x, same)


# -- panels ------------------------------------------------------------------------------------------------------------


def _turned(em: Emitter, x: Instruction, by: Instruction) -> Instruction:
    """Row ``by`` first, and the rows before it behind all others."""
    return MatrixWriter(em).block(em.concatenate([x, x], 0), -2, by, x.shape.dims[0])


def _order(em: Emitter, pivots: Instruction, rows: int) -> Instruction:
    """Where each of ``rows`` rows comes from when rows 0, 1, ... are swapped with the (one-based) pivots."""

    def swap(em: Emitter, number: Instruction, carried: Values, fixed: Values) -> Values:
        (order,), (pivots,) = carried, fixed
        one = array_shape("s32", 1)
        pivot = em.add("subtract", one, em.dynamic_slice(pivots, 0, number, 1), em.splat(em.scalar(1, one.dtype), (1,)))
        other = em.reshape(pivot, ())
        mine, theirs = (em.dynamic_slice(order, 0, at, 1) for at in (number, other))
        for at, row in ((number, theirs), (other, mine)):
            order = em.add("dynamic-update-slice", order.shape, order, row, at)
        return [order]

    start = em.add("iota", array_shape("s32", rows), iota_dimension=0)
    return repeat(em, pivots.shape.dims[0], [start], [pivots], swap, name="pivots")[0]


def _taken(em: Emitter, x: Instruction, order: Instruction) -> Instruction:
    """Rows of ``x`` in another order."""
    return em.add(
        "gather",
        x.shape,
        x,
        em.reshape(order, (order.shape.dims[0], 1)),
        offset_dims=(1,),
        collapsed_slice_dims=(0,),
        start_index_map=(0,),
        index_vector_dim=1,
        slice_sizes=(1, x.shape.dims[1]),
    )


@dataclass(frozen=True, slots=True)
class _PanelStep:
    """One panel of a stage that begins with panel ``begin``: rows before it are not there."""

    atoms: Atoms
    panels: Panels
    begin: int

    def factored(self, em: Emitter, panel: Instruction) -> list[Instruction]:
        """Factors, pivots and the column that fails of the rows from the panel's own first one on."""
        count = array_shape("s32", self.panels.columns)
        return MatrixWriter(em).call("getrf", [panel], [panel.shape, count, array_shape("s32")])

    def __call__(self, em: Emitter, number: Instruction, carried: Values, fixed: Values) -> Values:
        w, p, (own, pivots, failed) = MatrixWriter(em), self.panels, carried
        b, height = p.columns, own.shape.dims[0]
        start, first = em.scale(number, b), em.scale(em.plus(number, self.begin), p.width)
        back = em.add("subtract", start.shape, em.index(height), start)
        held = _turned(em, own, start)
        at, left = w.index(held, -2), em.splat(back, held.shape.dims)
        panel = em.all_gather(w.block(held, -1, first, p.width), 1, self.atoms)
        row = w.index(panel, -2)
        panel = w.select(w.compare(row, em.splat(back, row.shape.dims), "LT"), panel)
        factors, chosen, info = self.factored(em, panel)
        swapped = _taken(em, held, _order(em, chosen, height))
        above = w.solve(w.rows(factors, 0, b), w.rows(swapped, 0, b), left=True, lower=True, unit=True)
        below = w.rows(swapped, b, height)
        below = w.binary("subtract", below, w.product(w.rows(factors, b, height), above))
        updated = em.concatenate([above, below], 0)
        later = w.compare(
            w.index(held, -1), em.splat(em.add("add", first.shape, first, em.index(p.width)), held.shape.dims), "GE"
        )
        held = em.select(w.compare(at, left, "LT"), em.select(later, updated, swapped), held)
        mine = w.block(factors, -1, em.scale(em.coordinate(self.atoms), p.width), p.width)
        old = w.block(held, -1, first, p.width)
        row = w.index(mine, -2)
        mine = em.select(w.compare(row, em.splat(back, row.shape.dims), "LT"), mine, old)
        own = _turned(em, w.with_block(held, mine, -1, first), back)
        begin = em.plus(start, self.begin * b)
        offset = em.add("convert", array_shape("s32"), begin)
        chosen = em.add("add", chosen.shape, chosen, em.splat(offset, chosen.shape.dims))
        pivots = em.add("dynamic-update-slice", pivots.shape, pivots, chosen, begin)
        return [own, pivots, count_failed(em, failed, info, offset)]


def _emit(site: LocalSite) -> list[Instruction]:
    em, w, (x,) = site.em, MatrixWriter(site.em), site.operands
    atoms, n, c = site.operand_atoms(0, 0), site.operand_dims(0)[0], x.shape.dims[0]
    if not atoms:
        return w.call("getrf", [x], [site.local_shape(k) for k in range(3)])
    p = Panels.of(n, em.table.extent(atoms))
    with told(site, "getrf", atoms, "columns of panels go to all devices, and rows come back"):
        own = _filled_up(em, _to_columns(em, x, atoms, p), atoms, p, n)
    pivots = em.splat(em.scalar(0, array_shape("s32").dtype), (p.n,))
    failed = em.zero(array_shape("s32").dtype)
    finished: list[Instruction] = []
    each = p.count // STAGES
    for stage in range(STAGES):
        with told(site, "getrf", atoms, "a panel of columns is gathered"):
            step = _PanelStep(atoms, p, stage * each)
            own, pivots, failed = repeat(em, each, [own, pivots, failed], [], step, name="panels")
        done = each * p.columns
        finished.append(w.rows(own, 0, done) if stage + 1 < STAGES else own)
        own = w.rows(own, done, own.shape.dims[0]) if stage + 1 < STAGES else own
    with told(site, "getrf", atoms, "columns of panels go to all devices, and rows come back"):
        rows = _to_rows(em, em.concatenate(finished, 0), atoms, p, c)
    return [em.resize(rows, 1, n), em.cut(pivots, 0, 0, n), failed]


BLOCKED_LU = Local(
    "rows split: a panel of columns gathered at a time, pivots as in one memory",
    _emit,
    pass_or_permute,
    rule=_rule,
    sends=always(panel_sends),
)
"""A way for LAPACK's ``getrf`` of square matrices of split rows, in place of a gather."""
