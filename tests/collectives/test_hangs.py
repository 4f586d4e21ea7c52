"""Schedules that are accepted never hang, whatever the devices' speed; what would hang is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shardc.collectives.call.call import BufferRef, CollectiveCall, CollectiveOperand
from shardc.collectives.call.schedule import (
    Schedule,
    ScheduleBranch,
    ScheduledAwait,
    ScheduledCollective,
    ScheduledStart,
    ScheduleLoop,
    check_schedule,
)
from shardc.hlo.errors import UnsupportedError, VerificationError
from shardc.hlo.ir.groups import ListGroups, ListPairs
from shardc.hlo.ir.types import DTYPES

Item = ScheduledCollective | ScheduledStart | ScheduledAwait
DEVICES = 4
GROUPS = (((0, 1, 2, 3),), ((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0,), (1,), (2,), (3,)))
PAIRS = (((0, 1), (1, 0)), ((0, 1), (3, 2)), ((0, 1), (1, 2), (2, 3), (3, 0)))


def call(index: int, groups: tuple[tuple[int, ...], ...], *, asynchronous: bool = False) -> CollectiveCall:
    place = CollectiveOperand(BufferRef("arena", 0, 64, 4), BufferRef("arena", 0, 128, 4), DTYPES["f32"], 1)
    members: ListGroups | ListPairs = ListPairs(groups) if groups in PAIRS else ListGroups(groups)
    op = "collective-permute" if groups in PAIRS else "all-reduce"
    reduction = "" if groups in PAIRS else "add"
    source = f"model.py:{index}"
    return CollectiveCall(index, op, reduction, members, (place,), f"c{index}", source, asynchronous=asynchronous)


@st.composite
def programs(draw: st.DrawFn) -> tuple[Schedule, list[CollectiveCall]]:
    """A schedule with loops, choices and pairs; groups and branches at random, so that many would hang."""
    calls: list[CollectiveCall] = []

    def block(depth: int) -> Schedule:
        items: list[object] = []
        for _ in range(draw(st.integers(0, 3))):
            kind = draw(st.sampled_from(("whole", "pair", "loop", "choice", "split") if depth else ("whole", "pair")))
            if kind in ("whole", "pair"):
                index = len(calls)
                calls.append(call(index, draw(st.sampled_from(GROUPS + PAIRS)), asynchronous=kind == "pair"))
                items.append(ScheduledStart(index) if kind == "pair" else ScheduledCollective(index))
                if kind == "pair":
                    items.insert(draw(st.integers(len(items), len(items))), ScheduledAwait(index))
            elif kind == "loop":
                items.append(ScheduleLoop(block(depth - 1)))
            else:
                branches = (block(depth - 1), block(depth - 1))
                split = tuple(draw(st.integers(0, 1)) for _ in range(DEVICES)) if kind == "split" else None
                items.append(ScheduleBranch(branches, split))
        return tuple(late(items, draw))  # type: ignore[arg-type]

    return block(2), calls


def late(items: list[object], draw: st.DrawFn) -> list[object]:
    """Dones at random places behind their starts."""
    out: list[object] = []
    waiting: list[object] = []
    for item in items:
        if isinstance(item, ScheduledAwait):
            waiting.append(item)
        else:
            out.append(item)
        while waiting and draw(st.booleans()):
            out.append(waiting.pop(draw(st.integers(0, len(waiting) - 1))))
    return out + waiting


def hangs(
    ways: Sequence[Sequence[Item]], calls: Sequence[CollectiveCall], rng: np.random.Generator, *, strict: bool
) -> bool:
    """One run of devices at random speeds. A done waits for the others' dones; if not ``strict``, for their starts."""
    at = [0] * DEVICES
    came: list[Counter[Item]] = [Counter() for _ in range(DEVICES)]
    members = {c.index: c.groups.expand() for c in calls}

    def may_go(device: int) -> bool:
        item = ways[device][at[device]]
        if isinstance(item, ScheduledStart):
            return True
        awaited: Item = ScheduledStart(item.index) if isinstance(item, ScheduledAwait) and not strict else item
        together = {d for group in members[item.index] if device in group for d in group}
        return all(came[d][awaited] >= came[device][item] for d in together)

    def come(device: int) -> None:
        if at[device] < len(ways[device]):
            came[device][ways[device][at[device]]] += 1

    for device in range(DEVICES):
        come(device)
    while True:
        able = [d for d in range(DEVICES) if at[d] < len(ways[d]) and may_go(d)]
        if not able:
            return any(at[d] < len(ways[d]) for d in range(DEVICES))
        device = int(rng.choice(able))
        at[device] += 1
        come(device)


