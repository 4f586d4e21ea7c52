"""What programs of split matrices share: the factor of the split dimension, what sums send, and what reports tell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from shardc.hlo.ir.ir import Instruction, Origin
from shardc.partitioner.emit.layout import Atoms, AxisTable
from shardc.partitioner.strategy.choose import SplitProblem
from shardc.partitioner.strategy.rule import LocalSite
from shardc.sharding.rules.factor_rule import FactorKind, FactorRule, RuleBuilder

__all__ = ["LEAST_BLOCK", "pass_or_permute", "rows_equation", "sent_by_sum", "split_rows", "told"]

#: Rows of a device from which a loop with a collective for each block pays: with fewer, one gather is faster.
LEAST_BLOCK = 16


def pass_or_permute(op: Instruction, rule: FactorRule) -> frozenset[int]:
    """Split independent dimensions, and the one that the program knows how to split."""
    return frozenset((*rule.of_kind(FactorKind.PASS_THROUGH), *rule.of_kind(FactorKind.PERMUTATION)))


@lru_cache(maxsize=4096)
def rows_equation(dims: tuple[int, ...], results: tuple[tuple[int, ...], ...]) -> FactorRule:
    """The factor rule of a matrix whose rows are split, and are rows of the first of the ``results``."""
    b = RuleBuilder([dims], list(results))
    b.add(dims[0], [(0, 0), (1, 0)], FactorKind.PERMUTATION)
    return b.build()


def split_rows(table: AxisTable, problem: SplitProblem, factors: tuple[Atoms, ...]) -> tuple[Atoms, int]:
    """The axes of the split dimension, and bytes of an element times the independent ones that a device has."""
    (rows,) = problem.rule.of_kind(FactorKind.PERMUTATION)
    size = problem.operands[0].nbytes
    for f in problem.rule.of_kind(FactorKind.PASS_THROUGH):
        size *= -(-problem.rule.factors[f].size // table.extent(factors[f]))
    return factors[rows], size


def sent_by_sum(table: AxisTable, atoms: Atoms) -> float:
    """Times that a device sends what is added up over ``atoms``."""
    k = table.extent(atoms)
    return 2 * (k - 1) / k


@contextmanager
def told(site: LocalSite, routine: str, atoms: Atoms, what: str) -> Iterator[None]:
    """Collectives written inside have a reason: what crosses between devices."""
    em, names = site.em, site.em.table.axis_names(atoms)
    before = em.origin
    why = f"{routine} %{site.op.name} is split over {' and '.join(names)}: {what}"
    em.origin = Origin(why, "own", "", names)
    yield
    em.origin = before
