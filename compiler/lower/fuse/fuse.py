"""Fuse: one kernel for a chain of elementwise ops, data movement and a reduction.

A group grows from its root towards the operands. A producer joins when all its readers are in the group (then
nobody else needs it), or when it may be computed again. Inside a group every member belongs to one *space*: the
root's elements, or those that an index-changing member reads. A member read from two spaces is computed twice, so
only movement and very little arithmetic are. The root may also be an update in place, of which what it writes is
computed inside.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType

from shardc.compiler.lower.fuse.fusion_rules import (
    is_alias,
    is_cheap,
    is_duplicable,
    is_elementwise,
    is_fusable,
    is_index_part,
    is_movement,
    is_positional,
    is_sample,
    is_stack,
    is_uniform,
    long_dims,
    moved_operands,
    needs_no_memory,
    new_part,
    reads_in_place,
    repetition,
)
from shardc.compiler.lower.fuse.merged import source_of
from shardc.hlo.ir.ir import Computation, Instruction, Module, has_side_effect, users_of
from shardc.hlo.ir.make import keep_reachable, step_computations

__all__ = ["Fuse"]

#: A space: None for the root's own elements, else the member that reads at other indices.
Space = Instruction | None

#: Most arithmetic members of a kernel that other kernels compute as well.
_MAX_COPIED = 8
#: How many operations deep a mask of positions is looked into.
_MASK_DEPTH = 6


@dataclass(frozen=True, slots=True)
class Fuse:
    """Group instructions into ``fusion`` instructions; ``limit`` bounds the members of one, per part of a stack.

    ``stacks`` are for kernels that write all parts in one loop nest.
    """

    name: str = "fuse"
    why: str = "intermediate values stay in registers"
    limit: int = 96
    reductions: int = 1
    stacks: bool = True

    def run(self, module: Module) -> Module:
        new: dict[Computation, Computation] = {}
        steps = step_computations(module)
        for c in module.computations:
            new[c] = _fused(c, new, self) if c in steps else c
        return keep_reachable(module, new[module.entry])


@dataclass(slots=True)
class _FusionGroup:
    """A kernel in the making. ``evaluations`` is how often each member is computed, for each of ``several`` spaces;
    ``pieces`` are what it concatenates, ``shifts`` those that several spaces read; of a ``stacked`` root all parts are
    in one space."""

    root: Instruction
    space: dict[Instruction, Space] = field(default_factory=dict)
    evaluations: dict[Instruction, float] = field(default_factory=dict)
    owned: set[Instruction] = field(default_factory=set)
    several: set[Instruction] = field(default_factory=set)
    pieces: set[Instruction] = field(default_factory=set)
    reductions: int = 0
    repeated: int = 0
    copied: int = 0
    shifts: int = 0
    stacked: bool = False

    def spaces_read(self, producer: Instruction, readers: Sequence[Instruction]) -> set[Space]:
        """The spaces that members read ``producer`` in."""
        return {self._space_in(r, producer) for r in readers if r in self.space}

    def _space_in(self, reader: Instruction, producer: Instruction) -> Space:
        if reads_in_place(reader, producer):
            return self.space[reader]
        if reader is self.root and self.stacked:
            return reader
        if is_alias(reader) and long_dims(reader.shape.dims) == long_dims(producer.shape.dims):
            return self.space[reader]
        if reader.opcode != "concatenate":
            return reader
        # Each operand of a concatenation is read at indices of its own, but for the parts of a lookup's index.
        read_by = self.space[reader]
        return self.space[read_by] if read_by is not None and is_index_part(producer, reader, read_by) else producer


def _fused(computation: Computation, called: Mapping[Computation, Computation], options: Fuse) -> Computation:
    users = users_of(computation)
    position = {i: n for n, i in enumerate(computation)}
    needed: set[Instruction] = {computation.root}
    groups: dict[Instruction, _FusionGroup] = {}
    for i in reversed(computation.instructions):
        if i not in needed and i.opcode != "parameter" and not has_side_effect(i):
            continue
        needed.add(i)
        if _may_lead(i) or (options.stacks and is_stack(i)):
            group = _grow(i, users, position, needed, options)
            if any(m is not i and (m.opcode != "constant" or not _updates(i)) for m in group.space):
                groups[i] = group
                needed.update(o for m in group.space for o in m.operands if o not in group.space)
                continue
        needed.update(i.operands)
    return _rebuilt(computation, needed, groups, position, called)


def _may_lead(i: Instruction) -> bool:
    if (i.opcode == "reduce" and i.shape.is_tuple) or _updates(i):
        return True
    return is_fusable(i) and not is_alias(i) and i.opcode != "constant"


def _updates(i: Instruction) -> bool:
    """Whether the instruction overwrites a part of its operand 0, in place. What it writes may be computed inside."""
    return i.opcode != "fusion" and new_part(i) is not None


def _moved(i: Instruction) -> tuple[Instruction, ...]:
    """`moved_operands`, and of updates what they write: the rest is not read at all."""
    new = new_part(i) if _updates(i) else None
    return moved_operands(i) if new is None else (new,) if i.operands.count(new) == 1 else ()


def _grow(
    root: Instruction,
    users: Mapping[Instruction, list[Instruction]],
    position: Mapping[Instruction, int],
    needed: Set[Instruction],
    options: Fuse,
) -> _FusionGroup:
    """The group of ``root``; ``needed`` values are in memory already, for readers that cannot fuse."""
    group = _FusionGroup(root, stacked=options.stacks and is_stack(root))
    limit = options.limit * (len(root.operands) if group.stacked else 1)
    group.space[root] = None
    written = _moved(root)[0].shape if _updates(root) and _moved(root) else root.shape
    group.evaluations[root] = float(next(written.leaves()).size)
    group.owned.add(root)
    group.reductions = int(root.opcode == "reduce")
    heap: list[int] = []
    queued: dict[int, Instruction] = {}

    def enqueue(member: Instruction) -> None:
        for o in _candidates(member):
            if position[o] not in queued:
                queued[position[o]] = o
                heapq.heappush(heap, -position[o])

    enqueue(root)
    while heap and len(group.space) < limit:
        producer = queued[-heapq.heappop(heap)]
        stored = producer in needed and not is_movement(producer)
        if not stored and _join(group, producer, users[producer], needed, options):
            enqueue(producer)
    _trim(group, position)
    return group


def _candidates(member: Instruction) -> tuple[Instruction, ...]:
    """Operands that could be computed inside; scalar constants are immediates wherever they stand."""
    moved = _moved(member)
    constants = tuple(o for o in member.operands if o.opcode == "constant" and not o.shape.dims)
    return tuple(dict.fromkeys((*moved, *constants)))


def _join(
    group: _FusionGroup,
    producer: Instruction,
    readers: Sequence[Instruction],
    needed: Set[Instruction],
    options: Fuse,
) -> bool:
    """Add ``producer`` to the group if that is legal and pays."""
    if not is_fusable(producer):
        return False
    spaces = group.spaces_read(producer, readers)
    if producer.opcode == "constant":
        group.space[producer] = None
        group.evaluations[producer] = 1.0
        return True
    only_reader = all(r in group.owned for r in readers) or _rest_are_samples(group, producer, readers)
    if not only_reader and not is_sample(group.root) and not _may_repeat(group, producer, readers):
        return False
    if any(producer not in _moved(r) for r in readers if r in group.space):
        return False
    if _updates(group.root) and any(source_of(o) is source_of(group.root.operands[0]) for o in producer.operands):
        return False  # it would read what is being overwritten
    several = not is_uniform(producer) and (len(spaces) > 1 or any(r in group.several for r in readers))
    shift = several and _is_shift(producer) and not group.reductions  # only maps have code of their own for the inside
    if several and not is_movement(producer) and not shift and not is_elementwise(producer):
        return False
    repeats = several and is_elementwise(producer)
    if repeats and not (_reads_no_more(producer, needed) and _pays_repeatedly(group, producer)):
        return False
    evaluations = max(group.evaluations[r] * repetition(r, producer) for r in readers if r in group.space)
    repeated = evaluations > 1.5 * max(producer.shape.size, 1) and producer.opcode != "iota"
    if repeated and not _pays_repeatedly(group, producer):
        return False
    piece = any(r.opcode == "concatenate" or (is_alias(r) and r in group.pieces) for r in readers)
    # Reductions that are put together mostly read the same: one kernel had better do them side by side.
    apart = repeated or piece or group.shifts or not only_reader or group.reductions >= options.reductions
    if producer.opcode == "reduce" and apart:
        return False
    group.space[producer] = spaces.pop() if len(spaces) == 1 else producer
    if several:
        group.several.add(producer)
    if piece:
        group.pieces.add(producer)
    group.evaluations[producer] = evaluations
    group.shifts += shift
    group.reductions += producer.opcode == "reduce"
    if only_reader:
        group.owned.add(producer)
    return True


def _rest_are_samples(group: _FusionGroup, producer: Instruction, readers: Sequence[Instruction]) -> bool:
    """Whether all readers outside the group take so little, even together, that each computes the producer itself."""
    others = [r for r in readers if r not in group.owned]
    if len(others) == len(readers) or not all(map(is_sample, others)) or producer.opcode == "reduce":
        return False
    return sum(r.shape.size for r in others) * 4 <= producer.shape.size


def _may_repeat(group: _FusionGroup, producer: Instruction, readers: Sequence[Instruction]) -> bool:
    """Whether this group may compute ``producer`` although others need it too. It may repeat arithmetic only if then
    nobody stores the result."""
    if not is_duplicable(producer):
        return False
    if is_movement(producer):
        return True
    group.copied += 1
    return group.copied <= _MAX_COPIED and all(is_fusable(r) for r in readers)


def _is_shift(producer: Instruction) -> bool:
    """Parts of arrays that lie in memory, side by side (a roll, a halo): inside, one of them is read, twice as well as
    once."""
    return producer.opcode == "concatenate" and all(is_movement(o) or not is_fusable(o) for o in producer.operands)


def _pays_repeatedly(group: _FusionGroup, producer: Instruction) -> bool:
    """A producer that would be computed several times per element: only movement and very little arithmetic."""
    if not is_elementwise(producer) or is_positional(producer):
        return True
    if not is_cheap(producer) or group.repeated >= 3:
        return False
    group.repeated += 1
    return True


def _reads_no_more(producer: Instruction, needed: Set[Instruction]) -> bool:
    """Whether the operands of ``producer`` are in memory anyway, or there is only one. Otherwise ``producer`` itself
    should be in memory."""
    same = {o for o in producer.operands if o.shape.size == producer.shape.size}
    arrays = [o for o in same if not is_uniform(o) and not needs_no_memory(o, _MASK_DEPTH)]
    return len(arrays) < 2 or all(_is_stored(o, needed) for o in arrays)


def _is_stored(x: Instruction, needed: Set[Instruction]) -> bool:
    """Whether ``x`` is in memory, or is moved from there."""
    return x in needed or not is_fusable(x) or (is_movement(x) and all(_is_stored(o, needed) for o in x.operands))


def _trim(group: _FusionGroup, position: Mapping[Instruction, int]) -> None:
    """Reshapes at the edge stay outside, where they cost nothing."""
    for member in sorted(group.space, key=position.__getitem__):
        if is_alias(member) and member is not group.root and member.operands[0] not in group.space:
            del group.space[member]


def _rebuilt(
    computation: Computation,
    needed: set[Instruction],
    groups: Mapping[Instruction, _FusionGroup],
    position: Mapping[Instruction, int],
    called: Mapping[Computation, Computation],
) -> Computation:
    """The computation with each group's root replaced by a fusion; order is kept."""
    new: dict[Instruction, Instruction] = {}
    for old in computation:
        if old not in needed:
            continue
        if old in groups:
            new[old] = _fusion(groups[old], position, new)
        else:
            operands = tuple(new[o] for o in old.operands)
            attrs = _with_called(old, called)
            same = attrs is old.attrs and all(a is b for a, b in zip(operands, old.operands, strict=True))
            new[old] = old if same else old.replace(operands=operands, attrs=attrs)
    if len(new) == len(computation.instructions) and all(old is i for old, i in new.items()):
        return computation
    return Computation(computation.name, new.values(), new[computation.root])


