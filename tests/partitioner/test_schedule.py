"""The latency-hiding schedule: its properties on random graphs, and what it gains where the answer is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.costs.network.transfer import Transfer
from shardc.hlo.ir.asynchronous import is_done, is_start, join_pair, split
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.types import array_shape
from shardc.partitioner.schedule import Inside, list_schedules, timeline

SHAPE = array_shape("f32", (4,))
SUM = Computation("sum", (), Instruction("add", array_shape("f32")))


class FixedCosts:
    """Seconds by name; collectives go over the channel that their name ends with."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self._seconds = seconds

    def seconds(self, i: Instruction) -> float:
        return 0.0 if is_start(i) or is_done(i) else self._seconds.get(i.name, 0.0)

    def transfer(self, i: Instruction) -> Transfer | None:
        if not is_start(i):
            return None
        name = i.name.removesuffix(".start")
        return Transfer(self._seconds[name], name[-1])

    def inside(self, i: Instruction) -> Inside | None:
        return None


def kernel(name: str, *operands: Instruction) -> Instruction:
    return Instruction("custom-call", SHAPE, operands, {"custom_call_target": "work"}, name=name)


def pair(name: str, operand: Instruction) -> tuple[Instruction, Instruction]:
    return split(Instruction("all-reduce", SHAPE, (operand,), {"to_apply": SUM}, name=name))


def computation(instructions: Sequence[Instruction]) -> Computation:
    last = Instruction("tuple", SHAPE, [i for i in instructions if not is_start(i)], name="root")
    return Computation("main", (*instructions, last), last)


def flights(order: Sequence[Instruction]) -> dict[str, int]:
    """Most transfers at a time by channel."""
    now: dict[str, int] = {}
    most: dict[str, int] = {}
    for i in order:
        start = i if is_start(i) else i.operands[0] if is_done(i) else None
        if start is not None:
            channel = start.name.removesuffix(".start")[-1]
            now[channel] = now.get(channel, 0) + (1 if start is i else -1)
            most[channel] = max(most.get(channel, 0), now[channel])
    return most


def parameter() -> Instruction:
    return Instruction("parameter", SHAPE, (), {"index": 0}, name="x")


def test_a_transfer_goes_on_beside_what_does_not_need_it() -> None:
    x = parameter()
    start, done = pair("a", x)
    long, short = kernel("long", x), kernel("short", done)
    costs = FixedCosts({"a": 3.0, "long": 4.0, "short": 1.0})
    plans = list(list_schedules(computation([x, start, done, short, long]), costs, (1,)))
    assert plans[0].timeline.seconds == 8.0  # side by side: the transfer first
    best = min(plans, key=lambda p: p.timeline.seconds)
    assert best.timeline.seconds == 5.0
    assert [i.name for i in best.order] == ["x", "a.start", "long", "a", "short", "root"]
    assert (best.timeline.exposed[start], best.timeline.hidden[start]) == (0.0, 3.0)


def test_what_a_transfer_waits_for_is_computed_first() -> None:
    """Reverse order of layers, as in a backward pass: only priorities by the longest way see that."""
    x = parameter()
    other, needed = kernel("other", x), kernel("needed", x)
    start, done = pair("a", needed)
    costs = FixedCosts({"a": 4.0, "other": 4.0, "needed": 1.0})
    plans = list_schedules(computation([x, other, needed, start, done]), costs, (1,))
    assert min(p.timeline.seconds for p in plans) == 5.0


def test_one_channel_takes_one_transfer_at_a_time_and_two_channels_two() -> None:
    x = parameter()
    for names, wanted in (("aa", 4.0), ("ab", 2.0)):
        pairs = [pair(f"{n}{c}", x) for n, c in enumerate(names)]
        order = [x, *(s for s, _ in pairs), *(d for _, d in pairs)]
        costs = FixedCosts({f"{n}{c}": 2.0 for n, c in enumerate(names)})
        assert timeline(order, costs).seconds == wanted


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Computation, dict[str, float]]:
    values = [parameter()]
    instructions = [values[0]]
    seconds: dict[str, float] = {}
    for n in range(draw(st.integers(1, 24))):
        operands = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
        time = draw(st.sampled_from([0.0, 0.5, 1.0, 3.0]))
        if draw(st.booleans()):
            name = f"t{n}{draw(st.sampled_from('ab'))}"
            made = list(pair(name, operands[0]))
        else:
            name = f"k{n}"
            made = [kernel(name, *operands)]
        seconds[name] = time
        instructions += made
        values.append(made[-1])
    return computation(instructions), seconds


