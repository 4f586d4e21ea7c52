"""Small all-reduces over the same groups become one with several operands: one latency instead of many."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from shardc.hlo.groups import ReplicaGroups
from shardc.hlo.ir import Computation, Instruction, Module, Origin, rebuild_computation
from shardc.hlo.types import DType, tuple_shape

__all__ = ["CombineAllReduces"]

#: What the members of one combined all-reduce have in common: groups, reducer's opcode, element type.
Key = tuple[ReplicaGroups, str, DType]


@dataclass(frozen=True, slots=True)
class CombineAllReduces:
    """Join independent all-reduces of equal groups, reduction and type, up to ``max_bytes`` together."""

    max_bytes: int = 4 << 20
    name: str = "combine-all-reduces"
    why: str = "many small all-reduces cost a latency each"

    def run(self, module: Module) -> Module:
        called: dict[Computation, Computation] = {}
        for computation in module.computations:
            redirected = rebuild_computation(computation, lambda old, operands: None, called)
            called[computation] = self._combined(redirected)
        if all(k is v for k, v in called.items()):
            return module
        return module.with_(computations=tuple(called.values()), entry=called[module.entry])

    def _combined(self, computation: Computation) -> Computation:
        for key in dict.fromkeys(k for i in computation if (k := _key(i)) is not None):
            buckets = self._buckets(computation, key)
            if buckets:
                computation = _join(computation, buckets)
        return computation

    def _buckets(self, computation: Computation, key: Key) -> list[list[Instruction]]:
        """Members to join, in program order. Two with equally many of their kind before them are independent."""
        before: dict[Instruction, int] = {}
        levels: dict[int, list[Instruction]] = {}
        for i in computation:
            level = max((before[o] for o in i.operands), default=0)
            if _key(i) == key:
                levels.setdefault(level, []).append(i)
                level += 1
            before[i] = level
        return [bucket for members in levels.values() for bucket in self._cut(members) if len(bucket) > 1]

    def _cut(self, members: list[Instruction]) -> list[list[Instruction]]:
        out: list[list[Instruction]] = [[]]
        size = 0
        for m in members:
            if out[-1] and size + m.shape.nbytes > self.max_bytes:
                out.append([])
                size = 0
            out[-1].append(m)
            size += m.shape.nbytes
        return out


def _key(i: Instruction) -> Key | None:
    """What may be joined: a plain all-reduce of one array by one known operation."""
    if i.opcode != "all-reduce" or len(i.operands) != 1:
        return None
    body: Computation = i.attrs["to_apply"]
    if len(body.instructions) != 3 or set(body.root.operands) != set(body.parameters):
        return None
    return (i.attrs["replica_groups"], body.root.opcode, i.shape.dtype)


def _join(computation: Computation, buckets: list[list[Instruction]]) -> Computation:
    """``computation`` with each bucket as one instruction, otherwise as near to its order as the operands allow."""
    place = {i: n for n, i in enumerate(computation)}
    bucket_of = {m: b for b in buckets for m in b}
    unit_of: dict[Instruction, int] = {i: place[bucket_of[i][-1]] if i in bucket_of else n for i, n in place.items()}
    waiting: dict[int, set[int]] = {}
    users: dict[int, set[int]] = {}
    for i, unit in unit_of.items():
        needs = waiting.setdefault(unit, set())
        for o in i.operands:
            needs.add(unit_of[o])
            users.setdefault(unit_of[o], set()).add(unit)
    ready = [u for u, needs in waiting.items() if not needs]
    heapq.heapify(ready)
    order: list[Instruction] = []
    new: dict[Instruction, Instruction] = {}
    while ready:
        unit = heapq.heappop(ready)
        _emit(computation.instructions[unit], bucket_of, new, order)
        for user in sorted(users.get(unit, ())):
            waiting[user].discard(unit)
            if not waiting[user]:
                heapq.heappush(ready, user)
    assert len(new) == len(place), "combining all-reduces made a cycle"
    return Computation(computation.name, order, new[computation.root])


def _emit(
    i: Instruction,
    bucket_of: dict[Instruction, list[Instruction]],
    new: dict[Instruction, Instruction],
    order: list[Instruction],
) -> None:
    """Append ``i``, or the combined instruction of its bucket, with its new operands."""
    if i not in bucket_of:
        operands = tuple(new[o] for o in i.operands)
        same = all(a is b for a, b in zip(operands, i.operands, strict=True))
        new[i] = i if same else i.replace(operands=operands)
        order.append(new[i])
        return
    members = bucket_of[i]
    first = members[0]
    whole = first.replace(
        shape=tuple_shape(*(m.shape for m in members)),
        operands=tuple(new[m.operands[0]] for m in members),
        origin=_origin(members),
    )
    order.append(whole)
    for index, m in enumerate(members):
        attrs = {"index": index}
        part = Instruction("get-tuple-element", m.shape, (whole,), attrs, name=f"{m.name}.part", metadata=m.metadata)
        new[m] = part
        order.append(part)


def _origin(members: list[Instruction]) -> Origin:
    """The reasons of all members, each once."""
    origins = [m.origin for m in members if m.origin is not None]
    reasons = list(dict.fromkeys(o.reason for o in origins))
    return Origin(
        "; ".join(reasons),
        "combine",
        ", ".join(dict.fromkeys(o.value for o in origins)),
        origins[0].axes if origins else (),
    )
