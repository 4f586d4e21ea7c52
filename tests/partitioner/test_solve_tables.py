"""Choices with tables of one to three variables against trying everything."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

import numpy as np
import pytest

from shardc.partitioner.strategy.solve.eliminate import CostTable
from shardc.partitioner.strategy.solve.solve import SolveLimits
from shardc.partitioner.strategy.solve.solve_tables import solve_tables


def random_tables(seed: int) -> tuple[list[int], list[CostTable], list[int]]:
    """Sizes, tables of whole numbers, some entries forbidden, and values that are allowed."""
    r, rng = random.Random(seed), np.random.default_rng(seed)
    sizes = [r.randint(1, 4) for _ in range(r.randint(1, 7))]
    start = [r.randrange(n) for n in sizes]
    scopes = [(v,) for v in range(len(sizes))]
    for _ in range(2 * len(sizes)):
        count = min(r.randint(0, 3), len(sizes))
        scopes.append(tuple(r.sample(range(len(sizes)), count)))
    tables = []
    for scope in scopes:
        table = np.asarray(rng.integers(0, 20, [sizes[v] for v in scope]), float)
        table[rng.random(table.shape) < 0.2] = np.inf
        table[tuple(start[v] for v in scope)] = r.randint(0, 20)
        tables.append(CostTable(scope, table))
    return sizes, tables, start


def cost(tables: Sequence[CostTable], values: Sequence[int]) -> float:
    return math.fsum(float(t.table[tuple(values[v] for v in t.variables)]) for t in tables)


@pytest.mark.parametrize("largest", [0, 12, 1 << 20])
def test_the_least_sum_is_found(largest: int) -> None:
    """By elimination, and as pairs where that is not allowed."""
    for seed in range(100):
        sizes, tables, start = random_tables(seed)
        found = solve_tables(sizes, tables, start, SolveLimits(table=largest, gap=0.0, enough=0.0))
        least = min(cost(tables, values) for values in itertools.product(*map(range, sizes)))
        assert cost(tables, found) == least, seed


def test_little_work_makes_nothing_worse_than_it_was() -> None:
    exact = 0
    for seed in range(100):
        sizes, tables, start = random_tables(seed)
        found = solve_tables(sizes, tables, start, SolveLimits(table=0, columns=0, rounds=1))
        assert cost(tables, found) <= cost(tables, start), seed
        exact += cost(tables, found) == min(cost(tables, v) for v in itertools.product(*map(range, sizes)))
    assert exact > 75
