"""Collectives of a calibrated computer: at measured points exactly, beyond them in proportion."""

from __future__ import annotations

import pytest

from shardc.costs.machines.device import Device
from shardc.costs.machines.level import Level
from shardc.costs.machines.machine import Machine
from shardc.costs.machines.measured import RANKS, VIRTUAL, CollectiveCurve, Measured, Rates
from shardc.costs.network.collective_cost import collective_cost
from shardc.costs.network.mapping import place
from shardc.costs.network.measured_collectives import measured_collective
from shardc.hlo.ir.groups import ListGroups
from shardc.hlo.ir.mesh import Mesh

_RATES = Rates(1, 1, 1e-8, {}, ((1.0, 1e-11),), ((1.0, 1e-11),), ((1.0, 1e-11),))


def _curve(where: str, members: int, factor: float, opcode: str = "all-reduce") -> CollectiveCurve:
    return CollectiveCurve(where, opcode, members, ((1e3, 1e-6 * factor), (1e6, 1e-3 * factor)))


MEASURED = Measured(
    "cpu",
    2,
    "now",
    (_RATES,),
    (
        _curve(RANKS, 2, 1.0),
        _curve(RANKS, 4, 4.0),
        _curve(VIRTUAL, 2, 0.5),
        CollectiveCurve(RANKS, "reduce-scatter", 2, ((500.0, 1e-6), (5e5, 1e-3))),
    ),
)


def test_measured_points_are_met() -> None:
    assert measured_collective(MEASURED, "all-reduce", 1e3, 2, 2) == pytest.approx(1e-6)
    assert measured_collective(MEASURED, "all-reduce-start", 1e6, 4, 4) == pytest.approx(4e-3)
    assert measured_collective(MEASURED, "reduce-scatter", 500.0, 2, 2) == pytest.approx(1e-6)


def test_between_and_beyond() -> None:
    between = measured_collective(MEASURED, "all-reduce", 1e3, 3, 3)
    assert 1e-6 < between < 4e-6
    assert measured_collective(MEASURED, "all-reduce", 1e7, 2, 2) == pytest.approx(1e-2)
    assert measured_collective(MEASURED, "all-reduce", 1e3, 8, 8) == pytest.approx(8e-6)
    assert measured_collective(MEASURED, "all-reduce", 1.0, 2, 2) == pytest.approx(1e-6)


def test_groups_of_one_cost_nothing_and_others_have_a_curve() -> None:
    assert measured_collective(MEASURED, "all-reduce", 1e6, 1, 4) == 0.0
    assert measured_collective(MEASURED, "ragged-all-to-all", 1e3, 2, 2) == pytest.approx(1e-6)


def test_the_common_cost_function_asks_it() -> None:
    machine = Machine("this", Device(1 << 30, 1e10, {"f32": 1e9}), (Level("memory", 0, "switch", 1e9, 1e-6),))
    machine = Machine(machine.name, machine.device, machine.levels, measured=MEASURED)
    placement = place(machine, Mesh({"data": 4}))
    cost = collective_cost(placement, "all-reduce", 1e6, ListGroups(((0, 1, 2, 3),)))
    assert cost.seconds == pytest.approx(4e-3)
    assert cost.algorithm == "measured"
