"""A network as an integer program for HiGHS: binaries per option, the local polytope of pairs, rows of memory.

Relaxations of such programs are mostly integral. The budget is a number of nodes of the search tree; HiGHS counts no
other work of an integer program, so that a limit of time stands behind it, which programs of the size given here do
not come near.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.partitioner.strategy.solve.network import CostNetwork
from shardc.partitioner.strategy.solve.problem import Numbers
from shardc.partitioner.strategy.solve.rows import MemoryRows

__all__ = ["IntegerResult", "count_columns", "has_highs", "solve_integer"]

Indices = NDArray[np.intp]

#: HiGHS meets rows to this much of their limits.
_TOLERANCE = 1e-6
_SECONDS = 60.0
#: How often rows of memory are added, and how many at a time.
_ROUNDS = 12
_NEW_ROWS = 20


@dataclass(frozen=True, slots=True)
class IntegerResult:
    """Positions of options (None: none was found), a proven lower bound, and whether rows cannot be met at all."""

    positions: dict[int, int] | None
    bound: float
    impossible: bool


def has_highs() -> bool:
    """Is HiGHS installed?"""
    from importlib.util import find_spec

    return find_spec("highspy") is not None


def count_columns(network: CostNetwork) -> int:
    """How large the integer program would be."""
    pairs = sum(int(np.isfinite(t).sum()) for v in network.alive for u, t in network.tables[v].items() if v < u)
    return pairs + sum(len(network.costs[v]) for v in network.alive)


class _Columns:
    """Entries of the constraints, gathered row by row."""

    def __init__(self) -> None:
        self.rows: list[Indices] = []
        self.columns: list[Indices] = []
        self.values: list[Numbers] = []
        self.low: list[Numbers] = []
        self.high: list[Numbers] = []
        self.count = 0

    def add(self, rows: Indices, columns: Indices, value: Numbers | float) -> None:
        self.rows.append(rows)
        self.columns.append(columns)
        self.values.append(np.broadcast_to(np.asarray(value, float), rows.shape))

    def close(self, count: int, low: Numbers | float, high: Numbers | float) -> None:
        self.low.append(np.broadcast_to(np.asarray(low, float), (count,)))
        self.high.append(np.broadcast_to(np.asarray(high, float), (count,)))
        self.count += count


def solve_integer(
    network: CostNetwork,
    rows: MemoryRows,
    start: Mapping[int, int] | None,
    hint: Sequence[int],
    nodes: int,
    gap: float,
) -> IntegerResult:
    """The cheapest positions of what is left of ``network``, in trees of at most ``nodes`` nodes, within ``gap``.

    Rows of memory come in as they are exceeded, those of ``hint`` first: bounds hold without the others too.
    """
    active = set(hint)
    bound, slack = -np.inf, 0.0
    result = IntegerResult(None, bound, False)
    for _ in range(_ROUNDS):
        result = _solve_relaxed(network, rows, sorted(active), slack, start, nodes, gap)
        if not slack:
            bound = max(bound, result.bound)
        if result.positions is None:
            return IntegerResult(None, bound, result.impossible and not slack)
        over = rows.used(result.positions) - rows.limits
        fresh = [k for k in np.argsort(-over, kind="stable").tolist() if over[k] > 0 and k not in active]
        if not (over > 0).any() or (slack and not fresh):
            break
        active.update(fresh[:_NEW_ROWS])
        if not fresh:
            slack = 2 * _TOLERANCE
    return IntegerResult(result.positions, bound, False)


def _solve_relaxed(
    network: CostNetwork,
    rows: MemoryRows,
    active: Sequence[int],
    slack: float,
    start: Mapping[int, int] | None,
    nodes: int,
    gap: float,
) -> IntegerResult:
    """The program with the ``active`` rows only, each with ``slack`` of its limit left free."""
    import highspy

    entries = _Columns()
    costs = _add_variables(entries, network)
    binaries = sum(len(c) for c in costs)
    costs += _add_pairs(entries, network, rows.offsets, binaries)
    for row in active:
        slots, amounts = rows.entries(row)
        scale = max(float(rows.limits[row]), 1.0)
        entries.add(np.full(len(slots), entries.count), slots, amounts / scale)
        entries.close(1, -np.inf, float(rows.limits[row]) / scale - slack)
    objective = np.concatenate(costs)
    scale = 1e3 / max(float(np.abs(objective).max(initial=0.0)), 1e-300)
    h: Any = highspy.Highs()
    for name, value in {
        "output_flag": False,
        "threads": 1,
        "random_seed": 0,
        "time_limit": _SECONDS,
        "mip_max_nodes": nodes,
        "mip_rel_gap": gap,
    }.items():
        h.setOptionValue(name, value)
    h.passModel(_model(highspy, entries, objective * scale, network.base * scale, binaries))
    if start is not None:
        chosen = np.zeros(binaries)
        chosen[[rows.offsets[v] + k for v, k in start.items()]] = 1.0
        h.setSolution(binaries, np.arange(binaries, dtype=np.int32), chosen)
    h.run()
    if h.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
        return IntegerResult(None, np.inf, True)
    info = h.getInfo()
    bound = float(info.mip_dual_bound) / scale
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return IntegerResult(None, bound, False)
    values = np.array(h.getSolution().col_value[:binaries])
    ends = {v: at + len(network.costs[v]) for v, at in rows.offsets.items()}
    return IntegerResult({v: int(np.argmax(values[at : ends[v]])) for v, at in rows.offsets.items()}, bound, False)


def _add_variables(entries: _Columns, network: CostNetwork) -> list[Numbers]:
    """A binary per option, of which one is chosen; the costs of these columns."""
    costs = [network.costs[v] for v in network.alive]
    variables = np.repeat(np.arange(len(costs)), [len(c) for c in costs])
    entries.add(variables, np.arange(len(variables)), 1.0)
    entries.close(len(costs), 1.0, 1.0)
    return costs


def _add_pairs(entries: _Columns, network: CostNetwork, first: Mapping[int, int], size: int) -> list[Numbers]:
    """A column per allowed pair of options, whose sums over either side are the other's binaries."""
    costs: list[Numbers] = []
    for v in network.alive:
        for u, table in network.tables[v].items():
            if v > u:
                continue
            i, j = np.nonzero(np.isfinite(table))
            costs.append(table[i, j])
            columns = np.arange(size, size + len(i))
            size += len(i)
            for at, index, count in ((first[v], i, table.shape[0]), (first[u], j, table.shape[1])):
                entries.add(entries.count + index, columns, 1.0)
                entries.add(entries.count + np.arange(count), at + np.arange(count), -1.0)
                entries.close(count, 0.0, 0.0)
    return costs


def _model(highspy: Any, entries: _Columns, objective: Numbers, offset: float, binaries: int) -> Any:
    """HiGHS's own form of the program, by columns."""
    rows, columns = np.concatenate(entries.rows), np.concatenate(entries.columns)
    # A variable may use memory of one row several times: one entry each.
    places, inverse = np.unique(columns * entries.count + rows, return_inverse=True)
    values = np.bincount(inverse, np.concatenate(entries.values))
    columns, rows = np.divmod(places, entries.count)
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(objective), entries.count
    model.col_cost_, model.offset_ = objective, offset
    model.col_lower_, model.col_upper_ = np.zeros(len(objective)), np.ones(len(objective))
    model.row_lower_, model.row_upper_ = np.concatenate(entries.low), np.concatenate(entries.high)
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = np.searchsorted(columns, np.arange(len(objective) + 1)).astype(np.int32)
    model.a_matrix_.index_ = rows.astype(np.int32)
    model.a_matrix_.value_ = values
    kinds = [highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger]
    model.integrality_ = [kinds[k < binaries] for k in range(len(objective))]
    return model
