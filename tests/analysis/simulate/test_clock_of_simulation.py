"""The simulator's clock against the plain one, on random programs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.analysis.simulate.engine import run_clock
from shardc.analysis.simulate.links import fair_rates
from shardc.analysis.simulate.timed import Timed, TimedBranches, TimedDone, TimedLoop, TimedStart, TimedWork
from tests.analysis.simulate.clock_oracle import run_plainly, shares

_LINKS = ("nvlink", "infiniband", "dcn")
_seconds = st.sampled_from([0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 7.0])
_uses = st.dictionaries(st.sampled_from(_LINKS), st.sampled_from([0.1, 0.25, 0.5, 0.9, 1.0]), max_size=3)


class _Numbers:
    def __init__(self) -> None:
        self.next = 0

    def new(self) -> int:
        self.next += 1
        return self.next - 1


@st.composite
def _blocks(draw: st.DrawFn, numbers: _Numbers, depth: int) -> tuple[Timed, ...]:
    """Steps in which every start has a done behind it."""
    out: list[Timed] = []
    open_starts: list[int] = []
    for _ in range(draw(st.integers(0, 5))):
        kind = draw(st.sampled_from(["task", "start", "start", "done", "sync", "loop", "choice"]))
        if kind == "task":
            out.append(TimedWork(numbers.new(), draw(_seconds)))
        elif kind in ("start", "sync"):
            seconds = draw(_seconds)
            loads = {link: part * seconds for link, part in draw(_uses).items()}
            work = numbers.new()
            out.append(TimedStart(work, seconds, loads, draw(st.sampled_from([0.0, 0.125])), kind == "sync"))
            if kind == "start":
                open_starts.append(work)
        elif kind == "done" and open_starts:
            out.append(TimedDone(open_starts.pop(draw(st.integers(0, len(open_starts) - 1))), 0.0))
        elif kind == "loop" and depth:
            condition = (TimedWork(numbers.new(), draw(st.sampled_from([0.0, 0.125]))),)
            trips = draw(st.integers(0, 12))
            out.append(TimedLoop(f"loop{numbers.new()}", trips, condition, draw(_blocks(numbers, depth - 1))))
        elif kind == "choice" and depth:
            out.append(TimedBranches(tuple(draw(_blocks(numbers, depth - 1)) for _ in range(draw(st.integers(1, 3))))))
    return (*out, *(TimedDone(work, 0.125) for work in open_starts))


@st.composite
def _programs(draw: st.DrawFn) -> tuple[Timed, ...]:
    return draw(_blocks(_Numbers(), 2))


def _close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6)


_limits = st.sampled_from([0, 1, 2])


@given(_programs(), _limits)
@settings(max_examples=240, deadline=None)
def test_clock_agrees_with_the_plain_one(program: tuple[Timed, ...], limit: int) -> None:
    """Also where iterations are skipped and branches are tried and taken back: the plain one does every step."""
    clock, plain = run_clock(program, limit), run_plainly(program, limit)
    tally = clock.tally
    assert _close(clock.now, plain.now)
    assert _close(tally.compute, plain.compute)
    assert _close(tally.exposed, plain.exposed)
    assert _close(tally.idle, plain.idle)
    assert _close(tally.overlapped, plain.overlapped)
    assert tally.count == plain.count
    for work in {*plain.waited, *tally.exposed_by}:
        assert _close(tally.exposed_by.get(work, 0.0), plain.waited.get(work, 0.0))


@given(_programs(), _limits)
@settings(max_examples=120, deadline=None)
def test_parts_add_up(program: tuple[Timed, ...], limit: int) -> None:
    clock = run_clock(program, limit)
    tally = clock.tally
    assert _close(tally.compute + tally.exposed + tally.idle, clock.now)
    assert tally.overlapped <= tally.compute + 1e-9
    assert _close(sum(p.seconds for p in clock.critical_path), clock.now)
    assert _close(sum(tally.exposed_by.values()), tally.exposed)
    busy = sorted((e.begin, e.begin + e.seconds) for e in clock.events if e.engine == "compute")
    assert all(end <= begin + 1e-9 for (_, end), (begin, _) in itertools.pairwise(busy))
    assert all(e.begin + e.seconds <= clock.now + 1e-9 for e in clock.events)


@given(_programs(), st.sampled_from([1, 2]))
@settings(max_examples=120, deadline=None)
def test_transfers_on_the_same_links_begin_in_the_order_of_their_starts(program: tuple[Timed, ...], limit: int) -> None:
    clock = run_clock(program, limit)
    for link in _LINKS:
        events = [e for e in clock.events if e.engine == link]
        for a, b in itertools.combinations(events, 2):
            started_a, started_b = a.begin - a.queued, b.begin - b.queued
            assert started_a >= started_b - 1e-6 or a.begin <= b.begin + 1e-6
            assert started_b >= started_a - 1e-6 or b.begin <= a.begin + 1e-6
        ends = sorted([(e.begin + 1e-6, 1) for e in events] + [(e.begin + e.seconds - 1e-6, -1) for e in events])
        flying = list(itertools.accumulate(change for _, change in ends))
        assert max(flying, default=0) <= limit


@given(_programs(), st.sampled_from([1, 2]))
@settings(max_examples=80, deadline=None)
def test_a_queue_costs_no_more_than_all_transfers_one_after_the_other(program: tuple[Timed, ...], limit: int) -> None:
    """Whatever is queued flies in the end, at full speed where it flies alone."""
    clock = run_clock(program, limit)
    transfers = sum(seconds * clock.tally.count.get(work, 0) for work, seconds in _transfers(program))
    assert clock.now <= clock.tally.compute + clock.tally.idle + transfers + 1e-6


def _transfers(steps: Iterable[Timed]) -> Iterator[tuple[int, float]]:
    for step in steps:
        if isinstance(step, TimedStart):
            yield step.work, step.seconds
        elif isinstance(step, TimedLoop):
            yield from _transfers((*step.condition, *step.body))
        elif isinstance(step, TimedBranches):
            yield from _transfers(s for branch in step.branches for s in branch)


@given(st.lists(_uses, max_size=6))
@settings(max_examples=120, deadline=None)
def test_rates_are_fair(uses: list[dict[str, float]]) -> None:
    rates = fair_rates(uses)
    assert rates == pytest.approx(shares(uses), abs=1e-6)
    share = [r * max(u.values(), default=0.0) for r, u in zip(rates, uses, strict=True)]
    full = {x for x in _LINKS if sum(r * u.get(x, 0.0) for r, u in zip(rates, uses, strict=True)) > 1 - 1e-9}
    assert all(sum(r * u.get(x, 0.0) for r, u in zip(rates, uses, strict=True)) <= 1 + 1e-9 for x in _LINKS)
    for n, u in enumerate(uses):
        # Who is slowed has full links on which nobody has more of what he needs most.
        crowded = [x for x in u if x in full and all(share[m] <= share[n] + 1e-9 for m, v in enumerate(uses) if x in v)]
        assert rates[n] > 1 - 1e-9 or crowded


def test_a_loop_costs_as_much_as_its_first_iterations() -> None:
    body = (TimedStart(1, 1.0, {"nvlink": 1.0}), TimedWork(2, 0.5), TimedDone(1))
    inner = TimedLoop("inner", 1000, (), body)
    long = TimedStart(0, 5000.5, {"infiniband": 5000.5})
    clock = run_clock((long, TimedLoop("outer", 1000, (), (inner, TimedWork(3, 1.0))), TimedDone(0)))
    assert clock.now == pytest.approx(1000 * 1001.0)
    assert clock.tally.count == {0: 1, 1: 10**6, 2: 10**6, 3: 1000}
    assert clock.tally.exposed == pytest.approx(0.5 * 10**6)
    assert clock.tally.hidden_by[0] == pytest.approx(5000.5)
    assert len(clock.events) < 50
    listed = {e.loops for e in clock.events if e.work == 3}
    assert (("outer", 0),) in listed
    jump = max(clock.skipped, key=lambda s: s.seconds)
    assert (jump.loop, jump.last, jump.loops) == ("outer", 999, ())


def test_the_second_transfer_waits_for_the_first_and_is_traced_so() -> None:
    both = {"nvlink": 2.0}
    clock = run_clock(
        (
            TimedStart(0, 2.0, both),
            TimedWork(1, 1.0),
            TimedStart(2, 2.0, both),
            TimedStart(3, 1.0, {"infiniband": 1.0}),
            TimedDone(2),
            TimedDone(0),
            TimedDone(3),
            TimedWork(4, 1.0),
        ),
        transfers=1,
    )
    assert clock.now == 5.0
    flown = {e.work: (e.begin, e.seconds, e.queued) for e in clock.events if e.kind == "transfer"}
    assert flown == {0: (0.0, 2.0, 0.0), 2: (2.0, 2.0, 1.0), 3: (1.0, 1.0, 0.0)}
    assert clock.tally.exposed_by == {2: 3.0}
    assert clock.tally.hidden_by == {0: 1.0, 3: 1.0}
    path = [(p.kind, p.work, p.seconds) for p in clock.critical_path]
    assert path == [("transfer", 0, 2.0), ("transfer", 2, 2.0), ("kernel", 4, 1.0)]


def test_a_loop_goes_on_behind_the_queue_that_it_finds() -> None:
    """Its transfers wait until those before it have landed; only then do its iterations repeat."""
    both = {"nvlink": 50.0}
    body = (TimedStart(2, 1.0, {"nvlink": 1.0}), TimedWork(3, 0.5), TimedDone(2))
    outer = (TimedStart(0, 50.0, both), TimedStart(1, 50.0, both))
    clock = run_clock((*outer, TimedLoop("loop", 1000, (), body), TimedDone(0), TimedDone(1)), transfers=1)
    assert clock.now == pytest.approx(100 + 1000)
    assert clock.tally.exposed == pytest.approx(100 + 1000 - 500)
    assert len(clock.events) < 20
    other = (TimedStart(2, 1.0, {"infiniband": 1.0}), TimedWork(3, 0.5), TimedDone(2))
    clock = run_clock((*outer, TimedLoop("loop", 1000, (), other), TimedDone(0), TimedDone(1)), transfers=1)
    assert clock.now == pytest.approx(1000)
    assert [e.queued for e in clock.events if e.work == 1] == pytest.approx([50.0])
    assert clock.tally.hidden_by[1] == pytest.approx(50.0)


def test_the_critical_path_goes_through_what_was_waited_for() -> None:
    clock = run_clock(
        (
            TimedWork(0, 1.0),
            TimedStart(1, 4.0, {"nvlink": 4.0}),
            TimedWork(2, 1.0),
            TimedStart(3, 0.5, {}, waits=True),
            TimedDone(1),
            TimedWork(4, 2.0),
        )
    )
    assert [(p.kind, p.work, p.seconds) for p in clock.critical_path] == [
        ("kernel", 0, 1.0),
        ("transfer", 1, 4.0),
        ("kernel", 4, 2.0),
    ]


def test_the_longest_branch_counts() -> None:
    clock = run_clock(
        (TimedBranches(((TimedWork(0, 1.0),), (TimedWork(1, 3.0), TimedWork(2, 1.0)), ())), TimedWork(3, 1.0))
    )
    assert clock.now == 5.0
    assert clock.tally.count == {1: 1, 2: 1, 3: 1}
    assert [e.work for e in clock.events] == [1, 2, 3]
