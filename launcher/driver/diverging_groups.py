"""Devices of one process that take different branches for a while, group by group.

A loop in a manual computation may have different trip counts for different groups of devices, with collectives inside
of the groups. The drive loop runs all devices together; where they diverge, each group goes on as soon as all its
members have come to the same collective.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from shardc.collectives.in_process.executor import InProcessExecutor
from shardc.compiler.executable import DONE
from shardc.native.drive.drive_loop import WAIT

__all__ = ["finish_diverging_groups"]


def finish_diverging_groups(
    executor: InProcessExecutor, devices: Sequence[int], answers: Sequence[int], advance: Callable[[int], int]
) -> list[int]:
    """Run all ``devices`` to the end from the stops in their ``answers``. ``advance(i)`` runs device ``devices[i]`` to
    its next stop. Returns the last answers: all `DONE`, or those at which no device can continue (a check is false, or
    members of a group wait in different collectives).
    """
    stops = list(answers)
    place = {device: i for i, device in enumerate(devices)}
    while all(s >= DONE for s in stops):
        ready = [i for i, s in enumerate(stops) if s >= 0 and s & WAIT]  # what was started has been done at once
        for index in sorted({s for s in stops if s >= 0 and not s & WAIT}):
            ready += _met(executor, index, stops, place)
        if not ready:
            break
        for i in ready:
            stops[i] = advance(i)
    return stops


def _met(executor: InProcessExecutor, index: int, stops: Sequence[int], place: Mapping[int, int]) -> list[int]:
    """Do collective ``index`` for the groups that are complete; the places of their devices."""
    found: list[int] = []
    for meeting in executor.meetings(index):
        members = [place[d] for d in meeting.devices]
        if all(stops[i] == index for i in members):
            executor.meet(index, meeting)
            found += members
    return found
