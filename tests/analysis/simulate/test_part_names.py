"""Parts of one collective have its name and a number, wherever a simulated step is read."""

from __future__ import annotations

from pathlib import Path

import pytest

import shardc
from shardc.analysis.report.gather import report_data
from shardc.analysis.simulate.simulation import Simulation
from shardc.analysis.simulate.table import table
from shardc.analysis.simulate.trace import trace_events
from shardc.hlo.part_names import numbered_parts
from shardc.stages.stages import Partitioned
from tests.analysis.simulate.simulated_programs import PARTS

DEMO = Path(shardc.__file__).parent / "demo" / "step.hlo"
PARTS_READ = {"sums part 1 of 2", "sums part 2 of 2"}


@pytest.fixture
def partitioned(tmp_path: Path) -> Partitioned:
    (tmp_path / "parts.hlo").write_text(PARTS)
    return shardc.load(tmp_path / "parts.hlo").partition()


@pytest.fixture
def simulation(partitioned: Partitioned) -> Simulation:
    return partitioned.simulate("h100-dgx")


def test_parts_are_numbered_in_text_and_trace(simulation: Simulation) -> None:
    assert {w.name for w in simulation.work if w.kind == "collective"} == PARTS_READ
    assert all(name in table(simulation) for name in PARTS_READ)
    slices = {e["name"] for e in trace_events(simulation)["traceEvents"] if e["ph"] == "X"}
    assert slices >= PARTS_READ and not [name for name in slices if ".part" in name]


def test_the_report_explains_each_part_as_the_collective(partitioned: Partitioned, simulation: Simulation) -> None:
    explanation = partitioned.explanation("h100-dgx")
    data = report_data(partitioned, simulation=simulation, explanation=explanation)
    rows = {row["name"]: row["why"] for row in data["collectives"]}
    assert set(rows) == PARTS_READ and set(rows.values()) == {0}
    assert explanation.collectives[0].names == ("sums",)
    assert ".part" not in str(data["memory"]) and ".part" not in str(data["strings"])


def test_parts_that_are_joined_again_have_the_name_of_the_collective() -> None:
    """Lowering takes the all-reduces of the bundled step apart and joins them again."""
    partitioned = shardc.load(DEMO).partition()
    names = {c["name"] for c in partitioned.report()["collectives"]}
    simulated = {w.name for w in partitioned.simulate("h100-dgx").work if w.kind == "collective"}
    assert simulated == names and len(names) > 10


def test_a_collective_of_which_one_part_is_left_has_its_own_name() -> None:
    assert dict(numbered_parts(["a.part.2", "b.part.1", "b.part.3", "b.part.1"])) == {
        "a.part.2": "a",
        "b.part.1": "b part 1 of 2",
        "b.part.3": "b part 2 of 2",
    }
