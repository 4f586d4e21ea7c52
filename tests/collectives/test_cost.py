"""Machines and the cost model of collectives."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import shardc.collectives.machine as machines
from shardc.collectives.cost import collective_cost, members_by_level, members_of
from shardc.collectives.machine import Machine, load_machine, machine_names
from shardc.hlo.errors import InputError

FOLDER = Path(machines.__file__).parent / "machines"


@pytest.fixture
def dgx() -> Machine:
    return load_machine("h100-dgx")


@pytest.mark.parametrize("name", machine_names())
def test_every_number_has_its_source(name: str) -> None:
    given = tomllib.loads((FOLDER / f"{name}.toml").read_text())
    assert load_machine(name).name == name == given["name"]
    for part in (given["device"], *given["levels"]):
        assert part["source"]
    assert all(level["latency_source"] for level in given["levels"])
    assert "transfers" not in given["device"] or given["device"]["transfers_source"]


def test_unknown_machines_and_bad_descriptions_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="h100-dgx"):
        load_machine("h1000")
    good = (FOLDER / "host.toml").read_text()
    for old, new, text in (
        ("bandwidth = 5e9", "bandwidth = -1", "bandwidth"),
        ('kind = "switch"', 'kind = "pigeon"', "pigeon"),
        ("[[levels]]", "[[level]]", "levels"),
        ("size = 0", "size = -3", "-3"),
        ("[device]", "[device", "cannot be read"),
    ):
        path = tmp_path / "bad.toml"
        assert old in good
        path.write_text(good.replace(old, new))
        with pytest.raises(InputError, match=text):
            load_machine(path)


def test_members_meet_at_levels(dgx: Machine) -> None:
    """Of a 4 x 16 mesh over nodes of eight: the inner axis spans two nodes, the outer one only nodes."""
    assert members_by_level(dgx, [(1, 16)]) == (8, 2)
    assert members_by_level(dgx, [(16, 4)]) == (1, 4)
    assert members_by_level(dgx, [(1, 4)]) == (4, 1)
    assert members_by_level(dgx, [(4, 4)]) == (2, 2)
    assert members_by_level(dgx, [(1, 2), (2, 8)]) == (8, 2)
    assert members_by_level(dgx, []) == (1, 1)


def test_bandwidth_dominates_large_and_latency_small_transfers(dgx: Machine) -> None:
    large = collective_cost(dgx, "all-reduce", 8e9, (8, 1))
    assert large.seconds == pytest.approx(2 * 8e9 * 7 / 8 / 450e9, rel=0.01)
    small = collective_cost(dgx, "all-reduce", 8, (8, 1))
    assert small.algorithm == "hierarchy"
    assert small.seconds == pytest.approx(2 * 3 * 3e-6, rel=0.01)


def test_what_crosses_slow_links_is_reduced_first(dgx: Machine) -> None:
    both = collective_cost(dgx, "all-reduce", 8e9, (8, 4))
    assert both.algorithm == "hierarchy"
    assert both.seconds < collective_cost(dgx, "all-reduce", 8e9, (1, 32)).seconds / 3


def test_parts_of_an_all_reduce_cost_as_much_as_it(dgx: Machine) -> None:
    n = 64e6
    whole = collective_cost(dgx, "all-reduce", n, (8, 2)).seconds
    parts = collective_cost(dgx, "reduce-scatter", n / 16, (8, 2)).seconds
    parts += collective_cost(dgx, "all-gather", n, (8, 2)).seconds
    assert whole == pytest.approx(parts)


@pytest.mark.parametrize("opcode", ["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"])
def test_costs_grow_with_size_and_vanish_for_one(dgx: Machine, opcode: str) -> None:
    assert collective_cost(dgx, opcode, 1e6, (1, 1)).seconds == 0
    times = [collective_cost(dgx, opcode, n, (8, 2)).seconds for n in (1e3, 1e6, 1e9)]
    assert times == sorted(times)
    assert times[0] > 0


def test_an_exchange_along_a_ring_passes_others() -> None:
    pod = load_machine("tpu-v4")
    near, far = (collective_cost(pod, "all-to-all", 1e9, (g, 1)).seconds for g in (4, 64))
    assert far > 10 * near


def test_members_of_listed_groups(dgx: Machine) -> None:
    assert members_of(dgx, (0, 1, 8, 9)) == (2, 2)
    assert members_of(dgx, range(16)) == (8, 2) == members_by_level(dgx, [(1, 16)])
    assert members_of(dgx, (0, 8, 16, 24)) == (1, 4) == members_by_level(dgx, [(8, 4)])
    assert members_of(dgx, (5,)) == (1, 1)
