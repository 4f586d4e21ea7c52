"""The solver: reductions, then elimination where tables fit, else the dual, a search, and integer programming.

Every answer has a proven bound. Work is counted, not timed, so that equal problems have equal answers everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shardc.partitioner.strategy.solve.dual import DualBound
from shardc.partitioner.strategy.solve.eliminate import CostTable, eliminate_variables
from shardc.partitioner.strategy.solve.integer import count_columns, has_highs, solve_integer
from shardc.partitioner.strategy.solve.network import CostNetwork, ImpossibleChoiceError
from shardc.partitioner.strategy.solve.problem import BindingRow, ChoiceProblem, ChosenOptions, MemoryExcess
from shardc.partitioner.strategy.solve.reduce import drop_rows, reduce_network
from shardc.partitioner.strategy.solve.rows import MemoryRows
from shardc.partitioner.strategy.solve.search import improve_with_dual, measure

__all__ = ["SolveLimits", "solve_choice"]

#: Rows of memory with which an integer program begins.
_HINTS = 100


@dataclass(frozen=True, slots=True)
class SolveLimits:
    """How much work is done: the largest joint table of an elimination (entries), the largest integer program
    (columns) and its search tree (nodes), rounds of message passing, and the gap with which a search ends."""

    table: int = 1 << 20
    columns: int = 200_000
    nodes: int = 2_000
    rounds: int = 60
    gap: float = 1e-4


def solve_choice(
    problem: ChoiceProblem, start: Sequence[int] | None = None, limits: SolveLimits | None = None
) -> ChosenOptions:
    """The cheapest choice found for ``problem``, never worse than ``start`` where that meets the rows.

    Raises `InputError` where the problem's parts do not fit each other.
    """
    problem.check()
    limits = limits or SolveLimits()
    network = CostNetwork(problem)
    try:
        reduce_network(network)
    except ImpossibleChoiceError as error:
        return ChosenOptions(None, np.inf, np.inf, "reductions", conflict=error.variables)
    drop_rows(network)
    rows = MemoryRows.of(network)
    if not len(rows.rows):
        tables = [CostTable((v,), network.costs[v]) for v in network.alive]
        tables += [CostTable((v, u), t) for v in network.alive for u, t in network.tables[v].items() if v < u]
        exact = eliminate_variables({v: len(network.costs[v]) for v in network.alive}, tables, limits.table)
        if exact is not None:
            method = "elimination" if exact[1] else "reductions"
            if not np.isfinite(exact[0]):
                return ChosenOptions(None, np.inf, np.inf, method, conflict=tuple(network.alive))
            return _answer(problem, network, exact[1], np.inf, method)
    return _approach(problem, network, rows, start, limits)


def _approach(
    problem: ChoiceProblem,
    network: CostNetwork,
    rows: MemoryRows,
    start: Sequence[int] | None,
    limits: SolveLimits,
) -> ChosenOptions:
    """Bounds and choices by the dual, then by an integer program where it is not too large."""
    dual = DualBound(network, rows)
    best = improve_with_dual(dual, None if start is None else _locate(network, start), limits.rounds, limits.gap)
    bound, method = dual.bound, "dual and search"
    closed = best.excess <= 0 and best.cost - bound <= limits.gap * abs(best.cost)
    if not closed and has_highs() and count_columns(network) <= limits.columns:
        fits = best.excess <= 0 and np.isfinite(best.cost)
        hint = [k for k in np.argsort(-dual.best, kind="stable")[:_HINTS].tolist() if dual.best[k] > 0]
        result = solve_integer(network, rows, best.positions if fits else None, hint, limits.nodes, limits.gap)
        bound, method = max(bound, result.bound), "integer program"
        if result.positions is not None:
            best.offer(result.positions, *measure(network, rows, result.positions))
        if result.impossible and not len(rows.rows):
            return ChosenOptions(None, np.inf, np.inf, method, conflict=tuple(network.alive))
    answer = _answer(problem, network, best.positions, bound, method, dual)
    if start is None or (problem.usage(start) > problem.limits).any():
        return answer
    cost = problem.cost(start)
    if cost < answer.cost or (answer.excess is not None and np.isfinite(cost)):
        return replace(answer, choice=tuple(start), cost=cost, bound=min(bound, cost), excess=None)
    return answer


def _locate(network: CostNetwork, start: Sequence[int]) -> dict[int, int]:
    """Positions of ``start``'s options; the cheapest where an option has gone."""
    found: dict[int, int] = {}
    for v in network.alive:
        at = int(np.searchsorted(network.options[v], start[v]))
        there = at < len(network.options[v]) and network.options[v][at] == start[v]
        found[v] = at if there else int(np.argmin(network.costs[v]))
    return found


def _answer(
    problem: ChoiceProblem,
    network: CostNetwork,
    positions: dict[int, int],
    bound: float,
    method: str,
    dual: DualBound | None = None,
) -> ChosenOptions:
    choice = network.expand({v: int(network.options[v][k]) for v, k in positions.items()})
    cost = problem.cost(choice)
    used = problem.usage(choice)
    if (used > problem.limits).any():
        return ChosenOptions(choice, cost, bound, method, excess=_report_excess(problem, network, choice))
    binding: list[BindingRow] = []
    if dual is not None:
        for row, multiplier in zip(dual.rows.rows.tolist(), dual.best.tolist(), strict=True):
            if multiplier > 0:
                binding.append(BindingRow(row, float(used[row]), multiplier))
    return ChosenOptions(choice, cost, min(bound, cost), method, tuple(binding))


def _report_excess(problem: ChoiceProblem, network: CostNetwork, choice: tuple[int, ...]) -> MemoryExcess:
    """Where ``choice`` lacks most; what is proven to lack there is what every choice uses that reductions left."""
    over = problem.usage(choice) - problem.limits
    proven = network.spent - problem.limits
    row = int(proven.argmax()) if proven.max() > 0 else int(over.argmax())
    weights = [(u.variable, float(u.amounts[choice[u.variable]])) for u in problem.uses if u.start <= row < u.stop]
    heaviest = tuple(sorted(weights, key=lambda w: (-w[1], w[0])))
    return MemoryExcess(row, float(problem.limits[row]), max(float(proven[row]), 0.0), float(over[row]), heaviest)
