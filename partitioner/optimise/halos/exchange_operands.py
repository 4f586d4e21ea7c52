"""Of values that neighbours need, those are sent that cost the fewest bytes; the others are computed of them.

``roll(a * b) + roll(a) + roll(b)`` needs a row of three arrays, of which one is the product of the other two: two rows
are sent, and whoever gets them multiplies. Each value that is asked for is either sent or computed of operands that are
there, so the cheapest choice is a minimum cut between what is asked for and what cannot be computed.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from shardc.hlo.ir.groups import AxisPairs
from shardc.hlo.ir.ir import (
    Computation,
    Instruction,
    Module,
    called_computations,
    has_side_effect,
    rebuild_computation,
    rebuild_computations,
)
from shardc.hlo.ir.opset import OPS
from shardc.hlo.ir.sharding import DimSharding, Sharding
from shardc.hlo.ir.types import array_shape
from shardc.partitioner.emit.emitter import Emitter, Reducers
from shardc.partitioner.emit.layout import AxisTable
from shardc.partitioner.emit.names import NameSupply
from shardc.partitioner.optimise.combine_collectives import joined_origin
from shardc.partitioner.optimise.halos.boxes import Box, cut_box, hull, is_slice, join_boxes, moved, size_of, whole
from shardc.partitioner.optimise.halos.minimum_cut import FlowNetwork
from shardc.partitioner.optimise.keep_root import with_root_sharding
from shardc.partitioner.optimise.varying import Axes, varying
from shardc.partitioner.reshard.halo import by_position

__all__ = ["ExchangeOperands"]

#: Bytes come first, then elements that are computed twice.
_BYTE = 1 << 32
_NEVER = 1 << 80


@dataclass(frozen=True, slots=True)
class ExchangeOperands:
    """Permutes between the same devices of values that are computed, element by element, of what is sent as well."""

    name: str = "exchange-operands"
    why: str = "sending operands can cost less than sending their result"
    looks_at: ClassVar[frozenset[str]] = frozenset({"collective-permute"})

    def run(self, module: Module) -> Module:
        groups = {c: g for c in module.computations if (g := _groups(c))}
        if not groups or module.mesh is None:
            return module
        differ = varying(module)
        names = NameSupply(i.name for i in module.instructions())
        chosen: dict[Computation, dict[Instruction, _Exchange]] = {}
        for c, found in groups.items():
            exchanges = (_choose(_Exchange(c, members, differ, names)) for members in found)
            chosen[c] = {p: e for e in exchanges if e is not None for p in e.permutes}

        def rebuilt(c: Computation, called: Mapping[Computation, Computation]) -> Computation:
            mine = chosen.get(c, {})

            def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
                return mine[old].received(old, operands[0]) if old in mine else None

            return rebuild_computation(c, change if mine else None, called, {"collective-permute"})

        return with_root_sharding(rebuild_computations(module, rebuilt), module.entry.root.sharding)


def _groups(computation: Computation) -> list[list[Instruction]]:
    """Permutes between the same devices, where some send what is computed."""
    found: dict[object, list[Instruction]] = {}
    for i in computation:
        pairs = i.attrs.get("source_target_pairs") if i.opcode == "collective-permute" else None
        if isinstance(pairs, AxisPairs) and len(i.operands) == 1 and i.shape.size:
            found.setdefault((pairs, bool(i.attrs.get("channel_id"))), []).append(i)
    return [g for g in found.values() if any(_is_computed(_source(p.operands[0])) for p in g)]


def _source(x: Instruction) -> Instruction:
    while is_slice(x):
        x = x.operands[0]
    return x


def _is_computed(x: Instruction) -> bool:
    """Whether each element is made of one element of each operand."""
    plain = x.shape.is_array and not has_side_effect(x) and not any(called_computations(x))
    return plain and (x.opcode == "broadcast" or OPS[x.opcode].family == "elementwise")


def _operand_boxes(x: Instruction, box: Box) -> list[tuple[Instruction, Box]] | None:
    """What of its operands ``box`` of ``x`` is made of; None where that is not plain to say."""
    if is_slice(x):
        return [(x.operands[0], moved(box, [start for start, _, _ in x.attrs["slice"]]))]
    if not _is_computed(x):
        return None
    if x.opcode == "broadcast":
        return [(x.operands[0], tuple(box[d] for d in x.attrs["dimensions"]))]
    return [(o, box if o.shape.dims else ()) for o in x.operands]


#: A box of a value.
_Part = tuple[Instruction, Box]


@dataclass(slots=True)
class _Exchange:
    """Permutes between the same devices, all the values that they could be computed of, and what is sent."""

    computation: Computation
    permutes: Sequence[Instruction]
    differ: Mapping[Instruction, Sequence[Axes]]
    names: NameSupply
    #: Boxes in which values are needed, operands behind what is computed of them.
    needed: dict[Instruction, list[Box]] = field(default_factory=dict)
    sent: set[_Part] = field(default_factory=set)
    made: dict[_Part, Instruction] = field(default_factory=dict)

    @property
    def pairs(self) -> AxisPairs:
        pairs: AxisPairs = self.permutes[0].attrs["source_target_pairs"]
        return pairs

    def find_needs(self) -> None:
        place = {i: n for n, i in enumerate(self.computation)}
        wanted: dict[Instruction, set[Box]] = {}
        work: list[int] = []

        def need(x: Instruction, box: Box) -> None:
            if x not in wanted:
                wanted[x] = set()
                heapq.heappush(work, -place[x])
            wanted[x].add(box)

        for p in self.permutes:
            need(p.operands[0], whole(p))
        while work:
            x = self.computation.instructions[-heapq.heappop(work)]
            self.needed[x] = join_boxes(sorted(wanted[x]))
            for box in self.needed[x]:
                for o, part in self.operands(x, box):
                    need(o, part)

    def is_everywhere(self, x: Instruction) -> bool:
        """Whether the device that gets ``x`` has the same value itself."""
        axes = {a.name for a in self.pairs.axes}
        return x in self.differ and axes.isdisjoint(*self.differ[x])

    def operands(self, x: Instruction, box: Box) -> list[_Part]:
        """What ``box`` of ``x`` can be computed of; empty where it cannot, or need not."""
        return [] if self.is_everywhere(x) else _operand_boxes(x, box) or []

    def part(self, x: Instruction, box: Box) -> _Part:
        """The part that is needed and holds ``box``."""
        return x, next(b for b in self.needed[x] if hull([b, box]) == b)

    def bytes_sent(self) -> int:
        return sum(size_of(box) * x.shape.dtype.nbytes for x, box in self.sent)

    def received(self, permute: Instruction, operand: Instruction) -> Instruction:
        """What takes the place of ``permute``, whose operand is now ``operand``."""
        old = permute.operands[0]
        part = self.part(old, whole(old))
        order, now = self._order(part), {old: operand}
        for x, _ in order:
            for o, new in zip(x.operands, now[x].operands, strict=True):
                now.setdefault(o, new)
        for p in reversed(order):
            if p not in self.made:
                self.made[p] = self._make(p, now[p[0]], permute)
        got = self._cut(self.made[part], part, whole(old), permute)
        return got if all(p in self.sent or is_slice(p[0]) for p in order) else self._masked(got, permute)

    def _order(self, part: _Part) -> list[_Part]:
        """What is sent, computed or at hand for ``part``, it first, operands behind what is made of them."""
        seen, order, work = {part}, list[_Part](), [part]
        while work:
            p = work.pop()
            order.append(p)
            for o, box in [] if p in self.sent else self.operands(*p):
                inner = self.part(o, box)
                if inner not in seen:
                    seen.add(inner)
                    work.append(inner)
        place = {x: n for n, x in enumerate(self.needed)}
        return sorted(order, key=lambda p: place[p[0]])

    def _make(self, part: _Part, now: Instruction, like: Instruction) -> Instruction:
        x, box = part
        if part in self.sent:
            cut = cut_box(now, box, like)
            users = [p for p in self.permutes if part in self._order(self.part(p.operands[0], whole(p)))]
            return like.replace(operands=(cut,), shape=cut.shape.plain, origin=joined_origin(users))
        operands = self.operands(x, box)
        if not operands:
            return cut_box(now, box, like)
        got = [self._cut(self.made[self.part(o, b)], self.part(o, b), b, like) for o, b in operands]
        if x.opcode == "slice":
            return got[0]
        dims = tuple(high - low for low, high in box)
        return x.replace(operands=tuple(got), shape=x.shape.plain.with_dims(dims))

    def _cut(self, made: Instruction, part: _Part, box: Box, like: Instruction) -> Instruction:
        return cut_box(made, moved(box, [-low for low, _ in part[1]]), like)

    def _masked(self, x: Instruction, like: Instruction) -> Instruction:
        """``x`` on devices that somebody sends to; the others get zeros, as they would from a permute."""
        targets, pairs = {t for _, t in self.pairs.pairs}, self.pairs
        if len(targets) == pairs.group_size:
            return x
        table = AxisTable(pairs.mesh, [Sharding(pairs.mesh, (DimSharding(pairs.axes),))])
        em = Emitter(table, Reducers(), self.names)
        em.metadata, em.origin = like.metadata, like.origin
        got = by_position(em, table.atoms(pairs.axes), {i: int(i in targets) for i in range(pairs.group_size)})
        mask = em.add("compare", array_shape("pred"), got, em.index(1), direction="EQ")
        zero = em.splat(em.zero(x.shape.dtype), x.shape.dims)
        return em.select(em.splat(mask, x.shape.dims), x, zero)


def _choose(exchange: _Exchange) -> _Exchange | None:
    """With what is sent for the fewest bytes; None where the permutes as they are send no more."""
    exchange.find_needs()
    network = FlowNetwork()
    asked, given = network.add_node(), network.add_node()
    parts = [(x, b) for x, boxes in exchange.needed.items() for b in boxes]
    nodes = {p: (network.add_node(), network.add_node()) for p in parts if not exchange.is_everywhere(p[0])}
    for (x, box), (wanted, computed) in nodes.items():
        network.connect(wanted, computed, size_of(box) * x.shape.dtype.nbytes * _BYTE)
        operands = exchange.operands(x, box)
        network.connect(computed, given, (0 if is_slice(x) else size_of(box)) if operands else _NEVER)
        for p in (exchange.part(*o) for o in operands):
            if p in nodes:
                network.connect(computed, nodes[p][0], _NEVER)
    for p in (exchange.part(i.operands[0], whole(i)) for i in exchange.permutes):
        if p in nodes:
            network.connect(asked, nodes[p][0], _NEVER)
    near = network.cut(asked, given)
    exchange.sent = {part for part, (wanted, computed) in nodes.items() if wanted in near and computed not in near}
    return exchange if exchange.bytes_sent() < _bytes_now(exchange.permutes) else None


def _bytes_now(permutes: Sequence[Instruction]) -> int:
    """What permutes send, overlaps once."""
    parts: dict[Instruction, list[Box]] = {}
    for p in permutes:
        x, box = p.operands[0], whole(p)
        while is_slice(x):
            box = moved(box, [start for start, _, _ in x.attrs["slice"]])
            x = x.operands[0]
        parts.setdefault(x, []).append(box)
    return sum(size_of(b) * x.shape.dtype.nbytes for x, boxes in parts.items() for b in join_boxes(boxes))