@settings(max_examples=150, deadline=None)
@given(graphs(), st.integers(1, 4))
def test_every_schedule_is_legal_and_the_best_no_slower_than_none(
    graph: tuple[Computation, dict[str, float]], limit: int
) -> None:
    c, seconds = graph
    costs = FixedCosts(seconds)
    plans = list(list_schedules(c, costs, (limit,)))
    for plan in plans:
        assert sorted(i.name for i in plan.order) == sorted(i.name for i in c)
        seen: set[Instruction] = set()
        for i in plan.order:
            assert all(o in seen for o in i.operands), i
            seen.add(i)
        assert all(n <= limit for n in flights(plan.order).values())
        run = timeline(plan.order, costs)
        assert run == plan.timeline
        computing = sum(s for name, s in seconds.items() if name[0] == "k")
        assert run.seconds == pytest.approx(computing + sum(run.exposed.values()))
        for start, hidden in run.hidden.items():
            assert hidden >= 0 and run.exposed[start] >= 0
    alone = plans[0].timeline.seconds
    assert alone == pytest.approx(sum(seconds.values()))
    assert min(p.timeline.seconds for p in plans) <= alone
    again = list(list_schedules(c, costs, (limit,)))
    assert [p.order for p in again] == [p.order for p in plans]


@settings(max_examples=100, deadline=None)
@given(graphs())
def test_with_a_queue_the_best_is_no_slower(graph: tuple[Computation, dict[str, float]]) -> None:
    c, seconds = graph
    costs = FixedCosts(seconds)
    one = min(p.timeline.seconds for p in list_schedules(c, costs, (1,)))
    assert min(p.timeline.seconds for p in list_schedules(c, costs, (4, 2, 1))) <= one


def test_a_transfer_that_waits_in_a_queue_needs_nobody_when_its_turn_comes() -> None:
    """One kernel is longer than both transfers: with one begun at a time, the second begins behind it."""
    x = parameter()
    (s0, d0), (s1, d1) = pair("0a", x), pair("1a", x)
    long, last = kernel("long", x), kernel("last", d0, d1)
    costs = FixedCosts({"0a": 3.0, "1a": 3.0, "long": 8.0, "last": 1.0})
    c = computation([x, s0, d0, s1, d1, long, last])
    assert min(p.timeline.seconds for p in list_schedules(c, costs, (1,))) == 12.0
    best = min(list_schedules(c, costs, (2,)), key=lambda p: p.timeline.seconds)
    assert best.timeline.seconds == 9.0
    assert (best.timeline.hidden[s0], best.timeline.hidden[s1]) == (3.0, 6.0)


@settings(max_examples=100, deadline=None)
@given(graphs(), st.integers(1, 4), st.data())
def test_joined_pairs_are_timed_as_one_operation(
    graph: tuple[Computation, dict[str, float]], limit: int, data: st.DataObject
) -> None:
    c, seconds = graph
    costs = FixedCosts(seconds)
    for plan in list_schedules(c, costs, (limit,)):
        starts = [i for i in plan.order if is_start(i)]
        joined = {s for s in starts if data.draw(st.booleans())}
        done = {i.operands[0]: i for i in plan.order if is_done(i)}
        moved = [i for i in plan.order if not (is_done(i) and i.operands[0] in joined)]
        order = [x for i in moved for x in ((i, done[i]) if i in joined else (i,))]
        assert timeline(plan.order, costs, joined).seconds == pytest.approx(timeline(order, costs).seconds)


@pytest.mark.parametrize("opcode", ["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"])
def test_pairs_come_apart_and_together(opcode: str) -> None:
    one = Instruction(opcode, SHAPE, (parameter(),), {"channel_id": 1}, name="c")
    start, done = split(one)
    assert is_start(start) and is_done(done) and not is_start(one) and not is_done(start)
    assert done.shape is one.shape and done.operands == (start,)
    whole = join_pair(start)
    assert (whole.opcode, whole.shape, whole.operands, whole.name) == (opcode, SHAPE, one.operands, "c")
    assert whole.attrs == one.attrs
