"""The solver: reductions, then elimination where tables fit, else the dual, a search, and programs for HiGHS.

A linear program improves the dual's bound; eliminations and integer programs use only options within the gap. If these
are too many, parts of a choice are chosen again while the rest stays fixed. Every answer has a proven bound. Work is
counted, not timed, so that equal problems have equal answers everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shardc.partitioner.strategy.solve.dual import DualBound
from shardc.partitioner.strategy.solve.eliminate import CostTable, eliminate_variables
from shardc.partitioner.strategy.solve.eliminate_near import eliminate_near, sharpen
from shardc.partitioner.strategy.solve.highs import has_highs
from shardc.partitioner.strategy.solve.integer import solve_integer
from shardc.partitioner.strategy.solve.linear import tighten
from shardc.partitioner.strategy.solve.network import CostNetwork, ImpossibleChoiceError
from shardc.partitioner.strategy.solve.parts import improve_by_parts
from shardc.partitioner.strategy.solve.problem import BindingRow, ChoiceProblem, ChosenOptions, MemoryExcess
from shardc.partitioner.strategy.solve.program import LinearProgram
from shardc.partitioner.strategy.solve.reduce import drop_rows, reduce_network
from shardc.partitioner.strategy.solve.rows import MemoryRows
from shardc.partitioner.strategy.solve.search import Incumbent, improve_with_dual, measure
from shardc.partitioner.strategy.solve.surplus import Surplus

__all__ = ["SolveLimits", "solve_choice"]

#: Parts of the columns that integer programs may have, one program after the other.
#: The last one is for problems of which no choice was found that fits.
_SHARES = (16, 4, 1)
#: How often a choice is made better part by part; nodes of a part's search trees, and its rounds of message passing.
_SEARCHES = 4
_PART_NODES = 100
_PART_ROUNDS = 5
#: So many times smaller are the tables of what is near in a part.
_PART_SHARE = 256
#: How often the options that a linear program has are chosen anew.
_PRICINGS = 3
#: Entries of the joint tables of marginals together.
_MARGINALS = 1 << 27


@dataclass(frozen=True, slots=True)
class SolveLimits:
    """Limits of work. ``table`` is the largest joint table of an elimination, in entries. ``near`` limits all tables
    together of an elimination with only near options (0: no such elimination). ``columns`` is the largest linear
    program (0: none), ``iterations`` the simplex iterations on it, or the work on the programs of all parts.
    ``integer`` is the largest integer program if a fitting choice is known, ``nodes`` the nodes of its search tree
    (fewer with more than a sixteenth of the columns). ``rounds`` are those of message passing, ``parts`` the parts of a
    choice that a search chooses again, each with half the columns. A search ends with a ``gap``; with ``enough``, no
    larger search begins."""

    table: int = 1 << 20
    near: int = 1 << 28
    columns: int = 200_000
    integer: int = 100_000
    iterations: int = 100_000
    nodes: int = 500
    rounds: int = 60
    parts: int = 50
    gap: float = 1e-4
    enough: float = 2e-3


def solve_choice(
    problem: ChoiceProblem, start: Sequence[int] | None = None, limits: SolveLimits | None = None
) -> ChosenOptions:
    """The cheapest choice found for ``problem``, never worse than a ``start`` that meets the rows. Raises `InputError`
    if the parts of the problem do not fit each other.
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
    """Bounds and choices from the dual, then from programs of the options that may be cheaper."""
    dual = DualBound(network, rows)
    best = improve_with_dual(dual, None if start is None else _locate(network, start), limits.rounds, limits.gap)
    bound, method = dual.bound, "dual and search"
    first, surplus = replace(best), None
    if limits.columns and has_highs() and not _is_closed(best, bound, limits.gap):
        dual.return_to_best()
        surplus = _tighten(dual, limits)
        bound, method = eliminate_near(dual, surplus, best, limits.near), "elimination of what is near"
        if not _is_closed(best, bound, limits.enough):
            bound, method = max(bound, _close(dual, surplus, best, limits)), "integer program"
        if bound == np.inf and not len(rows.rows):
            conflict = tuple(network.alive)
            return ChosenOptions(None, np.inf, np.inf, method, conflict=conflict, work=dual.work)
    if not _is_closed(best, bound, limits.enough) and _improve_parts(dual, first, best, limits) and surplus is not None:
        bound = max(bound, _close(dual, surplus, best, limits))
    answer = replace(_answer(problem, network, best.positions, bound, method, dual), work=dual.work)
    if start is None or (problem.usage(start) > problem.limits).any():
        return answer
    cost = problem.cost(start)
    if cost < answer.cost or (answer.excess is not None and np.isfinite(cost)):
        return replace(answer, choice=tuple(start), cost=cost, bound=min(bound, cost), excess=None)
    return answer


