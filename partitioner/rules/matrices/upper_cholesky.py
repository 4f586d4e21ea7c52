"""Cholesky factorisation of a matrix whose columns are split, as the transpose of an upper triangle's rows is.

An all-to-all gives each device a few rows of every panel of rows, with all their columns. From there on it is that of
`cholesky`: devices gather a panel of columns, factor its diagonal block and update their own rows. Rows above a panel
are not sent: after each quarter of the panels the first rows are left out, and finished columns are put aside. At last
an all-to-all brings columns back. Missing rows and columns become those of the identity. The panels are those of `lu`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from shardc.hlo.ir.ir import Instruction
from shardc.partitioner.emit.emitter import Emitter
from shardc.partitioner.emit.layout import Atoms
from shardc.partitioner.emit.repeat import Values, repeat
from shardc.partitioner.rules.matrices.cholesky import count_failed, factored_block, is_lower
from shardc.partitioner.rules.matrices.lu import STAGES, Panels, panel_sends
from shardc.partitioner.rules.matrices.matrix_writer import MatrixWriter
from shardc.partitioner.rules.matrices.split_rows import pass_or_permute, told
from shardc.partitioner.strategy.rule import Local, LocalSite, always
from shardc.sharding.rules.custom_call import LEAST_ROWS
from shardc.sharding.rules.factor_rule import FactorKind, FactorRule, RuleBuilder

__all__ = ["CHOLESKY_OF_COLUMNS"]


def _rule(op: Instruction) -> FactorRule | None:
    """Columns are split in the matrix and its factor."""
    dims = op.operands[0].shape.dims
    if not is_lower(op) or len(dims) != 2 or dims[0] < LEAST_ROWS:
        return None
    return _equation(dims, len(tuple(op.shape.leaves())))


@lru_cache(maxsize=4096)
def _equation(dims: tuple[int, ...], results: int) -> FactorRule:
    b = RuleBuilder([dims], [dims, ()][:results])
    b.add(dims[1], [(0, 1), (1, 1)], FactorKind.PERMUTATION)
    return b.build()


# -- between columns and rows ------------------------------------------------------------------------------------------


def _to_rows(em: Emitter, x: Instruction, atoms: Atoms, p: Panels, n: int) -> Instruction:
    """All columns of own rows from all rows of own columns."""
    c = x.shape.dims[1]
    x = em.reshape(em.resize(x, 0, p.n), (p.count, p.devices, p.width, c))
    x = em.all_to_all(em.transpose(x, (1, 0, 2, 3)), 0, atoms)
    x = em.reshape(em.transpose(x, (1, 2, 0, 3)), (p.own, p.devices * c))
    return em.resize(em.resize(x, 1, n), 1, p.n)


def _to_columns(em: Emitter, x: Instruction, atoms: Atoms, p: Panels, c: int) -> Instruction:
    """All rows of ``c`` own columns from all columns of own rows."""
    x = em.reshape(em.resize(x, 1, p.devices * c), (p.count, p.width, p.devices, c))
    x = em.all_to_all(em.transpose(x, (2, 0, 1, 3)), 0, atoms)
    return em.reshape(em.transpose(x, (1, 0, 2, 3)), (p.n, c))


def _rows_of(em: Emitter, like: Instruction, atoms: Atoms, p: Panels) -> Instruction:
    """The numbers of own rows, counted from the first panel that is left."""
    w = MatrixWriter(em)
    local = w.index(like, -2)
    panel = w.binary("divide", local, w.number(p.width, local))
    place = w.binary("add", local, w.binary("multiply", panel, w.number((p.devices - 1) * p.width, local)))
    start = em.scale(em.coordinate(atoms), p.width)
    return w.binary("add", place, em.splat(start, place.shape.dims))


# -- panels ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ColumnPanel:
    """One panel of a stage that begins with panel ``begin``: what is before it is not there."""

    op: Instruction
    atoms: Atoms
    panels: Panels
    begin: int

    def gathered(self, em: Emitter, held: Instruction) -> Instruction:
        """All rows of a panel of columns in their order, from own ones."""
        p, (rows, b) = self.panels, held.shape.dims
        every = em.reshape(em.all_gather(held, 0, self.atoms), (p.devices, rows // p.width, p.width, b))
        return em.reshape(em.transpose(every, (1, 0, 2, 3)), (p.devices * rows, b))

    def __call__(self, em: Emitter, number: Instruction, carried: Values, fixed: Values) -> Values:
        w, p, (own, *failed) = MatrixWriter(em), self.panels, carried
        b, first = p.columns, em.scale(number, p.columns)
        held = w.block(own, -1, first, b)
        panel = self.gathered(em, held)
        factor, info = factored_block(em, self.op, w.block(panel, -2, first, b))

        def solved(x: Instruction) -> Instruction:
            return w.solve(factor, x, left=False, lower=True, transpose="ADJOINT")

        def behind(x: Instruction, rows: Instruction) -> Instruction:
            return w.compare(rows, em.splat(em.plus(first, b), x.shape.dims), "GE")

        rows = _rows_of(em, held, self.atoms, p)
        later = behind(held, rows)
        mine, panel = w.select(later, solved(held)), w.select(behind(panel, w.index(panel, -2)), solved(panel))
        own = w.binary("subtract", own, w.product(mine, panel, adjoint="second"))
        part = w.block(factor, -2, em.scale(em.coordinate(self.atoms), p.width), p.width)
        column = w.with_block(em.select(later, mine, held), part, -2, em.scale(number, p.width))
        own = w.with_block(own, column, -1, first)
        start = em.plus(first, self.begin * b)
        return [own, *(count_failed(em, old, info, start) for old in failed if info is not None)]


def _emit(site: LocalSite) -> list[Instruction]:
    em, w, (x,) = site.em, MatrixWriter(site.em), site.operands
    atoms, n, c = site.operand_atoms(0, 1), site.operand_dims(0)[0], x.shape.dims[1]
    if not atoms:
        made, info = factored_block(em, site.op, x, other=x)
        return [made] if info is None else [made, info]
    p = Panels.of(n, em.table.extent(atoms))
    with told(site, "cholesky", atoms, "rows of panels go to all devices, and columns come back"):
        own = _to_rows(em, x, atoms, p, n)
    if p.n > n:
        rows, columns = _rows_of(em, own, atoms, p), w.index(own, -1)
        inside = em.add("maximum", rows.shape, rows, columns)
        same = w.select(w.compare(rows, columns, "EQ"), w.number(1, own))
        own = em.select(w.compare(inside, w.number(n, rows), "LT"), own, same)
    failed = [em.zero(s.dtype) for s in site.shapes[1:]]
    finished: list[Instruction] = []
    each = p.count // STAGES
    for stage in range(STAGES):
        with told(site, "cholesky", atoms, "a panel of columns is gathered"):
            step = _ColumnPanel(site.op, atoms, p, stage * each)
            own, *failed = repeat(em, each, [own, *failed], [], step, name="panels")
        above = w.zeros(own, stage * each * p.width, each * p.columns)
        done = w.columns(own, 0, each * p.columns)
        finished.append(em.concatenate([above, done], 0) if stage else done)
        if stage + 1 < STAGES:
            own = w.rows(own, each * p.width, own.shape.dims[0])
            own = w.columns(own, each * p.columns, own.shape.dims[1])
    with told(site, "cholesky", atoms, "rows of panels go to all devices, and columns come back"):
        columns = em.resize(_to_columns(em, em.concatenate(finished, 1), atoms, p, c), 0, n)
    at = em.global_index(columns.shape.dims, 1, atoms)
    return [em.select(w.compare(w.index(columns, -2), at, "GE"), columns, x), *failed]


CHOLESKY_OF_COLUMNS = Local(
    "columns split: a panel of columns gathered at a time",
    _emit,
    pass_or_permute,
    rule=_rule,
    sends=always(panel_sends),
)
"""A way for Cholesky factorisations (HLO's and LAPACK's ``potrf``) of split columns, in place of a gather."""
