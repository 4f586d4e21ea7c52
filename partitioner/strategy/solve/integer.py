"""The program of a network's options as an integer program for HiGHS.

Relaxations of such programs are mostly integral. Work is limited by the program's size and the number of nodes of its
search tree; no limit is one of time, so that the answer does not depend on the machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shardc.partitioner.strategy.solve.highs import make_solver
from shardc.partitioner.strategy.solve.program import LinearProgram

__all__ = ["IntegerResult", "solve_integer"]

#: HiGHS meets rows to this much of their limits.
_TOLERANCE = 1e-6
#: Rows of memory with which a program begins, and how often others are added.
_HINTS = 100
_ROUNDS = 12


@dataclass(frozen=True, slots=True)
class IntegerResult:
    """Positions of options (None: none was found), a proven lower bound, whether rows cannot be met at all, and the
    rows of memory that the program had."""

    positions: dict[int, int] | None
    bound: float
    impossible: bool
    active: frozenset[int] = frozenset()


def solve_integer(
    program: LinearProgram,
    start: Mapping[int, int] | None,
    nodes: int,
    gap: float,
    known: frozenset[int] = frozenset(),
) -> IntegerResult:
    """The cheapest positions of ``program``, in trees of at most ``nodes`` nodes, within ``gap``.

    Rows of memory are added when they are exceeded; those with multipliers and the ``known`` ones are present from the
    start. Bounds also hold without the other rows.
    """
    if program.impossible:
        return IntegerResult(None, np.inf, True, known)
    rows, prices = program.rows, program.dual.multipliers
    active = known | {k for k in np.argsort(-prices, kind="stable")[:_HINTS].tolist() if prices[k] > 0}
    bound, slack = -np.inf, 0.0
    result = IntegerResult(None, bound, False)
    for _ in range(_ROUNDS):
        result = _solve_relaxed(program, sorted(active), slack, start, nodes, gap)
        if not slack:
            bound = max(bound, result.bound)
        if result.positions is None:
            return IntegerResult(None, bound, result.impossible and not slack, active)
        used = rows.used(result.positions)
        fresh = rows.find_exceeded(used, known=active)
        if not (used > rows.limits).any() or (slack and not fresh):
            break
        active |= frozenset(fresh)
        if not fresh:
            slack = 2 * _TOLERANCE
    return IntegerResult(result.positions, bound, False, active)


def _solve_relaxed(
    program: LinearProgram, active: Sequence[int], slack: float, start: Mapping[int, int] | None, nodes: int, gap: float
) -> IntegerResult:
    """With the ``active`` rows of memory only, each with ``slack`` of its limit left free."""
    import highspy

    h = make_solver(mip_max_nodes=nodes, mip_rel_gap=gap)
    h.passModel(program.model(highspy, whole=True))
    for row in active:
        columns, amounts, limit, _ = program.memory_row(row)
        h.addRow(-highspy.kHighsInf, limit - slack, len(columns), columns.astype(np.int32), amounts)
    if start is not None:
        there = program.column[[program.rows.offsets[v] + k for v, k in start.items()]]
        if (there >= 0).all():
            chosen = np.zeros(program.binaries)
            chosen[there] = 1.0
            h.setSolution(program.binaries, np.arange(program.binaries, dtype=np.int32), chosen)
    h.run()
    program.dual.work += len(program.objective) + max(h.getInfo().simplex_iteration_count, 0)
    if h.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
        return IntegerResult(None, np.inf, True)
    info = h.getInfo()
    bound = float(info.mip_dual_bound) / program.scale
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return IntegerResult(None, bound, False)
    values = np.array(h.getSolution().col_value[: program.binaries])
    found = {}
    for v, kept in program.options.items():
        at = program.first[v]
        found[v] = int(kept[np.argmax(values[at : at + len(kept)])])
    return IntegerResult(found, bound, False)