def _is_closed(best: Incumbent, bound: float, gap: float) -> bool:
    return best.excess <= 0 and best.cost - bound <= gap * abs(best.cost)


def _improve_parts(dual: DualBound, first: Incumbent, best: Incumbent, limits: SolveLimits) -> bool:
    """Improve ``best``, and the ``first`` choice that was found, part by part; returns whether ``best`` improved. The
    result of such a search depends on its first parts, so it runs several times from the first choice.
    """
    before, columns, begun = best.cost, limits.columns // 2, dual.work
    within = replace(
        limits,
        near=limits.near // _PART_SHARE,
        columns=columns,
        integer=limits.integer // 2,
        nodes=_PART_NODES,
        rounds=_PART_ROUNDS,
        parts=0,
    )

    def solve(part: ChoiceProblem, present: Sequence[int]) -> ChosenOptions:
        answer = solve_choice(part, present, within)
        dual.work += answer.work
        return answer

    def is_spent() -> bool:
        return dual.work - begun >= limits.iterations

    for seed in range(_SEARCHES if limits.parts * columns else 0):
        if is_spent():
            break
        begin = replace(best if seed == 0 else first)
        if begin.excess <= 0 and np.isfinite(begin.cost):
            improve_by_parts(dual.network, dual.rows, begin, seed, limits.parts * columns, columns, solve, is_spent)
            best.offer(begin.positions, begin.excess, begin.cost)
    return best.cost < before


def _close(dual: DualBound, surplus: Surplus, best: Incumbent, limits: SolveLimits) -> float:
    """A bound from programs of the options that may be cheaper than ``best``, which is updated with their results. The
    first programs have only the options nearest to the bound; omitted options cost more than the bound by their
    surplus.
    """
    bound, active = dual.bound, dual.pressed
    for columns in [limits.columns // n for n in _SHARES]:
        fits = best.excess <= 0 and np.isfinite(best.cost)
        if fits:
            surplus = sharpen(dual, surplus, best, min(limits.near, _MARGINALS))
            bound = max(bound, min(dual.bound + surplus.least, best.cost))
        most = best.cost - dual.bound if fits else np.inf
        too_many = fits and columns > limits.integer and surplus.spread(limits.integer, most) < most
        if too_many or _is_closed(best, bound, limits.enough):
            break
        spread = surplus.spread(columns, most)
        program = LinearProgram(dual, surplus, spread)
        size = max(len(program.objective), 1)
        nodes = max(limits.nodes * limits.columns // _SHARES[0] // size, 1)
        start = best.positions if fits else None
        result = solve_integer(program, start, min(nodes, limits.nodes), limits.gap, active)
        active = result.active
        if result.positions is not None:
            best.offer(result.positions, *measure(dual.network, dual.rows, result.positions))
        bound = max(bound, min(dual.bound + spread, result.bound))
        if spread == most or _is_closed(best, bound, limits.enough):
            break
    return bound


def _tighten(dual: DualBound, limits: SolveLimits) -> Surplus:
    """Improve the bound by linear programs within the limit of columns; returns the surpluses over it."""
    surplus = Surplus.of(dual)
    for _ in range(_PRICINGS):
        program = LinearProgram(dual, surplus, surplus.spread(limits.columns, np.inf))
        value = tighten(program, limits.iterations)
        if value is None:
            break
        multipliers = dual.multipliers
        dual.return_to_best()
        if len(program.objective) >= surplus.columns or value - dual.bound <= limits.gap * abs(value):
            return Surplus.of(dual)
        # What was left out makes its messages useless; its multipliers are as good.
        before = dual.bound
        dual.set_multipliers(multipliers)
        for _ in range(limits.rounds // _PRICINGS):
            dual.round()
        dual.return_to_best()
        surplus = Surplus.of(dual)
        if dual.bound <= before:
            break
    return surplus


def _locate(network: CostNetwork, start: Sequence[int]) -> dict[int, int]:
    """Positions of ``start``'s options; the cheapest option replaces a removed one."""
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
    """The excess of ``choice`` in the row of the largest proven excess, else in the row that it exceeds most. An excess
    is proven if even the memory that every choice uses after reductions exceeds the row."""
    over = problem.usage(choice) - problem.limits
    proven = network.spent - problem.limits
    row = int(proven.argmax()) if proven.max() > 0 else int(over.argmax())
    weights = [(u.variable, float(u.amounts[choice[u.variable]])) for u in problem.uses if u.start <= row < u.stop]
    heaviest = tuple(sorted(weights, key=lambda w: (-w[1], w[0])))
    return MemoryExcess(row, float(problem.limits[row]), max(float(proven[row]), 0.0), float(over[row]), heaviest)
