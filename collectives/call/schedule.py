"""The order in which devices come to their collectives, and the proof that none deadlocks.

A `Schedule` is a tree: collectives, their starts and dones, loops and choices. Every device goes through it in order.
Its waits are taken to be as long as any transport makes them: a whole collective and a done wait until all members of
the group are there, a start waits for nobody. Where every device takes the same way, all come to the same collectives
in the same order, and the one that is furthest behind can always go on. Devices take different ways only where a choice
depends on the device's number (`ScheduleBranch.taken`); then `check_schedule` runs the schedule, device by device, and
refuses it where devices are left that wait for each other. What one run of a choice or a loop leaves behind is the same
each time, so one run of each branch and two of each loop are enough.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shardc.collectives.call.call import CollectiveCall
from shardc.collectives.call.membership import check_call
from shardc.hlo.errors import ShardcError, UnsupportedError, VerificationError

__all__ = [
    "Schedule",
    "ScheduleBranch",
    "ScheduleLoop",
    "ScheduledAwait",
    "ScheduledCollective",
    "ScheduledStart",
    "check_schedule",
]


@dataclass(frozen=True, slots=True)
class ScheduledCollective:
    """The whole of collective ``index``."""

    index: int


@dataclass(frozen=True, slots=True)
class ScheduledStart:
    """The start of collective ``index``."""

    index: int


@dataclass(frozen=True, slots=True)
class ScheduledAwait:
    """The done of collective ``index``."""

    index: int


@dataclass(frozen=True, slots=True)
class ScheduleLoop:
    """A loop, as often on every device."""

    body: Schedule


@dataclass(frozen=True, slots=True)
class ScheduleBranch:
    """One of ``branches``: of device d number ``taken[d]``, or the same unknown one on all devices (None)."""

    branches: tuple[Schedule, ...]
    taken: tuple[int, ...] | None = None


Item = ScheduledCollective | ScheduledStart | ScheduledAwait | ScheduleLoop | ScheduleBranch
Schedule = tuple[Item, ...]


def check_schedule(
    schedule: Schedule, calls: Sequence[CollectiveCall], num_devices: int, joint: Sequence[int] = ()
) -> None:
    """Raise `VerificationError` unless every device gets to the end of ``schedule``, whatever the others' speed.

    Groups must be valid (`check_call`), every collective in one place, every start followed by its done in the same
    block, and nobody may wait for a device that never comes or waits itself. The ``joint`` devices are in one process
    and must take the same way: `UnsupportedError`.
    """
    known = {c.index: c for c in calls}
    groups = {c.index: check_call(c, num_devices) for c in calls}
    _check_pairs(schedule, known)
    places = Counter(item.index for item in _events(schedule) if not isinstance(item, ScheduledAwait))
    for index, count in places.items():
        if count > 1:
            raise _bad(known[index], "stands in two places of the schedule")
    for item in _choices(schedule):
        if item.taken is not None and (
            len(item.taken) != num_devices or not all(0 <= t < len(item.branches) for t in item.taken)
        ):
            raise VerificationError("a branch does not say which way each device takes", fix=_REPORT)
    if any(c.taken is not None and any(_events(b) for b in c.branches) for c in _choices(schedule)):
        for branch in range(max(len(c.branches) for c in _choices(schedule))):
            ways = [list(_meetings_of_device(schedule, d, branch)) for d in range(num_devices)]
            _run(ways, groups, known)
            for device in joint[1:]:
                if ways[device] != ways[joint[0]]:
                    raise UnsupportedError(
                        f"devices {joint[0]} and {device} of one process reach different collectives",
                        fix="run the program with one device per rank",
                    )


_REPORT = "this is a compiler error: please report it"


def _events(schedule: Schedule) -> Iterator[ScheduledCollective | ScheduledStart | ScheduledAwait]:
    for item in schedule:
        if isinstance(item, ScheduleLoop):
            yield from _events(item.body)
        elif isinstance(item, ScheduleBranch):
            for branch in item.branches:
                yield from _events(branch)
        else:
            yield item


def _choices(schedule: Schedule) -> Iterator[ScheduleBranch]:
    for item in schedule:
        if isinstance(item, ScheduleLoop):
            yield from _choices(item.body)
        elif isinstance(item, ScheduleBranch):
            yield item
            for branch in item.branches:
                yield from _choices(branch)


def _check_pairs(schedule: Schedule, known: Mapping[int, CollectiveCall]) -> None:
    """In each block every start has one done behind it, and every done a start before it."""
    open_ones: dict[int, None] = {}
    for item in schedule:
        match item:
            case ScheduleLoop(body):
                _check_pairs(body, known)
            case ScheduleBranch(branches):
                for branch in branches:
                    _check_pairs(branch, known)
            case ScheduledCollective(index) | ScheduledStart(index) | ScheduledAwait(index):
                call = known.get(index)
                if call is None:
                    raise VerificationError(f"the schedule names collective {index}, which does not exist", fix=_REPORT)
                if call.asynchronous == isinstance(item, ScheduledCollective):
                    raise _bad(call, "is asynchronous, but the schedule runs it synchronously, or the reverse")
                if isinstance(item, ScheduledStart):
                    if index in open_ones:
                        raise _bad(call, "is started twice before it is awaited")
                    open_ones[index] = None
                elif isinstance(item, ScheduledAwait):
                    if index not in open_ones:
                        raise _bad(call, "is awaited where it was not started")
                    del open_ones[index]
    for index in open_ones:
        raise _bad(known[index], "is started and never awaited")


def _meetings_of_device(
    schedule: Schedule, device: int, branch: int
) -> Iterator[ScheduledCollective | ScheduledStart | ScheduledAwait]:
    """What a device comes to; of choices that all make alike it takes number ``branch``, or the last."""
    for item in schedule:
        match item:
            case ScheduleLoop(body):
                yield from _meetings_of_device(body, device, branch)
                yield from _meetings_of_device(body, device, branch)
            case ScheduleBranch(branches, taken):
                chosen = min(branch, len(branches) - 1) if taken is None else taken[device]
                yield from _meetings_of_device(branches[chosen], device, branch)
            case _:
                yield item


def _run(
    ways: Sequence[Sequence[ScheduledCollective | ScheduledStart | ScheduledAwait]],
    groups: Mapping[int, Sequence[Sequence[int]]],
    known: Mapping[int, CollectiveCall],
) -> None:
    """Let devices go on while any can. The order makes no difference: who may go on may do so forever."""
    partners = {index: _partners(index, known, found) for index, found in groups.items()}
    at = [0] * len(ways)
    work = list(range(len(ways)))
    while work:
        device = work.pop()
        while at[device] < len(ways[device]):
            item = ways[device][at[device]]
            together = (device,) if isinstance(item, ScheduledStart) else partners[item.index].get(device, (device,))
            if not all(at[d] < len(ways[d]) and ways[d][at[d]] == item for d in together):
                break
            for d in together:
                at[d] += 1
            work += [d for d in together if d != device]
    stuck = [d for d in range(len(ways)) if at[d] < len(ways[d])]
    if stuck:
        raise _deadlock(stuck[0], ways, at, partners, known)


def _partners(index: int, known: Mapping[int, CollectiveCall], found: Sequence[Sequence[int]]) -> dict[int, list[int]]:
    """By device all that it waits for in a collective: its group, or those that pairs connect it with."""
    together: dict[int, list[int]] = {}
    for group in found:
        merged = sorted({d for member in group for d in together.get(member, [member])})
        for d in merged:
            together[d] = merged
    return together


def _deadlock(
    device: int,
    ways: Sequence[Sequence[ScheduledCollective | ScheduledStart | ScheduledAwait]],
    at: Sequence[int],
    partners: Mapping[int, Mapping[int, Sequence[int]]],
    known: Mapping[int, CollectiveCall],
) -> ShardcError:
    """Follow who waits for whom until somebody comes again, or is at the end."""
    seen: list[int] = []
    while device not in seen:
        seen.append(device)
        item = ways[device][at[device]]
        missing = next(d for d in partners[item.index][device] if not (at[d] < len(ways[d]) and ways[d][at[d]] == item))
        if at[missing] == len(ways[missing]):
            return VerificationError(
                f"device {device} would wait forever in {_name(known[item.index])} for device {missing}, "
                "which never reaches it",
                where=known[item.index].source or None,
                fix=_ALIKE,
            )
        device = missing
    ring = seen[seen.index(device) :]
    waits = [f"device {d} in {_name(known[ways[d][at[d]].index])}" for d in ring]
    return VerificationError(
        f"devices would wait for each other forever: {', '.join(waits)}",
        where=", ".join(dict.fromkeys(known[ways[d][at[d]].index].source for d in ring)) or None,
        fix=_ALIKE,
    )


_ALIKE = "a condition around collectives must have the same value on all members of their groups"


def _name(call: CollectiveCall) -> str:
    return f"{call.op} %{call.name}"


def _bad(call: CollectiveCall, what: str) -> ShardcError:
    return VerificationError(f"{_name(call)} {what}", where=call.source or None, fix=_REPORT)
