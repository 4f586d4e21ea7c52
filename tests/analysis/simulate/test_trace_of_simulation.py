"""Traces of simulated steps: what a viewer of the format would do with them works."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardc.analysis.simulate.simulated_step import SimulatedEvent
from shardc.analysis.simulate.trace import lanes, trace_events, write_trace
from shardc.hlo.errors import InputError
from tests.analysis.simulate.fake_simulation import LISTED, TRIPS, fake_simulation

SIMULATION = fake_simulation()
ROWS: list[dict[str, Any]] = trace_events(SIMULATION)["traceEvents"]
TRACKS = {r["tid"]: r["args"]["name"] for r in ROWS if r["name"] == "thread_name"}


def slices(track: str) -> list[dict[str, Any]]:
    return [r for r in ROWS if r["ph"] == "X" and TRACKS[r["tid"]] == track]


def test_a_track_for_each_engine_and_a_lane_where_transfers_overlap() -> None:
    assert list(TRACKS.values()) == ["loops", "compute", "infiniband (1)", "infiniband (2)", "nvlink"]


def test_every_event_is_there_once() -> None:
    kinds = [r["cat"].split()[0] for r in ROWS if r["ph"] == "X" and r["cat"] not in ("loop", "skipped")]
    assert sorted(kinds) == sorted(e.kind for e in SIMULATION.events)
    total = sum(r["dur"] for r in slices("compute"))
    assert total == pytest.approx(SIMULATION.step_seconds * 1e6)


def test_slices_of_a_track_nest() -> None:
    for tid, track in TRACKS.items():
        open_ends: list[int] = []
        for row in [r for r in ROWS if r["ph"] == "X" and r["tid"] == tid]:
            begin, end = round(row["ts"] * 1e3), round((row["ts"] + row["dur"]) * 1e3)
            while open_ends and open_ends[-1] <= begin:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1], (track, row["name"])
            open_ends.append(end)


def test_skipped_iterations_are_one_block() -> None:
    (block,) = [r for r in slices("compute") if r["cat"] == "skipped"]
    assert block["args"]["iterations"] == TRIPS - LISTED
    names = [r["name"] for r in slices("loops")]
    expected = ["while.7", *(f"iteration {n}" for n in range(LISTED)), "iterations 3 to 39, like the one before"]
    assert names == expected


def test_arrows_lead_from_start_over_transfer_to_wait() -> None:
    flows: dict[int, list[dict[str, Any]]] = {}
    for row in ROWS:
        if row["ph"] in "stf":
            flows.setdefault(row["id"], []).append(row)
    assert len(flows) == sum(e.kind == "transfer" for e in SIMULATION.events)
    reduces = [rows for rows in flows.values() if rows[0]["name"] == "all-reduce.4"]
    assert [[TRACKS[r["tid"]] for r in rows] for rows in reduces] == [["compute", "nvlink", "compute"]] * LISTED
    for rows in flows.values():
        for row in rows:
            around = [s for s in slices(TRACKS[row["tid"]]) if s["ts"] <= row["ts"] <= s["ts"] + s["dur"]]
            assert around, row


def test_memory_is_a_counter() -> None:
    counted = [(r["ts"], r["args"]["bytes"]) for r in ROWS if r["ph"] == "C"]
    assert counted == [(round(t * 1e9) / 1e3, b) for t, b in SIMULATION.memory_curve]


def test_facts_of_a_collective() -> None:
    row = next(r for r in slices("nvlink") if r["cat"] == "transfer all-reduce")
    assert row["args"]["axes"] == ["model"] and row["args"]["link_bytes"] == {"nvlink": 3 << 21}
    assert row["args"]["reason"] == "the product is contracted over model"
    assert "flops" not in row["args"] and row["args"]["iteration of while.7"] == 0


def test_written_whole_as_strict_json(tmp_path: Path) -> None:
    write_trace(fake_simulation(evil="\u2028</script>\"'"), tmp_path / "t.json")
    again = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))
    assert len(again["traceEvents"]) == len(ROWS)
    with pytest.raises(InputError):
        write_trace(SIMULATION, tmp_path / "missing" / "t.json")


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9))))
def test_lanes_never_overlap(pairs: list[tuple[int, int]]) -> None:
    events = [
        SimulatedEvent("x", "transfer", n, begin * 1e-9, length * 1e-9) for n, (begin, length) in enumerate(pairs)
    ]
    split = lanes(events)
    assert sorted(e.work for lane in split for e in lane if isinstance(e, SimulatedEvent)) == list(range(len(pairs)))
    for lane in split:
        for a, b in itertools.pairwise(lane):
            assert a.begin + a.seconds <= b.begin + 1e-12
    busiest = max((sum(b <= t < b + n for b, n in pairs) for t in range(40)), default=0)
    assert len(split) <= max(busiest, 1) + sum(n == 0 for _, n in pairs)
