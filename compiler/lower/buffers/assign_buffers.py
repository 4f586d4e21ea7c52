"""Assign buffers: which values share memory, and where each lies in the arena.

First values that a copy or an in-place kernel connects are joined when they never hold different values at the same
time; then the joined groups are packed into the arena and into results that are not written yet.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from types import MappingProxyType

from shardc.collectives.call.call import SECTION_ALIGNMENT, BufferRef, SharedSection
from shardc.compiler.executable import ARENA_HEADER
from shardc.compiler.lower.buffers.linearise import LinearSteps
from shardc.compiler.lower.buffers.liveness import Liveness, first_position, live_ranges, runs_of
from shardc.compiler.lower.buffers.pack import LiveBlock, pack
from shardc.compiler.lower.fuse.fusion_rules import new_part
from shardc.compiler.lower.lowered import (
    Buffer,
    BufferCopy,
    BufferPlacement,
    BufferPlan,
    Collective,
    KernelStep,
    Step,
    leaf_steps,
)
from shardc.hlo.ir.groups import ReplicaGroups

__all__ = ["NOTHING_SHARED", "Peak", "assign_buffers", "peak_of"]

#: Where the part of the arena for host memory begins: a cache line.
_ALIGNMENT = 64

NOTHING_SHARED: Mapping[Buffer, ReplicaGroups] = MappingProxyType({})


def assign_buffers(linear: LinearSteps, shared: Mapping[Buffer, ReplicaGroups] = NOTHING_SHARED) -> BufferPlan:
    """The plan for ``linear``; `check_plan` says what it guarantees.

    ``shared`` buffers, which one collective over these groups writes, lie in a section of the arena for these groups.
    A sort may be in place, and is where that takes no more memory: what it reads and writes is then one large block,
    which may fit worse between others.
    """
    liveness = live_ranges(linear.steps, linear.results)
    plan = _assigned(linear, liveness, shared, frozenset())
    sorts = frozenset(s for s in leaf_steps(linear.steps) if isinstance(s, KernelStep) and _is_sort_in_place(s))
    apart = _assigned(linear, liveness, shared, sorts) if sorts else plan
    return apart if apart.arena_bytes < plan.arena_bytes else plan


def _is_sort_in_place(step: KernelStep) -> bool:
    return step.instruction.opcode == "sort" and bool(step.in_place)


def _assigned(
    linear: LinearSteps, liveness: Liveness, shared: Mapping[Buffer, ReplicaGroups], apart: Container[Step]
) -> BufferPlan:
    """A plan where the steps that ``apart`` holds write nothing in place."""
    groups = _joined(linear, liveness, shared, apart)
    places, arena_bytes = _pack(groups.in_results(), groups.on_their_own(shared), ARENA_HEADER)
    sections = []
    for members in dict.fromkeys(shared.values()):
        inside = [groups.of[b] for b, m in shared.items() if m == members]
        start = -(-arena_bytes // SECTION_ALIGNMENT) * SECTION_ALIGNMENT
        found, nbytes = pack((), [LiveBlock(g.mask, g.nbytes) for g in inside])
        places |= {g: BufferRef("arena", 0, start + f.offset, g.nbytes) for g, f in zip(inside, found, strict=True)}
        sections.append(SharedSection(start, nbytes, members))
        arena_bytes = start + nbytes
    host, host_bytes = _pack(groups.in_results(host=True), groups.on_their_own(host=True), 0)
    start = -(-arena_bytes // _ALIGNMENT) * _ALIGNMENT if host_bytes else arena_bytes
    places |= {g: replace(r, offset=start + r.offset) if r.space == "arena" else r for g, r in host.items()}
    placements = {}
    for b in linear.buffers:
        group = groups.of[b]
        mask = liveness.in_use(b)
        first, last = ((mask & -mask).bit_length() - 1) // 2, (mask.bit_length() - 1) // 2
        placements[b] = BufferPlacement(_ref(b, group, places), max(first, 0), max(last, 0))
    return BufferPlan(placements, start + host_bytes, linear.aliases, tuple(sections), start - arena_bytes + host_bytes)


@dataclass(frozen=True, slots=True)
class Peak:
    """Most bytes of the device in use at a time, and the outermost step that then runs (None: no step needs memory);
    ``copied`` are the bytes of each copy that does not vanish, and of each array that is not updated in place."""

    nbytes: int
    step: Step | None
    copied: tuple[int, ...] = ()


def peak_of(linear: LinearSteps) -> Peak:
    """Where most memory is in use, arguments (but those that results replace) and constants not counted.

    It is what `assign_buffers` needs for arena and results, were it not for gaps.
    """
    liveness = live_ranges(linear.steps, linear.results)
    groups = _joined(linear, liveness, NOTHING_SHARED)
    changes: dict[int, int] = {}
    for group in (*groups.in_results(), *groups.on_their_own()):
        for first, end in runs_of(group.mask):
            changes[first] = changes.get(first, 0) + group.nbytes
            changes[end] = changes.get(end, 0) - group.nbytes
    alive = most = where = 0
    for bit in sorted(changes):
        alive += changes[bit]
        if alive > most:
            most, where = alive, bit // 2
    step = None
    for other in linear.steps if most else ():
        if first_position(other, liveness) > where:
            break
        step = other
    apart = {
        w.bit: w.result for w in groups.pairs if w.priority[0] < 2 and groups.of[w.result] is not groups.of[w.operand]
    }
    return Peak(most, step, tuple(b.nbytes for b in apart.values()))


def _joined(
    linear: LinearSteps, liveness: Liveness, separate: Container[Buffer], apart: Container[Step] = ()
) -> _Groups:
    """Buffers that ``separate`` does not hold, joined, but for what steps ``apart`` would write in place."""
    groups = _Groups(linear, liveness, apart)
    for pair in groups.pairs:
        if pair.result not in separate and pair.operand not in separate:
            groups.join(pair)
    return groups


@dataclass(frozen=True, slots=True)
class _InPlacePair:
    """A step writes ``result`` reading ``operand`` at the same element: one place for both would be good."""

    priority: tuple[int, int]
    bit: int
    result: Buffer
    operand: Buffer


@dataclass(slots=True, eq=False)
class _BufferGroup:
    """Buffers in one place. ``result`` is the result buffer that the place is; ``frozen`` memory is only read. ``lead``
    stands for all of them. In-place pairs are listed by the group of their result and by that of their operand.

    ``held`` as in `Liveness`, of all members.
    """

    members: list[Buffer]
    live: int
    written: int
    nbytes: int
    held: dict[Collective | KernelStep, int] = field(default_factory=dict)
    result: Buffer | None = None
    frozen: bool = False
    as_result: list[_InPlacePair] = field(default_factory=list)
    as_operand: list[_InPlacePair] = field(default_factory=list)
    lead: Buffer = field(init=False)

    def __post_init__(self) -> None:
        self.lead = self.members[0]

    @property
    def mask(self) -> int:
        return reduce(or_, self.held.values(), self.live | self.written)


class _Groups:
    """A partition of the buffers, made coarser by `join`."""

    def __init__(self, linear: LinearSteps, liveness: Liveness, apart: Container[Step]) -> None:
        self.of: dict[Buffer, _BufferGroup] = {}
        for b in linear.buffers:
            times = liveness.live.get(b, 0), liveness.written.get(b, 0)
            group = _BufferGroup([b], *times, b.nbytes, dict(liveness.held.get(b, {})))
            group.result = b if b.space == "result" else None
            group.frozen = b.space in ("argument", "constant")
            self.of[b] = group
        for r, a in linear.aliases:
            donated = self.of[linear.parameters[a]]
            donated.frozen = False
            self._merge(self.of[linear.results[r]], donated)
        self.pairs = sorted(_in_place_pairs(linear, liveness, apart), key=lambda w: w.priority)
        for pair in self.pairs:
            self.of[pair.result].as_result.append(pair)
            self.of[pair.operand].as_operand.append(pair)

    def join(self, pair: _InPlacePair) -> None:
        """Put both ends of ``pair`` in one place if that place then holds one value at a time."""
        a, b = self.of[pair.result], self.of[pair.operand]
        if a is b or a.frozen or b.frozen or (a.result is not None and b.result is not None):
            return
        if a.lead.host != b.lead.host:
            return
        if a.live & b.live or a.written & b.written:
            return
        if self._overwrites(a, b) or self._overwrites(b, a):
            return
        if self._disturbs(a, b) or self._disturbs(b, a):
            return
        self._merge(a, b)

    def _disturbs(self, user: _BufferGroup, holder: _BufferGroup) -> bool:
        """Whether ``user`` is in use while a transfer reads ``holder``, other than as what that transfer writes in
        place."""
        for held in holder.held.values():
            started = held & -held
            own = any(w.bit << 1 == started and self.of[w.operand] is holder for w in user.as_result)
            if not own and held & user.mask:
                return True
        return False

    def _overwrites(self, writer: _BufferGroup, reader: _BufferGroup) -> bool:
        """Whether ``writer`` is written while ``reader`` holds a value. Operands there that nobody reads afterwards do
        not count."""
        bits = writer.written & reader.live
        for w in min(writer.as_result, reader.as_operand, key=len) if bits else ():
            between = self.of[w.result] is writer and self.of[w.operand] is reader
            if between and not reader.live & (w.bit << 1):
                bits &= ~w.bit
        return bits != 0

    def _merge(self, a: _BufferGroup, b: _BufferGroup) -> None:
        """One place, led by what leads ``a``; the smaller one moves, so that chains cost no more than trees."""
        lead, result = a.lead, a.result or b.result
        if len(a.members) < len(b.members):
            a, b = b, a
        a.lead, a.result, a.nbytes = lead, result, max(a.nbytes, b.nbytes)
        a.members += b.members
        a.live |= b.live
        a.written |= b.written
        for collective, held in b.held.items():
            a.held[collective] = a.held.get(collective, 0) | held
        a.as_result += b.as_result
        a.as_operand += b.as_operand
        for member in b.members:
            self.of[member] = a

    def in_results(self, *, host: bool = False) -> list[_BufferGroup]:
        """Groups that lie in a result of the device, or of the host, in order of their first buffer."""
        return [g for g in dict.fromkeys(self.of.values()) if g.result is not None and g.lead.host == host]

    def on_their_own(self, besides: Container[Buffer] = (), *, host: bool = False) -> list[_BufferGroup]:
        """Groups that need a place of their own there, each once, in order of their first buffer."""
        unique = [g for g in dict.fromkeys(self.of.values()) if g.lead.host == host]
        return [g for g in unique if g.result is None and not g.frozen and g.lead.is_arena and g.lead not in besides]


def _in_place_pairs(linear: LinearSteps, liveness: Liveness, apart: Container[Step]) -> Iterable[_InPlacePair]:
    """Updates in place come first, then copies that would vanish, then elementwise kernels and reductions in place."""
    for step in (s for s in leaf_steps(linear.steps) if s not in apart):
        position = liveness.positions[step]
        bit = 1 << (2 * position)
        if isinstance(step, BufferCopy):
            yield _InPlacePair((1, position), bit, step.target, step.source)
        elif isinstance(step, KernelStep | Collective):
            rank = 2 if new_part(step.instruction) is None else 0  # in place, updates need no copy of the whole
            for result, operand in step.in_place:
                place = step.operands[operand]
                slots = [n for n, o in enumerate(step.operands) if o is place]
                if all((result, n) in step.in_place for n in slots):
                    yield _InPlacePair((rank, position), bit, step.results[result], place)


def _ref(b: Buffer, group: _BufferGroup, places: dict[_BufferGroup, BufferRef]) -> BufferRef:
    if b.space in ("argument", "constant"):
        return BufferRef(b.space, b.index, b.offset, b.nbytes)
    if group.result is not None:
        return BufferRef("result", group.result.index, 0, b.nbytes)
    place = places[group]
    return BufferRef(place.space, place.index, place.offset, b.nbytes)


def _pack(
    holders: Sequence[_BufferGroup], groups: Sequence[_BufferGroup], header: int
) -> tuple[dict[_BufferGroup, BufferRef], int]:
    """Where groups that are no result lie: in results while those are not in use, or in the arena behind its
    ``header``; and the arena's bytes."""
    regions = [LiveBlock(g.mask, g.result.nbytes) for g in holders if g.result is not None]
    found, arena = pack(regions, [LiveBlock(g.mask, g.nbytes) for g in groups], header)
    places = {}
    for group, place in zip(groups, found, strict=True):
        result = None if place.region is None else holders[place.region].result
        space, index = ("arena", 0) if result is None else ("result", result.index)
        places[group] = BufferRef(space, index, place.offset, group.nbytes)
    return places, arena
