"""An order in which some instructions stand together."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from shardc.hlo.ir.ir import Computation, Instruction

__all__ = ["in_groups"]


def in_groups(computation: Computation, groups: Sequence[Sequence[Instruction]]) -> list[Instruction] | None:
    """The instructions, operands first, each group's one after the other where its last one stood; otherwise as near
    to the present order as the operands allow. None when groups need each other.

    Members of a group may read one another; each is in one group only.
    """
    place = {i: n for n, i in enumerate(computation)}
    unit_of = dict(place)
    members: dict[int, Sequence[Instruction]] = {}
    for group in groups:
        inside = sorted(group, key=place.__getitem__)
        unit = place[inside[-1]]
        members[unit] = inside
        for m in inside:
            unit_of[m] = unit
    waiting = [0] * len(place)
    users: list[list[int]] = [[] for _ in place]
    for i, unit in unit_of.items():
        for o in i.operands:
            if unit_of[o] != unit:
                waiting[unit] += 1
                users[unit_of[o]].append(unit)
    ready = [u for i, u in unit_of.items() if not waiting[u] and place[i] == u]
    heapq.heapify(ready)
    order: list[Instruction] = []
    while ready:
        unit = heapq.heappop(ready)
        order.extend(members.get(unit, (computation.instructions[unit],)))
        for user in users[unit]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, user)
    return order if len(order) == len(place) else None
