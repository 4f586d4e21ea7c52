"""Triangular systems whose matrix is split along rows or columns: substitution by blocks (Heath, Romine, "Parallel
solution of triangular systems on distributed-memory multiprocessors", SIAM J. Sci. Stat. Comput. 9, 1988).

Devices solve for their own rows one after the other. Where rows of the matrix are split, all get the solution of each
block, which is added to the others' values, and subtract its products from their right-hand sides. Where columns are
split, devices add up the products of what is solved instead. Either way right-hand sides cross, and the matrix stays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.lapack import attributes_of
from shardc.partitioner.emit.emitter import Emitter
from shardc.partitioner.emit.layout import Atoms, AxisTable
from shardc.partitioner.emit.repeat import Values, repeat
from shardc.partitioner.rules.matrices.cholesky import filled_up
from shardc.partitioner.rules.matrices.matrix_writer import MatrixWriter
from shardc.partitioner.rules.matrices.split_rows import LEAST_BLOCK, pass_or_permute, sent_by_sum, split_rows, told
from shardc.partitioner.strategy.choose import SplitProblem
from shardc.partitioner.strategy.rule import Local, LocalSite, always
from shardc.sharding.rules.custom_call import LEAST_ROWS
from shardc.sharding.rules.factor_rule import FactorKind, FactorRule, RuleBuilder

__all__ = ["BY_COLUMNS", "BY_ROWS"]


class _System(NamedTuple):
    """``op(a) x = b`` (``left``) or ``x op(a) = b``; ``op`` is none, TRANSPOSE or ADJOINT."""

    left: bool
    lower: bool
    unit: bool
    op: str


def _system(op: Instruction) -> _System:
    if op.opcode == "triangular-solve":
        a = op.attrs
        turned = a.get("transpose_a", "NO_TRANSPOSE")
        left, lower, unit = (bool(a.get(name, False)) for name in ("left_side", "lower", "unit_diagonal"))
        return _System(left, lower, unit, turned if turned in ("TRANSPOSE", "ADJOINT") else "")
    given = {name: chr(value) for name, value in attributes_of(op).items() if isinstance(value, int)}
    turned = {"N": "", "T": "TRANSPOSE", "C": "ADJOINT"}.get(given.get("trans_x", "N"), "")
    return _System(given.get("side") == "L", given.get("uplo") == "L", given.get("diag") == "U", turned)


# -- when, and what it sends -------------------------------------------------------------------------------------------


def _rule(dim: int, op: Instruction) -> FactorRule | None:
    """Dimension ``dim`` (-2 or -1) of the matrix is split, and with it right-hand sides and solution."""
    system = _system(op)
    if op.operands[0].shape.dims[-1] < LEAST_ROWS:
        return None
    return _equation(op.operands[0].shape.dims, op.shape.dims, dim, system.left)


@lru_cache(maxsize=4096)
def _equation(matrix: tuple[int, ...], sides: tuple[int, ...], dim: int, left: bool) -> FactorRule:
    b, rank = RuleBuilder([matrix, sides], [sides]), len(matrix)
    solved, free = (rank - 2, rank - 1) if left else (rank - 1, rank - 2)
    for d in range(rank - 2):
        b.add(matrix[d], [(t, d) for t in range(3)])
    b.add(sides[free], [(1, free), (2, free)])
    b.add(sides[solved], [(0, rank + dim), (1, solved), (2, solved)], FactorKind.PERMUTATION)
    return b.build()


def _sends(table: AxisTable, problem: SplitProblem, factors: tuple[Atoms, ...]) -> tuple[float, int]:
    """A sum of as many rows of right-hand sides as a device has, for each device but one."""
    atoms, size = split_rows(table, problem, factors)
    (solved,) = problem.rule.of_kind(FactorKind.PERMUTATION)
    k = table.extent(atoms)
    c = -(-problem.rule.factors[solved].size // k)
    if k > 1 and c < LEAST_BLOCK:
        return (math.inf, 0)
    return sent_by_sum(table, atoms) * size * (k - 1) * c, k - 1


# -- substitution ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Substitution:
    """Systems from the left with c rows of the matrix (``turned``: of its transpose's columns) on each device."""

    atoms: Atoms
    devices: int
    lower: bool
    unit: bool
    turned: bool

    @property
    def forward(self) -> bool:
        """Whether the first block is the first one that is solved."""
        return self.lower != self.turned

    def block(self, em: Emitter, number: Instruction) -> Instruction:
        """The block that is solved in an iteration."""
        if self.forward:
            return number
        return em.add("subtract", number.shape, em.index(self.devices - 1), number)

    def solved(self, em: Emitter, a: Instruction, b: Instruction) -> Instruction:
        """The solution for own rows alone."""
        w, c = MatrixWriter(em), a.shape.dims[-2]
        own = w.block(a, -1, em.scale(em.coordinate(self.atoms), c), c)
        turned = "TRANSPOSE" if self.turned else ""
        return w.solve(own, b, left=True, lower=self.lower, unit=self.unit, transpose=turned)

    def __call__(self, em: Emitter, a: Instruction, b: Instruction) -> Instruction:
        if not self.turned:
            (rest,) = repeat(em, self.devices - 1, [b], [a], self.subtract, name="substitution")
            return self.solved(em, a, rest)
        w = MatrixWriter(em)
        first = self.solved(em, a, b)
        start = self.block(em, em.index(0))
        x = w.where(em.coordinate(self.atoms), start, "EQ", first, w.number(0, first))
        return repeat(em, self.devices - 1, [x], [a, b], self.gather, name="substitution")[0]

    def subtract(self, em: Emitter, number: Instruction, carried: Values, fixed: Values) -> Values:
        """All get a block's solution and subtract its products."""
        w, (b,), (a,) = MatrixWriter(em), carried, fixed
        here, place, c = self.block(em, number), em.coordinate(self.atoms), a.shape.dims[-2]
        own = self.solved(em, a, b)
        x = em.all_reduce(w.where(place, here, "EQ", own, w.number(0, own)), self.atoms, "bits")
        rest = w.binary("subtract", b, w.product(w.block(a, -1, em.scale(here, c), c), x))
        return [w.where(place, here, "GT" if self.forward else "LT", rest, b)]

    def gather(self, em: Emitter, number: Instruction, carried: Values, fixed: Values) -> Values:
        """Products of what is solved are added up for the next block; all that is not solved is zero."""
        w, (x,), (a, b) = MatrixWriter(em), carried, fixed
        here, place, c = self.block(em, em.plus(number, 1)), em.coordinate(self.atoms), a.shape.dims[-2]
        part = w.block(a, -1, em.scale(here, c), c)
        total = em.all_reduce(w.contracted(part, x, x.shape.rank - 2, x.shape.rank - 2), self.atoms, "sum")
        own = self.solved(em, a, w.binary("subtract", b, total))
        return [w.where(place, here, "EQ", own, x)]


def _emit(dim: int, site: LocalSite) -> list[Instruction]:
    em, w, system = site.em, MatrixWriter(site.em), _system(site.op)
    a, b = site.operands
    rank = a.shape.rank
    atoms = site.operand_atoms(0, rank + dim)
    if not atoms:
        left, lower, unit, op = system
        return [w.solve(a, b, left=left, lower=lower, unit=unit, transpose=op)]
    a = w.conjugate(a) if system.op == "ADJOINT" else a
    if dim == -1:
        a, system = w.transposed(a), system._replace(lower=not system.lower)
    turned = (bool(system.op) + (dim == -1) + (not system.left)) % 2 == 1
    b = b if system.left else w.transposed(b)
    n, c, end = site.operand_dims(0)[-1], a.shape.dims[-2], em.table.extent(atoms)
    a = filled_up(site, a, atoms, n)
    at = em.global_index(a.shape.dims, rank - 2, atoms)
    a = w.select(w.compare(at, w.index(a, -1), "GE" if system.lower else "LE"), a)
    if em.table.is_uneven(atoms, n):
        at = em.global_index(b.shape.dims, rank - 2, atoms)
        b = w.select(w.compare(at, w.number(n, at), "LT"), b)
    assert a.shape.dims[-1] == c * end
    with told(site, "triangular solve", atoms, "solutions of a block of rows go to the others"):
        x = _Substitution(atoms, end, system.lower, system.unit, turned)(em, a, b)
    return [x if system.left else w.transposed(x)]


def _substitution_along(dim: int, summary: str) -> Local:
    return Local(summary, partial(_emit, dim), pass_or_permute, rule=partial(_rule, dim), sends=always(_sends))


BY_ROWS = _substitution_along(-2, "rows of the matrix split: by substitution, a block at a time")
BY_COLUMNS = _substitution_along(-1, "columns of the matrix split: by substitution, a block at a time")
