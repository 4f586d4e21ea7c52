"""Collectives of one kind over the same groups become one with several operands: one latency instead of many."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shardc.hlo.ir import Computation, Instruction, Module, Origin, rebuild_computation
from shardc.hlo.types import tuple_shape
from shardc.partitioner.memory import computation_peak
from shardc.partitioner.optimise.reduction import reducer

__all__ = ["CombineCollectives"]

_REDUCING = ("all-reduce", "reduce-scatter")


@dataclass(frozen=True, slots=True)
class CombineCollectives:
    """Join independent collectives of equal groups, dimension, reduction and type, up to ``max_bytes`` together.

    They wait for the last of them, so operands and results live longer: they are joined only where the estimated
    peak of their computation does not rise, and only all-reduces where readers of the first have to wait.
    """

    max_bytes: int = 4 << 20
    opcodes: tuple[str, ...] = ("all-reduce", "all-gather", "reduce-scatter", "collective-permute")
    name: str = "combine-collectives"
    why: str = "many small collectives cost a latency each"

    def run(self, module: Module) -> Module:
        called: dict[Computation, Computation] = {}
        peaks: dict[Computation, int] = {}
        for computation in module.computations:
            redirected = rebuild_computation(computation, lambda old, operands: None, called)
            called[computation] = self._combined(redirected, peaks)
        if all(k is v for k, v in called.items()):
            return module
        return module.with_(computations=tuple(called.values()), entry=called[module.entry])

    def _combined(self, computation: Computation, peaks: dict[Computation, int]) -> Computation:
        counts: dict[Any, int] = {}
        for i in computation:
            key = _key(i) if i.opcode in self.opcodes else None
            if key is not None:
                counts[key] = counts.get(key, 0) + 1
        for key in [k for k, n in counts.items() if n > 1]:
            computation = self._combined_kind(computation, key, peaks)
        return computation

    def _combined_kind(self, computation: Computation, key: Any, peaks: dict[Computation, int]) -> Computation:
        """All-reduces of one key at once if that may be, other kinds and else only those that delay nobody."""
        for near in (False, True) if key[0] == "all-reduce" else (True,):
            buckets = self._buckets(computation, key, near=near)
            if not buckets:
                return computation
            joined = _join(computation, buckets)
            if computation_peak(joined, peaks) <= computation_peak(computation, peaks):
                return joined
        return computation

    def _buckets(self, computation: Computation, key: Any, *, near: bool) -> list[list[Instruction]]:
        """Members to join, in program order. Two with equally many of their kind before them are independent.

        Those that are ``near`` have no operand that is computed after the first reader of another's result.
        """
        before: dict[Instruction, int] = {}
        levels: dict[int, list[Instruction]] = {}
        for i in computation:
            level = max((before[o] for o in i.operands), default=0)
            if i.opcode == key[0] and _key(i) == key:
                levels.setdefault(level, []).append(i)
                level += 1
            before[i] = level
        runs = [r for members in levels.values() for r in (_near(computation, members) if near else [members])]
        return [bucket for members in runs for bucket in self._cut(members) if len(bucket) > 1]

    def _cut(self, members: Sequence[Instruction]) -> list[list[Instruction]]:
        out: list[list[Instruction]] = [[]]
        size = 0
        for m in members:
            nbytes = max(m.shape.nbytes, m.operands[0].shape.nbytes)
            if out[-1] and size + nbytes > self.max_bytes:
                out.append([])
                size = 0
            out[-1].append(m)
            size += nbytes
        return out


def _key(i: Instruction) -> Any:
    """What members have in common: opcode, who talks to whom, dimension, reduction, type. None: not to be joined."""
    attrs = i.attrs
    if len(i.operands) != 1 or i.shape.is_tuple or "slice_sizes" in attrs:
        return None
    if i.opcode in _REDUCING and not reducer(i):
        return None
    groups = attrs.get("replica_groups", attrs.get("source_target_pairs"))
    ids = (bool(attrs.get("channel_id")), attrs.get("use_global_device_ids"))
    return (i.opcode, groups, ids, attrs.get("dimensions"), reducer(i), i.shape.dtype)


def _near(computation: Computation, members: Sequence[Instruction]) -> list[list[Instruction]]:
    """``members`` cut where one would make the readers of those before it wait."""
    place = {i: n for n, i in enumerate(computation)}
    first: dict[Instruction, int] = {}
    wanted = set(members)
    for n, i in enumerate(computation):
        for o in i.operands:
            if o in wanted:
                first.setdefault(o, n)
    out: list[list[Instruction]] = []
    reads = 0
    for m in members:
        if not out or place[m] > reads:
            out.append([])
            reads = len(place)
        out[-1].append(m)
        reads = min(reads, first.get(m, len(place)))
    return out


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
    assert len(new) == len(place), "combining collectives made a cycle"
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
        sharding=None,
        origin=_origin(members),
    )
    order.append(whole)
    for index, m in enumerate(members):
        attrs = {"index": index}
        part = Instruction(
            "get-tuple-element",
            m.shape,
            (whole,),
            attrs,
            name=f"{m.name}.part",
            sharding=m.sharding,
            metadata=m.metadata,
            origin=m.origin,
        )
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
