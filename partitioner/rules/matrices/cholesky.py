"""Cholesky factorisation of a matrix whose rows are split: blocked, right-looking (Golub, Van Loan, "Matrix
Computations", 4.2.9), with as many blocks as devices.

For every block of columns but the last, devices gather their rows of it. Each factors the diagonal block, solves for
the rows below and subtracts their products from its own rows of the columns behind. Only the last device has rows of
the last block below the diagonal, so that block is its own. No device holds more than its rows and a block of columns.
None sends the last block, which is less than in a gather. Missing rows of a last shard become those of the identity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.lapack import attributes_of
from shardc.hlo.ir.types import array_shape
from shardc.partitioner.emit.emitter import Emitter
from shardc.partitioner.emit.layout import Atoms, AxisTable
from shardc.partitioner.emit.repeat import Values, repeat
from shardc.partitioner.rules.matrices.matrix_writer import MatrixWriter
from shardc.partitioner.rules.matrices.split_rows import LEAST_BLOCK, pass_or_permute, split_rows, told
from shardc.partitioner.strategy.choose import SplitProblem
from shardc.partitioner.strategy.rule import Local, LocalSite, always
from shardc.sharding.rules.custom_call import LEAST_ROWS
from shardc.sharding.rules.factor_rule import FactorKind, FactorRule, RuleBuilder

__all__ = ["BLOCKED_CHOLESKY", "count_failed", "factored_block", "filled_up", "is_lower"]


def is_lower(op: Instruction) -> bool:
    """Whether a factorisation is that of the lower triangle."""
    if op.opcode == "cholesky":
        return bool(op.attrs.get("lower", False))
    return attributes_of(op).get("uplo") == ord("L")


def _rule(op: Instruction) -> FactorRule | None:
    """Rows are split in the matrix and its factor."""
    if not is_lower(op):
        return None
    dims = op.operands[0].shape.dims
    if dims[-1] < LEAST_ROWS:
        return None
    return _equation(dims, len(tuple(op.shape.leaves())))


@lru_cache(maxsize=4096)
def _equation(dims: tuple[int, ...], results: int) -> FactorRule:
    b = RuleBuilder([dims], [dims, dims[:-2]][:results])
    for d in range(len(dims) - 2):
        b.add(dims[d], [(t, d) for t in range(1 + results)])
    b.add(dims[-2], [(0, len(dims) - 2), (1, len(dims) - 2)], FactorKind.PERMUTATION)
    return b.build()


def _sends(table: AxisTable, problem: SplitProblem, factors: tuple[Atoms, ...]) -> tuple[float, int]:
    """A gather for each block of columns but the last, and where LAPACK counts it, the failing row."""
    atoms, size = split_rows(table, problem, factors)
    k, matrices = table.extent(atoms), size // problem.operands[0].nbytes
    c = -(-problem.operands[0].dims[-1] // k)
    if k == 1:
        return (0.0, 0)
    if c < LEAST_BLOCK:
        return (math.inf, 0)
    counted = len(problem.results) - 1
    return float(size * (k - 1) ** 2 * c * c + 8 * matrices * counted * (k - 1) / k), k - 1 + counted


def filled_up(site: LocalSite, x: Instruction, atoms: Atoms, n: int) -> Instruction:
    """Own rows of a matrix of ``n`` rows and columns; those behind the end, and their columns, are the identity's."""
    em, w = site.em, MatrixWriter(site.em)
    row, c = x.shape.rank - 2, x.shape.dims[-2]
    x = em.resize(x, row + 1, c * em.table.extent(atoms))
    if not em.table.is_uneven(atoms, n):
        return x
    at, column = em.global_index(x.shape.dims, row, atoms), w.index(x, -1)
    same = w.select(w.compare(at, column, "EQ"), w.number(1, x))
    return em.select(w.compare(at, w.number(n, at), "LT"), x, same)


