"""The clocks of the scheduler and the simulator, written apart, agree on queues of transfers; and queues pay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.analysis.simulate.engine import run_clock
from shardc.analysis.simulate.run import simulate
from shardc.analysis.simulate.simulation import Simulation
from shardc.analysis.simulate.timed import Timed, TimedBranches, TimedDone, TimedLoop, TimedStart, TimedWork
from shardc.compiler.lower.described import lower_for
from shardc.costs.machines.machine import Machine, load_machine
from shardc.costs.network.mapping import place
from shardc.costs.network.transfer import Transfer
from shardc.hlo.ir.asynchronous import is_done, is_start, split
from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.types import array_shape
from shardc.partitioner.schedule import Inside, timeline
from tests.compiler.checking import program

SHAPE = array_shape("f32", (4,))
SUM = Computation("sum", (), Instruction("add", array_shape("f32")))
X = Instruction("parameter", SHAPE, (), {"index": 0}, name="x")
LINKS = ("nvlink", "infiniband")
MESH = Mesh({"x": 8, "y": 8})
H100 = load_machine("h100-dgx")
ONE = replace(H100, device=replace(H100.device, queued=1))
OVERHEAD = 0.125

_seconds = st.sampled_from([0.0, 0.25, 0.5, 1.0, 3.0, 7.0])
_links = st.lists(st.sampled_from(LINKS), min_size=1, max_size=2, unique=True)


@dataclass
class Both:
    """A program for both clocks: ``order`` with its costs for the scheduler's, ``timed`` for the simulator's."""

    order: list[Instruction] = field(default_factory=list)
    timed: list[Timed] = field(default_factory=list)
    own: dict[Instruction, float] = field(default_factory=dict)
    travels: dict[Instruction, Transfer] = field(default_factory=dict)
    holds: dict[Instruction, Inside] = field(default_factory=dict)

    def seconds(self, i: Instruction) -> float:
        return OVERHEAD if is_start(i) or is_done(i) else self.own.get(i, 0.0)

    def transfer(self, i: Instruction) -> Transfer | None:
        return self.travels.get(i)

    def inside(self, i: Instruction) -> Inside | None:
        return self.holds.get(i)


@st.composite
def _programs(draw: st.DrawFn, depth: int = 2, numbers: list[int] | None = None) -> Both:
    numbers = [0] if numbers is None else numbers
    out = Both()
    begun: list[tuple[int, Instruction]] = []

    def await_(number: int, done: Instruction) -> None:
        out.order.append(done)
        out.timed.append(TimedDone(number, OVERHEAD))

    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["work", "pair", "pair", "whole", "done", "loop", "choice"]))
        numbers[0] += 1
        number = numbers[0]
        if kind == "done" and begun:
            await_(*begun.pop(draw(st.integers(0, len(begun) - 1))))
        elif kind == "work":
            _work(out, number, draw(_seconds))
        elif kind in ("pair", "whole"):
            seconds, links = draw(_seconds.filter(bool)), draw(_links)
            whole = Instruction("all-reduce", SHAPE, (X,), {"to_apply": SUM}, name=f"c{number}")
            start, done = split(whole) if kind == "pair" else (whole, whole)
            out.order.append(start)
            out.travels[start] = Transfer(seconds, links[0], tuple(links))
            loads = dict.fromkeys(links, seconds)
            out.timed.append(TimedStart(number, seconds, loads, OVERHEAD if kind == "pair" else 0.0, kind == "whole"))
            if kind == "pair":
                begun.append((number, done))
        elif kind in ("loop", "choice") and depth:
            count = 1 if kind == "loop" else draw(st.integers(1, 2))
            parts = [draw(_programs(depth - 1, numbers)) for _ in range(count)]
            _nest(out, number, parts, draw(st.integers(0, 5)) if kind == "loop" else None)
    for number, done in begun:
        await_(number, done)
    return out


def _work(out: Both, number: int, seconds: float) -> None:
    i = Instruction("custom-call", SHAPE, (X,), {"custom_call_target": "work"}, name=f"k{number}")
    out.order.append(i)
    out.own[i] = seconds
    out.timed.append(TimedWork(number, seconds))


def _nest(out: Both, number: int, parts: Sequence[Both], trips: int | None) -> None:
    i = Instruction("custom-call", SHAPE, (X,), {"custom_call_target": "nest"}, name=f"n{number}")
    alone = [timeline(p.order, p).seconds for p in parts]
    out.order.append(i)
    out.holds[i] = Inside([(p.order, p) for p in parts], 1 if trips is None else trips, one=trips is None)
    if trips is None:
        out.own[i] = max(alone)
        out.timed.append(TimedBranches([p.timed for p in parts]))
    else:
        out.own[i] = trips * alone[0]
        out.timed.append(TimedLoop(f"loop{number}", trips, (), parts[0].timed))


@settings(max_examples=300, deadline=None)
@given(_programs())
def test_both_clocks_say_the_same(both: Both) -> None:
    assert timeline(both.order, both).seconds == pytest.approx(run_clock(both.timed, 1).now, rel=1e-6)


# -- whole programs --------------------------------------------------------------------------------------------------

_GROUPS = ("[8,8]<=[64]", "[8,8]<=[8,8]T(1,0)", "[1,64]<=[64]")


@st.composite
def _modules(draw: st.DrawFn) -> Module:
    """Products and sums over groups of either axis or both, each of what came before."""
    size = draw(st.sampled_from([1024, 4096]))
    shape = f"f32[{size},{size}]"
    lines = [f"v0 = {shape} parameter(0)", f"v1 = {shape} parameter(1)"]
    for n in range(2, draw(st.integers(5, 14))):
        a, b = (f"v{draw(st.integers(max(0, n - 5), n - 1))}" for _ in range(2))
        kind = draw(st.sampled_from(["reduce", "reduce", "dot", "add", "permute"]))
        if kind == "reduce":
            groups = f"replica_groups={draw(st.sampled_from(_GROUPS))}, channel_id={n}, use_global_device_ids=true"
            lines.append(f"v{n} = {shape} all-reduce({a}), {groups}, to_apply=sum")
        elif kind == "permute":
            step = draw(st.sampled_from([1, 8]))
            pairs = ",".join(f"{{{d},{(d + step) % 64}}}" for d in range(64))
            lines.append(f"v{n} = {shape} collective-permute({a}), channel_id={n}, source_target_pairs={{{pairs}}}")
        elif kind == "dot":
            lines.append(f"v{n} = {shape} dot({a}, {b}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}")
        else:
            lines.append(f"v{n} = {shape} add({a}, {b})")
    lines.append(f"ROOT r = {shape} add(v{len(lines) - 1}, v{len(lines) - 2})")
    return program("\n".join(lines), header=", num_partitions=64").with_(partitioned=True, mesh=MESH)


def _simulated(module: Module, machine: Machine) -> Simulation:
    placement = place(machine, MESH)
    return simulate(lower_for(module, placement), placement)


@settings(max_examples=25, deadline=None)
@given(_modules())
def test_programs_are_no_slower_with_a_queue(module: Module) -> None:
    assert H100.device.queued > 1
    queued, one = _simulated(module, H100), _simulated(module, ONE)
    assert queued.step_seconds <= one.step_seconds * 1.005
    assert queued.peak_bytes <= 1.11 * one.peak_bytes


def test_a_queue_hides_transfers_behind_one_long_kernel() -> None:
    """The sums of two values that are there from the start go on beside a product that is longer than both."""
    module = program(
        "a = f32[4096,4096] parameter(0)\nb = f32[4096,4096] parameter(1)\nw = f32[16384,16384] parameter(2)\n"
        "s = f32[4096,4096] all-reduce(a), replica_groups=[8,8]<=[64], channel_id=1, use_global_device_ids=true, "
        "to_apply=sum\n"
        "t = f32[4096,4096] all-reduce(b), replica_groups=[8,8]<=[64], channel_id=2, use_global_device_ids=true, "
        "to_apply=sum\n"
        "d = f32[16384,16384] dot(w, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        "u = f32[4096,4096] add(s, t)\n"
        "ROOT r = (f32[4096,4096], f32[16384,16384]) tuple(u, d)",
        header=", num_partitions=64",
    ).with_(partitioned=True, mesh=MESH)
    queued, one = _simulated(module, H100), _simulated(module, ONE)
    assert one.exposed_seconds > 0 and queued.exposed_seconds == 0
    flown = sorted((e for e in queued.events if e.kind == "transfer"), key=lambda e: e.begin)
    assert [e.queued > 0 for e in flown] == [False, True]
    assert flown[1].begin == pytest.approx(flown[0].begin + flown[0].seconds)