def _with_called(old: Instruction, called: Mapping[Computation, Computation]) -> Mapping[str, object]:
    if old.opcode not in ("while", "conditional"):
        return old.attrs
    out: dict[str, object] = {}
    for key, value in old.attrs.items():
        if isinstance(value, Computation):
            out[key] = called[value]
        elif isinstance(value, tuple) and value and isinstance(value[0], Computation):
            out[key] = value if all(called[c] is c for c in value) else tuple(called[c] for c in value)
        else:
            out[key] = value
    return MappingProxyType(out) if any(out[key] is not value for key, value in old.attrs.items()) else old.attrs


def _fusion(
    group: _FusionGroup, position: Mapping[Instruction, int], new: Mapping[Instruction, Instruction]
) -> Instruction:
    """The fusion instruction of a group, its computation built from clones of the members."""
    members = sorted(group.space, key=position.__getitem__)
    inner: dict[Instruction, Instruction] = {}
    outside: list[Instruction] = []
    body: list[Instruction] = []

    def value(o: Instruction) -> Instruction:
        if o not in inner:
            attrs = MappingProxyType({"index": len(outside)})
            inner[o] = Instruction("parameter", o.shape, (), attrs, name=f"p{len(outside)}")
            outside.append(o)
            body.append(inner[o])
        return inner[o]

    for m in members:
        inner[m] = m.replace(operands=tuple(value(o) for o in m.operands), sharding=None)
        body.append(inner[m])
    kind = "kInput" if group.reductions else "kLoop"
    name = f"fused_{group.root.opcode.replace('-', '_')}"
    computation = Computation(name, body, inner[group.root])
    root = group.root
    return Instruction(
        "fusion",
        root.shape,
        (new[o] for o in outside),
        MappingProxyType({"kind": kind, "calls": computation}),
        name=name,
        metadata=root.metadata,
        origin=root.origin,
    )
