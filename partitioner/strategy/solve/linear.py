"""The linear relaxation improves the dual bound: its dual values are messages and multipliers. Options outside of the
program get messages too. These take all that their pairs leave, so the bound holds for all options.
"""

from __future__ import annotations

import numpy as np

from shardc.partitioner.strategy.solve.dual import DualBound
from shardc.partitioner.strategy.solve.highs import make_solver
from shardc.partitioner.strategy.solve.problem import Numbers
from shardc.partitioner.strategy.solve.program import LinearProgram

__all__ = ["tighten"]

#: How often rows of memory are added, and by which part of its limit a row is exceeded.
_ROUNDS = 20
_TOLERANCE = 1e-6


def tighten(program: LinearProgram, iterations: int) -> float | None:
    """Set the dual of ``program`` to the values of the relaxation, and return the value of the relaxation. None if it
    has no solution within the rows, or if ``iterations`` of the simplex method do not find one.
    """
    import highspy

    if program.impossible:
        return None
    dual, rows = program.dual, program.rows
    h = make_solver(solver="simplex", simplex_iteration_limit=iterations)
    h.passModel(program.model(highspy, whole=False))
    first = h.getNumRow()
    active: list[int] = [k for k in np.argsort(-dual.multipliers, kind="stable").tolist() if dual.multipliers[k] > 0]
    scales: list[float] = []
    new = active
    for _ in range(_ROUNDS):
        for row in new:
            columns, amounts, limit, scale = program.memory_row(row)
            h.addRow(-highspy.kHighsInf, limit, len(columns), columns.astype(np.int32), amounts)
            scales.append(scale)
        h.run()
        dual.work += max(h.getInfo().simplex_iteration_count, 0)
        if h.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        solution = h.getSolution()
        there = program.column >= 0
        weights = np.zeros(len(program.column))
        weights[there] = np.array(solution.col_value)[program.column[there]]
        new = rows.find_exceeded(rows.used_by(weights), _TOLERANCE, active)
        if not new:
            break
        active = active + new
    dual.pressed |= frozenset(active)
    values = np.array(solution.row_dual) / program.scale
    multipliers = np.zeros(len(rows.rows))
    multipliers[active[: len(scales)]] = np.maximum(-values[first:] / np.array(scales), 0.0)
    _take_messages(dual, program, values)
    dual.set_multipliers(multipliers)
    dual.measure()
    return float(h.getInfo().objective_function_value) / program.scale


def _take_messages(dual: DualBound, program: LinearProgram, values: Numbers) -> None:
    for (v, u), at in program.sums.items():
        kept = program.options[v]
        message = dual.messages[v][u].copy()
        message[kept] += values[at : at + len(kept)]
        dual.messages[v][u] = message
    for v, u in program.sums:
        # Options that are left out pay themselves for the least of their pairs.
        least = dual.rest(v, u).min(axis=1)
        least[program.options[v]] = 0.0
        dual.messages[v][u] = dual.messages[v][u] + np.where(np.isfinite(least), least, 0.0)