def way(
    schedule: Schedule, device: int, alike: Callable[[ScheduleBranch], int], times: Callable[[ScheduleLoop], int]
) -> Iterator[Item]:
    """What a device comes to, when choices that all make alike and loops go so."""
    for item in schedule:
        match item:
            case ScheduleLoop(body):
                for _ in range(times(item)):
                    yield from way(body, device, alike, times)
            case ScheduleBranch(branches, taken):
                chosen = alike(item) if taken is None else taken[device]
                yield from way(branches[chosen], device, alike, times)
            case _:
                yield item


def at_random(schedule: Schedule, rng: np.random.Generator) -> list[list[Item]]:
    """Every device's way through one run."""
    drawn: dict[int, int] = {}
    return [
        list(
            way(
                schedule,
                device,
                lambda c: drawn.setdefault(id(c), int(rng.integers(0, len(c.branches)))),
                lambda r: drawn.setdefault(id(r), int(rng.integers(0, 4))),
            )
        )
        for device in range(DEVICES)
    ]


@settings(max_examples=120, deadline=None)
@given(programs(), st.integers(0, 1 << 30))
def test_what_is_accepted_never_hangs_and_what_is_refused_can(
    program: tuple[Schedule, list[CollectiveCall]], seed: int
) -> None:
    schedule, calls = program
    rng = np.random.default_rng(seed)
    try:
        check_schedule(schedule, calls, DEVICES)
    except VerificationError:
        runs = [[list(way(schedule, d, lambda c, b=b: b, lambda r: 2)) for d in range(DEVICES)] for b in range(2)]
        assert any(hangs(ways, calls, rng, strict=True) for ways in runs)
    else:
        for strict in (False, True):
            for _ in range(3):
                assert not hangs(at_random(schedule, rng), calls, rng, strict=strict)


@settings(max_examples=40, deadline=None)
@given(programs(), st.data())
def test_a_pair_that_is_broken_is_refused(program: tuple[Schedule, list[CollectiveCall]], data: st.DataObject) -> None:
    schedule, calls = program
    pairs = [n for n, item in enumerate(schedule) if isinstance(item, ScheduledStart | ScheduledAwait)]
    assume(pairs)
    at = data.draw(st.sampled_from(pairs))
    item = schedule[at]
    other: Item = ScheduledAwait(item.index) if isinstance(item, ScheduledStart) else ScheduledStart(item.index)
    for broken in (
        (),
        (item, item),
        (other,),
        (ScheduledCollective(item.index),),
        (ScheduleLoop((item,)),),
        (ScheduleBranch(((item,), ())),),
    ):
        with pytest.raises(VerificationError, match=rf"%c{item.index} "):
            check_schedule((*schedule[:at], *broken, *schedule[at + 1 :]), calls, DEVICES)


def test_a_cycle_is_told_with_both_collectives() -> None:
    calls = [call(0, GROUPS[0]), call(1, GROUPS[0])]
    schedule = (ScheduleBranch(((ScheduledCollective(0),), (ScheduledCollective(1),)), (0, 0, 1, 1)),)
    message = (
        r"for each other forever: device 0 in all-reduce %c0, device 2 in all-reduce %c1\n.*model.py:0, model.py:1"
    )
    with pytest.raises(VerificationError, match=message):
        check_schedule(schedule, calls, DEVICES)


def test_a_device_that_never_comes_is_told() -> None:
    schedule = (ScheduleBranch(((), (ScheduledCollective(0),)), (0, 1, 0, 1)),)
    with pytest.raises(
        VerificationError, match="device 1 would wait forever in all-reduce %c0 for device 0, which never"
    ):
        check_schedule(schedule, [call(0, GROUPS[1])], DEVICES)
    check_schedule(schedule, [call(0, GROUPS[2])], DEVICES)
    with pytest.raises(UnsupportedError, match="devices 2 and 3 of one process"):
        check_schedule(schedule, [call(0, GROUPS[2])], DEVICES, (2, 3))
    check_schedule(schedule, [call(0, GROUPS[2])], DEVICES, (1, 3))


def test_what_else_is_refused() -> None:
    one = call(0, GROUPS[0])
    with pytest.raises(VerificationError, match="two places"):
        check_schedule((ScheduledCollective(0), ScheduledCollective(0)), [one], DEVICES)
    with pytest.raises(VerificationError, match="collective 1, which does not exist"):
        check_schedule((ScheduledCollective(1),), [one], DEVICES)
    with pytest.raises(VerificationError, match="do not cover"):
        check_schedule((ScheduledCollective(0),), [replace(one, groups=ListGroups(((0, 1),)))], DEVICES)
    with pytest.raises(VerificationError, match="which way each device takes"):
        check_schedule((ScheduleBranch(((),), (0, 0, 0, 1)),), [], DEVICES)
