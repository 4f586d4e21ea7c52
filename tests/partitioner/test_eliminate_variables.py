"""The network solver against trying everything."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from shardc.partitioner.regions import eliminate_variables
from shardc.partitioner.regions.eliminate_variables import Network


def network(seed: int, *, tree: bool) -> Network:
    """Random costs between a few variables; some pairs forbidden, but never the present values."""
    r = random.Random(seed)
    rng = np.random.default_rng(seed)
    n = Network()
    variables = [n.variable(r.randint(1, 4)) for _ in range(r.randint(1, 7))]
    for v in variables:
        n.present[v] = r.randrange(n.sizes[v])
        n.add((v,), rng.integers(0, 20, n.sizes[v]).astype(float))
    pairs = [(r.randrange(v), v) for v in variables[1:]] if tree else [(r.choice(variables), v) for v in variables * 2]
    for a, b in pairs:
        if a == b:
            continue
        table = rng.integers(0, 20, (n.sizes[a], n.sizes[b])).astype(float)
        table[rng.random(table.shape) < 0.2] = np.inf
        table[n.present[a], n.present[b]] = r.randint(0, 20)
        n.add((a, b), table)
    return n


def cost(n: Network, values: tuple[int, ...] | list[int]) -> float:
    return sum(float(f.table[tuple(values[v] for v in f.variables)]) for f in n.factors)


def least(n: Network) -> float:
    return min(cost(n, values) for values in itertools.product(*map(range, n.sizes)))


@pytest.mark.parametrize("tree", [True, False])
def test_the_least_cost_is_found(tree: bool) -> None:
    for seed in range(150):
        n = network(seed, tree=tree)
        assert cost(n, n.solve()) == least(n), seed


def test_where_tables_would_be_large_nothing_gets_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eliminate_variables, "_LARGEST", 12)
    exact = 0
    for seed in range(150):
        n = network(seed, tree=False)
        found = cost(n, n.solve())
        assert found <= cost(n, n.present), seed
        exact += found == least(n)
    assert exact > 75
