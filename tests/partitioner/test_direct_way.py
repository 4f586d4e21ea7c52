"""The direct way leads from any layout to any other by moves, and is about as cheap as the best path."""

from __future__ import annotations

import random
import statistics

import pytest

from shardc.costs.machines.machine import load_machine
from shardc.hlo.ir.mesh import Mesh
from shardc.partitioner.emit.layout import AxisLayout, AxisTable
from shardc.partitioner.reshard.direct_way import direct_way
from shardc.partitioner.reshard.search import Resharder

DIMS = (64, 128, 32)


def random_layout(r: random.Random, table: AxisTable, *, partial: bool) -> AxisLayout:
    dims: list[tuple[int, ...]] = [()] * len(DIMS)
    unreduced: list[int] = []
    for a in r.sample(range(table.count), table.count):
        where = r.randrange(len(DIMS) + 2)
        if where < len(DIMS):
            dims[where] += (a,)
        elif where == len(DIMS) and partial:
            unreduced.append(a)
    return table.layout(dims, unreduced)


@pytest.mark.parametrize("mesh", [{"x": 4}, {"x": 2, "y": 2}, {"x": 8, "y": 2}, {"x": 4, "y": 2, "z": 2}])
def test_it_comes_to_any_layout_about_as_cheaply_as_a_search(mesh: dict[str, int]) -> None:
    r, table = random.Random(repr(mesh)), AxisTable(Mesh(tuple(mesh.items())))
    resharder = Resharder(table, load_machine("h100-dgx"))
    ratios = []
    for _ in range(60):
        source, target = (random_layout(r, table, partial=r.random() < 0.3) for _ in range(2))
        state = source
        for step in direct_way(table, source, target):
            assert step.before is state and step.after is not state
            state = step.after
        assert state is target, f"{source} to {target} ends in {state}"
        expected = resharder.expect(DIMS, 4, source, target)
        found = resharder.path(DIMS, 4, source, target)
        if found.cost[1]:
            ratios.append(expected / found.cost[0])
        elif not target.unreduced:
            assert expected == pytest.approx(found.cost[0])
    print(mesh, sorted(ratios))
    assert statistics.median(ratios) == pytest.approx(1, abs=0.05)


def test_bytes_stay_a_bound() -> None:
    table = AxisTable(Mesh((("x", 4), ("y", 2))))
    resharder = Resharder(table)
    source, target = table.layout(((0,), (), ())), table.layout(((), (0,), (1,)))
    assert resharder.expect(DIMS, 4, source, target) == resharder.at_least(DIMS, 4, source, target)