def factored_block(
    em: Emitter, op: Instruction, x: Instruction, other: Instruction | None = None
) -> tuple[Instruction, Instruction | None]:
    """L of a block, ``other`` or zeros above it, and the row that fails (0: none) where LAPACK is asked for it."""
    w = MatrixWriter(em)
    if op.opcode == "cholesky":
        return w.triangle(em.add("cholesky", x.shape.plain, x, lower=True), "GE", other), None
    failed = array_shape("s32", *x.shape.dims[:-2])
    made, info = w.call("potrf", [x], [x.shape, failed], op.attrs["backend_config"])
    return w.triangle(made, "GE", other), info


@dataclass(frozen=True, slots=True)
class _BlockStep:
    """One block of columns."""

    site: LocalSite
    atoms: Atoms

    def __call__(self, em: Emitter, number: Instruction, carried: Values, fixed: Values) -> Values:
        w, (own, *failed), c = MatrixWriter(em), carried, carried[0].shape.dims[-2]
        first, place = em.scale(number, c), em.coordinate(self.atoms)
        held = w.block(own, -1, first, c)
        panel = em.all_gather(held, own.shape.rank - 2, self.atoms)
        factor, info = factored_block(em, self.site.op, w.block(panel, -2, first, c))
        panel = w.solve(factor, panel, left=False, lower=True, transpose="ADJOINT")
        at = w.index(panel, -2)
        panel = w.select(w.compare(at, em.splat(em.plus(first, c), at.shape.dims), "GE"), panel)
        mine = w.block(panel, -2, em.scale(place, c), c)
        own = w.binary("subtract", own, w.product(mine, panel, adjoint="second"))
        column = w.where(place, number, "EQ", factor, w.where(place, number, "GT", mine, held))
        own = w.with_block(own, column, -1, first)
        return [own, *(count_failed(em, old, info, first) for old in failed if info is not None)]


def count_failed(em: Emitter, old: Instruction, info: Instruction, first: Instruction) -> Instruction:
    """The first row that fails (0: none), ``info`` being counted from row ``first``."""
    w = MatrixWriter(em)
    start = first if first.shape.dtype is info.shape.dtype else em.add("convert", array_shape("s32"), first)
    later = w.binary("add", info, em.splat(start, info.shape.dims))
    none = w.number(0, info)
    found = em.select(w.compare(info, none, "GT"), later, none)
    return em.select(w.compare(old, none, "EQ"), found, old)


def _emit(site: LocalSite) -> list[Instruction]:
    em, w, row = site.em, MatrixWriter(site.em), site.operands[0].shape.rank - 2
    atoms, n = site.operand_atoms(0, row), site.operand_dims(0)[-1]
    step = _BlockStep(site, atoms)
    if not atoms:
        made, info = factored_block(em, site.op, site.operands[0])
        return [made] if info is None else [made, info]
    k = em.table.extent(atoms)
    x = filled_up(site, site.operands[0], atoms, n)
    c = x.shape.dims[-2]
    counted = [em.splat(em.zero(s.dtype), site.local_shape(1).dims) for s in site.shapes[1:]]
    with told(site, "cholesky", atoms, "rows of a block of columns are gathered"):
        own, *failed = repeat(em, k - 1, [x, *counted], [], step, name="cholesky")
    last = w.columns(own, (k - 1) * c, k * c)
    factor, info = factored_block(em, site.op, last)
    place, end = em.coordinate(atoms), em.index(k - 1)
    own = w.with_block(own, w.where(place, end, "EQ", factor, last), -1, em.index((k - 1) * c))
    at = em.global_index(own.shape.dims, row, atoms)
    results = [em.resize(em.select(w.compare(at, w.index(own, -1), "GE"), own, x), row + 1, n)]
    if info is not None:
        here = w.where(place, end, "EQ", info, w.number(0, info))
        found = count_failed(em, failed[0], here, em.index((k - 1) * c))
        with told(site, "cholesky", atoms, "all get the number of the row that fails"):
            results.append(em.all_reduce(found, atoms, "max"))
    return results


BLOCKED_CHOLESKY = Local(
    "rows split: a block of columns gathered at a time", _emit, pass_or_permute, rule=_rule, sends=always(_sends)
)
"""A way for Cholesky factorisations (HLO's and LAPACK's ``potrf``) of split rows, in place of a gather."""
